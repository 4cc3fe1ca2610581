// Arguments and sizes of the attention kernels for compute capability 9.0 (attention_wgmma.cu and
// attention_bwd_wgmma.cu), which the host reads too.
#ifndef KERNELS_CUDA_ARGS_WGMMA_H
#define KERNELS_CUDA_ARGS_WGMMA_H

#include "device/cuda/tensor_map.h"
#include "kernels/cuda/args.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WGMMA_ROWS = 128, // of a block
    WGMMA_GROUP_ROWS = 64,
    WGMMA_KEYS = 128,        // of a tile of the forward pass
    WGMMA_THREADS = 3 * 128, // two groups that compute, and the producer's
    WGMMA_BARRIER_BYTES = 9 * 8,
    WBWD_SIDE = 64, // other rows of a tile of the gradients
    WBWD_BARRIER_BYTES = 7 * 8
};

// Dropout and caps. cap: that of products, which are scores divided by their scale; 0: there is
// none. keep: the factor of what dropout keeps. Kernels take these numbers from where arguments
// lie, which needs no registers.
typedef struct cuda_wgmma_more {
    float cap, to_cap, dropout, keep; // to_cap: 1 / cap
} cuda_wgmma_more;

// With the tiles of operands: of queries, keys, values and dy.
typedef struct cuda_wgmma_args {
    cuda_tensor_map maps[4];
    cuda_attention_args call;
    cuda_wgmma_more more;
} cuda_wgmma_args;

#ifdef __cplusplus
}
#endif
#endif
