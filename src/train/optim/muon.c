// Muon: momentum, orthogonalised by five Newton-Schulz steps. Source: Jordan et al. 2024,
// kellerjordan.github.io/posts/muon; as torch.optim.Muon has it.
//
// Takes two-dim weights but embeddings and head; its unit is the matrix, so the parts of a fused
// weight are orthogonalised apart.
#include "train/optim/optim.h"

#include <string.h>

static bool takes(const op_weight *w)
{
    return w->is_matrix;
}

static status emit(op_program *p, const op_weight *w, int32_t weight_index, const run_config *r,
                   tensor_id weight, tensor_id grad)
{
    const run_types types = run_config_types(r);
    tensor_id master = weight, m = TENSOR_NONE;
    const bool has_copy = types.has_master && p->tensors[weight].type != DTYPE_F32;
    if (has_copy) TRY(train_optimizer_state(p, "master", w, DTYPE_F32, &master));
    TRY(train_optimizer_state(p, "m", w, types.moments, &m));
    op_node node = {.code = OP_MUON,
                    .attrs = {.tensor_index = weight_index,
                              .decay = w->decay,
                              .nesterov = r->optimizer.nesterov,
                              .match_rms = r->optimizer.muon_lr_adjust == RUN_MUON_MATCH_RMS_ADAMW,
                              .stochastic = r->optimizer.stochastic_rounding,
                              .momentum = (float)r->optimizer.momentum,
                              .weight_decay = (float)r->optimizer.weight_decay,
                              .eps = 1e-7f, // the clamp of the norm, not optimizer.eps
                              .lr_scale = 1.0f,
                              .part_count = w->part_count}};
    for (int i = 0; i < w->part_count; i++) node.attrs.part_rows[i] = w->parts[i].rows;
    memset(node.in, -1, sizeof(node.in));
    memset(node.out, -1, sizeof(node.out));
    node.in[0] = grad;
    node.in[1] = node.out[0] = master;
    node.in[2] = node.out[1] = m;
    if (has_copy) node.out[2] = weight;
    return op_append(p, OP_FORWARD, &node, 0);
}

const train_optimizer train_optimizer_muon = {
    .name = "muon", .takes = takes, .whole = true, .emit = emit};
