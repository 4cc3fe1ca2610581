// OBJECTIVE: its row, and the losses of a sequence (op/objective.h), which all backends share. The
// folder objective/ has a file for each rule.
#include "op/objective/rule.h"
#include "op/op_internal.h"

#include <math.h>
#include <string.h>

static const objective_rule *const rules[OBJECTIVE_KIND_COUNT] = {
    [OBJECTIVE_DPO] = &objective_dpo,
    [OBJECTIVE_ORPO] = &objective_orpo,
    [OBJECTIVE_KTO] = &objective_kto,
    [OBJECTIVE_GRPO] = &objective_grpo,
    [OBJECTIVE_REWARD] = &objective_reward};

double objective_log_sigmoid(double x)
{
    return x > 0.0 ? -log1p(exp(-x)) : x - log1p(exp(x));
}

double objective_sigmoid(double x)
{
    return exp(objective_log_sigmoid(x));
}

bool objective_next(const op_objective_sequence *s, int64_t at, objective_answer *out)
{
    *out = (objective_answer){.begin = at, .end = at, .first = -1};
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

void objective_rewards(const op_objective_attrs *a, const objective_answer *two,
                       objective_verdict *v)
{
    v->first = (double)a->beta * (two[0].sum - two[0].reference);
    v->second = (double)a->beta * (two[1].sum - two[1].reference);
    v->correct = v->first > v->second ? 1.0 : v->first == v->second ? 0.5 : 0.0;
}

bool objective_next_pair(const op_objective_sequence *s, int64_t *at, objective_answer two[2])
{
    while (objective_next(s, *at, &two[0])) {
        const bool any = objective_next(s, two[0].end, &two[1]);
        *at = any ? two[1].end : two[0].end;
        if (any && two[0].first >= 0) return true;
    }
    return false;
}

static void pairs(const op_objective_attrs *a, const op_objective_sequence *s)
{
    objective_answer two[2];
    const objective_rule *rule = rules[a->kind];
    const double z = rule->shift != NULL ? rule->shift(s) : 0.0;
    for (int64_t at = 0; objective_next_pair(s, &at, two);) {
        const int64_t row = two[0].first;
        if (two[1].first < 0 && rule->shift == NULL) continue;
        objective_verdict v = {
            .correct = s->given[two[0].begin * GIVEN_COLUMNS + GIVEN_ADVANTAGE] > 0.0 ? 1.0 : 0.0};
        double *m = s->measures + row * MEASURE_COLUMNS;
        rule->pair(a, two, z, &v);
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

void op_objective_compute(const op_objective_attrs *attrs, const op_objective_sequence *s)
{
    ASSERT(attrs->kind > OBJECTIVE_NONE && attrs->kind < OBJECTIVE_KIND_COUNT);
    for (int64_t t = 0; t < s->rows; t++) {
        s->losses[t] = s->slopes[t] = 0.0;
        s->units[t] = -1;
    }
    memset(s->measures, 0, (size_t)(s->rows * MEASURE_COLUMNS) * sizeof(double));
    if (rules[attrs->kind]->whole != NULL) {
        rules[attrs->kind]->whole(attrs, s);
    } else {
        pairs(attrs, s);
    }
}

int64_t op_objective_bytes(int64_t rows)
{
    const int64_t doubles = 3 + GIVEN_COLUMNS + MEASURE_COLUMNS;
    return rows * (doubles * (int64_t)sizeof(double) + 2 * (int64_t)sizeof(int32_t));
}

// ---- the row ------------------------------------------------------------------------------------

// With context parallelism the inputs have the rows of all ranks, the outputs those of this one.
static status objective_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    const op_objective_attrs *a = &node->attrs.objective;
    const int32_t ways = node->piece.cp_ways > 1 ? node->piece.cp_ways : 1;
    TRY(op_shapes_in(p, node, &shapes));
    int64_t given = 0;
    TRY(op_shapes_constant(node, &shapes, 'K', &given));
    if (given != GIVEN_COLUMNS || a->kind <= OBJECTIVE_NONE || a->kind >= OBJECTIVE_KIND_COUNT) {
        return fail(ST_MODEL, "objective: kind %d with %lld columns, expected 1 to %d with %d",
                    (int)a->kind, (long long)given, OBJECTIVE_KIND_COUNT - 1, (int)GIVEN_COLUMNS);
    }
    extent rows = op_at(p, node->in[0])->dims[0];
    if (rows.scale % ways != 0 || node->piece.cp_at < 0 || node->piece.cp_at >= ways) {
        return fail(ST_MODEL, "objective: rank %d of %d of rows of %lld ranks",
                    (int)node->piece.cp_at, (int)ways, (long long)rows.scale);
    }
    rows.scale /= ways;
    op_shapes_bind(&shapes, 'N', rows);
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
    ASSERT(op_fact(f, 'A') == op_fact(f, 'N') * max_i64(1, f->piece->cp_ways));
    ASSERT(op_fact(f, 'K') == GIVEN_COLUMNS && op_fact(f, 'M') == MEASURE_COLUMNS);
}

const op_kind op_row_objective = {
    .code = OP_OBJECTIVE,
    .name = "objective",
    .in = "sA iA sAK",
    .out = "sN iN sNM sN",
    .made = "losses units measures slopes",
    .optional_out = 1u << 3,
    .cost_class = COST_MEMORY,
    .kept_always = true, // small, and the losses of tokens below it are as dear as the head
    .inplace = {-1, -1, -1, -1},
    .infer = objective_infer,
    .place = op_place_replicate,
    .cost = objective_cost,
    .check = objective_check,
};
