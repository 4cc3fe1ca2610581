// The vector backend's kernels, one per operation: cpu_embedding, cpu_matmul, ...
//
// kernels/cpu/cpu_backend.c lists those that exist. Each runs in the thread that calls it and uses
// the context's pool; the code path is chosen by the context's level, never by a build flag. The
// result's bits depend on neither threads nor level unless the kernel's own comment says so.
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

// Scratch beyond the per-thread one, for the rows that need it.
int64_t cpu_head_loss_workspace(const kern_call *call, int threads);
int64_t cpu_head_stats_workspace(const kern_call *call, int threads);
int64_t cpu_attention_workspace(const kern_call *call, int threads);
int64_t cpu_attention_bwd_workspace(const kern_call *call, int threads);
int64_t cpu_muon_workspace(const kern_call *call, int threads);
int64_t cpu_muon_update_workspace(const kern_call *call, int threads);
int64_t cpu_sample_workspace(const kern_call *call, int threads);
int64_t cpu_layernorm_dw_workspace(const kern_call *call, int threads);

// What products keep of their weights, for the rows that can.
int64_t cpu_matmul_packed_bytes(const kern_call *call, kern_level level);
int64_t cpu_matmul_dx_packed_bytes(const kern_call *call, kern_level level);
int64_t cpu_head_loss_packed_bytes(const kern_call *call, kern_level level);
int64_t cpu_head_stats_packed_bytes(const kern_call *call, kern_level level);

// Whether a product can take up what follows it, which cpu_matmul and cpu_matmul_dx then do by
// pieces of rows.
bool cpu_matmul_fuses(const kern_context *context, const kern_call *first, const kern_call *second);
bool cpu_matmul_dx_fuses(const kern_context *context, const kern_call *first,
                         const kern_call *second);

#ifdef __cplusplus
}
#endif
#endif
