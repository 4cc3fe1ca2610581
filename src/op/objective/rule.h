// Functions that the rules of objectives share. The folder has a file for each rule, all headers,
// because kernels of GPUs are made from the same text.
//
// A rule of pairs sees both answers and gives the loss and its derivative with respect to S, the
// log-probability of each answer; every token of an answer has that slope, because S is a sum over
// them. Another rule fills a sequence itself. v->correct is 1 if the first answer is wanted, before
// the rule sets it. To add one: a file, its calls in rules.h, and a row in config/objectives.h.
#ifndef OP_OBJECTIVE_RULE_H
#define OP_OBJECTIVE_RULE_H

#include "op/objective.h"

#include <math.h>
#include <string.h>

typedef struct objective_answer {
    int64_t begin, end, first; // rows; the first row with a label, -1: none
    double count;              // labels
    double sum, reference;     // S, R
} objective_answer;

typedef struct objective_verdict {
    double loss, d_sum[2]; // of both answers
    double first, second, correct;
} objective_verdict;

static inline DEVICE_CODE bool objective_has_label(const op_objective_sequence *s, int64_t row)
{
    return s->given[row * GIVEN_COLUMNS + GIVEN_LABEL] > 0.0;
}

static inline DEVICE_CODE double objective_log_sigmoid(double x)
{
    return x > 0.0 ? -log1p(exp(-x)) : x - log1p(exp(x));
}

static inline DEVICE_CODE double objective_sigmoid(double x)
{
    return exp(objective_log_sigmoid(x));
}

// The answer whose document begins at row `at`; false: there is none.
static inline DEVICE_CODE bool objective_next(const op_objective_sequence *s, int64_t at,
                                              objective_answer *out)
{
    out->begin = out->end = at;
    out->first = -1;
    out->count = out->sum = out->reference = 0.0;
    if (at >= s->rows) return false;
    out->reference = s->given[at * GIVEN_COLUMNS + GIVEN_REFERENCE];
    for (; out->end < s->rows && s->documents[out->end] == s->documents[at]; out->end++) {
        if (!objective_has_label(s, out->end)) continue;
        if (out->first < 0) out->first = out->end;
        out->count += 1.0;
        out->sum -= s->token_loss[out->end];
    }
    return true;
}

// Says of first and second which is the higher.
static inline DEVICE_CODE void objective_compare(objective_verdict *v)
{
    v->correct = v->first > v->second ? 1.0 : v->first == v->second ? 0.5 : 0.0;
}

// The rewards b (S - R) of a pair, and which is the higher.
static inline DEVICE_CODE void objective_rewards(const op_objective_attrs *a,
                                                 const objective_answer *two, objective_verdict *v)
{
    v->first = (double)a->beta * (two[0].sum - two[0].reference);
    v->second = (double)a->beta * (two[1].sum - two[1].reference);
    objective_compare(v);
}

// The next pair from row *at on whose first answer has labels; other documents have no loss.
static inline DEVICE_CODE bool objective_next_pair(const op_objective_sequence *s, int64_t *at,
                                                   objective_answer two[2])
{
    while (objective_next(s, *at, &two[0])) {
        const bool any = objective_next(s, two[0].end, &two[1]);
        *at = any ? two[1].end : two[0].end;
        if (any && two[0].first >= 0) return true;
    }
    return false;
}

#endif
