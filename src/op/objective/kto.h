// KTO: an answer that is wanted or not, against the mean over answers to other prompts.
#ifndef OP_OBJECTIVE_KTO_H
#define OP_OBJECTIVE_KTO_H

#include "op/objective/rule.h"

static inline DEVICE_CODE void objective_kto_pair(const op_objective_attrs *a,
                                                  const objective_answer *two, double z,
                                                  objective_verdict *v)
{
    const double b = (double)a->beta, reward = two[0].sum - two[0].reference;
    const bool is_wanted = v->correct > 0.0;
    const double weight = (double)(is_wanted ? a->wanted : a->unwanted);
    const double x = is_wanted ? b * (reward - z) : b * (z - reward);
    const double slope = weight * b * objective_sigmoid(x) * objective_sigmoid(-x);
    v->loss = weight * (1.0 - objective_sigmoid(x));
    v->d_sum[0] = is_wanted ? -slope : slope;
    v->d_sum[1] = 0.0;
    v->first = is_wanted ? b * reward : 0.0;
    v->second = is_wanted ? 0.0 : b * reward;
}

// KTO's reference point: the mean of S - R of the second answers that have labels.
static inline DEVICE_CODE double objective_kto_shift(const op_objective_sequence *s)
{
    objective_answer two[2];
    double sum = 0.0;
    int64_t count = 0;
    for (int64_t at = 0; objective_next_pair(s, &at, two);) {
        if (two[1].first < 0) continue; // it was left out
        sum += two[1].sum - two[1].reference;
        count++;
    }
    return count > 0 ? fmax(0.0, sum / (double)count) : 0.0;
}

#endif
