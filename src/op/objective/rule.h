// The rules of objectives, a file each. Private to op/.
//
// A rule of pairs sees both answers and gives the loss and its derivative with respect to S, the
// log-probability of each answer; every token of an answer has that slope, because S is a sum over
// them. Another rule fills a sequence itself. To add one: a file, its declaration here, a row in
// objective.c, and a row in config/objectives.h.
#ifndef OP_OBJECTIVE_RULE_H
#define OP_OBJECTIVE_RULE_H

#include "op/objective.h"

typedef struct objective_answer {
    int64_t begin, end, first; // rows; the first row with a label, -1: none
    double count;              // labels
    double sum, reference;     // S, R
} objective_answer;

typedef struct objective_verdict {
    double loss, d_sum[2]; // of both answers
    double first, second, correct;
} objective_verdict;

typedef struct objective_rule {
    // The loss of a pair. z: what `shift` gave for the sequence. v->correct is 1 if the first
    // answer is wanted, before the rule sets it.
    void (*pair)(const op_objective_attrs *a, const objective_answer *two, double z,
                 objective_verdict *v);
    // NULL: 0, and pairs without labels in their second answer have no loss.
    double (*shift)(const op_objective_sequence *s);
    void (*whole)(const op_objective_attrs *a, const op_objective_sequence *s); // in place of pair
} objective_rule;

extern const objective_rule objective_dpo, objective_orpo, objective_kto, objective_grpo,
    objective_reward;

static inline bool objective_has_label(const op_objective_sequence *s, int64_t row)
{
    return s->given[row * GIVEN_COLUMNS + GIVEN_LABEL] > 0.0;
}

// The answer whose document begins at row `at`; false: there is none.
bool objective_next(const op_objective_sequence *s, int64_t at, objective_answer *out);
// The next pair from row *at on whose first answer has labels; other documents have no loss.
bool objective_next_pair(const op_objective_sequence *s, int64_t *at, objective_answer two[2]);
// The rewards b (S - R) of a pair, and which is the higher.
void objective_rewards(const op_objective_attrs *a, const objective_answer *two,
                       objective_verdict *v);
double objective_log_sigmoid(double x);
double objective_sigmoid(double x);

#endif
