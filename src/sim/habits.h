// Shared by price.c and habits.c.
#ifndef SIM_HABITS_H
#define SIM_HABITS_H

#include "sim/sim.h"

// The communication of an action that sums gradients aside, once in a step; else NULL.
const plan_comm *sim_step_sum_of(const plan *p, const plan_action *x);
// Times of sums that many layers share: [communication], SIM_ALONE where there is none. *out NULL: no sum is shared.
NODISCARD status sim_habit_buckets(arena *a, const cost_model *m, const cost_group *groups,
                                   const plan *p, int64_t **out);

#endif
