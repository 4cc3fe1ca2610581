// Types of the primitives of dev.h, on GPUs and in the emulator.
#ifndef KERNELS_CUDA_DEV_TYPES_H
#define KERNELS_CUDA_DEV_TYPES_H

#include "base/types.h"

enum { DEV_WARP = 32 };

// The type of the numbers of a and b of an mma. Those of 8 bits go by twos: two e4m3 numbers of b,
// and of a, or e5m2 numbers of a, are where a 16-bit type has one.
typedef enum dev_half { DEV_BF16, DEV_F16, DEV_E4M3, DEV_E5M2 } dev_half;

typedef struct dev_words {
    uint32_t w[4];
} dev_words; // 16 bytes

#endif
