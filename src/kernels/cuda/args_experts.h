// The arguments of the kernels of experts (args.h).
#ifndef KERNELS_CUDA_ARGS_EXPERTS_H
#define KERNELS_CUDA_ARGS_EXPERTS_H

#include "kernels/cuda/args.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- the router (route.cu) ----------------------------------------------------------------------
// ROUTE: logits, bias -> ids, weights. ROUTE_BWD: logits, ids, d_weights -> d_logits. STEP_ROUTES:
// ids, kept, logits. shares: (sequences, experts), tokens of each sequence that take an expert, for
// the balancing loss; NULL: there is none, or it has the loads of the step before. They count the
// rows of `choices`, share_rows of each sequence, of which the call has own_rows
// (kernels/route_rows.h).
typedef struct cuda_route_args {
    cuda_view logits, bias, ids, kept, weights, d_weights, d_logits, choices;
    step_block *step;
    int64_t *shares;
    double loss_divisor;
    int64_t rows, experts, taken, share_rows, own_rows, layer;
    int32_t sigmoid, normalize, groups, top_groups, group_pairs, load_layers, aux_batch, unused;
    float scale, aux_loss, z_loss, rate; // rate: of the bias that balances
} cuda_route_args;

// ---- rows by expert (experts.cu) ----------------------------------------------------------------
// x (N, D), ids (N, T) -> rows (R, D), row_of (N, T), offsets (E + 1), scale (R, 1). counts:
// (parts, E), choices of each part for each expert.
typedef struct cuda_permute_args {
    cuda_view x, ids, weights, rows, row_of, offsets, scale;
    int64_t *counts;
    int64_t experts, parts;
} cuda_permute_args;

// rows (R, D), row_of (N, T), weights -> y (N, D); d_scale (R, 1) -> d_weights (N, T). The other
// way: y (N, D) -> rows, and with `other` (R, D) d_weights, the products of y and other.
typedef struct cuda_rows_args {
    cuda_view rows, row_of, weights, y, d_scale, d_weights, other;
} cuda_rows_args;

// y = x * f, dot = the sum of x * other, with f = factor, or its sigmoid.
typedef struct cuda_factor_args {
    cuda_view x, other, factor, y, dot;
    int32_t sigmoid, unused;
} cuda_factor_args;

// Counts, offsets and limits of rows; NARROW_ROWS and WIDEN_ROWS: x and q as in and out.
typedef struct cuda_counts_args {
    cuda_view in, out;
    int64_t experts, ranks, sequences, limit, limit_seq;
} cuda_counts_args;

// ids (N, T), table (L, E) -> slots (N, T), by the row of the layer.
typedef struct cuda_place_args {
    cuda_view ids, table, slots;
    int64_t experts, layer;
} cuda_place_args;

// ---- one matrix per expert (grouped.cu) ---------------------------------------------------------
// The rows of each expert: of `ranks` ranks, each by expert. counts: of sequences, if not NULL
// (kernels/expert_rows.h).
typedef struct cuda_groups {
    cuda_view offsets, counts;
    int64_t rows, experts, ranks, pieces, rows_of, sequence_begin, sequence_count;
} cuda_groups;

// A product for each expert. Rows: c (rows, n) = a b of the row's expert, whose matrix has
// `whole` rows, of which those from first_row on are meant. Sums: c (experts * m, n) = a^T b over
// the rows of an expert.
typedef struct cuda_grouped_args {
    cuda_gemm_args product;
    cuda_groups groups;
    int64_t whole, first_row, own; // own: rows of a matrix that take part
} cuda_grouped_args;

// The same with operands in 8 bits: those of the product are views of their codes, two of which
// are a number of 16 bits, so k is half of theirs. a and b have rows along k. The matrix of an
// expert is `own` rows of b, or with `across` as many columns. factors: of blocks of 128 numbers
// along k, of which an expert's matrix has `stripes` rows, or columns; else one for each expert.
typedef struct cuda_grouped_narrow_args {
    cuda_grouped_args of;
    const float *factors[2];
    int64_t factor_strides[2], stripes;
    int32_t across, unused;
} cuda_grouped_narrow_args;

// Biases of experts: of rows by expert, or of tokens by their choices.
typedef struct cuda_bias_args {
    cuda_view x, y, ids, weights, bias, scale;
    cuda_groups groups;
    int32_t accumulate, unused;
} cuda_bias_args;

// of.history is that of expert 0; that of expert e begins 3 e rows, of history_stride, after it.
typedef struct cuda_fp8_experts_args {
    cuda_fp8_args of;
    cuda_groups groups;
    int64_t history_stride;
} cuda_fp8_experts_args;

typedef struct cuda_fp8_counts_rows_args {
    cuda_view x, w, dy, counts;
    cuda_groups groups;
    int32_t accumulate, unused;
} cuda_fp8_counts_rows_args;

#define CUDA_EXPERT_KERNELS(X)                         \
    X(cuda_route, cuda_route_args)                     \
    X(cuda_route_shares, cuda_route_args)              \
    X(cuda_route_bwd, cuda_route_args)                 \
    X(cuda_step_routes, cuda_route_args)               \
    X(cuda_balance, cuda_route_args)                   \
    X(cuda_permute_count, cuda_permute_args)           \
    X(cuda_permute_offsets, cuda_permute_args)         \
    X(cuda_permute_rows, cuda_permute_args)            \
    X(cuda_rows_add, cuda_rows_args)                   \
    X(cuda_rows_spread, cuda_rows_args)                \
    X(cuda_rows_factor, cuda_factor_args)              \
    X(cuda_count_rows, cuda_counts_args)               \
    X(cuda_row_offsets, cuda_counts_args)              \
    X(cuda_limit_rows, cuda_counts_args)               \
    X(cuda_place_experts, cuda_place_args)             \
    X(cuda_narrow_rows, cuda_counts_args)              \
    X(cuda_widen_rows, cuda_counts_args)               \
    X(cuda_grouped_bf16_nt, cuda_grouped_args)         \
    X(cuda_grouped_bf16_nn, cuda_grouped_args)         \
    X(cuda_grouped_bf16_tn, cuda_grouped_args)         \
    X(cuda_grouped_f16_nt, cuda_grouped_args)          \
    X(cuda_grouped_f16_nn, cuda_grouped_args)          \
    X(cuda_grouped_f16_tn, cuda_grouped_args)          \
    X(cuda_grouped_plain_rows, cuda_grouped_args)      \
    X(cuda_grouped_plain_sums, cuda_grouped_args)      \
    X(cuda_grouped_e4m3, cuda_grouped_narrow_args)     \
    X(cuda_grouped_e5m2, cuda_grouped_narrow_args)     \
    X(cuda_grouped_blocks, cuda_grouped_narrow_args)   \
    X(cuda_fp8_experts, cuda_fp8_experts_args)         \
    X(cuda_fp8_experts_codes, cuda_fp8_experts_args)   \
    X(cuda_fp8_counts_rows, cuda_fp8_counts_rows_args) \
    X(cuda_bias_rows, cuda_bias_args)                  \
    X(cuda_bias_rows_dw, cuda_bias_args)               \
    X(cuda_bias_tokens, cuda_bias_args)                \
    X(cuda_bias_tokens_dw, cuda_bias_args)             \
    X(cuda_bias_tokens_ds, cuda_bias_args)

#ifdef __cplusplus
}
#endif
#endif
