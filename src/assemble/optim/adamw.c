// AdamW: Adam with decoupled weight decay. Source: Loshchilov & Hutter 2019, arXiv:1711.05101.
//
// State per parameter: first and second moment, and an fp32 master copy where the working copy is
// narrower. Decay acts on two-dim tensors only.
#include "assemble/optim/optim.h"

#include <string.h>

static bool takes(const op_weight *w)
{
    (void)w;
    return true;
}

// An element's number in the whole weight is part of its random counter.
static void piece_attrs(const op_weight *w, op_attrs *attrs)
{
    int64_t begin = 0; // of the part in the whole weight
    attrs->part_count = w->part_count;
    for (int i = 0; i < w->part_count; i++) {
        const weight_piece piece = op_weight_piece(w, i);
        attrs->part_rows[i] = piece.rows;
        attrs->part_first[i] = begin + piece.row;
        attrs->whole_columns = piece.whole_columns;
        attrs->first_column = piece.column;
        begin += piece.whole_rows;
    }
}

static status emit(op_program *p, const op_weight *w, int32_t weight_index, const run_config *r,
                   tensor_id weight, tensor_id grad)
{
    const run_types types = run_config_types(r);
    tensor_id master = weight, m = TENSOR_NONE, v = TENSOR_NONE;
    const bool has_copy = types.has_master && p->tensors[weight].type != DTYPE_F32;
    if (has_copy) TRY(train_optimizer_state(p, "master", w, DTYPE_F32, &master));
    TRY(train_optimizer_state(p, "m", w, types.moments, &m));
    TRY(train_optimizer_state(p, "v", w, types.moments, &v));
    op_node node = {.code = OP_ADAMW,
                    .attrs = {.tensor_index = weight_index,
                              .decay = w->decay,
                              .stochastic = r->optimizer.stochastic_rounding,
                              .beta1 = (float)r->optimizer.beta1,
                              .beta2 = (float)r->optimizer.beta2,
                              .eps = (float)r->optimizer.eps,
                              .weight_decay = (float)r->optimizer.weight_decay,
                              .lr_scale = 1.0f}};
    if (w->ways > 1) piece_attrs(w, &node.attrs);
    memset(node.in, -1, sizeof(node.in));
    memset(node.out, -1, sizeof(node.out));
    node.in[0] = grad;
    node.in[1] = node.out[0] = master;
    node.in[2] = node.out[1] = m;
    node.in[3] = node.out[2] = v;
    if (has_copy) node.out[3] = weight;
    return op_append(p, OP_FORWARD, &node, 0);
}

const train_optimizer train_optimizer_adamw = {.name = "adamw", .takes = takes, .emit = emit};
