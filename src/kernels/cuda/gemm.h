// Parts of matrix products c (m, n) = a (m, k) b (k, n), with sums in fp32 over k in order: the
// bits of an element do not depend on m, n or its place.
//
//   16-bit types   a block makes 128 x 128 of c with 8 warps; k goes through shared memory in
//                  slices of 32, three at a time: while one is multiplied the others arrive
//
//        warps   0 1 2 3      each 64 x 32: four by four tiles of an mma of 16 x 8 x 16
//                4 5 6 7
//
//   any types      64 x 64 of c by fused multiply-adds in fp32, 4 x 4 a thread
//
// A slice whose stored rows go along k has 4 chunks of 16 bytes a row, one whose rows go along m or
// n has 16. Chunks of a row change places by its number, so that the eight rows that an
// instruction reads lie in different banks.
#ifndef KERNELS_CUDA_GEMM_H
#define KERNELS_CUDA_GEMM_H

#include "kernels/cuda/tile.h"

enum {
    GEMM_SIDE = 128, // of a block's part of c
    GEMM_SLICE = 32, // of k
    GEMM_STAGES = 3,
    GEMM_STAGE_BYTES = 2 * GEMM_SIDE * GEMM_SLICE * 2,
    GEMM_M = 64, // of a warp
    GEMM_N = 32
};

// A chunk of a slice in shared memory: `row` along m or n (along k if the slice is transposed),
// `chunk` along the other dim.
DEV_INLINE int gemm_chunk(bool transposed, int row, int chunk)
{
    if (transposed) return (row * (GEMM_SIDE / 8) + (chunk ^ (row & 7))) * 16;
    return (row * (GEMM_SLICE / 8) + (chunk ^ (row >> 1 & 3))) * 16;
}

// Copies slice `k` of the operand for the block's rows from `first` on.
DEV_INLINE void gemm_copy_slice(const cuda_view *v, bool transposed, bool aligned, int64_t first,
                                int64_t k, char *to)
{
    const int across = transposed ? GEMM_SIDE / 8 : GEMM_SLICE / 8;
    for (int i = dev_thread(); i < GEMM_SIDE * GEMM_SLICE / 8; i += CUDA_THREADS) {
        const int row = i / across, chunk = i % across;
        const int64_t r = transposed ? k + row : first + row;
        const int64_t column = (transposed ? first : k) + chunk * 8;
        tile_copy_chunk(v, aligned, r, column, r < v->rows ? v->columns - column : 0,
                        to + gemm_chunk(transposed, row, chunk));
    }
}

// Fragments of a: rows m to m + 15, columns k to k + 15 of the slice.
DEV_INLINE void gemm_load_a(bool transposed, const char *slice, int m, int k, uint32_t out[4])
{
    const int lane = dev_thread() % DEV_WARP, i = lane / 8, r = lane % 8;
    if (transposed) {
        const int row = k + r + (i >> 1) * 8, chunk = m / 8 + (i & 1);
        dev_matrices_load_transposed(out, slice + gemm_chunk(true, row, chunk));
    } else {
        const int row = m + r + (i & 1) * 8, chunk = k / 8 + (i >> 1);
        dev_matrices_load(out, slice + gemm_chunk(false, row, chunk));
    }
}

// Fragments of two tiles of b: columns n to n + 15. The slice is stored along k if `transposed` is
// false.
DEV_INLINE void gemm_load_b(bool transposed, const char *slice, int n, int k, uint32_t out[4])
{
    const int lane = dev_thread() % DEV_WARP, i = lane / 8, r = lane % 8;
    if (transposed) {
        const int row = k + r + (i & 1) * 8, chunk = n / 8 + (i >> 1);
        dev_matrices_load_transposed(out, slice + gemm_chunk(true, row, chunk));
    } else {
        const int row = n + r + (i >> 1) * 8, chunk = k / 8 + (i & 1);
        dev_matrices_load(out, slice + gemm_chunk(false, row, chunk));
    }
}

// Adds the products of 16 columns of a slice, from k on.
DEV_INLINE void gemm_multiply_part(dev_half type, bool a_transposed, bool b_transposed,
                                   const char *stage, int m, int n, int k, float c[4][4][4])
{
    uint32_t a[4][4], b[2][4];
    DEV_UNROLL
    for (int i = 0; i < 4; i++) gemm_load_a(a_transposed, stage, m + 16 * i, k, a[i]);
    DEV_UNROLL
    for (int j = 0; j < 2; j++) {
        gemm_load_b(b_transposed, stage + GEMM_STAGE_BYTES / 2, n + 16 * j, k, b[j]);
    }
    DEV_UNROLL
    for (int i = 0; i < 4; i++) {
        DEV_UNROLL
        for (int j = 0; j < 4; j++) dev_mma(type, c[i][j], a[i], &b[j / 2][j % 2 * 2]);
    }
}

// Where a GPU turns 8 bits into 16 before it multiplies them (9.0), operands that are loaded early
// take too many registers: that loop is rolled.
DEV_INLINE void gemm_multiply(dev_half type, bool a_transposed, bool b_transposed,
                              const char *stage, int m, int n, float c[4][4][4])
{
    if (type == DEV_E4M3 || type == DEV_E5M2) {
        DEV_ROLLED
        for (int k = 0; k < GEMM_SLICE; k += 16) {
            gemm_multiply_part(type, a_transposed, b_transposed, stage, m, n, k, c);
        }
    } else {
        DEV_UNROLL
        for (int k = 0; k < GEMM_SLICE; k += 16) {
            gemm_multiply_part(type, a_transposed, b_transposed, stage, m, n, k, c);
        }
    }
}

// ---- the end: bias, activation, what c continues from -------------------------------------------
// Finishes eight columns of a row and writes them.
DEV_INLINE void gemm_end(const cuda_gemm_args *a, int64_t row, int64_t column, float x[DEV_VECTOR])
{
    float more[DEV_VECTOR];
    if (row >= a->m || column >= a->n) return;
    if (a->bias.data != NULL) {
        dev_load8(&a->bias, 0, column, more);
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) x[i] += more[i];
    }
    if (a->activation != ACT_NONE) {
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) x[i] = dev_activation(a->activation, x[i]);
    }
    if (a->before.data != NULL && a->order != CUDA_GEMM_SEQUENCE) {
        dev_load8(&a->before, row, column, more);
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) x[i] += more[i];
    }
    dev_store8(&a->c, row, column, x);
}

// Numbers of a row of a warp's part of c in shared memory: four more than it has columns, so that
// the rows of a fragment lie in different banks.
enum { GEMM_ROW = GEMM_N + 4, GEMM_SHARED_BYTES = 8 * GEMM_M * GEMM_ROW * 4 };

// A warp puts its sums into its own part of shared memory and takes them out by rows.
DEV_INLINE void gemm_store(const cuda_gemm_args *a, int64_t m, int64_t n, float c[4][4][4],
                           float *part)
{
    const int lane = dev_thread() % DEV_WARP, g = lane / 4, t = lane % 4 * 2;
    DEV_UNROLL
    for (int i = 0; i < 4; i++) {
        DEV_UNROLL
        for (int j = 0; j < 4; j++) {
            float *at = part + (16 * i + g) * GEMM_ROW + 8 * j + t;
            at[0] = c[i][j][0];
            at[1] = c[i][j][1];
            at[8 * GEMM_ROW] = c[i][j][2];
            at[8 * GEMM_ROW + 1] = c[i][j][3];
        }
    }
    dev_warp_barrier();
    DEV_ROLLED
    for (int i = lane; i < GEMM_M * GEMM_N / DEV_VECTOR; i += DEV_WARP) {
        const int row = i / (GEMM_N / DEV_VECTOR), column = i % (GEMM_N / DEV_VECTOR) * DEV_VECTOR;
        float x[DEV_VECTOR];
        DEV_UNROLL
        for (int k = 0; k < DEV_VECTOR; k++) x[k] = part[row * GEMM_ROW + column + k];
        gemm_end(a, m + row, n + column, x);
    }
}

// Factors of blocks of 128 numbers of 8 bits along k, and what was summed before the block in hand.
// a: a column for each block of k, which has a factor for each row; b: a row of factors.
typedef struct gemm_factors {
    const float *a, *b;
    int64_t a_stride, rows;
    float (*total)[4][4];
} gemm_factors;

enum { GEMM_BLOCK_SLICES = 2 }; // of 64 numbers of 8 bits

// Takes the sums of block `block` of k, times its factors, to the total, and begins anew. row: the
// first one of the warp.
DEV_INLINE void gemm_block_end(const gemm_factors *f, int64_t block, int64_t row, float c[4][4][4])
{
    const int64_t first = row + dev_thread() % DEV_WARP / 4;
    const float *const of_a = f->a + block * f->a_stride + first;
    const float of_b = f->b[block];
    const int left = (int)dev_min(f->rows - first, GEMM_M);
    DEV_UNROLL
    for (int i = 0; i < 8; i++) {
        const float factor = i * 8 < left ? of_a[i * 8] * of_b : 0.0f;
        DEV_UNROLL
        for (int j = 0; j < 8; j++) {
            float *const sum = &c[i / 2][j / 2][i % 2 * 2 + j % 2];
            f->total[i / 2][j / 2][i % 2 * 2 + j % 2] += *sum * factor;
            *sum = 0.0f;
        }
    }
}

// Adds a b to the sums of a warp whose part of c begins at row m0 + m and column n0 + n.
// `a_transposed`: a is stored (k, m); `b_transposed`: b is stored (k, n), else (n, k). `works`: the
// part lies within c. factors: NULL, or those of blocks of k.
DEV_INLINE void gemm_sum(dev_half type, bool a_transposed, bool b_transposed, bool aligned,
                         const cuda_view *a, const cuda_view *b, int64_t k, int64_t m0, int64_t n0,
                         bool works, const gemm_factors *factors, float c[4][4][4])
{
    char *shared = (char *)dev_shared();
    const int warp = dev_thread() / DEV_WARP, m = warp / 4 * GEMM_M, n = warp % 4 * GEMM_N;
    const int64_t slices = (k + GEMM_SLICE - 1) / GEMM_SLICE;
    for (int64_t s = 0; s < slices + GEMM_STAGES - 1; s++) {
        // Slice s - 2 is multiplied while slice s starts on its way to the stage that slice s - 3
        // had; the barrier says that all warps are done with that one.
        const int64_t now = s - (GEMM_STAGES - 1);
        if (now >= 0) {
            dev_copy_async_wait(GEMM_STAGES - 2);
            dev_barrier();
        }
        if (s < slices) {
            char *to = shared + s % GEMM_STAGES * GEMM_STAGE_BYTES;
            gemm_copy_slice(a, a_transposed, aligned, m0, s * GEMM_SLICE, to);
            gemm_copy_slice(b, b_transposed, aligned, n0, s * GEMM_SLICE,
                            to + GEMM_STAGE_BYTES / 2);
        }
        dev_copy_async_commit();
        if (now >= 0 && works) {
            gemm_multiply(type, a_transposed, b_transposed,
                          shared + now % GEMM_STAGES * GEMM_STAGE_BYTES, m, n, c);
            const bool ends = (now + 1) % GEMM_BLOCK_SLICES == 0 || now + 1 == slices;
            if (factors != NULL && ends) {
                gemm_block_end(factors, now / GEMM_BLOCK_SLICES, m0 + m, c);
            }
        }
    }
    dev_barrier();
}

DEV_INLINE void gemm_half_sum(dev_half type, bool a_transposed, bool b_transposed, bool aligned,
                              const cuda_view *a, const cuda_view *b, int64_t k, int64_t m0,
                              int64_t n0, bool works, float c[4][4][4])
{
    gemm_sum(type, a_transposed, b_transposed, aligned, a, b, k, m0, n0, works, NULL, c);
}

DEV_INLINE bool gemm_warp_works(const cuda_gemm_args *a, int64_t m0, int64_t n0)
{
    const int warp = dev_thread() / DEV_WARP;
    return m0 + warp / 4 * GEMM_M < a->m && n0 + warp % 4 * GEMM_N < a->n;
}

// Finishes the block's part of c.
DEV_INLINE void gemm_half_end(const cuda_gemm_args *a, int64_t m0, int64_t n0, float c[4][4][4])
{
    const int warp = dev_thread() / DEV_WARP;
    if (!gemm_warp_works(a, m0, n0)) return;
    gemm_store(a, m0 + warp / 4 * GEMM_M, n0 + warp % 4 * GEMM_N, c,
               (float *)dev_shared() + warp * GEMM_M * GEMM_ROW);
}

DEV_INLINE void gemm_half(dev_half type, bool a_transposed, bool b_transposed,
                          const cuda_gemm_args *a, int64_t m0, int64_t n0)
{
    float c[4][4][4];
    DEV_UNROLL
    for (int i = 0; i < 64; i++) c[i / 16][i / 4 % 4][i % 4] = 0.0f;
    gemm_half_sum(type, a_transposed, b_transposed, a->aligned != 0, &a->a, &a->b, a->k, m0, n0,
                  gemm_warp_works(a, m0, n0), c);
    gemm_half_end(a, m0, n0, c);
}

// ---- any types ----------------------------------------------------------------------------------
enum { PLAIN_SIDE = 64, PLAIN_SLICE = 16 };

// Copies a slice as [k][row] in fp32.
DEV_INLINE void plain_copy(const cuda_view *v, bool transposed, int64_t first, int64_t k, float *to)
{
    for (int i = dev_thread(); i < PLAIN_SIDE * PLAIN_SLICE; i += CUDA_THREADS) {
        const int row = transposed ? i % PLAIN_SIDE : i / PLAIN_SLICE;
        const int at = transposed ? i / PLAIN_SIDE : i % PLAIN_SLICE;
        const int64_t r = transposed ? k + at : first + row, j = transposed ? first + row : k + at;
        to[at * PLAIN_SIDE + row] = r < v->rows && j < v->columns ? dev_load(v, r, j) : 0.0f;
    }
}

// Begins a thread's sixteen sums: in sequence with what c continues from, else with 0.
DEV_INLINE void plain_begin(const cuda_gemm_args *a, int64_t m0, int64_t n0, float c[4][4])
{
    const int64_t m = m0 + dev_thread() / 16 * 4, n = n0 + dev_thread() % 16 * 4;
    const bool continues = a->order == CUDA_GEMM_SEQUENCE && a->before.data != NULL;
    DEV_UNROLL
    for (int i = 0; i < 16; i++) {
        const bool is_there = continues && m + i / 4 < a->m && n + i % 4 < a->n;
        c[i / 4][i % 4] = is_there ? dev_load(&a->before, m + i / 4, n + i % 4) : 0.0f;
    }
}

// Adds a b to a thread's sixteen sums of the block's part of c.
DEV_INLINE void plain_sum(bool a_transposed, bool b_transposed, const cuda_view *a,
                          const cuda_view *b, int64_t count, int64_t m0, int64_t n0, float c[4][4])
{
    float *left = (float *)dev_shared(), *right = left + PLAIN_SIDE * PLAIN_SLICE;
    const int m = dev_thread() / 16 * 4, n = dev_thread() % 16 * 4;
    for (int64_t k = 0; k < count; k += PLAIN_SLICE) {
        plain_copy(a, a_transposed, m0, k, left);
        plain_copy(b, b_transposed, n0, k, right);
        dev_barrier();
        for (int at = 0; at < PLAIN_SLICE; at++) {
            DEV_UNROLL
            for (int i = 0; i < 16; i++) {
                c[i / 4][i % 4] = dev_fma(left[at * PLAIN_SIDE + m + i / 4],
                                          right[at * PLAIN_SIDE + n + i % 4], c[i / 4][i % 4]);
            }
        }
        dev_barrier();
    }
}

// Finishes the block's part of c, through shared memory, by rows: 64 x 64 sums.
DEV_INLINE void plain_end(const cuda_gemm_args *a, int64_t m0, int64_t n0, float c[4][4])
{
    const int m = dev_thread() / 16 * 4, n = dev_thread() % 16 * 4;
    float *part = (float *)dev_shared();
    DEV_UNROLL
    for (int i = 0; i < 16; i++) part[(m + i / 4) * PLAIN_SIDE + n + i % 4] = c[i / 4][i % 4];
    dev_barrier();
    DEV_ROLLED
    for (int i = dev_thread(); i < PLAIN_SIDE * PLAIN_SIDE / DEV_VECTOR; i += CUDA_THREADS) {
        const int row = i / (PLAIN_SIDE / DEV_VECTOR);
        const int column = i % (PLAIN_SIDE / DEV_VECTOR) * DEV_VECTOR;
        float x[DEV_VECTOR];
        DEV_UNROLL
        for (int k = 0; k < DEV_VECTOR; k++) x[k] = part[row * PLAIN_SIDE + column + k];
        gemm_end(a, m0 + row, n0 + column, x);
    }
}

#endif
