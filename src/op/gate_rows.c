// The gate of shared experts: one number for each row, through a sigmoid, and its gradient.
//
//   GATE_ROWS      x(R,F) gate(R,1)   -> y(R,F) = x * sigmoid(gate)
//   GATE_ROWS_BWD  dy x gate          -> dx(R,F) dgate(R,1)
#include "op/op_internal.h"

static void gate_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "00:0", "1r:1", "pr:p");
}

static op_cost gate_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 1.0);
}

static status gate_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    if (!extent_equal(shapes.of['U'], extent_of(1))) {
        return fail(ST_MODEL, "%s: %lld gates for a row, expected 1", op_kind_of(node->code)->name,
                    (long long)shapes.of['U'].scale);
    }
    return op_shapes_out(p, node, wanted, &shapes);
}

static status gate_gradient(op_program *p, const op_node *node)
{
    op_node back = op_node_of(OP_GATE_ROWS_BWD);
    back.attrs = node->attrs;
    back.piece = node->piece;
    back.in[0] = op_grad_get(p, node->out[0]);
    back.in[1] = node->in[0];
    back.in[2] = node->in[1];
    for (int i = 0; i < 2; i++) {
        if (op_wants_grad(p, node->in[i])) TRY(op_grad_new(p, node->in[i], &back.out[i]));
    }
    TRY(op_append(p, OP_BACKWARD_INPUT, &back, 0));
    for (int i = 0; i < 2; i++) {
        if (op_wants_grad(p, node->in[i])) TRY(op_grad_add(p, node->in[i], back.out[i]));
    }
    return ST_OK;
}

static void gate_check(const op_facts *f)
{
    ASSERT(op_fact(f, 'U') == 1);
}

const op_kind op_row_gate_rows = {
    .code = OP_GATE_ROWS,
    .name = "gate_rows",
    .in = "fRF fRU",
    .out = "fRF",
    .made = "y",
    .pointwise = true,
    .inplace = {-1, -1, -1, -1},
    .infer = gate_infer,
    .place = gate_place,
    .cost = gate_cost,
    .gradient = gate_gradient,
    .check = gate_check,
};

static void gate_bwd_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "000:00", "11r:1p");
}

static op_cost gate_bwd_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 3.0);
}

const op_kind op_row_gate_rows_bwd = {
    .code = OP_GATE_ROWS_BWD,
    .name = "gate_rows_bwd",
    .in = "fRF fRF fRU",
    .out = "fRF fRU",
    .made = "dx dgate",
    .pointwise = true,
    .grad_of = GRAD_OF_INPUT,
    .inplace = {-1, -1, -1, -1},
    .infer = gate_infer,
    .place = gate_bwd_place,
    .cost = gate_bwd_cost,
    .check = gate_check,
};
