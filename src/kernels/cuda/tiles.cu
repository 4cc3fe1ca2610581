// Rows that change their places: tiles of ranks as rows or as columns, the zigzag of context
// parallelism, and rows that nothing may read.
#include "kernels/cuda/view.h"
#include "op/zigzag.h"

// The place in x of an element of y, or with `inverse` and ZIGZAG the other way round.
DEV_INLINE float tiles_value(const cuda_tiles_args *a, int64_t i, int64_t j)
{
    float sum = 0.0f;
    if (a->kind == CUDA_PACK) {
        const int64_t tile = i / a->x.rows;
        return dev_load(&a->x, i % a->x.rows, tile / a->repeat * a->y.columns + j);
    }
    const int64_t first = j / a->x.columns * a->repeat;
    for (int64_t k = 0; k < a->repeat; k++) {
        const float term = dev_load(&a->x, (first + k) * a->y.rows + i, j % a->x.columns);
        sum = k == 0 ? term : sum + term;
    }
    return sum;
}

DEV_KERNEL(cuda_tiles, cuda_tiles_args, CUDA_THREADS)
{
    for (int64_t i = dev_block(1); i < a.y.rows; i += dev_blocks(1)) {
        int64_t from = i, to = i;
        if (a.kind == CUDA_ZIGZAG) {
            const int64_t other = zigzag_ordered_row(a.tiles, a.turns, a.x.rows, a.seq, i);
            if (a.inverse) from = other;
            if (!a.inverse) to = other;
        }
        for (int64_t j = dev_column_first(); j < a.y.columns; j += dev_column_step()) {
            float x[DEV_VECTOR];
            if (a.kind == CUDA_ZIGZAG) {
                dev_load8(&a.x, from, j, x);
            } else {
                DEV_UNROLL
                for (int k = 0; k < DEV_VECTOR; k++) {
                    x[k] = j + k < a.y.columns ? tiles_value(&a, i, j + k) : 0.0f;
                }
            }
            dev_store8(&a.y, to, j, x);
        }
    }
}

// Fills the bounded rows that are not there with bytes 0xFF, which are NaN in every type.
DEV_KERNEL(cuda_poison, cuda_view, CUDA_THREADS)
{
    const int64_t width = dev_width(a.type), bytes = a.columns * width;
    const int64_t begin = dev_rows(&a);
    for (int64_t row = begin + dev_block(1); row < a.rows; row += dev_blocks(1)) {
        unsigned char *to = (unsigned char *)a.data + row * a.stride * width;
        for (int64_t i = dev_block(0) * dev_threads() + dev_thread(); i < bytes;
             i += dev_blocks(0) * dev_threads()) {
            to[i] = 0xFF;
        }
    }
}
