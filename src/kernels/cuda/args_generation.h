// The arguments of the kernels of generation (args.h).
#ifndef KERNELS_CUDA_ARGS_GENERATION_H
#define KERNELS_CUDA_ARGS_GENERATION_H

#include "kernels/cuda/args.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_candidate {
    uint32_t order; // falls as the logit rises
    int32_t id;
} cuda_candidate;

// weights (sequences, vocabulary); candidates: two arrays of each sequence.
typedef struct cuda_sample_args {
    cuda_view logits, params, draws, ids;
    double *weights;
    cuda_candidate *candidates;
} cuda_sample_args;

#define CUDA_GENERATION_KERNELS(X) X(cuda_sample, cuda_sample_args)

#ifdef __cplusplus
}
#endif
#endif
