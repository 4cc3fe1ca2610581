// OBJECTIVE: its row, and the losses of a sequence (op/objective.h), which all backends share. The
// folder objective/ has a file for each rule.
#include "op/objective/rules.h"
#include "op/op_internal.h"

void op_objective_compute(const op_objective_attrs *attrs, const op_objective_sequence *s)
{
    ASSERT(attrs->kind > OBJECTIVE_NONE && attrs->kind < OBJECTIVE_KIND_COUNT);
    objective_sequence(attrs, s);
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
