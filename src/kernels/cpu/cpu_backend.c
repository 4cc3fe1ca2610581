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
        },
    .workspace_bytes =
        {
            [OP_HEAD_LOSS] = cpu_head_loss_workspace,
        },
};
