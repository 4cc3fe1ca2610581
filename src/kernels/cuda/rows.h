// Inside the CUDA backend: what its rows share. A row reads shapes, types and addresses, never the
// memory of operands, and posts launches to the queue of its context.
#ifndef KERNELS_CUDA_ROWS_H
#define KERNELS_CUDA_ROWS_H

#include "kernels/cuda/args_experts.h"
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
// Rows first to first + count - 1; of a missing view: a missing one.
cuda_view cuda_view_rows(const cuda_view *v, int64_t first, int64_t count);
// Returns ST_UNSUPPORTED, with the operation's name, for what no kernel of this backend can do: a
// context without a queue, a floating-point type other than fp32, bf16 and fp16, or bounded rows of
// an operation outside of experts.
NODISCARD status cuda_call_check(const kern_context *context, const kern_call *call);
// For updates: ST_UNSUPPORTED for stochastic rounding to fp16.
NODISCARD status cuda_stochastic_check(const kern_call *call);
cuda_rounding cuda_rounding_of(const kern_call *call, int64_t first_row);

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
// The grid of a kernel with a warp for each of `count` things.
cuda_shape cuda_shape_of_warps(int64_t count);

NODISCARD status cuda_zero(const kern_context *context, const cuda_view *out);
// Copies; numbers are converted where the types differ.
NODISCARD status cuda_copy(const kern_context *context, const cuda_view *from, const cuda_view *to);
// The order of a call's sums within a row: a cuda_gemm_order.
int32_t cuda_gemm_order_of(const kern_call *call);
int32_t cuda_gemm_order_of_rows(const kern_call *call); // of its sums over rows
// Runs a product; m, n, k and aligned are set here.
NODISCARD status cuda_gemm_run(const kern_context *context, cuda_gemm_args *args);

// Parts of cuda_gemm_run, for products with one matrix per expert.
bool cuda_gemm_is_half(const cuda_gemm_args *args); // by mma instructions
bool cuda_gemm_is_aligned(const cuda_gemm_args *args);
int64_t cuda_gemm_side(bool half); // rows and columns of c of a block
int64_t cuda_gemm_shared(bool half);
int64_t cuda_objective_workspace(const kern_call *call, int threads);
int64_t cuda_sample_workspace(const kern_call *call, int threads);

// Attention by products of groups of warps, on GPUs of compute capability 9.0 (attention_wgmma.cu).
// Returns the columns of a head in tiles, or 0: other kernels compute the call.
int cuda_wgmma_dim(const kern_context *context, const cuda_attention_args *a);
NODISCARD status cuda_wgmma_forward(const kern_context *context, const cuda_attention_args *a,
                                    int64_t sequences, int dim);
NODISCARD status cuda_wgmma_backward(const kern_context *context, const cuda_attention_args *a,
                                     int64_t sequences, int dim);

// The rows of experts of a call, whose operands have so many rows of all experts; the most tiles of
// `side` rows that they can have.
cuda_groups cuda_groups_of(const kern_call *c, int64_t rows);
int64_t cuda_groups_tiles(const cuda_groups *g, int64_t side);

// Fills the bounded rows of outputs that are not there with NaN.
NODISCARD status cuda_poison_rest(const kern_context *context, const kern_call *call);

// The operations that have a row.
#define CUDA_ROWS(X)                        \
    X(OBJECTIVE, objective)                 \
    X(ADD, add)                             \
    X(ADD_BIAS, add_bias)                   \
    X(SUM, sum)                             \
    X(CAST, cast)                           \
    X(TREE_ADD, tree_add)                   \
    X(ACTIVATION, activation)               \
    X(ACTIVATION_BWD, activation_bwd)       \
    X(SWIGLU, swiglu)                       \
    X(SWIGLU_BWD, swiglu_bwd)               \
    X(GEGLU, geglu)                         \
    X(GEGLU_BWD, geglu_bwd)                 \
    X(CLAMPED_GATE, clamped_gate)           \
    X(CLAMPED_GATE_BWD, clamped_gate_bwd)   \
    X(SCALE, scale)                         \
    X(SOFT_CAP, soft_cap)                   \
    X(CLAMP, clamp)                         \
    X(CLAMP_BWD, clamp_bwd)                 \
    X(UNPACK, unpack)                       \
    X(PACK, pack)                           \
    X(ZIGZAG, zigzag)                       \
    X(RMSNORM, rmsnorm)                     \
    X(RMSNORM_DX, rmsnorm_dx)               \
    X(RMSNORM_DW, rmsnorm_dw)               \
    X(ROW_DOTS, row_dots)                   \
    X(LAYERNORM, layernorm)                 \
    X(LAYERNORM_DX, layernorm_dx)           \
    X(LAYERNORM_DW, layernorm_dw)           \
    X(BIAS_DW, bias_dw)                     \
    X(ROW_SQUARES, row_squares)             \
    X(MAGNITUDE, magnitude)                 \
    X(MAGNITUDE_DW, magnitude_dw)           \
    X(DEQUANTIZE, dequantize)               \
    X(EMBEDDING, embedding)                 \
    X(EMBEDDING_DW, embedding_dw)           \
    X(GATHER, gather)                       \
    X(ROPE, rope)                           \
    X(DROPOUT, dropout)                     \
    X(LATENT, latent)                       \
    X(LATENT_BWD, latent_bwd)               \
    X(LATENT_DR, latent_dr)                 \
    X(MATMUL, matmul)                       \
    X(MATMUL_DX, matmul_dx)                 \
    X(MATMUL_DW, matmul_dw)                 \
    X(FP8_COUNTS, fp8_counts)               \
    X(FP8_HISTORY, fp8_history)             \
    X(STEP_BEGIN, step_begin)               \
    X(STEP_LOSS, step_loss)                 \
    X(GRAD_NORM, grad_norm)                 \
    X(STEP_DECIDE, step_decide)             \
    X(ADAMW, adamw)                         \
    X(LION, lion)                           \
    X(MUON, muon)                           \
    X(MUON_DIRECTION, muon_direction)       \
    X(MUON_UPDATE, muon_update)             \
    X(HEAD_LOSS, head_loss)                 \
    X(HEAD_STATS, head_stats)               \
    X(SCORE, score)                         \
    X(ATTENTION_MERGE, attention_merge)     \
    X(SINKS_DW, sinks_dw)                   \
    X(ROUTE, route)                         \
    X(ROUTE_BWD, route_bwd)                 \
    X(STEP_ROUTES, step_routes)             \
    X(BALANCE, balance)                     \
    X(PERMUTE, permute)                     \
    X(PERMUTE_BWD, permute_bwd)             \
    X(UNPERMUTE, unpermute)                 \
    X(UNPERMUTE_BWD, unpermute_bwd)         \
    X(SCALE_ROWS, scale_rows)               \
    X(SCALE_ROWS_DS, scale_rows_ds)         \
    X(GATE_ROWS, gate_rows)                 \
    X(GATE_ROWS_BWD, gate_rows_bwd)         \
    X(COUNT_ROWS, count_rows)               \
    X(ROW_OFFSETS, row_offsets)             \
    X(LIMIT_ROWS, limit_rows)               \
    X(PLACE_EXPERTS, place_experts)         \
    X(NARROW_ROWS, narrow_rows)             \
    X(WIDEN_ROWS, widen_rows)               \
    X(GROUPED_MATMUL, grouped_matmul)       \
    X(GROUPED_MATMUL_DX, grouped_matmul_dx) \
    X(GROUPED_MATMUL_DW, grouped_matmul_dw) \
    X(FP8_COUNTS_ROWS, fp8_counts_rows)     \
    X(BIAS_ROWS, bias_rows)                 \
    X(BIAS_ROWS_DW, bias_rows_dw)           \
    X(BIAS_TOKENS, bias_tokens)             \
    X(BIAS_TOKENS_DW, bias_tokens_dw)       \
    X(BIAS_TOKENS_DS, bias_tokens_ds)       \
    X(CACHE_APPEND, cache_append)           \
    X(LATENT_CACHED, latent_cached)         \
    X(SAMPLE, sample)                       \
    X(ATTENTION, attention)                 \
    X(ATTENTION_BWD, attention_bwd)
#define CUDA_DECLARE(upper, lower) \
    NODISCARD status cuda_row_##lower(const kern_context *context, const kern_call *call);
CUDA_ROWS(CUDA_DECLARE)
#undef CUDA_DECLARE

// Returns whether GELU of the result of a MATMUL is a part of its launch.
bool cuda_fuses_matmul(const kern_context *context, const kern_call *first,
                       const kern_call *second);

// Bytes of workspace of the operations that need some.
int64_t cuda_columns_workspace(const kern_call *call, int threads);
int64_t cuda_embedding_dw_workspace(const kern_call *call, int threads);
int64_t cuda_head_loss_workspace(const kern_call *call, int threads);
int64_t cuda_head_stats_workspace(const kern_call *call, int threads);
int64_t cuda_attention_workspace(const kern_call *call, int threads);
int64_t cuda_attention_bwd_workspace(const kern_call *call, int threads);
int64_t cuda_sinks_dw_workspace(const kern_call *call, int threads);
int64_t cuda_permute_workspace(const kern_call *call, int threads);
int64_t cuda_route_bwd_workspace(const kern_call *call, int threads);
int64_t cuda_step_routes_workspace(const kern_call *call, int threads);
int64_t cuda_muon_workspace(const kern_call *call, int threads);
int64_t cuda_muon_update_workspace(const kern_call *call, int threads);
int64_t cuda_fp8_workspace(const kern_call *call, int threads);
int64_t cuda_fp8_counts_workspace(const kern_call *call, int threads);

// Computes a product in 8 bits by the queue's library; c, bias and accumulation are set. *done: the
// library has it.
NODISCARD status cuda_fp8_product(const kern_context *context, const kern_call *c,
                                  cuda_product *product, bool *done);
// Rounds the operands of a product in 8 bits: *call becomes `rounded`, the same with operands in
// its workspace.
NODISCARD status cuda_fp8_operands(const kern_context *context, const kern_call **call,
                                   kern_call *rounded);
// Multiplies rows by the matrices of their experts, by instructions for 8 bits. *done: the call is
// in 8 bits, and the GPU and its shapes allow it. Strict calls, whose rows of a matrix may be a
// part, do not.
NODISCARD status cuda_fp8_grouped(const kern_context *context, const kern_call *c,
                                  const cuda_grouped_args *of, bool *done);

#ifdef __cplusplus
}
#endif
#endif
