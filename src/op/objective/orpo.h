// ORPO: the likelihood of the chosen answer and the odds of both.
#ifndef OP_OBJECTIVE_ORPO_H
#define OP_OBJECTIVE_ORPO_H

#include "op/objective/rule.h"

// 1 - e^m, kept off 0: a mean of 0 is a certain answer, whose odds have no bound.
static inline DEVICE_CODE double objective_rest(double mean)
{
    return fmax(-expm1(mean), 1e-12);
}

static inline DEVICE_CODE void objective_orpo_pair(const op_objective_attrs *a,
                                                   const objective_answer *two, double z,
                                                   objective_verdict *v)
{
    (void)z;
    const double b = (double)a->beta;
    const double m[2] = {two[0].sum / two[0].count, two[1].sum / two[1].count};
    const double rest[2] = {objective_rest(m[0]), objective_rest(m[1])};
    const double odds = (m[0] - log(rest[0])) - (m[1] - log(rest[1]));
    const double push = b * objective_sigmoid(-odds);
    v->loss = -m[0] - b * objective_log_sigmoid(odds);
    v->d_sum[0] = (-1.0 - push / rest[0]) / two[0].count;
    v->d_sum[1] = push / rest[1] / two[1].count;
    v->first = b * m[0];
    v->second = b * m[1];
    objective_compare(v);
}

#endif
