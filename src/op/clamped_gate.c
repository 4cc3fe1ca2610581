// The gate of gpt-oss (OpenAI 2025, arXiv:2508.10925): a SwiGLU of clamped halves, and its
// gradient.
//
//   CLAMPED_GATE      h(N,2F) -> a(N,F) = (1 + u) g sigmoid(attrs.scale g); g = min(h[:, :F], L),
//                     u = h[:, F:] clamped to -L .. L; L = attrs.cap
//   CLAMPED_GATE_BWD  h da    -> dh(N,2F); an element that is clamped gets no gradient
#include "op/op_internal.h"

static status limit_check(const op_node *node)
{
    if (node->attrs.cap > 0.0f && node->attrs.scale > 0.0f) return ST_OK;
    return fail(ST_MODEL, "%s: a limit of %g and a slope of %g, expected more than 0",
                op_kind_of(node->code)->name, (double)node->attrs.cap, (double)node->attrs.scale);
}

static status infer(op_program *p, op_node *node, uint32_t wanted)
{
    TRY(limit_check(node));
    return op_infer_gate(p, node, wanted);
}

static op_cost cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->out[0], 9.0);
}

static status gradient(op_program *p, const op_node *node)
{
    return op_gate_gradient(p, node, OP_CLAMPED_GATE_BWD);
}

const op_kind op_row_clamped_gate = {
    .code = OP_CLAMPED_GATE,
    .name = "clamped_gate",
    .in = "fNC",
    .out = "fNF",
    .made = "a",
    .pointwise = true,
    .composed = true,
    .inplace = {-1, -1, -1, -1},
    .infer = infer,
    .place = op_place_pointwise,
    .cost = cost,
    .gradient = gradient,
    .check = op_check_gate,
};

static status bwd_infer(op_program *p, op_node *node, uint32_t wanted)
{
    TRY(limit_check(node));
    return op_infer_gate_bwd(p, node, wanted);
}

static op_cost bwd_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[1], 15.0);
}

const op_kind op_row_clamped_gate_bwd = {
    .code = OP_CLAMPED_GATE_BWD,
    .name = "clamped_gate_bwd",
    .in = "fNC fNF",
    .out = "fNC",
    .made = "dh",
    .pointwise = true,
    .composed = true,
    .grad_of = GRAD_OF_INPUT,
    .inplace = {-1, -1, -1, -1},
    .infer = bwd_infer,
    .place = op_place_pointwise,
    .cost = bwd_cost,
    .check = op_check_gate,
};

status op_clamped_gate(op_program *p, tensor_id h, float slope, float limit, tensor_id *a)
{
    op_node node = op_node_of(OP_CLAMPED_GATE);
    node.attrs.scale = slope;
    node.attrs.cap = limit;
    node.in[0] = h;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *a = node.out[0];
    return ST_OK;
}
