// Settings that a run accepts although they are rarely meant, each with the key to change.
#ifndef TRAIN_ADVICE_H
#define TRAIN_ADVICE_H

#include "base/text.h"
#include "config/run_config.h"

typedef struct train_facts {
    int64_t tokens;  // of the training data; 0: unknown
    int threads;     // of each rank
    int ranks;       // on this host
    int cores;       // of this host
    bool rounds_fp8; // a GPU that multiplies operands in 8 bits in bf16
} train_facts;

// Adds a line for each of them: a warm-up that is longer than the run, very many epochs over one
// text, more threads than cores, a GPU without the wanted products in 8 bits.
NODISCARD status train_advice(const run_config *r, const train_facts *facts, text *lines);

// Tells a learning rate that diverges: losses above that of guessing, ln(vocabulary).
typedef struct train_guessing {
    double limit;         // a loss above it is worse than guessing, and than the first loss
    int64_t steps, above; // seen; in a row above the limit
    bool told;
} train_guessing;
// True once: when this loss makes it clear. `is_last`: no other loss follows.
bool train_guessing_see(train_guessing *g, int64_t vocab, double loss, bool is_last);

#endif
