// The table of the vector backend: a row per operation that has a kernel here.
//
// To add a kernel: its file in this folder, its row below, and where it needs shared scratch its
// workspace function. kernels/backend_test.c then compares it with `ref` by itself.
#include "kernels/cpu/cpu_kernels.h"

const kern_backend kern_backend_cpu = {
    .name = "cpu",
    .run =
        {
            [OP_MATMUL] = cpu_matmul,
            [OP_MATMUL_DX] = cpu_matmul_dx,
            [OP_MATMUL_DW] = cpu_matmul_dw,
            [OP_BIAS_DW] = cpu_bias_dw,
            [OP_HEAD_LOSS] = cpu_head_loss,
            [OP_HEAD_STATS] = cpu_head_stats,
            [OP_ADD_BIAS] = cpu_add_bias,
            [OP_SUM] = cpu_sum,
            [OP_UNSTACK] = cpu_unstack,
            [OP_STACK] = cpu_stack,
            [OP_ZIP] = cpu_zip,
            [OP_ATTENTION_MERGE] = cpu_attention_merge,
            [OP_EMBEDDING] = cpu_embedding,
            [OP_EMBEDDING_DW] = cpu_embedding_dw,
            [OP_ADD] = cpu_add,
            [OP_RMSNORM] = cpu_rmsnorm,
            [OP_RMSNORM_DX] = cpu_rmsnorm_dx,
            [OP_RMSNORM_DW] = cpu_rmsnorm_dw,
            [OP_LAYERNORM] = cpu_layernorm,
            [OP_LAYERNORM_DX] = cpu_layernorm_dx,
            [OP_LAYERNORM_DW] = cpu_layernorm_dw,
            [OP_ROPE] = cpu_rope,
            [OP_ATTENTION] = cpu_attention,
            [OP_ATTENTION_BWD] = cpu_attention_bwd,
            [OP_CACHE_APPEND] = cpu_cache_append,
            [OP_SWIGLU] = cpu_swiglu,
            [OP_SWIGLU_BWD] = cpu_swiglu_bwd,
            [OP_ACTIVATION] = cpu_activation,
            [OP_ACTIVATION_BWD] = cpu_activation_bwd,
            [OP_DROPOUT] = cpu_dropout,
            [OP_GATHER] = cpu_gather,
            [OP_CAST] = cpu_cast,
            [OP_TREE_ADD] = cpu_tree_add,
            [OP_STEP_BEGIN] = cpu_step_begin,
            [OP_STEP_LOSS] = cpu_step_loss,
            [OP_GRAD_NORM] = cpu_grad_norm,
            [OP_STEP_DECIDE] = cpu_step_decide,
            [OP_ADAMW] = cpu_adamw,
            [OP_MUON] = cpu_muon,
            [OP_MUON_DIRECTION] = cpu_muon_direction,
            [OP_MUON_UPDATE] = cpu_muon_update,
            [OP_SAMPLE] = cpu_sample,
        },
    .workspace_bytes =
        {
            [OP_HEAD_LOSS] = cpu_head_loss_workspace,
            [OP_HEAD_STATS] = cpu_head_stats_workspace,
            [OP_LAYERNORM_DW] = cpu_layernorm_dw_workspace,
            [OP_MUON] = cpu_muon_workspace,
            [OP_MUON_UPDATE] = cpu_muon_update_workspace,
            [OP_SAMPLE] = cpu_sample_workspace,
            [OP_ATTENTION] = cpu_attention_workspace,
            [OP_ATTENTION_BWD] = cpu_attention_bwd_workspace,
        },
    .panels_bytes =
        {
            [OP_MATMUL] = cpu_matmul_panels,
            [OP_MATMUL_DX] = cpu_matmul_dx_panels,
            [OP_HEAD_LOSS] = cpu_head_loss_panels,
            [OP_HEAD_STATS] = cpu_head_stats_panels,
        },
    .joins =
        {
            [OP_MATMUL] = cpu_matmul_joins,
            [OP_MATMUL_DX] = cpu_matmul_dx_joins,
        },
};
