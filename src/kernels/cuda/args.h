// The arguments of every CUDA kernel, one struct each, and the list of kernels.
//
// The rows of the backend (C) fill the structs, the kernels (.cu) get them by value. The list names
// a kernel with its struct: the emulator's table and the tests read it.
#ifndef KERNELS_CUDA_ARGS_H
#define KERNELS_CUDA_ARGS_H

#include "op/op_program.h"
#include "op/step.h"

#ifdef __cplusplus
extern "C" {
#endif

// A kernel's block has so many threads unless its comment says otherwise.
enum { CUDA_THREADS = 256, CUDA_MAX_TERMS = 8 };

// Rows of elements; a tensor with one dim is one row. type: a dtype. data NULL: missing.
typedef struct cuda_view {
    void *data;
    int64_t rows, columns, stride;
    int32_t type, unused;
} cuda_view;

// ---- element by element (pointwise.cu) ----------------------------------------------------------
typedef enum cuda_map_kind {
    CUDA_MAP_SUM, // the terms by a tree, in fp32; one term: a cast
    CUDA_MAP_ADD_BIAS,
    CUDA_MAP_ACTIVATION,
    CUDA_MAP_ACTIVATION_BWD,
    CUDA_MAP_ACCUMULATE, // out += in
    CUDA_MAP_ZERO
} cuda_map_kind;
typedef struct cuda_map_args {
    cuda_view in[CUDA_MAX_TERMS], out;
    int32_t kind, terms, activation, unused;
} cuda_map_args;

// h (rows, 2 F), a (rows, F); backward: da too, and dh.
typedef struct cuda_gate_args {
    cuda_view h, a, dh;
    int32_t activation, unused;
} cuda_gate_args;

// ---- norms and sums over rows (norm.cu) ---------------------------------------------------------
// Each of `groups` groups of `dim` columns of a row is normalized by itself.
typedef struct cuda_norm_args {
    cuda_view x, w, b, delta, y, mean, r, h;
    int64_t groups, dim;
    float eps, plus;
    int32_t subtracts_mean, unused;
} cuda_norm_args;

typedef struct cuda_norm_dx_args {
    cuda_view dy, h, r, w, dh, dx;
    int64_t groups, dim;
    float eps, plus;
    int32_t subtracts_mean, unused;
} cuda_norm_dx_args;

typedef enum cuda_column_kind {
    CUDA_COLUMNS_BIAS,      // of dy
    CUDA_COLUMNS_RMSNORM,   // of dy h r
    CUDA_COLUMNS_LAYERNORM, // of dy (h - mean) r, and of dy
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
    int32_t site;
    float p;
} cuda_dropout_args;

// ---- the step block and updates (step.cu, optimizer.cu) -----------------------------------------
typedef struct cuda_step_args {
    cuda_view terms, labels; // losses and labels, or a gradient
    step_block *step;
    int64_t tensor_index;
} cuda_step_args;

typedef struct cuda_update_args {
    cuda_view grad, master, m, v, out[4]; // out: master, m, v, weight
    const step_block *step;
    int64_t first_row;
    double beta1, beta2, lr_scale, decay;
    op_piece piece;
    float eps;
    int32_t tensor_index, stochastic, is_matrix;
} cuda_update_args;

// ---- matrix products (gemm.cu) ------------------------------------------------------------------
// c (m, n) = act(a (m, k) b (k, n) + bias) + before. a is stored (k, m) if a_along_m, b is stored
// (k, n) if b_along_n, else (n, k). aligned: all rows of a and b begin at multiples of 16 bytes.
typedef struct cuda_gemm_args {
    cuda_view a, b, c, bias, before;
    int64_t m, n, k;
    int32_t a_along_m, b_along_n, activation, aligned;
} cuda_gemm_args;

// ---- the head (head.cu) -------------------------------------------------------------------------
// gradient has the bytes of logits, in another type perhaps; missing: only losses.
typedef struct cuda_head_args {
    cuda_view logits, gradient, labels, loss;
    const step_block *step;
    double loss_divisor;
    float z_loss, unused;
} cuda_head_args;

// ---- attention (attention_*.cu) -----------------------------------------------------------------
// Each sequence has seq queries and `keys` rows of keys and values, of which lengths, if given,
// says how many are there. delta: (N, heads), of the backward pass.
typedef struct cuda_attention_args {
    cuda_view q, k, v, y, lse, documents, lengths, dy, dq, dk, dv;
    float *delta;
    const step_host *step;
    int64_t seq, keys, first_sequence, first_head;
    int32_t heads, kv_heads, head_dim, window, site;
    int32_t aligned; // all rows of a head begin at multiples of 16 bytes
    float scale, dropout;
} cuda_attention_args;

#define CUDA_KERNELS(X)                                 \
    X(cuda_map, cuda_map_args)                          \
    X(cuda_gate, cuda_gate_args)                        \
    X(cuda_gate_bwd, cuda_gate_args)                    \
    X(cuda_norm, cuda_norm_args)                        \
    X(cuda_norm_dx, cuda_norm_dx_args)                  \
    X(cuda_column_sums, cuda_column_args)               \
    X(cuda_column_finish, cuda_column_args)             \
    X(cuda_embedding, cuda_embedding_args)              \
    X(cuda_gather, cuda_embedding_args)                 \
    X(cuda_embedding_link, cuda_embedding_dw_args)      \
    X(cuda_embedding_dw, cuda_embedding_dw_args)        \
    X(cuda_rope, cuda_rope_args)                        \
    X(cuda_dropout, cuda_dropout_args)                  \
    X(cuda_step_begin, cuda_step_args)                  \
    X(cuda_step_loss, cuda_step_args)                   \
    X(cuda_grad_norm, cuda_step_args)                   \
    X(cuda_step_decide, cuda_step_args)                 \
    X(cuda_adamw, cuda_update_args)                     \
    X(cuda_gemm_bf16_nt, cuda_gemm_args)                \
    X(cuda_gemm_bf16_nn, cuda_gemm_args)                \
    X(cuda_gemm_bf16_tn, cuda_gemm_args)                \
    X(cuda_gemm_f16_nt, cuda_gemm_args)                 \
    X(cuda_gemm_f16_nn, cuda_gemm_args)                 \
    X(cuda_gemm_f16_tn, cuda_gemm_args)                 \
    X(cuda_gemm_plain, cuda_gemm_args)                  \
    X(cuda_head_rows, cuda_head_args)                   \
    X(cuda_attention_plain, cuda_attention_args)        \
    X(cuda_attention_delta, cuda_attention_args)        \
    X(cuda_attention_dq_plain, cuda_attention_args)     \
    X(cuda_attention_dkv_plain, cuda_attention_args)    \
    X(cuda_attention_bf16_64, cuda_attention_args)      \
    X(cuda_attention_bf16_128, cuda_attention_args)     \
    X(cuda_attention_f16_64, cuda_attention_args)       \
    X(cuda_attention_f16_128, cuda_attention_args)      \
    X(cuda_attention_dq_bf16_64, cuda_attention_args)   \
    X(cuda_attention_dq_bf16_128, cuda_attention_args)  \
    X(cuda_attention_dq_f16_64, cuda_attention_args)    \
    X(cuda_attention_dq_f16_128, cuda_attention_args)   \
    X(cuda_attention_dkv_bf16_64, cuda_attention_args)  \
    X(cuda_attention_dkv_bf16_128, cuda_attention_args) \
    X(cuda_attention_dkv_f16_64, cuda_attention_args)   \
    X(cuda_attention_dkv_f16_128, cuda_attention_args)

#ifdef __cplusplus
}
#endif
#endif
