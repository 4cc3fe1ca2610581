// Lion: the sign of an interpolated momentum. Source: Chen et al. 2023, arXiv:2302.06675, alg. 2.
//
// State per parameter: one moment, and an fp32 master copy if the working copy is narrower. Every
// element moves by the learning rate, so the learning rate is several times smaller than for AdamW,
// and the decay is larger by the same factor.
#include "assemble/optim/optim.h"

static status emit(op_program *p, const op_weight *w, int32_t weight_index, const run_config *r,
                   tensor_id weight, tensor_id grad)
{
    op_node node = assemble_optimizer_node(OP_LION, w, weight_index, r);
    node.attrs.beta1 = (float)r->optimizer.beta1;
    node.attrs.beta2 = (float)r->optimizer.beta2;
    node.in[0] = grad;
    TRY(assemble_optimizer_master(p, w, r, weight, &node.in[1], &node.out[2]));
    TRY(assemble_optimizer_state(p, "m", w, run_config_types(r).moments, &node.in[2]));
    return op_append(p, OP_FORWARD, &node, 0);
}

const assemble_optimizer assemble_optimizer_lion = {.emit = emit};
