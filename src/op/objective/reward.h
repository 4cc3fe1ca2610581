// Reward models: the chosen answer is to have the higher score (Bradley and Terry).
#ifndef OP_OBJECTIVE_REWARD_H
#define OP_OBJECTIVE_REWARD_H

#include "op/objective/rule.h"

static inline DEVICE_CODE void objective_reward_pair(const op_objective_attrs *a,
                                                     const objective_answer *two, double z,
                                                     objective_verdict *v)
{
    (void)a;
    (void)z;
    const double gap = two[0].sum - two[1].sum;
    const double slope = -objective_sigmoid(-gap);
    v->loss = -objective_log_sigmoid(gap);
    v->d_sum[0] = slope;
    v->d_sum[1] = -slope;
    v->first = two[0].sum;
    v->second = two[1].sum;
    objective_compare(v);
}

#endif
