// The arguments of the kernels of adapters (args.h).
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

#define CUDA_ADAPTER_KERNELS(X)            \
    X(cuda_row_squares, cuda_squares_args) \
    X(cuda_magnitude, cuda_magnitude_args)

#ifdef __cplusplus
}
#endif
#endif
