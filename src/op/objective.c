// OBJECTIVE: its row, and the losses of a sequence (op/objective.h), which all backends share.
//
// A rule sees the answers of a pair and gives the loss and its derivative with respect to S, the
// log-probability of each answer. Every token of an answer has that slope, because S is a sum over
// them.
#include "op/op_internal.h"

#include <math.h>
#include <string.h>

typedef struct answer {
    int64_t begin, end, first; // rows; the first row with a label, -1: none
    double count;              // labels
    double sum, reference;     // S, R
} answer;

typedef struct verdict {
    double loss, d_sum[2]; // of both answers
    double first, second, correct;
} verdict;

static double log_sigmoid(double x)
{
    return x > 0.0 ? -log1p(exp(-x)) : x - log1p(exp(x));
}

static double sigmoid(double x)
{
    return exp(log_sigmoid(x));
}

static bool next_answer(const op_objective_sequence *s, int64_t at, answer *out)
{
    *out = (answer){.begin = at, .end = at, .first = -1};
    if (at >= s->rows) return false;
    out->reference = s->given[at * GIVEN_COLUMNS + GIVEN_REFERENCE];
    for (; out->end < s->rows && s->documents[out->end] == s->documents[at]; out->end++) {
        if (s->labels[out->end] < 0) continue;
        if (out->first < 0) out->first = out->end;
        out->count += 1.0;
        out->sum -= s->token_loss[out->end];
    }
    return true;
}

static void rewards(const op_objective_attrs *a, const answer *two, verdict *v)
{
    v->first = (double)a->beta * (two[0].sum - two[0].reference);
    v->second = (double)a->beta * (two[1].sum - two[1].reference);
    v->correct = v->first > v->second ? 1.0 : v->first == v->second ? 0.5 : 0.0;
}

static void dpo(const op_objective_attrs *a, const answer *two, double z, verdict *v)
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
        v->loss = (-(1.0 - e) * log_sigmoid(x) + e * log_sigmoid(-x)) / (1.0 - 2.0 * e);
        slope = b * (-(1.0 - e) * sigmoid(-x) - e * sigmoid(x)) / (1.0 - 2.0 * e);
    } else {
        v->loss = -(1.0 - e) * log_sigmoid(x) - e * log_sigmoid(-x);
        slope = b * (-(1.0 - e) * sigmoid(-x) + e * sigmoid(x));
    }
    v->d_sum[0] = slope * per[0];
    v->d_sum[1] = -slope * per[1];
    rewards(a, two, v);
}

// 1 - e^m, kept off 0: a mean of 0 is a certain answer, whose odds have no bound.
static double rest_of(double mean)
{
    return fmax(-expm1(mean), 1e-12);
}

static void orpo(const op_objective_attrs *a, const answer *two, double z, verdict *v)
{
    (void)z;
    const double b = (double)a->beta;
    const double m[2] = {two[0].sum / two[0].count, two[1].sum / two[1].count};
    const double rest[2] = {rest_of(m[0]), rest_of(m[1])};
    const double odds = (m[0] - log(rest[0])) - (m[1] - log(rest[1]));
    const double push = b * sigmoid(-odds);
    v->loss = -m[0] - b * log_sigmoid(odds);
    v->d_sum[0] = (-1.0 - push / rest[0]) / two[0].count;
    v->d_sum[1] = push / rest[1] / two[1].count;
    v->first = b * m[0];
    v->second = b * m[1];
    v->correct = v->first > v->second ? 1.0 : v->first == v->second ? 0.5 : 0.0;
}

static void kto(const op_objective_attrs *a, const answer *two, double z, verdict *v)
{
    const double b = (double)a->beta, reward = two[0].sum - two[0].reference;
    const bool is_wanted = v->correct > 0.0;
    const double weight = (double)(is_wanted ? a->wanted : a->unwanted);
    const double x = is_wanted ? b * (reward - z) : b * (z - reward);
    const double slope = weight * b * sigmoid(x) * sigmoid(-x);
    v->loss = weight * (1.0 - sigmoid(x));
    v->d_sum[0] = is_wanted ? -slope : slope;
    v->d_sum[1] = 0.0;
    v->first = is_wanted ? b * reward : 0.0;
    v->second = is_wanted ? 0.0 : b * reward;
}

typedef void (*pair_rule)(const op_objective_attrs *a, const answer *two, double z, verdict *v);
static const pair_rule pair_rules[OBJECTIVE_KIND_COUNT] = {
    [OBJECTIVE_DPO] = dpo, [OBJECTIVE_ORPO] = orpo, [OBJECTIVE_KTO] = kto};

// The rows of a pair that has both answers are the unit's; other documents have no loss.
static bool next_pair(const op_objective_sequence *s, int64_t *at, answer two[2])
{
    while (next_answer(s, *at, &two[0])) {
        const bool any = next_answer(s, two[0].end, &two[1]);
        *at = any ? two[1].end : two[0].end;
        if (any && two[0].first >= 0 && two[1].first >= 0) return true;
    }
    return false;
}

// KTO's reference point: the mean of S - R of the second answers.
static double shift_of(const op_objective_sequence *s)
{
    answer two[2];
    double sum = 0.0;
    int64_t count = 0;
    for (int64_t at = 0; next_pair(s, &at, two); count++) sum += two[1].sum - two[1].reference;
    return count > 0 ? fmax(0.0, sum / (double)count) : 0.0;
}

static void pairs(const op_objective_attrs *a, const op_objective_sequence *s)
{
    answer two[2];
    const double z = a->kind == OBJECTIVE_KTO ? shift_of(s) : 0.0;
    for (int64_t at = 0; next_pair(s, &at, two);) {
        const int64_t row = two[0].first;
        verdict v = {
            .correct = s->given[two[0].begin * GIVEN_COLUMNS + GIVEN_ADVANTAGE] > 0.0 ? 1.0 : 0.0};
        double *m = s->measures + row * MEASURE_COLUMNS;
        pair_rules[a->kind](a, two, z, &v);
        s->units[row] = 1;
        s->losses[row] = v.loss;
        m[MEASURE_FIRST] = v.first;
        m[MEASURE_SECOND] = v.second;
        m[MEASURE_CORRECT] = v.correct;
        m[MEASURE_COUNT] = 1.0;
        for (int i = 0; i < 2; i++) {
            for (int64_t t = two[i].begin; t < two[i].end; t++) {
                if (s->labels[t] >= 0) s->slopes[t] = -v.d_sum[i];
            }
        }
    }
}

// The loss of one token. *slope: with respect to its log-probability.
static double token(const op_objective_attrs *a, double logp, const double *given, double *m,
                    double *slope)
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

static void answers(const op_objective_attrs *a, const op_objective_sequence *s)
{
    answer one;
    for (int64_t at = 0; next_answer(s, at, &one); at = one.end) {
        if (one.first < 0) continue;
        const bool alone = a->form == FORM_BNPO;
        const double share =
            alone ? 1.0 : 1.0 / (a->form == FORM_DR_GRPO ? (double)a->length : one.count);
        if (!alone) s->units[one.first] = 1;
        for (int64_t t = one.begin; t < one.end; t++) {
            double slope = 0.0;
            if (s->labels[t] < 0) continue;
            if (alone) s->units[t] = 1;
            s->losses[alone ? t : one.first] +=
                share * token(a, -s->token_loss[t], s->given + t * GIVEN_COLUMNS,
                              s->measures + t * MEASURE_COLUMNS, &slope);
            s->slopes[t] = -share * slope;
        }
    }
}

void op_objective_compute(const op_objective_attrs *attrs, const op_objective_sequence *s)
{
    ASSERT(attrs->kind > OBJECTIVE_NONE && attrs->kind < OBJECTIVE_KIND_COUNT);
    for (int64_t t = 0; t < s->rows; t++) {
        s->losses[t] = s->slopes[t] = 0.0;
        s->units[t] = -1;
    }
    memset(s->measures, 0, (size_t)(s->rows * MEASURE_COLUMNS) * sizeof(double));
    if (pair_rules[attrs->kind] != NULL) {
        pairs(attrs, s);
    } else {
        answers(attrs, s);
    }
}

int64_t op_objective_bytes(int64_t rows)
{
    const int64_t doubles = 3 + GIVEN_COLUMNS + MEASURE_COLUMNS;
    return rows * (doubles * (int64_t)sizeof(double) + 3 * (int64_t)sizeof(int32_t));
}

// ---- the row ------------------------------------------------------------------------------------

static status objective_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    const op_objective_attrs *a = &node->attrs.objective;
    TRY(op_shapes_in(p, node, &shapes));
    int64_t given = 0;
    TRY(op_shapes_constant(node, &shapes, 'K', &given));
    if (given != GIVEN_COLUMNS || a->kind <= OBJECTIVE_NONE || a->kind >= OBJECTIVE_KIND_COUNT) {
        return fail(ST_MODEL, "objective: kind %d with %lld columns, expected 1 to %d with %d",
                    (int)a->kind, (long long)given, OBJECTIVE_KIND_COUNT - 1, (int)GIVEN_COLUMNS);
    }
    op_shapes_bind(&shapes, 'M', extent_of(MEASURE_COLUMNS));
    return op_shapes_out(p, node, wanted, &shapes);
}

static op_cost objective_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 20.0);
}

static void objective_check(const op_facts *f)
{
    op_check_sequences(f);
    ASSERT(op_fact(f, 'K') == GIVEN_COLUMNS && op_fact(f, 'M') == MEASURE_COLUMNS);
}

const op_kind op_row_objective = {
    .code = OP_OBJECTIVE,
    .name = "objective",
    .in = "sN iN iN sNK",
    .out = "sN iN sNM sN",
    .made = "losses units measures slopes",
    .optional_out = 1u << 3,
    .cost_class = COST_MEMORY,
    .inplace = {-1, -1, -1, -1},
    .infer = objective_infer,
    .place = op_place_replicate,
    .cost = objective_cost,
    .check = objective_check,
};
