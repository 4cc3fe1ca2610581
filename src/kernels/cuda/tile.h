// Tiles of 16-bit numbers in shared memory, as copies and mma instructions use them.
//
// A row of a tile has D numbers, D / 8 chunks of 16 bytes. The chunks of a row change places by its
// number, so that the eight rows that an instruction reads lie in different banks.
#ifndef KERNELS_CUDA_TILE_H
#define KERNELS_CUDA_TILE_H

#include "kernels/cuda/view.h"

DEV_INLINE int tile_chunk(int dim, int row, int chunk)
{
    return (row * (dim / 8) + (chunk ^ (row & 7))) * 16;
}

// Copies eight numbers, of which `left` are there (none if it is not positive); the others are 0.
// `aligned`: the numbers begin at a multiple of 16 bytes, and the copy may arrive later.
DEV_INLINE void tile_copy_chunk(const cuda_view *v, bool aligned, int64_t row, int64_t column,
                                int64_t left, char *to)
{
    if (aligned) {
        const int valid = left >= 8 ? 16 : left > 0 ? (int)left * 2 : 0;
        const int64_t at = valid > 0 ? row * v->stride + column : 0;
        dev_copy_async16(to, (const uint16_t *)v->data + at, valid);
        return;
    }
    dev_words words;
    for (int i = 0; i < 4; i++) {
        uint32_t pair = 0;
        const uint16_t *at = (const uint16_t *)v->data + row * v->stride + column + 2 * i;
        if (2 * i < left) pair = at[0];
        if (2 * i + 1 < left) pair |= (uint32_t)at[1] << 16;
        words.w[i] = pair;
    }
    dev_store16(to, words);
}

// Copies `count` rows of a head from row `first` on, of which `rows` are there, by all threads.
DEV_INLINE void tile_copy(const cuda_view *v, bool aligned, int dim, int count, int64_t first,
                          int64_t rows, int64_t column, int64_t columns, char *to)
{
    for (int i = dev_thread(); i < count * (dim / 8); i += CUDA_THREADS) {
        const int row = i / (dim / 8), chunk = i % (dim / 8);
        const int64_t left = row < rows ? columns - chunk * 8 : 0;
        tile_copy_chunk(v, aligned, first + row, column + chunk * 8, left,
                        to + tile_chunk(dim, row, chunk));
    }
}

// Fragments of a (16, 16): rows `row` to row + 15, columns k to k + 15 of the tile.
DEV_INLINE void tile_load_a(int dim, const char *tile, int row, int k, uint32_t out[4])
{
    const int lane = dev_thread() % DEV_WARP, i = lane / 8, r = lane % 8;
    dev_matrices_load(out, tile + tile_chunk(dim, row + r + (i & 1) * 8, k / 8 + (i >> 1)));
}

// Fragments of b (16, 16) whose columns are rows `row` to row + 15 of the tile: two times b.
DEV_INLINE void tile_load_b(int dim, const char *tile, int row, int k, uint32_t out[4])
{
    const int lane = dev_thread() % DEV_WARP, i = lane / 8, r = lane % 8;
    dev_matrices_load(out, tile + tile_chunk(dim, row + r + (i >> 1) * 8, k / 8 + (i & 1)));
}

// Fragments of b (16, 16) whose rows are rows `row` to row + 15 of the tile, from column n on.
DEV_INLINE void tile_load_rows(int dim, const char *tile, int row, int n, uint32_t out[4])
{
    const int lane = dev_thread() % DEV_WARP, i = lane / 8, r = lane % 8;
    dev_matrices_load_transposed(out,
                                 tile + tile_chunk(dim, row + r + (i & 1) * 8, n / 8 + (i >> 1)));
}

DEV_INLINE uint32_t tile_pair(dev_half type, float low, float high)
{
    return type == DEV_BF16 ? dev_bf16_pair(low, high) : dev_f16_pair(low, high);
}

// Two neighbouring tiles of sums (16, 8) as fragments of a (16, 16).
DEV_INLINE void tile_as_a(dev_half type, float c[2][4], uint32_t out[4])
{
    out[0] = tile_pair(type, c[0][0], c[0][1]);
    out[1] = tile_pair(type, c[0][2], c[0][3]);
    out[2] = tile_pair(type, c[1][0], c[1][1]);
    out[3] = tile_pair(type, c[1][2], c[1][3]);
}

#endif
