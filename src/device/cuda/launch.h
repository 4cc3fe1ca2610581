// Work for one queue of an NVIDIA GPU, as the rows of the cuda backend post it (kernels/cuda).
//
// A row computes a grid, a block and parameters and calls queue->launch; it never waits and never
// reads device memory. The queue is a stream of the driver, of the driver in tests, or the
// emulator, so one row serves all three.
#ifndef DEVICE_CUDA_LAUNCH_H
#define DEVICE_CUDA_LAUNCH_H

#include "device/cuda/tensor_map.h"
#include "device/device.h"
#include "op/fp8.h"

#ifdef __cplusplus
extern "C" {
#endif

// One launch of a compiled device function. Sizes are in threads and bytes. `params` holds `count`
// pointers to the arguments, `sizes` their bytes; both are read before the launch returns.
typedef struct cuda_launch {
    const char *kernel; // its name in the fat binary (extern "C")
    unsigned grid[3], block[3], shared_bytes;
    void **params;
    const uint32_t *sizes;
    int count;
} cuda_launch;

// A matrix in device memory, row-major: element (r, c) is at data + r * stride + c.
typedef struct cuda_matrix {
    void *data;
    dtype type;
    int64_t rows, columns, stride; // as stored, before any transpose; in elements
} cuda_matrix;

// c = op(a) op(b) + bias, or c += op(a) op(b), with sums in fp32. op(a) is (M, K), op(b) is (K, N),
// c is (M, N). With `gelu` the library also writes gelu (tanh form) of c there, of the type of c.
typedef struct cuda_product {
    cuda_matrix a, b, c;
    bool a_transposed, b_transposed; // op(x) is the transpose of x
    bool accumulate;                 // c continues from its present value; bias is NULL
    const void *bias;                // [N], added to every row; NULL: none
    dtype bias_type;
    void *gelu; // (M, N), dense in rows of gelu_stride; NULL: not wanted
    int64_t gelu_stride;
    // Operands in 8 bits: both, with rows along the summed dim (b is transposed and a is not). An
    // operand is its numbers times factors, which are here for a and b: one for all (FP8_OF_ALL),
    // one for 128 numbers of a row (FP8_OF_ROW; those of the first 128 numbers of each row first),
    // or one for 128 x 128 numbers (FP8_OF_SQUARE; along the rows, a multiple of 4 of them).
    const float *factors[2];
    fp8_block blocks[2];
    bool only_asks; // nothing is posted; ST_OK: the library has an algorithm
} cuda_product;

struct cuda_queue {
    status (*launch)(cuda_queue *q, const cuda_launch *l);
    // By cuBLASLt. NULL, or ST_UNSUPPORTED from it: the row launches its own kernel.
    status (*product)(cuda_queue *q, const cuda_product *p);
    status (*clear)(cuda_queue *q, void *device, size_t bytes);              // to zero bytes
    status (*copy)(cuda_queue *q, void *to, const void *from, size_t bytes); // device to device
    // Encodes tiles for a kernel's copies. NULL: the driver or the GPU has no such copies.
    status (*tiles)(cuda_queue *q, const cuda_tiling *tiles, cuda_tensor_map *out);
    void *workspace; // of the library's products, device memory; kernels do not use it
    size_t workspace_bytes;
    bool fp8_tensors, fp8_blocks; // products in 8 bits, by the numbers that share a factor
    int multiprocessors;
    int arch;             // compute capability: 80, 90, 100
    int max_shared_bytes; // of a block, with the opt-in for large shared memory
};

#ifdef __cplusplus
}
#endif
#endif
