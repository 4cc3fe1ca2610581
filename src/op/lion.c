// LION: an update by the sign of an interpolated momentum (Chen et al. 2023, arXiv:2302.06675).
//
//   grad master m [slots: of experts] -> master m [weight: the working copy]
//
//   c = beta1 m + (1 - beta1) g;  master -= lr (sign(c) + decay master);  m = beta2 m + (1 - beta2)
//                                 g
#include "op/op_internal.h"

static status infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_states_in_place(node, 2);
    return op_infer_signature(p, node, wanted);
}

static op_cost cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 9.0);
}

const op_kind op_row_lion = {
    .code = OP_LION,
    .name = "lion",
    .in = "f* f* f* sLE",
    .out = "f* f* f*",
    .made = "master m weight",
    .optional_in = 1u << 3,
    .slots_in = 3,
    .optional_out = 1u << 2,
    .takes_grad = true,
    .updates_state = true,
    .by_element = true,
    .step_reads = STEP_FIELD_HOST | STEP_FIELD_DECIDED,
    .inplace = {-1, -1, -1, -1},
    .infer = infer,
    .place = op_place_update,
    .cost = cost,
};
