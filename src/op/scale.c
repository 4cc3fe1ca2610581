// A factor, and a soft cap, for each element.
//
//   SCALE     x -> y = scale * x
//   SOFT_CAP  x -> y = cap * tanh(x / cap); for logits that are not trained on, so it has no
//             gradient (HEAD_LOSS caps its own)
#include "op/op_internal.h"

static void scale_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    if (op_at(p, node->in[0])->ndim == 2) {
        OP_RULES(rules, count, "0:0", "p:p", "1:1");
    } else {
        OP_RULES(rules, count, "0:0", "p:p");
    }
}

static op_cost scale_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->out[0], 1.0);
}

static status scale_gradient(op_program *p, const op_node *node)
{
    op_node dx = op_node_of(OP_SCALE);
    dx.in[0] = op_grad_get(p, node->out[0]);
    dx.attrs = node->attrs;
    dx.piece = node->piece;
    return op_grad_append(p, &dx, node->in[0]);
}

const op_kind op_row_scale = {
    .code = OP_SCALE,
    .name = "scale",
    .in = "f*",
    .out = "f*",
    .made = "y",
    .pointwise = true,
    .inplace = {0, -1, -1, -1},
    .infer = op_infer_signature,
    .place = scale_place,
    .cost = scale_cost,
    .gradient = scale_gradient,
};

static status cap_infer(op_program *p, op_node *node, uint32_t wanted)
{
    if (!(node->attrs.cap > 0.0f)) {
        return fail(ST_MODEL, "soft_cap: %g, expected more than 0", (double)node->attrs.cap);
    }
    return op_infer_signature(p, node, wanted);
}

static op_cost cap_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->out[0], 10.0);
}

const op_kind op_row_soft_cap = {
    .code = OP_SOFT_CAP,
    .name = "soft_cap",
    .in = "f*",
    .out = "f*",
    .made = "y",
    .pointwise = true,
    .inplace = {0, -1, -1, -1},
    .infer = cap_infer,
    .place = op_place_pointwise,
    .cost = cap_cost,
};

status op_scale(op_program *p, tensor_id x, float factor, tensor_id *y)
{
    op_node node = op_node_of(OP_SCALE);
    node.in[0] = x;
    node.attrs.scale = factor;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}

status op_soft_cap(op_program *p, tensor_id x, float cap, tensor_id *y)
{
    const op_tensor *t = op_at(p, x);
    const dtype type = t->type; // logits stay fp32
    const int ndim = t->ndim;
    const extent rows = t->dims[0], columns = t->dims[1];
    char name[OP_NAME_BYTES];
    op_name_unique(p, "", "soft_cap.y", name);
    op_node node = op_node_of(OP_SOFT_CAP);
    TRY(op_tensor_make(p, name, ROLE_ACTIVATION, type, ndim, rows, columns, &node.out[0]));
    node.in[0] = x;
    node.attrs.cap = cap;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}
