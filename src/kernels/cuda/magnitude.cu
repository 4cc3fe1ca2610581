// Lengths of the rows of a weight with its adapter, and factors that they give (op/magnitude.c).
#include "kernels/cuda/args_adapters.h"
#include "kernels/cuda/view.h"

enum { SQUARES_WARPS = CUDA_THREADS / DEV_WARP, SQUARES_ROWS = CUDA_SQUARES_ROWS };

// Adds columns j to j + 7 of b a, of the rows from `row` on, to terms. Rows that are not there are
// the last one again.
DEV_INLINE void squares_terms(const cuda_squares_args *a, int64_t row, int64_t j,
                              float terms[SQUARES_ROWS][DEV_VECTOR])
{
    const int64_t last = a->w.rows - 1;
    float v[DEV_VECTOR];
    for (int64_t r = 0; r < a->a.rows; r++) {
        dev_load_some(&a->a, r, j, a->w.columns - j, v);
        DEV_UNROLL
        for (int i = 0; i < SQUARES_ROWS; i++) {
            const float factor = dev_load(&a->b, dev_min(row + i, last), r);
            DEV_UNROLL
            for (int k = 0; k < DEV_VECTOR; k++) terms[i][k] += factor * v[k];
        }
    }
}

// A warp has four rows, so that each number of a is read once for all of them; its lanes take eight
// columns at a time.
DEV_KERNEL(cuda_row_squares, cuda_squares_args, CUDA_THREADS)
{
    const int64_t row = (dev_block(0) * SQUARES_WARPS + dev_thread() / DEV_WARP) * SQUARES_ROWS;
    const int64_t first = dev_thread() % DEV_WARP * DEV_VECTOR, last = a.w.rows - 1;
    if (row > last) return;
    float sums[SQUARES_ROWS], terms[SQUARES_ROWS][DEV_VECTOR], w[DEV_VECTOR];
    DEV_UNROLL
    for (int i = 0; i < SQUARES_ROWS; i++) sums[i] = 0.0f;
    for (int64_t j = first; j < a.w.columns; j += DEV_WARP * DEV_VECTOR) {
        DEV_UNROLL
        for (int i = 0; i < SQUARES_ROWS; i++) {
            DEV_UNROLL
            for (int k = 0; k < DEV_VECTOR; k++) terms[i][k] = 0.0f;
        }
        squares_terms(&a, row, j, terms);
        DEV_UNROLL
        for (int i = 0; i < SQUARES_ROWS; i++) {
            dev_load_some(&a.w, dev_min(row + i, last), j, a.w.columns - j, w);
            DEV_UNROLL
            for (int k = 0; k < DEV_VECTOR; k++) { // columns that are not there: 0 in w and a
                const float v = w[k] + a.scale * terms[i][k];
                sums[i] += v * v;
            }
        }
    }
    DEV_UNROLL
    for (int i = 0; i < SQUARES_ROWS; i++) {
        const float sum = dev_warp_sum(sums[i]);
        if (first == 0 && row + i <= last) dev_store(&a.squares, 0, row + i, sum);
    }
}

DEV_KERNEL(cuda_magnitude, cuda_magnitude_args, CUDA_THREADS)
{
    float m[DEV_VECTOR], squares[DEV_VECTOR], x[DEV_VECTOR];
    for (int64_t j = dev_column_first(); j < a.y.columns; j += dev_column_step()) {
        dev_load8(&a.m, 0, j, m);
        dev_load8(&a.squares, 0, j, squares);
        DEV_UNROLL
        for (int k = 0; k < DEV_VECTOR; k++) m[k] *= dev_inverse_length(squares[k]);
        for (int64_t i = dev_block(1); i < a.y.rows; i += dev_blocks(1)) {
            dev_load8(&a.x, i, j, x);
            DEV_UNROLL
            for (int k = 0; k < DEV_VECTOR; k++) x[k] *= m[k];
            dev_store8(&a.y, i, j, x);
        }
    }
}
