// Batches of completions that were drawn ahead of the step that trains on them (rollout.staleness):
// whole batches, the same on all ranks, from the last finished step on.
//
//   step     4          5          6          7
//   queue    in use     drawn      drawn      is drawn now, with the weights of step 4's beginning
//
// A checkpoint holds the batches behind its step, because the weights that drew them are gone. They
// are of sequences of the run, so a run goes on in another layout.
#ifndef TRAIN_ROLLOUT_AHEAD_H
#define TRAIN_ROLLOUT_AHEAD_H

#include "base/format/json.h"
#include "base/text.h"

typedef struct rollout_batch {
    int64_t step, count; // sequences
    double *rewards;     // [count]
    int32_t *prompts;    // [count] the number of each one's prompt
    int32_t *lengths;    // [count] tokens of each
    int32_t *ended;      // [count] 1: its last token is an end
    int32_t *ids;        // [count][tokens]
    float *losses;       // the same: minus the log-probability of each when it was drawn
} rollout_batch;

typedef struct rollout_ahead {
    rollout_batch *batches; // [capacity]
    int64_t capacity, rows, tokens, prompts;
    int64_t last; // step of the batch that was drawn last; 0: none
} rollout_ahead;

// Allocates in `a` for the other numbers, which the caller has set: at most `rows` sequences of
// `tokens` tokens, of so many prompts.
NODISCARD status rollout_ahead_init(arena *a, rollout_ahead *q);
// The batch of a step; that of the step `capacity` before is gone.
rollout_batch *rollout_ahead_at(const rollout_ahead *q, int64_t step);
// The batches behind `step` as JSON.
NODISCARD status rollout_ahead_print(const rollout_ahead *q, int64_t step, text *out);
// Reads them back. `path` is for messages.
NODISCARD status rollout_ahead_read(rollout_ahead *q, int64_t step, const json *root,
                                    const char *path);

#endif
