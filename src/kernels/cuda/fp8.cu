// Operands of products in 8 bits (op/fp8.h), rounded block by block: a block of threads has 128
// rows and 128 columns of an operand. It finds the factors in one pass over them and rounds in a
// second one, which reads them from the cache.
//
//   128 of a row      a warp for each row, four columns a lane; the sums of a warp are its own
//   128 of a column   a thread for 64 rows of a column; two threads share a factor
//   128 x 128         the largest magnitude of each warp goes through shared memory
#include "kernels/cuda/view.h"

enum { FP8_SIDE = FP8_BLOCK_SIZE, FP8_WARPS = CUDA_THREADS / DEV_WARP };

// Infinity stands for NaN too, since the larger of a number and NaN is the number.
DEV_INLINE float fp8_larger(float most, float x)
{
    const float magnitude = fabsf(x);
    return magnitude <= most ? most : magnitude < INFINITY ? magnitude : INFINITY;
}

DEV_INLINE void fp8_round(const cuda_fp8_args *a, int64_t row, int64_t column, int k)
{
    dev_store(&a->out, row, column, fp8_rounded(dev_load(&a->in, row, column), k, FP8_E4M3));
}

DEV_INLINE void fp8_rows(const cuda_fp8_args *a, int64_t first, int64_t rows, int64_t column)
{
    const int lane = dev_thread() % DEV_WARP;
    const int64_t end = dev_min(column + FP8_SIDE, a->in.columns);
    for (int64_t i = dev_thread() / DEV_WARP; i < rows; i += FP8_WARPS) {
        float most = 0.0f;
        for (int64_t j = column + lane; j < end; j += DEV_WARP) {
            most = fp8_larger(most, dev_load(&a->in, first + i, j));
        }
        const int k = fp8_exponent(dev_warp_max(most), FP8_E4M3, FP8_EXPONENT_MOST);
        for (int64_t j = column + lane; j < end; j += DEV_WARP) fp8_round(a, first + i, j, k);
    }
}

DEV_INLINE void fp8_columns(const cuda_fp8_args *a, int64_t first, int64_t rows, int64_t column)
{
    float *most = (float *)dev_shared();
    const int half = dev_thread() / FP8_SIDE, at = dev_thread() % FP8_SIDE;
    const bool works = column + at < a->in.columns;
    const int64_t end = dev_min((half + 1) * (int64_t)(FP8_SIDE / 2), rows);
    float own = 0.0f;
    for (int64_t i = half * (FP8_SIDE / 2); i < end && works; i++) {
        own = fp8_larger(own, dev_load(&a->in, first + i, column + at));
    }
    most[dev_thread()] = own;
    dev_barrier();
    const float all = fmaxf(most[at], most[FP8_SIDE + at]);
    const int k = fp8_exponent(all, FP8_E4M3, FP8_EXPONENT_MOST);
    for (int64_t i = half * (FP8_SIDE / 2); i < end && works; i++) {
        fp8_round(a, first + i, column + at, k);
    }
}

DEV_INLINE void fp8_square(const cuda_fp8_args *a, int64_t first, int64_t rows, int64_t column)
{
    float *most = (float *)dev_shared();
    const int64_t columns = dev_min(FP8_SIDE, a->in.columns - column);
    float all = 0.0f;
    for (int64_t e = dev_thread(); e < rows * FP8_SIDE; e += CUDA_THREADS) {
        if (e % FP8_SIDE >= columns) continue;
        all = fp8_larger(all, dev_load(&a->in, first + e / FP8_SIDE, column + e % FP8_SIDE));
    }
    all = dev_warp_max(all);
    if (dev_thread() % DEV_WARP == 0) most[dev_thread() / DEV_WARP] = all;
    dev_barrier();
    for (int i = 0; i < FP8_WARPS; i++) all = fmaxf(all, most[i]);
    const int k = fp8_exponent(all, FP8_E4M3, FP8_EXPONENT_MOST);
    for (int64_t e = dev_thread(); e < rows * FP8_SIDE; e += CUDA_THREADS) {
        if (e % FP8_SIDE < columns) fp8_round(a, first + e / FP8_SIDE, column + e % FP8_SIDE, k);
    }
}

DEV_KERNEL(cuda_fp8_operand, cuda_fp8_args, CUDA_THREADS)
{
    const int64_t stripes = (a.group + FP8_SIDE - 1) / FP8_SIDE;
    const int64_t inside = dev_block(1) % stripes * FP8_SIDE;
    const int64_t first = dev_block(1) / stripes * a.group + inside;
    const int64_t rows = dev_min(FP8_SIDE, a.group - inside), column = dev_block(0) * FP8_SIDE;
    if (a.block == FP8_OF_ROW) fp8_rows(&a, first, rows, column);
    if (a.block == FP8_OF_COLUMN) fp8_columns(&a, first, rows, column);
    if (a.block == FP8_OF_SQUARE) fp8_square(&a, first, rows, column);
}
