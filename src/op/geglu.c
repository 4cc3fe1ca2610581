// GEGLU: a feed-forward gate by GELU (Shazeer 2020, arXiv:2002.05202), and its gradient.
//
//   GEGLU      h(N,2F)   -> a(N,F) = gelu(h[:, :F]) * h[:, F:]; attrs.activation: tanh or erf GELU
//   GEGLU_BWD  h da      -> dh(N,2F)
#include "op/op_internal.h"

static status gelu_check(const op_node *node)
{
    const op_activation kind = node->attrs.activation;
    if (kind == ACT_GELU_TANH || kind == ACT_GELU_ERF) return ST_OK;
    return fail(ST_MODEL, "%s: activation %d is no GELU", op_kind_of(node->code)->name, (int)kind);
}

static status infer(op_program *p, op_node *node, uint32_t wanted)
{
    TRY(gelu_check(node));
    return op_infer_gate(p, node, wanted);
}

static op_cost cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->out[0], 11.0);
}

static status gradient(op_program *p, const op_node *node)
{
    return op_gate_gradient(p, node, OP_GEGLU_BWD);
}

const op_kind op_row_geglu = {
    .code = OP_GEGLU,
    .name = "geglu",
    .in = "fNC",
    .out = "fNF",
    .made = "a",
    .pointwise = true,
    .inplace = {-1, -1, -1, -1},
    .infer = infer,
    .place = op_place_pointwise,
    .cost = cost,
    .gradient = gradient,
    .check = op_check_gate,
};

static status bwd_infer(op_program *p, op_node *node, uint32_t wanted)
{
    TRY(gelu_check(node));
    return op_infer_gate_bwd(p, node, wanted);
}

static op_cost bwd_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[1], 24.0);
}

const op_kind op_row_geglu_bwd = {
    .code = OP_GEGLU_BWD,
    .name = "geglu_bwd",
    .in = "fNC fNF",
    .out = "fNC",
    .made = "dh",
    .pointwise = true,
    .grad_of = GRAD_OF_INPUT,
    .inplace = {-1, -1, -1, -1},
    .infer = bwd_infer,
    .place = op_place_pointwise,
    .cost = bwd_cost,
    .check = op_check_gate,
};

status op_geglu(op_program *p, tensor_id h, op_activation gelu, tensor_id *a)
{
    op_node node = op_node_of(OP_GEGLU);
    node.attrs.activation = gelu;
    node.in[0] = h;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *a = node.out[0];
    return ST_OK;
}
