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

#endif
