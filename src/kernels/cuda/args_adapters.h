// The arguments of the kernels of adapters and of the head of a reward model (args.h).
#ifndef KERNELS_CUDA_ARGS_ADAPTERS_H
#define KERNELS_CUDA_ARGS_ADAPTERS_H

#include "kernels/cuda/args.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- rows of a length of their own (magnitude.cu) -----------------------------------------------
// squares (1, M): of the rows of w + scale b a. A warp has several rows.
enum { CUDA_SQUARES_ROWS = 4 };
typedef struct cuda_squares_args {
    cuda_view w, a, b, squares;
    float scale;
    int32_t unused;
} cuda_squares_args;

typedef struct cuda_magnitude_args {
    cuda_view x, m, squares, y;
} cuda_magnitude_args;

// ---- weights in few bits (dequantize.cu) --------------------------------------------------------
// codes: rows of bytes. table: the numbers of nf4.
typedef struct cuda_dequantize_args {
    cuda_view codes, w;
    float table[16];
    op_quant kind;
    int32_t unused;
} cuda_dequantize_args;

// ---- the head of a reward model (score.cu) ------------------------------------------------------
// is_here: this rank has the terms of dx.
typedef struct cuda_score_args {
    cuda_view x, w, labels, slopes, loss, dx, dw;
    const step_block *step;
    double loss_divisor;
    int32_t accumulate, is_here;
} cuda_score_args;

#define CUDA_ADAPTER_KERNELS(X)              \
    X(cuda_row_squares, cuda_squares_args)   \
    X(cuda_magnitude, cuda_magnitude_args)   \
    X(cuda_dequantize, cuda_dequantize_args) \
    X(cuda_score, cuda_score_args)           \
    X(cuda_score_dw, cuda_score_args)

#ifdef __cplusplus
}
#endif
#endif
