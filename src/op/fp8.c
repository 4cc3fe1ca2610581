// Histories of the factors of products in 8 bits (op/fp8.h).
//
//   FP8_COUNTS   dy(N,M) x(N,K) w(M,K)     -> += counts(3,64): a call adds 1 to the columns up to
//                                             that of the largest magnitude of x, w and dy
//   FP8_HISTORY  counts(3,64) steps(3,64)  -> steps: attrs.fp8_steps where something was
//                                             counted, else one less
//
// The columns below the largest one count too, so the sum over any cut of the operands is positive
// in the same columns. The update looks at one number at a time.
#include "op/op_internal.h"

static status counts_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    op_shapes_bind(&shapes, 'T', extent_of(FP8_OPERANDS));
    op_shapes_bind(&shapes, 'J', extent_of(FP8_COLUMNS));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void counts_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "00r:p", "1r0:p", "r11:p");
}

static op_cost counts_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 1.0);
}

static void counts_check(const op_facts *f)
{
    ASSERT(op_fact(f, 'T') == FP8_OPERANDS && op_fact(f, 'J') == FP8_COLUMNS);
}

const op_kind op_row_fp8_counts = {
    .code = OP_FP8_COUNTS,
    .name = "fp8_counts",
    .in = "fNM fNK fMK",
    .out = "gTJ",
    .made = "counts",
    .accumulates = 1u,
    .grad_of = GRAD_OF_WEIGHT,
    .inplace = {-1, -1, -1, -1},
    .infer = counts_infer,
    .place = counts_place,
    .cost = counts_cost,
    .check = counts_check,
};

static status history_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_states_in_place(node, 1);
    return op_infer_signature(p, node, wanted);
}

const op_kind op_row_fp8_history = {
    .code = OP_FP8_HISTORY,
    .name = "fp8_history",
    .in = "f* f*",
    .out = "f*",
    .made = "steps",
    .takes_grad = true,
    .updates_state = true,
    .step_reads = STEP_FIELD_HOST | STEP_FIELD_DECIDED,
    .inplace = {-1, -1, -1, -1},
    .infer = history_infer,
    .place = op_place_update,
    .cost = counts_cost,
};
