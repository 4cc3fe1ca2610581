// A request that the model works on: its sequences and the answer that grows. Private to this
// folder.
#ifndef SERVE_JOB_H
#define SERVE_JOB_H

#include "infer/continuation.h"
#include "serve/serve_internal.h"

typedef enum finish { FINISH_NOT_YET, FINISH_STOP, FINISH_LENGTH } finish;

typedef struct sequence {
    job *owner;
    int64_t index; // the choice's number in the answer
    const data_ids *prompt;
    infer_sampling sampling;
    infer_continuation grown;
    int64_t tokens;       // drawn, without the one that ended the text
    double log_p;         // the sum over all tokens drawn, that one included
    int64_t draws;        // that one included
    infer_likely *likely; // [token][1 + likely] of serve_request; NULL: not asked for
    int64_t told;         // bytes that a stream has sent
    int64_t tokens_told;  // tokens whose probabilities were told
    int64_t chars_told;   // characters of the text of those
    int32_t next;         // drawn last
    int64_t slot;         // -1: it has none
    bool role_told;       // of a stream of chat
    finish why;
} sequence;

struct job {
    job *next;
    arena *a;
    exchange *x;
    serve_request r;
    sequence *sequences;
    int64_t count, begun, over; // sequences: all, those that got a slot, those that ended
    sequence **best;            // [best_count] those of the answer, in its order (job_choose)
    int64_t best_count;
    int64_t created_s;
    int64_t turn;   // as serve.turn
    bool is_broken; // it has its answer, an error
    char id[40];
};

// Reads the request; a wrong one is answered, and *out is then NULL.
NODISCARD status job_create(serve *s, exchange *x, job **out);
void job_destroy(job *j);
// A token was drawn for this sequence. Whatever became certain is sent.
NODISCARD status job_drawn(serve *s, sequence *q, int32_t id);
// All sequences ended. Counts those that are sent in s->seen and s->recent.
NODISCARD status job_end(serve *s, job *j);
// choose.c: takes each prompt's best sequences, and numbers them.
NODISCARD status job_choose(job *j);
// likely.c: tells the probabilities of a choice's tokens that were not told yet, as the API has
// them; "null" without.
NODISCARD status serve_likely_text(const data_tokenizer *t, sequence *q, text *out);
// Answers with the error of the record, and clears it: a request that has no memory left, or whose
// text cannot be made, ends alone.
void job_break(serve *s, job *j);
void job_fail(serve *s, job *j, int code, const char *member, const char *message);

#endif
