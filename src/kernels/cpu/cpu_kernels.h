// The vector backend's kernels, one per operation: cpu_embedding, cpu_matmul, ...
//
// kernels/cpu/cpu_backend.c lists the existing ones. Each runs in the calling thread and uses the
// pool of the context; the level of the context chooses the code path, never a build flag. The bits
// of the result depend neither on threads nor on the level unless the comment of the kernel says
// so.
#ifndef KERNELS_CPU_CPU_KERNELS_H
#define KERNELS_CPU_CPU_KERNELS_H

#include "kernels/kernels_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CPU_KERNEL(upper, lower) \
    NODISCARD status cpu_##lower(const kern_context *context, const kern_call *call);
OP_TABLE_COMPUTE(CPU_KERNEL)
#undef CPU_KERNEL

// Bytes of scratch beyond the per-thread scratch, for the operations that need it.
int64_t cpu_head_loss_workspace(const kern_call *call, int threads);
int64_t cpu_head_stats_workspace(const kern_call *call, int threads);
int64_t cpu_objective_workspace(const kern_call *call, int threads);
int64_t cpu_attention_workspace(const kern_call *call, int threads);
int64_t cpu_attention_bwd_workspace(const kern_call *call, int threads);
int64_t cpu_fp8_workspace(const kern_call *call, int threads);
// If a product multiplies in 8 bits, makes *call `rounded`: the same with rounded operands in its
// workspace.
NODISCARD status cpu_fp8_operands(const kern_context *context, const kern_call **call,
                                  kern_call *rounded);
int64_t cpu_muon_workspace(const kern_call *call, int threads);
int64_t cpu_muon_update_workspace(const kern_call *call, int threads);
int64_t cpu_latent_cached_workspace(const kern_call *call, int threads);
int64_t cpu_sample_workspace(const kern_call *call, int threads);
int64_t cpu_layernorm_dw_workspace(const kern_call *call, int threads);

// Bytes of the space in which products are checked.
int64_t cpu_matmul_check_bytes(const kern_call *call);
int64_t cpu_grouped_check_bytes(const kern_call *call);
int64_t cpu_head_check_bytes(const kern_call *call);

// Bytes of packed weights, for the operations that can keep them.
int64_t cpu_matmul_packed_bytes(const kern_call *call, kern_level level);
int64_t cpu_matmul_dx_packed_bytes(const kern_call *call, kern_level level);
int64_t cpu_head_loss_packed_bytes(const kern_call *call, kern_level level);
int64_t cpu_head_stats_packed_bytes(const kern_call *call, kern_level level);

// Whether a GEMM can also run the operation that follows it. cpu_matmul and cpu_matmul_dx then do
// so by pieces of rows.
bool cpu_matmul_fuses(const kern_context *context, const kern_call *first, const kern_call *second);
bool cpu_matmul_dx_fuses(const kern_context *context, const kern_call *first,
                         const kern_call *second);

#ifdef __cplusplus
}
#endif
#endif
