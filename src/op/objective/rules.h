// The losses of a sequence by any objective (op/objective.h), on CPUs and GPUs.
#ifndef OP_OBJECTIVE_RULES_H
#define OP_OBJECTIVE_RULES_H

#include "op/objective/dpo.h"
#include "op/objective/grpo.h"
#include "op/objective/kto.h"
#include "op/objective/orpo.h"
#include "op/objective/reward.h"

static inline DEVICE_CODE void objective_pair(const op_objective_attrs *a,
                                              const objective_answer *two, double z,
                                              objective_verdict *v)
{
    if (a->kind == OBJECTIVE_DPO) objective_dpo_pair(a, two, z, v);
    if (a->kind == OBJECTIVE_ORPO) objective_orpo_pair(a, two, z, v);
    if (a->kind == OBJECTIVE_KTO) objective_kto_pair(a, two, z, v);
    if (a->kind == OBJECTIVE_REWARD) objective_reward_pair(a, two, z, v);
}

static inline DEVICE_CODE void objective_pairs(const op_objective_attrs *a,
                                               const op_objective_sequence *s)
{
    objective_answer two[2];
    const bool shifts = a->kind == OBJECTIVE_KTO; // then second answers need no labels
    const double z = shifts ? objective_kto_shift(s) : 0.0;
    for (int64_t at = 0; objective_next_pair(s, &at, two);) {
        const int64_t row = two[0].first;
        if (two[1].first < 0 && !shifts) continue;
        objective_verdict v;
        v.loss = v.d_sum[0] = v.d_sum[1] = v.first = v.second = 0.0;
        v.correct = s->given[two[0].begin * GIVEN_COLUMNS + GIVEN_ADVANTAGE] > 0.0 ? 1.0 : 0.0;
        double *m = s->measures + row * MEASURE_COLUMNS;
        objective_pair(a, two, z, &v);
        s->units[row] = 1;
        s->losses[row] = v.loss;
        m[MEASURE_FIRST] = v.first;
        m[MEASURE_SECOND] = v.second;
        m[MEASURE_CORRECT] = v.correct;
        m[MEASURE_COUNT] = 1.0;
        for (int i = 0; i < 2; i++) {
            for (int64_t t = two[i].begin; t < two[i].end; t++) {
                if (objective_has_label(s, t)) s->slopes[t] = -v.d_sum[i];
            }
        }
    }
}

static inline DEVICE_CODE void objective_sequence(const op_objective_attrs *attrs,
                                                  const op_objective_sequence *s)
{
    for (int64_t t = 0; t < s->rows; t++) {
        s->losses[t] = s->slopes[t] = 0.0;
        s->units[t] = -1;
    }
    memset(s->measures, 0, (size_t)(s->rows * MEASURE_COLUMNS) * sizeof(double));
    if (attrs->kind == OBJECTIVE_GRPO) {
        objective_grpo_answers(attrs, s);
    } else {
        objective_pairs(attrs, s);
    }
}

#endif
