// Whether what comes in and what goes out is still what it was: lengths of prompts and answers, how
// likely the model finds its own answers, how many of them refuse.
//
// A window of answers is compared with a reference by the population stability index, the sum over
// buckets of (p - q) ln(p / q) for shares p and q. What chance alone gives, about (buckets - 1) x
// (1 / answers + 1 / answers of the reference), is taken off. Above 0.25, the usual bound for a
// change that matters, it is an alert.
#ifndef SERVE_DRIFT_H
#define SERVE_DRIFT_H

#include "base/text.h"

enum { DRIFT_BUCKETS = 13 };

typedef enum drift_of {
    DRIFT_PROMPT_TOKENS,
    DRIFT_ANSWER_TOKENS,
    DRIFT_NATS,     // the answer's mean -ln p of a token
    DRIFT_REFUSALS, // 0 or 1
    DRIFT_COUNT
} drift_of;
const char *drift_name(drift_of of); // "prompt_tokens", "answer_tokens", "answer_nats", "refusals"

typedef struct drift_window {
    int64_t answers;
    int64_t counts[DRIFT_COUNT][DRIFT_BUCKETS];
} drift_window;

typedef struct drift_answer {
    int64_t prompt_tokens, answer_tokens;
    double nats;
    const char *text; // its first bytes say whether it refuses
    int64_t bytes;
} drift_answer;
void drift_add(drift_window *w, const drift_answer *answer);
// English phrases near the beginning, without regard to case: "I cannot", "I'm sorry", ...
bool drift_is_refusal(const char *bytes, int64_t count);

extern const double drift_alert; // 0.25
// The index without what chance gives; 0 if a window has no answer.
double drift_index(const drift_window *now, const drift_window *reference, drift_of of);

// A window as a JSON file.
NODISCARD status drift_text(const drift_window *w, text *t);
NODISCARD status drift_read(const char *bytes, int64_t count, const char *name, drift_window *out);

#endif
