// AdamW: Adam with decoupled weight decay. Source: Loshchilov & Hutter 2019, arXiv:1711.05101.
//
// State per parameter: first and second moment, and an fp32 master copy where the working copy is
// narrower. Decay acts on two-dim tensors only.
#include "assemble/optim/optim.h"

static status emit(op_program *p, const op_weight *w, int32_t weight_index, const run_config *r,
                   tensor_id weight, tensor_id grad)
{
    const dtype moments = run_config_types(r).moments;
    op_node node = assemble_optimizer_node(OP_ADAMW, w, weight_index, r);
    node.attrs.beta1 = (float)r->optimizer.beta1;
    node.attrs.beta2 = (float)r->optimizer.beta2;
    node.attrs.eps = (float)r->optimizer.eps;
    node.in[0] = grad;
    TRY(assemble_optimizer_master(p, w, r, weight, &node.in[1], &node.out[3]));
    TRY(assemble_optimizer_state(p, "m", w, moments, &node.in[2]));
    TRY(assemble_optimizer_state(p, "v", w, moments, &node.in[3]));
    return op_append(p, OP_FORWARD, &node, 0);
}

const assemble_optimizer assemble_optimizer_adamw = {.emit = emit};
