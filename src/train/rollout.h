// Draws completions with the plans of a training job (assemble/rollouts.c): the weights are those
// that the job trains, in their place, and several completions run in one batch.
//
//   slot 0   the prompt, all but its last token: computed once for the completions of a group
//   slot 1   copy of the prompt | its last token, and the tokens drawn so far
//   slot 2   the same; a slot whose completion has ended takes the next one at once
//
// With rollout.cache the slots have pages of one pool (exec/pages.h): the prompt is in the pages of
// slot 0, which the others share, and a completion begins when its longest form has its pages.
//
// A completion depends on the weights, its prompt and its seed. In strict order its tokens and
// their log-probabilities have the same bits in any slot, with any number of slots, in any layout.
#ifndef TRAIN_ROLLOUT_H
#define TRAIN_ROLLOUT_H

#include "assemble/assemble.h"
#include "comm/comm.h"

typedef struct train_rollouts train_rollouts;

typedef struct rollout_request {
    const int32_t *prompt; // borrowed; neighbours with the same pointer share its slot
    int64_t count;
    uint64_t seed;
} rollout_request;

typedef struct rollout_answer {
    int32_t *ids;  // [rollout.max_tokens] of the caller
    float *losses; // the same: minus the log-probability of each
    int64_t count;
    bool has_ended; // its last token is one of the ends
} rollout_answer;

typedef struct rollout_ends {
    const int32_t *ids;
    int64_t count;
} rollout_ends;

// ends: tokens after which a completion has ended. together: the ranks whose plans have collectives
// with each other, which is all or none; NULL: none. Keeps all; in `a`.
NODISCARD status train_rollouts_open(arena *a, const assemble_plans *plans, exec *e,
                                     const rollout_ends *ends, comm_group *together,
                                     train_rollouts **out);
// Draws an answer to each request, with the present weights. The executor is idle. stopped: asked
// before each step; true ends the work early, and *whole is false. Ranks of the same data call it
// with the same requests. Collective: of the ranks that draw together.
NODISCARD status train_rollouts_draw(train_rollouts *g, const rollout_request *requests,
                                     rollout_answer *answers, int64_t count,
                                     bool (*stopped)(void *context), void *context, bool *whole);

// Tokens of the pages that were in use at once, the most in the last call; 0: there are no pages.
int64_t train_rollouts_cache_used(const train_rollouts *g);

#endif
