// Primitives of GPUs of compute capability 9.0, next to those of dev.h: products by groups of four
// warps that read shared memory by themselves, copies of whole tiles, and barriers in shared memory
// that count what arrived. Kernels that use them have bodies on these GPUs only (DEV_SM90).
//
// Source of all layouts and rules: NVIDIA, PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix
// Instructions", "mbarrier" and "cp.async.bulk.tensor".
#ifndef KERNELS_CUDA_DEV_SM90_H
#define KERNELS_CUDA_DEV_SM90_H

#include "device/cuda/tensor_map.h"
#include "kernels/cuda/dev.h"

#ifdef __CUDACC__
#    include "kernels/cuda/dev_sm90_cuda.h"
#else
#    include "kernels/cuda/dev_sm90_emulated.h"
#endif

enum { DEV_GROUP = 4 * DEV_WARP }; // threads that compute a product together

// A matrix in shared memory, in rows of 64 numbers as the copies of tiles write them. The eight
// rows of 1024 bytes that follow each other belong together and begin at a multiple of 1024.
// leading: bytes from one 64 columns to the next; read only where rows go along k.
DEV_INLINE uint64_t dev_matrix(const void *shared, int leading_bytes)
{
    const uint64_t at = dev_shared_address(shared) & 0x3FFFFu;
    return at >> 4 | (uint64_t)(leading_bytes >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

// The same matrix from a later byte on.
DEV_INLINE uint64_t dev_matrix_at(uint64_t matrix, int bytes)
{
    return matrix + (uint64_t)(bytes >> 4);
}

#endif
