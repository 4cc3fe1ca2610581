// Reward models: the chosen answer is to have the higher score (Bradley and Terry).
#include "op/objective/rule.h"

static void pair(const op_objective_attrs *a, const objective_answer *two, double z,
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
    v->correct = gap > 0.0 ? 1.0 : gap == 0.0 ? 0.5 : 0.0;
}

const objective_rule objective_reward = {.pair = pair};
