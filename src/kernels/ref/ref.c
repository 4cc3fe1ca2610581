// The row of the `ref` backend, which has a kernel for every operation except collectives.
#include "kernels/ref/ref.h"

const kern_backend kern_backend_ref = {
    .name = "ref",
#define REF_ROW(upper, lower) [OP_##upper] = ref_##lower,
    .run = {OP_TABLE_COMPUTE(REF_ROW)},
#undef REF_ROW
    .workspace_bytes =
        {
            [OP_ATTENTION] = ref_attention_workspace,
            [OP_ATTENTION_BWD] = ref_attention_bwd_workspace,
            [OP_LAYERNORM_DW] = ref_layernorm_dw_workspace,
            [OP_HEAD_LOSS] = ref_head_loss_workspace,
            [OP_HEAD_STATS] = ref_head_stats_workspace,
            [OP_OBJECTIVE] = ref_objective_workspace,
            [OP_LATENT_CACHED] = ref_latent_cached_workspace,
            [OP_SAMPLE] = ref_sample_workspace,
            [OP_MUON] = ref_muon_workspace,
            [OP_MUON_UPDATE] = ref_muon_update_workspace,
            [OP_MATMUL] = ref_fp8_workspace,
            [OP_MATMUL_DX] = ref_fp8_workspace,
            [OP_MATMUL_DW] = ref_fp8_workspace,
            [OP_GROUPED_MATMUL] = ref_fp8_workspace,
            [OP_GROUPED_MATMUL_DX] = ref_fp8_workspace,
            [OP_GROUPED_MATMUL_DW] = ref_fp8_workspace,
        },
};
