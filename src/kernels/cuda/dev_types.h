// Types of the primitives of dev.h, on GPUs and in the emulator.
#ifndef KERNELS_CUDA_DEV_TYPES_H
#define KERNELS_CUDA_DEV_TYPES_H

#include "base/types.h"

enum { DEV_WARP = 32 };

// The type of the numbers of a and b of an mma.
typedef enum dev_half { DEV_BF16, DEV_F16 } dev_half;

typedef struct dev_words {
    uint32_t w[4];
} dev_words; // 16 bytes

#endif
