// Every primitive that a kernel uses, defined twice: as CUDA under nvcc, and as calls into the
// emulator of the tests otherwise.
//
// A .cu file is written in the language that C17 and C++17 share. nvcc compiles it for GPUs; the C
// compiler compiles the same text for the emulator, which runs the threads of a block as fibres. So
// kernels call functions of this file only: no bare intrinsic and no assembler elsewhere.
//
// A block is one-dimensional and has a multiple of 32 threads. A kernel takes one struct of
// arguments (kernels/cuda/args.h) and all its shared memory is dynamic.
#ifndef KERNELS_CUDA_DEV_H
#define KERNELS_CUDA_DEV_H

#include "kernels/cuda/dev_types.h"

#include <math.h>

#ifdef __CUDACC__
#    include "kernels/cuda/dev_cuda.h"
#else
#    include "kernels/cuda/dev_emulated.h"
#endif

// ---- reductions over a warp: the same tree for every lane, so all lanes get the same bits -------
DEV_INLINE float dev_warp_sum(float x)
{
    for (int mask = DEV_WARP / 2; mask > 0; mask /= 2) x += dev_shuffle_xor(x, mask);
    return x;
}

DEV_INLINE float dev_warp_max(float x)
{
    for (int mask = DEV_WARP / 2; mask > 0; mask /= 2) x = fmaxf(x, dev_shuffle_xor(x, mask));
    return x;
}

DEV_INLINE uint32_t dev_shuffle_xor_bits(uint32_t x, int mask)
{
    return dev_bits_of(dev_shuffle_xor(dev_float_of(x), mask));
}

// ---- 16-bit floating point ----------------------------------------------------------------------
DEV_INLINE float dev_bf16_value(uint32_t bits)
{
    return dev_float_of(bits << 16);
}

#endif
