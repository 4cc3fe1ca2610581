// The body of a request, as OpenAI's API defines it, to token ids and settings. Private to this
// folder.
//
// A member that would change the answer and is not supported is refused by name, so a client never
// gets something else than it asked for. Members that only inform (user, metadata) are accepted.
#ifndef SERVE_REQUEST_H
#define SERVE_REQUEST_H

#include "serve/serve.h"

typedef struct serve_request {
    bool chat, stream, usage; // usage: a stream tells the tokens at its end
    int64_t adapter;          // of the model's; -1: none
    data_ids *prompts;        // [prompt]
    int64_t prompt_count;
    int64_t choices;  // of each prompt in the answer
    int64_t drawn;    // sequences of each prompt, of which these are the best
    bool by_majority; // the best are those whose final answer is the most frequent one
    int64_t likely;   // most probable tokens to tell for each token; -1: no probabilities
    int64_t max_tokens;
    infer_sampling sampling; // seed: of the first sequence; each next one has the next seed
    bool seeded;
    const char *stops[SERVE_STOPS_MAX];
    int64_t stop_count;
    int code;           // of HTTP, where reading failed
    const char *member; // that is wrong; NULL: none in particular
} serve_request;

// Everything is in `a` but the ids. The text of an error is in the error record, its code in
// out->code.
NODISCARD status serve_request_read(const serve_model *m, arena *a, bool chat, const char *bytes,
                                    int64_t count, serve_request *out);
void serve_request_deinit(serve_request *r);

#endif
