// GRPO, Dr. GRPO and BNPO: each answer alone, a clipped ratio for each of its tokens.
#ifndef OP_OBJECTIVE_GRPO_H
#define OP_OBJECTIVE_GRPO_H

#include "op/objective/rule.h"

// The loss of one token. *slope: with respect to its log-probability.
static inline DEVICE_CODE double objective_grpo_token(const op_objective_attrs *a, double logp,
                                                      const double *given, double *m, double *slope)
{
    const double ratio = exp(logp - given[GIVEN_OLD]), advantage = given[GIVEN_ADVANTAGE];
    const double bound = fmin(fmax(ratio, 1.0 - (double)a->low), 1.0 + (double)a->high);
    const bool is_clipped = bound * advantage < ratio * advantage;
    double loss = -(is_clipped ? bound : ratio) * advantage;
    *slope = is_clipped ? 0.0 : -ratio * advantage;
    if (a->kl > 0.0F) {
        const double gap = given[GIVEN_REFERENCE] - logp, kl = expm1(gap) - gap;
        loss += (double)a->kl * kl;
        *slope -= (double)a->kl * expm1(gap);
        m[MEASURE_FIRST] = kl;
    }
    m[MEASURE_SECOND] = is_clipped ? 1.0 : 0.0;
    m[MEASURE_CORRECT] = fabs(ratio - 1.0);
    m[MEASURE_COUNT] = 1.0;
    return loss;
}

static inline DEVICE_CODE void objective_grpo_answers(const op_objective_attrs *a,
                                                      const op_objective_sequence *s)
{
    objective_answer one;
    for (int64_t at = 0; objective_next(s, at, &one); at = one.end) {
        if (one.first < 0) continue;
        const bool alone = a->form == FORM_BNPO;
        const double share =
            alone ? 1.0 : 1.0 / (a->form == FORM_DR_GRPO ? (double)a->length : one.count);
        if (!alone) s->units[one.first] = 1;
        for (int64_t t = one.begin; t < one.end; t++) {
            double slope = 0.0;
            if (!objective_has_label(s, t)) continue;
            if (alone) s->units[t] = 1;
            s->losses[alone ? t : one.first] +=
                share * objective_grpo_token(a, -s->token_loss[t], s->given + t * GIVEN_COLUMNS,
                                             s->measures + t * MEASURE_COLUMNS, &slope);
            s->slopes[t] = -share * slope;
        }
    }
}

#endif
