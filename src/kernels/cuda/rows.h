// Inside the CUDA backend: what its rows share. A row reads shapes, types and addresses, never the
// memory of operands, and posts launches to the queue of its context.
#ifndef KERNELS_CUDA_ROWS_H
#define KERNELS_CUDA_ROWS_H

#include "kernels/cuda/args.h"
#include "kernels/cuda/launch.h"
#include "kernels/kernels_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_MAX_GRID_ROWS = 65535 };

static inline bool cuda_has(const kern_tensor *t)
{
    return t->data != NULL;
}

cuda_view cuda_view_of(const kern_tensor *t);
bool cuda_view_is_dense(const cuda_view *v);
// Returns ST_UNSUPPORTED, with the operation's name, for what no kernel of this backend can do: a
// context without a queue, a floating-point type other than fp32, bf16 and fp16, bounded rows.
NODISCARD status cuda_call_check(const kern_context *context, const kern_call *call);
// For operations whose sums over rows are not one sequential sum.
NODISCARD status cuda_refuse_strict(const kern_call *call);

// A launch of a kernel with one struct of arguments.
typedef struct cuda_shape {
    int64_t grid[3];
    int threads;
    int64_t shared_bytes;
} cuda_shape;
NODISCARD status cuda_launch_run(const kern_context *context, const char *kernel,
                                 const cuda_shape *shape, void *args, size_t bytes);
// The grid of a kernel that takes eight columns per thread and rows by axis 1.
cuda_shape cuda_shape_of_columns(int64_t rows, int64_t columns);

NODISCARD status cuda_zero(const kern_context *context, const cuda_view *out);
// Runs a product; m, n, k and aligned are set here.
NODISCARD status cuda_gemm_run(const kern_context *context, cuda_gemm_args *args);

// The operations that have a row.
#define CUDA_ROWS(X)                  \
    X(ADD, add)                       \
    X(ADD_BIAS, add_bias)             \
    X(SUM, sum)                       \
    X(CAST, cast)                     \
    X(TREE_ADD, tree_add)             \
    X(ACTIVATION, activation)         \
    X(ACTIVATION_BWD, activation_bwd) \
    X(SWIGLU, swiglu)                 \
    X(SWIGLU_BWD, swiglu_bwd)         \
    X(GEGLU, geglu)                   \
    X(GEGLU_BWD, geglu_bwd)           \
    X(RMSNORM, rmsnorm)               \
    X(RMSNORM_DX, rmsnorm_dx)         \
    X(RMSNORM_DW, rmsnorm_dw)         \
    X(LAYERNORM, layernorm)           \
    X(LAYERNORM_DX, layernorm_dx)     \
    X(LAYERNORM_DW, layernorm_dw)     \
    X(BIAS_DW, bias_dw)               \
    X(EMBEDDING, embedding)           \
    X(EMBEDDING_DW, embedding_dw)     \
    X(GATHER, gather)                 \
    X(ROPE, rope)                     \
    X(DROPOUT, dropout)               \
    X(MATMUL, matmul)                 \
    X(MATMUL_DX, matmul_dx)           \
    X(MATMUL_DW, matmul_dw)           \
    X(STEP_BEGIN, step_begin)         \
    X(STEP_LOSS, step_loss)           \
    X(GRAD_NORM, grad_norm)           \
    X(STEP_DECIDE, step_decide)       \
    X(ADAMW, adamw)                   \
    X(HEAD_LOSS, head_loss)           \
    X(ATTENTION, attention)           \
    X(ATTENTION_BWD, attention_bwd)
#define CUDA_DECLARE(upper, lower) \
    NODISCARD status cuda_row_##lower(const kern_context *context, const kern_call *call);
CUDA_ROWS(CUDA_DECLARE)
#undef CUDA_DECLARE

// Bytes of workspace of the operations that need some.
int64_t cuda_columns_workspace(const kern_call *call, int threads);
int64_t cuda_embedding_dw_workspace(const kern_call *call, int threads);
int64_t cuda_head_loss_workspace(const kern_call *call, int threads);
int64_t cuda_attention_bwd_workspace(const kern_call *call, int threads);

#ifdef __cplusplus
}
#endif
#endif
