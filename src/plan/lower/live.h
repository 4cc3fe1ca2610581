// Live intervals of the plan's transient tensors, derived from its finished list of actions.
#ifndef PLAN_LOWER_LIVE_H
#define PLAN_LOWER_LIVE_H

#include "plan/plan_internal.h"

typedef struct live_input {
    const plan *p;
    const int64_t *begins; // [action + 1] when it begins: nodes on the compute stream before it
    // [micro-batch] true if it repeats the intervals of the one before, so they are not recorded;
    // NULL: none does.
    const bool *repeats;
    const int32_t *kept; // transient tensors that outlive the step
    int64_t kept_count;
} live_input;

// Fills `out`, except its arena.
NODISCARD status plan_live(const live_input *in, lifetime_table *out);

// Extends (or begins) the interval of transient tensor `row` at time `now`.
NODISCARD status lifetime_touch(lifetime_table *t, int64_t row, int64_t time);
void lifetime_close(lifetime_table *t, int64_t row);

#endif
