// DPO and its relatives: sigmoid, robust, IPO, hinge (op/objective.h has formulas and sources).
#ifndef OP_OBJECTIVE_DPO_H
#define OP_OBJECTIVE_DPO_H

#include "op/objective/rule.h"

static inline DEVICE_CODE void objective_dpo_pair(const op_objective_attrs *a,
                                                  const objective_answer *two, double z,
                                                  objective_verdict *v)
{
    (void)z;
    const double b = (double)a->beta, e = (double)a->smoothing;
    const bool of_means = a->form == FORM_IPO;
    double per[2] = {1.0, 1.0}, h[2];
    for (int i = 0; i < 2; i++) {
        if (of_means) per[i] = 1.0 / two[i].count;
        h[i] = (two[i].sum - two[i].reference) * per[i];
    }
    const double x = b * (h[0] - h[1]);
    double slope = 0.0; // dloss / dh
    if (a->form == FORM_IPO) {
        const double gap = h[0] - h[1] - 1.0 / (2.0 * b);
        v->loss = gap * gap;
        slope = 2.0 * gap;
    } else if (a->form == FORM_HINGE) {
        v->loss = fmax(0.0, 1.0 - x);
        slope = x < 1.0 ? -b : 0.0;
    } else if (a->form == FORM_ROBUST) {
        v->loss = (-(1.0 - e) * objective_log_sigmoid(x) + e * objective_log_sigmoid(-x)) /
                  (1.0 - 2.0 * e);
        slope =
            b * (-(1.0 - e) * objective_sigmoid(-x) - e * objective_sigmoid(x)) / (1.0 - 2.0 * e);
    } else {
        v->loss = -(1.0 - e) * objective_log_sigmoid(x) - e * objective_log_sigmoid(-x);
        slope = b * (-(1.0 - e) * objective_sigmoid(-x) + e * objective_sigmoid(x));
    }
    v->d_sum[0] = slope * per[0];
    v->d_sum[1] = -slope * per[1];
    objective_rewards(a, two, v);
}

#endif
