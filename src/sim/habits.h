// Declarations shared by price.c and habits.c.
#ifndef SIM_HABITS_H
#define SIM_HABITS_H

#include "sim/sim.h"

// The communication of an action that sums gradients once in a step, overlapped with compute; NULL
// for other actions.
const plan_comm *sim_step_sum_of(const plan *p, const plan_action *x);
// Times of sums that many layers share: [communication], SIM_ALONE where a sum is not shared. *out
// is NULL if no sum is shared.
NODISCARD status sim_habit_buckets(arena *a, const cost_model *m, const cost_group *groups,
                                   const plan *p, int64_t **out);

// Whether an action sends rows of experts between GEMMs.
static inline bool sim_is_of_experts(const cost_group *g, const plan_action *x)
{
    return x->stream == STREAM_COMPUTE && traffic_of(g->axes) == TRAFFIC_EP;
}

// Whether no other micro-batch overlaps with an action's messages of experts: [action].
// *out is NULL if the profile does not ask for it (the habit ep_pairs).
NODISCARD status sim_habit_alone(arena *a, const cost_model *m, const plan *p, bool **out);

#endif
