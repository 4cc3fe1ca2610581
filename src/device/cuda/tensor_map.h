// How a GPU of compute capability 9.0 copies tiles of a matrix to shared memory by one instruction:
// the driver encodes addresses, dims and the shape of a tile in 128 bytes, which a kernel gets as
// an argument. Kernels and C read this header.
#ifndef DEVICE_CUDA_TENSOR_MAP_H
#define DEVICE_CUDA_TENSOR_MAP_H

#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_MAP_DIMS = 4, CUDA_MAP_BYTES = 128 };

typedef struct cuda_tensor_map { // CUtensorMap
    uint64_t words[CUDA_MAP_BYTES / 8];
} __attribute__((aligned(64))) cuda_tensor_map;

// Sixteen-bit numbers, dim 0 innermost and dense. A row of a tile has at most 64 numbers (128
// bytes); in shared memory the eight 16-byte pieces of a row change places by the address: bits 4
// to 6 are those of the plain place, exclusive-or bits 7 to 9. Numbers outside of the dims are 0.
typedef struct cuda_tiling {
    void *data;                         // aligned to 16 bytes
    dtype type;                         // bf16 or fp16
    int64_t dims[CUDA_MAP_DIMS];        // in numbers
    int64_t strides[CUDA_MAP_DIMS - 1]; // of dims 1 to 3, in bytes; multiples of 16
    int32_t tile[CUDA_MAP_DIMS];        // in numbers
} cuda_tiling;

#ifdef __cplusplus
}
#endif
#endif
