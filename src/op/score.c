// SCORE: the head of a reward model, a number for each row with a label: that of the last token of
// a document. As behind HEAD_LOSS, OBJECTIVE turns the numbers into losses and slopes, and a second
// pass computes the gradients. Where ranks share the rows and their terms of dx are added up, each
// has a number (piece.first_shard), and the terms but for the first are -0.
#include "op/op_internal.h"

static status score_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    int64_t rows = 0;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(op_shapes_constant(node, &shapes, 'W', &rows));
    if (rows != 1) {
        return fail(ST_MODEL, "score: a weight of %lld rows, expected 1", (long long)rows);
    }
    return op_shapes_out(p, node, wanted, &shapes);
}

static op_cost score_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 2.0);
}

static void score_check(const op_facts *f)
{
    ASSERT(op_fact(f, 'W') == 1);
    if (op_has_out(f, 1) || op_has_out(f, 2)) ASSERT(f->loss_divisor > 0.0 && f->has_step);
}

const op_kind op_row_score = {
    .code = OP_SCORE,
    .name = "score",
    .in = "fND fWD iN sN",
    .out = "sN fND gWD",
    .made = "token_loss dx dw",
    .optional_in = 1u << 3,
    .optional_out = 1u << 1 | 1u << 2,
    .accumulates = 1u << 2,
    .cost_class = COST_MEMORY,
    .grad_of = GRAD_OF_WEIGHT,
    .step_reads = STEP_FIELD_LOSS_SCALE,
    .inplace = {-1, -1, -1, -1},
    .infer = score_infer,
    .place = op_place_replicate,
    .cost = score_cost,
    .check = score_check,
};
