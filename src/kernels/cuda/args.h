// The arguments of every CUDA kernel, one struct each, and the list of kernels.
//
// The rows of the backend (C) fill the structs, the kernels (.cu) get them by value. The list names
// a kernel with its struct: the emulator's table and the tests read it.
#ifndef KERNELS_CUDA_ARGS_H
#define KERNELS_CUDA_ARGS_H

#include "device/peers.h"
#include "op/op_program.h"
#include "op/step.h"

// A kernel's block has so many threads unless its comment says otherwise.
enum { CUDA_THREADS = 256, CUDA_MAX_TERMS = 8 };

// Rows of elements; a tensor with one dim is one row. type: a dtype. data NULL: missing. count: of
// bounded rows, in device memory, with its type; NULL: all rows are there.
typedef struct cuda_view {
    void *data;
    const void *count;
    int64_t rows, columns, stride;
    int32_t type, count_type;
} cuda_view;

// ---- element by element (pointwise.cu) ----------------------------------------------------------
typedef enum cuda_map_kind {
    CUDA_MAP_SUM, // the terms by a tree, in fp32; one term: a cast
    CUDA_MAP_ADD_BIAS,
    CUDA_MAP_ACTIVATION,
    CUDA_MAP_ACTIVATION_BWD,
    CUDA_MAP_ACCUMULATE, // out += in
    CUDA_MAP_SCALE,      // times factor
    CUDA_MAP_SOFT_CAP,   // factor tanh(in / factor)
    CUDA_MAP_CLAMP,      // within -factor .. factor
    CUDA_MAP_CLAMP_BWD,  // the second where the first is within them, else 0
    CUDA_MAP_ZERO
} cuda_map_kind;
typedef struct cuda_map_args {
    cuda_view in[CUDA_MAX_TERMS], out;
    int32_t kind, terms, activation;
    float factor;
} cuda_map_args;

// h (rows, 2 F), a (rows, F); backward: da too, and dh. cap > 0: the clamped gate.
typedef struct cuda_gate_args {
    cuda_view h, a, dh;
    int32_t activation;
    float cap, scale;
    int32_t unused;
} cuda_gate_args;

// Rows or columns of x to other places of y (tiles.cu). UNPACK: `repeat` tiles of rows are added.
typedef enum cuda_tiles_kind { CUDA_UNPACK, CUDA_PACK, CUDA_ZIGZAG } cuda_tiles_kind;
typedef struct cuda_tiles_args {
    cuda_view x, y;
    int64_t repeat, tiles, turns, seq;
    int32_t kind, inverse;
} cuda_tiles_args;

// ---- norms and sums over rows (norm.cu) ---------------------------------------------------------
// Each of `groups` groups of `dim` columns of a row is normalized by itself.
typedef struct cuda_norm_args {
    cuda_view x, w, b, delta, y, mean, r, h;
    cuda_view dots; // (rows): the sums of squares of rows of `whole` columns; null: of the row
    int64_t groups, dim, whole;
    float eps, plus;
    int32_t subtracts_mean, unused;
} cuda_norm_args;

typedef struct cuda_norm_dx_args {
    cuda_view dy, h, r, w, dh, dx;
    cuda_view dots; // of u and h
    int64_t groups, dim, whole;
    float eps, plus;
    int32_t subtracts_mean, unused;
} cuda_norm_dx_args;

// The sum of x^2, or of dy (w + plus) x, over columns begin to begin + dim - 1.
typedef struct cuda_dots_args {
    cuda_view x, dy, w, dots;
    int64_t begin, dim;
    float plus;
    int32_t unused;
} cuda_dots_args;

typedef enum cuda_column_kind {
    CUDA_COLUMNS_BIAS,      // of dy
    CUDA_COLUMNS_RMSNORM,   // of dy h r
    CUDA_COLUMNS_LAYERNORM, // of dy (h - mean) r, and of dy
    CUDA_COLUMNS_MAGNITUDE, // of dy h over the root of the column's r
} cuda_column_kind;
typedef struct cuda_column_args {
    cuda_view dy, h, mean, r, out, out_second;
    float *partial; // (2, parts, dim)
    int64_t groups, dim, parts, part_rows;
    int32_t kind, accumulate;
} cuda_column_args;

// ---- rows by index (embedding.cu) ---------------------------------------------------------------
// The table is the piece from row first_row on of one with whole_rows.
typedef struct cuda_embedding_args {
    cuda_view ids, table, positions, position_table, x;
    int64_t first_row, whole_rows;
} cuda_embedding_args;

typedef struct cuda_embedding_dw_args {
    cuda_view ids, dx, table;
    int64_t first_row, whole_rows;
    int64_t skipped;         // 1 + the id whose row gets nothing; 0: none
    int32_t *next, *follows; // a number for each token
} cuda_embedding_dw_args;

// ---- by the place in a sequence (position.cu) ---------------------------------------------------
typedef struct cuda_rope_args {
    cuda_view x, positions, table, y;
    int64_t heads, head_dim;
    int32_t interleaved, inverse;
} cuda_rope_args;

typedef struct cuda_dropout_args {
    cuda_view x, y;
    const step_host *step;
    int64_t seq, first_sequence, cut_ways, cut_pieces, cut_at, cp_ways, cp_turns, cp_at;
    int64_t first_column;
    int32_t site;
    float p;
} cuda_dropout_args;

// Latent attention (latent.cu): heads of dim columns of q, y and k, of which the last `rope` turn,
// and of `value` columns of v. A head of kv has the columns of k that do not turn, and those of v.
typedef struct cuda_latent_args {
    cuda_view q, y, k, v, kv, r, positions, table;
    int64_t heads, dim, rope, value;
    int32_t interleaved, backward;
} cuda_latent_args;

// ---- the step block and updates (step.cu, optimizer.cu) -----------------------------------------
typedef struct cuda_step_args {
    cuda_view terms, labels; // losses and labels, or a gradient
    step_block *step;
    int64_t tensor_index, load_words;
} cuda_step_args;

// How an optimizer rounds the numbers that it stores. first_row: of the views in this rank's piece
// of the weight, which is a vector unless is_matrix.
typedef struct cuda_rounding {
    const step_host *step;
    int64_t first_row;
    op_piece piece;
    int32_t tensor_index, stochastic, is_matrix, unused;
} cuda_rounding;

typedef struct cuda_update_args {
    cuda_view grad, master, m, v, out[4]; // out: master, m, v, weight
    const step_block *step;
    double beta1, beta2, lr_scale, decay;
    cuda_rounding rounding;
    float eps;
    int32_t unused;
} cuda_update_args;

// Muon (muon.cu). x: directions, then the matrix that becomes orthogonal, fp32. partial: sums of
// squares of `parts` parts, in double. Rows and columns of the update begin at row and column of x.
typedef struct cuda_muon_args {
    cuda_view grad, master, m, x, out[3]; // out: master, m, weight
    double *partial;
    const step_block *step;
    int64_t parts, row, column;
    double momentum, lr_scale, decay, size;
    cuda_rounding rounding;
    float eps;
    int32_t nesterov;
} cuda_muon_args;

// ---- matrix products (gemm.cu) ------------------------------------------------------------------
// c (m, n) = act(a (m, k) b (k, n) + bias) + before. a is stored (k, m) if a_along_m, b is stored
// (k, n) if b_along_n, else (n, k). aligned: all rows of a and b begin at multiples of 16 bytes.
// order, a cuda_gemm_order. FREE: the library may compute it. BY_ROWS: an element depends on its
// row of a and its column of b only. SEQUENCE: so, and the sum begins with `before` and takes one
// number of k at a time.
typedef enum cuda_gemm_order {
    CUDA_GEMM_FREE,
    CUDA_GEMM_BY_ROWS,
    CUDA_GEMM_SEQUENCE
} cuda_gemm_order;
typedef struct cuda_gemm_args {
    cuda_view a, b, c, bias, before;
    int64_t m, n, k;
    int32_t a_along_m, b_along_n, activation, aligned, order, unused;
} cuda_gemm_args;

// ---- operands of products in 8 bits (fp8.cu) ----------------------------------------------------
// Blocks begin anew after each `group` rows. history: the row of the operand, whose number is
// `operand`; NULL: blocks have factors. codes: rows of 8 bits along the summed dim, with factors by
// blocks of it.
typedef struct cuda_fp8_args {
    cuda_view in, out;
    uint8_t *codes;
    float *scales;
    const float *history;
    int64_t group, code_stride, scale_stride;
    fp8_block block;
    int32_t format, operand, margin, transposed, unused;
} cuda_fp8_args;

// partial (3, parts): largest magnitudes.
typedef struct cuda_fp8_counts_args {
    cuda_view x, w, dy, counts;
    float *partial;
    int64_t parts, accumulate;
} cuda_fp8_counts_args;

typedef struct cuda_fp8_history_args {
    cuda_view counts, steps, out;
    const step_block *step;
    int32_t most, unused;
} cuda_fp8_history_args;

// ---- the head (head.cu) -------------------------------------------------------------------------
// gradient has the bytes of logits, in another type perhaps; missing: only losses. The logits are
// columns first_column to first_column + columns - 1 of the vocabulary. stats: three numbers of
// each of `shards` shards, per_tile of them in a row and tiles of tile_rows rows; the row of the
// chunk's first token is first_row. Of HEAD_STATS they are the result, for shards that begin at
// `shard`.
typedef struct cuda_head_args {
    cuda_view logits, gradient, labels, loss, stats, slopes;
    const step_block *step;
    double loss_divisor;
    int64_t first_column, vocabulary, shards, shard, per_tile, tile_rows, first_row;
    float z_loss, cap;
} cuda_head_args;

// ---- objectives (objective.cu) ------------------------------------------------------------------
// Sequences of seq rows of this rank, of `ways` ranks. scratch: `numbers` for each of them.
typedef struct cuda_objective_args {
    cuda_view losses, documents, given, out[4]; // out: losses, units, measures, slopes
    double *scratch;
    int64_t seq, ways, turns, at, numbers;
    op_objective_attrs attrs;
} cuda_objective_args;

// ---- attention (attention_*.cu) -----------------------------------------------------------------
// Each sequence has seq queries and `keys` rows of keys and values, of which lengths, if given,
// says how many are there. delta: (N, heads), of the backward pass. value_dim: columns of a head of
// v and y. cp_ways > 1: queries are those of rank cp_at (op/zigzag.h), keys are gathered rows, or
// in a ring those of rank key_at. pages, if given: page_count pages of `page` rows of a sequence.
// shards > 0: bits may not depend on cp_ways; the backward pass is about the queries of `shard`.
typedef struct cuda_attention_args {
    cuda_view q, k, v, y, lse, documents, lengths, sinks, pages, dy, dq, dk, dv;
    float *delta;
    const step_host *step;
    int64_t seq, keys, first_sequence, first_head;
    int64_t cp_ways, cp_turns, cp_at, key_at, page, page_count;
    int32_t heads, kv_heads, head_dim, value_dim, window, site;
    int32_t aligned, ring; // aligned: all rows of a head begin at multiples of 16 bytes
    float scale, dropout, cap;
    int32_t shards, shard, unused;
} cuda_attention_args;

// Results over two sets of keys, (N, heads * dim), and their logarithms of sums, (N, heads).
typedef struct cuda_merge_args {
    cuda_view a, lse_a, b, lse_b, y, lse;
} cuda_merge_args;

// dsinks (heads): terms of rows in parts, (parts, heads).
typedef struct cuda_sinks_args {
    cuda_view dy, y, lse, sinks, out;
    float *partial;
    int64_t parts, part_rows, heads, dim;
    int32_t accumulate, unused;
} cuda_sinks_args;

#define CUDA_KERNELS(X)                              \
    X(cuda_map, cuda_map_args)                       \
    X(cuda_gate, cuda_gate_args)                     \
    X(cuda_gate_bwd, cuda_gate_args)                 \
    X(cuda_tiles, cuda_tiles_args)                   \
    X(cuda_poison, cuda_view)                        \
    X(cuda_peer_sum, device_sum)                     \
    X(cuda_norm, cuda_norm_args)                     \
    X(cuda_norm_dx, cuda_norm_dx_args)               \
    X(cuda_row_sums, cuda_dots_args)                 \
    X(cuda_column_sums, cuda_column_args)            \
    X(cuda_column_finish, cuda_column_args)          \
    X(cuda_column_sequence, cuda_column_args)        \
    X(cuda_embedding, cuda_embedding_args)           \
    X(cuda_gather, cuda_embedding_args)              \
    X(cuda_embedding_link, cuda_embedding_dw_args)   \
    X(cuda_embedding_dw, cuda_embedding_dw_args)     \
    X(cuda_rope, cuda_rope_args)                     \
    X(cuda_dropout, cuda_dropout_args)               \
    X(cuda_latent, cuda_latent_args)                 \
    X(cuda_latent_dr, cuda_latent_args)              \
    X(cuda_step_begin, cuda_step_args)               \
    X(cuda_step_loss, cuda_step_args)                \
    X(cuda_grad_norm, cuda_step_args)                \
    X(cuda_step_decide, cuda_step_args)              \
    X(cuda_adamw, cuda_update_args)                  \
    X(cuda_lion, cuda_update_args)                   \
    X(cuda_muon_begin, cuda_muon_args)               \
    X(cuda_muon_squares, cuda_muon_args)             \
    X(cuda_muon_normalize, cuda_muon_args)           \
    X(cuda_muon_end, cuda_muon_args)                 \
    X(cuda_gemm_bf16_nt, cuda_gemm_args)             \
    X(cuda_gemm_bf16_nn, cuda_gemm_args)             \
    X(cuda_gemm_bf16_tn, cuda_gemm_args)             \
    X(cuda_gemm_f16_nt, cuda_gemm_args)              \
    X(cuda_gemm_f16_nn, cuda_gemm_args)              \
    X(cuda_gemm_f16_tn, cuda_gemm_args)              \
    X(cuda_gemm_plain, cuda_gemm_args)               \
    X(cuda_fp8_operand, cuda_fp8_args)               \
    X(cuda_fp8_codes, cuda_fp8_args)                 \
    X(cuda_fp8_most, cuda_fp8_counts_args)           \
    X(cuda_fp8_counts, cuda_fp8_counts_args)         \
    X(cuda_fp8_history, cuda_fp8_history_args)       \
    X(cuda_head_rows, cuda_head_args)                \
    X(cuda_head_stats, cuda_head_args)               \
    X(cuda_objective, cuda_objective_args)           \
    X(cuda_attention_merge, cuda_merge_args)         \
    X(cuda_sinks_terms, cuda_sinks_args)             \
    X(cuda_sinks_finish, cuda_sinks_args)            \
    X(cuda_attention_plain, cuda_attention_args)     \
    X(cuda_attention_delta, cuda_attention_args)     \
    X(cuda_attention_dq_plain, cuda_attention_args)  \
    X(cuda_attention_dkv_plain, cuda_attention_args) \
    CUDA_MMA_KERNELS(X, bf16)                        \
    CUDA_MMA_KERNELS(X, f16)                         \
    CUDA_WGMMA_KERNELS(X, bf16)                      \
    CUDA_WGMMA_KERNELS(X, f16)
#define CUDA_WGMMA_KERNELS(X, type) CUDA_WGMMA_SIZES(X, type) CUDA_WGMMA_SIZES(X, more_##type)
#define CUDA_WGMMA_SIZES(X, what)   CUDA_WGMMA_OF(X, what##_64) CUDA_WGMMA_OF(X, what##_128)
#define CUDA_WGMMA_OF(X, what)                         \
    X(cuda_attention_wgmma_##what, cuda_wgmma_args)    \
    X(cuda_attention_wgmma_dq_##what, cuda_wgmma_args) \
    X(cuda_attention_wgmma_dkv_##what, cuda_wgmma_args)
#define CUDA_MMA_KERNELS(X, type)                           \
    X(cuda_attention_##type##_64, cuda_attention_args)      \
    X(cuda_attention_##type##_128, cuda_attention_args)     \
    X(cuda_attention_##type##_192, cuda_attention_args)     \
    X(cuda_attention_##type##_256, cuda_attention_args)     \
    X(cuda_attention_dq_##type##_64, cuda_attention_args)   \
    X(cuda_attention_dq_##type##_128, cuda_attention_args)  \
    X(cuda_attention_dq_##type##_192, cuda_attention_args)  \
    X(cuda_attention_dq_##type##_256, cuda_attention_args)  \
    X(cuda_attention_dkv_##type##_64, cuda_attention_args)  \
    X(cuda_attention_dkv_##type##_128, cuda_attention_args) \
    X(cuda_attention_dk_##type##_192, cuda_attention_args)  \
    X(cuda_attention_dk_##type##_256, cuda_attention_args)  \
    X(cuda_attention_dv_##type##_192, cuda_attention_args)  \
    X(cuda_attention_dv_##type##_256, cuda_attention_args)
#endif
