// The table of the vector backend, which has a kernel for every operation except collectives.
//
// To add a kernel, write its file in this folder and, if it needs shared scratch, a workspace
// function below. kernels/backend_test.c then compares it with `ref`.
#include "kernels/cpu/cpu_kernels.h"

const kern_backend kern_backend_cpu = {
    .name = "cpu",
#define CPU_ROW(upper, lower) [OP_##upper] = cpu_##lower,
    .run = {OP_TABLE_COMPUTE(CPU_ROW)},
#undef CPU_ROW
    .workspace_bytes =
        {
            [OP_HEAD_LOSS] = cpu_head_loss_workspace,
            [OP_HEAD_STATS] = cpu_head_stats_workspace,
            [OP_OBJECTIVE] = cpu_objective_workspace,
            [OP_LAYERNORM_DW] = cpu_layernorm_dw_workspace,
            [OP_MUON] = cpu_muon_workspace,
            [OP_MUON_UPDATE] = cpu_muon_update_workspace,
            [OP_LATENT_CACHED] = cpu_latent_cached_workspace,
            [OP_SAMPLE] = cpu_sample_workspace,
            [OP_ATTENTION] = cpu_attention_workspace,
            [OP_ATTENTION_BWD] = cpu_attention_bwd_workspace,
            [OP_MATMUL] = cpu_fp8_workspace,
            [OP_MATMUL_DX] = cpu_fp8_workspace,
            [OP_MATMUL_DW] = cpu_fp8_workspace,
            [OP_GROUPED_MATMUL] = cpu_fp8_workspace,
            [OP_GROUPED_MATMUL_DX] = cpu_fp8_workspace,
            [OP_GROUPED_MATMUL_DW] = cpu_fp8_workspace,
        },
    .check_bytes =
        {
            [OP_MATMUL] = cpu_matmul_check_bytes,
            [OP_MATMUL_DX] = cpu_matmul_check_bytes,
            [OP_MATMUL_DW] = cpu_matmul_check_bytes,
            [OP_GROUPED_MATMUL] = cpu_grouped_check_bytes,
            [OP_GROUPED_MATMUL_DX] = cpu_grouped_check_bytes,
            [OP_GROUPED_MATMUL_DW] = cpu_grouped_check_bytes,
            [OP_HEAD_LOSS] = cpu_head_check_bytes,
            [OP_HEAD_STATS] = cpu_head_check_bytes,
        },
    .seals = true,
    .packed_bytes =
        {
            [OP_MATMUL] = cpu_matmul_packed_bytes,
            [OP_MATMUL_DX] = cpu_matmul_dx_packed_bytes,
            [OP_HEAD_LOSS] = cpu_head_loss_packed_bytes,
            [OP_HEAD_STATS] = cpu_head_stats_packed_bytes,
        },
    .fuses =
        {
            [OP_MATMUL] = cpu_matmul_fuses,
            [OP_MATMUL_DX] = cpu_matmul_dx_fuses,
        },
};
