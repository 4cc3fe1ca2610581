// The head: product with the vocabulary, softmax and cross-entropy in one, in chunks that never hold
// all the logits. In training one node makes the losses and both gradients, for the logits of a
// chunk are there only once.
#include "op/op_internal.h"

static status head_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, "fND fVD iN", &shapes));
    if (!(node->attrs.z_loss >= 0.0f)) {
        return fail(ST_MODEL, "head_loss: z-loss %g, expected 0 or more",
                    (double)node->attrs.z_loss);
    }
    return op_shapes_out(p, node, wanted, "sN fND gVD", "token_loss dx dw", &shapes);
}

static void head_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0r0:00p");
}

static op_cost head_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const double logits = op_dim(p, node->in[0], 0, bound) * op_dim(p, node->in[1], 0, bound);
    double products = 1.0;
    for (int o = 1; o < 3; o++) products += node->out[o] == TENSOR_NONE ? 0.0 : 1.0;
    op_cost cost = op_cost_bytes(p, node, bound);
    cost.flops = logits * (2.0 * products * op_dim(p, node->in[0], 1, bound) + 6.0);
    return cost;
}

const op_kind op_row_head_loss = {
    .code = OP_HEAD_LOSS,
    .name = "head_loss",
    .in_min = 3,
    .in_max = 3,
    .out_min = 1,
    .out_max = 3,
    .optional_out = 1u << 1 | 1u << 2,
    .accumulates = 1u << 2,
    .is_product = true,
    .inplace = {-1, -1, -1, -1},
    .infer = head_infer,
    .place = head_place,
    .cut = op_cut_nothing,
    .cost = head_cost,
};
