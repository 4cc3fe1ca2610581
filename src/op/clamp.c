// Numbers held within a bound, such as the queries, keys and values of OLMoE (clip_qkv).
//
//   CLAMP      x    -> y: x within -attrs.cap .. attrs.cap
//   CLAMP_BWD  x dy -> dx: dy where x is within them, else 0
#include "op/op_internal.h"

static status infer(op_program *p, op_node *node, uint32_t wanted)
{
    if (!(node->attrs.cap > 0.0f)) {
        return fail(ST_MODEL, "%s: a bound of %g, expected more than 0",
                    op_kind_of(node->code)->name, (double)node->attrs.cap);
    }
    return op_infer_signature(p, node, wanted);
}

static op_cost cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->out[0], 2.0);
}

static status gradient(op_program *p, const op_node *node)
{
    op_node dx = op_node_of(OP_CLAMP_BWD);
    dx.in[0] = node->in[0];
    dx.in[1] = op_grad_get(p, node->out[0]);
    dx.attrs = node->attrs;
    dx.piece = node->piece;
    return op_grad_append(p, &dx, node->in[0]);
}

const op_kind op_row_clamp = {
    .code = OP_CLAMP,
    .name = "clamp",
    .in = "f*",
    .out = "f*",
    .made = "y",
    .pointwise = true,
    .inplace = {0, -1, -1, -1},
    .infer = infer,
    .place = op_place_pointwise,
    .cost = cost,
    .gradient = gradient,
};

const op_kind op_row_clamp_bwd = {
    .code = OP_CLAMP_BWD,
    .name = "clamp_bwd",
    .in = "f* f*",
    .out = "f*",
    .made = "dx",
    .pointwise = true,
    .grad_of = GRAD_OF_INPUT,
    .inplace = {1, -1, -1, -1},
    .infer = infer,
    .place = op_place_pointwise,
    .cost = cost,
};

status op_clamp(op_program *p, tensor_id x, float bound, tensor_id *y)
{
    op_node node = op_node_of(OP_CLAMP);
    node.in[0] = x;
    node.attrs.cap = bound;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}
