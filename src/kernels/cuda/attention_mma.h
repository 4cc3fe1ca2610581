// Parts of the attention kernels that use mma instructions (attention_mma.cu and
// attention_bwd_mma.cu).
//
// A block has eight warps; a warp has 16 rows of scores: queries, or keys in the kernel of their
// gradients. With g = lane / 4 and t = lane % 4 a lane has rows g and g + 8 and of each eight
// columns the columns 2 t and 2 t + 1.
#ifndef KERNELS_CUDA_ATTENTION_MMA_H
#define KERNELS_CUDA_ATTENTION_MMA_H

#include "kernels/cuda/attention.h"
#include "kernels/cuda/tile.h"

enum { MMA_ROWS = 16 * CUDA_THREADS / DEV_WARP }; // of a block

#define MMA_LOG2_E 1.4426950408889634f

DEV_INLINE int mma_lane_row(int r) // r: 0 or 1
{
    return dev_thread() % DEV_WARP / 4 + 8 * r;
}

DEV_INLINE int mma_lane_column(int tile) // the first of two
{
    return tile * 8 + dev_thread() % 4 * 2;
}

DEV_INLINE int mma_warp_row(void)
{
    return dev_thread() / DEV_WARP * 16;
}

// Whether all of the queries t to t + rows - 1 see all of the keys key to key + columns - 1.
DEV_INLINE bool mma_sees_all(const cuda_attention_args *a, const dev_span *s, int64_t t,
                             int64_t rows, int64_t key, int64_t columns)
{
    if (a->documents.data != NULL || t + rows > a->seq || key + columns > s->key_count)
        return false;
    if (key + columns - 1 > s->shift + t) return false;
    return a->window <= 0 || key > s->shift + t + rows - 1 - a->window;
}

// Two rows of a lane: highest score so far (times scale and log2 e) and sum of the probabilities.
typedef struct mma_state {
    float highest[2], sum[2];
} mma_state;

// The columns that the two rows of a lane see, from low to high, regardless of documents.
typedef struct mma_bounds {
    int low[2], high[2];
} mma_bounds;

// Rows are queries, columns are keys.
DEV_INLINE mma_bounds mma_keys_of(const cuda_attention_args *a, const dev_span *s, int64_t t)
{
    mma_bounds b;
    DEV_UNROLL
    for (int r = 0; r < 2; r++) {
        const int64_t query = t + mma_lane_row(r), position = s->shift + query;
        b.low[r] = a->window > 0 ? (int)(position - a->window + 1) : 0;
        b.high[r] = query < a->seq ? (int)dev_min(position, s->key_count - 1) : -1;
    }
    return b;
}

// Rows are keys, columns are queries.
DEV_INLINE mma_bounds mma_queries_of(const cuda_attention_args *a, const dev_span *s, int64_t key)
{
    mma_bounds b;
    DEV_UNROLL
    for (int r = 0; r < 2; r++) {
        const int64_t at = key + mma_lane_row(r), first = at - s->shift;
        b.low[r] = (int)first;
        b.high[r] =
            a->window > 0 ? (int)dev_min(first + a->window - 1, a->seq - 1) : (int)a->seq - 1;
        if (at >= s->key_count) b.high[r] = -1;
    }
    return b;
}

DEV_INLINE bool mma_sees(const mma_bounds *b, int r, int column)
{
    return column >= b->low[r] && column <= b->high[r];
}

// Documents and dropout of a lane's numbers in tiles of eight columns: bit 4 n + 2 r + i is that of
// column i of its row r in tile n. `row`: the warp's first one; `column`: that of the first tile.
// They are functions, called before the products of a tile: when they were called for each number,
// the sums on their way went to memory and back around every call.
DEV_CALLED uint32_t mma_same_documents(const cuda_attention_args *a, bool rows_are_keys, int tiles,
                                       int64_t row, int64_t column)
{
    const dev_span s = dev_span_of(a, dev_block(2)); // the caller's stays in registers
    const mma_bounds b = rows_are_keys ? mma_queries_of(a, &s, row) : mma_keys_of(a, &s, row);
    uint32_t seen = 0;
    DEV_ROLLED
    for (int i = 0; i < 4 * tiles; i++) {
        const int64_t own = row + mma_lane_row(i % 4 / 2);
        const int64_t at = column + mma_lane_column(i / 4) + i % 2;
        const int64_t query = rows_are_keys ? at : own, key = rows_are_keys ? own : at;
        if (!mma_sees(&b, i % 4 / 2, (int)at)) continue;
        seen |= (dev_same_document(a, &s, s.shift + query, key) ? 1u : 0u) << i;
    }
    return seen;
}

DEV_CALLED uint32_t mma_kept(const cuda_attention_args *a, int64_t head, bool rows_are_keys,
                             int tiles, int64_t row, int64_t column)
{
    const dev_span s = dev_span_of(a, dev_block(2));
    uint32_t kept = 0;
    DEV_ROLLED
    for (int i = 0; i < 4 * tiles; i++) {
        const int64_t own = row + mma_lane_row(i % 4 / 2);
        const int64_t at = column + mma_lane_column(i / 4) + i % 2;
        const float factor =
            dev_keep(a, &s, head, rows_are_keys ? at : own, rows_are_keys ? own : at);
        kept |= (factor > 0.0f ? 1u : 0u) << i;
    }
    return kept;
}

// Masks of a tile; without documents and dropout all bits are set.
typedef struct mma_masks {
    uint32_t seen, kept;
} mma_masks;

DEV_INLINE mma_masks mma_masks_of(const cuda_attention_args *a, int64_t head, bool rows_are_keys,
                                  int tiles, int64_t row, int64_t column)
{
    mma_masks m = {0xffffffffu, 0xffffffffu};
    if (a->documents.data != NULL) {
        m.seen = mma_same_documents(a, rows_are_keys, tiles, row, column);
    }
    if (a->dropout > 0.0f) m.kept = mma_kept(a, head, rows_are_keys, tiles, row, column);
    return m;
}

DEV_INLINE bool mma_bit(uint32_t mask, int i)
{
    return (mask >> i & 1u) != 0;
}

// Writes 16 rows of sums of a head of `columns`, times a factor for each of a lane's two rows,
// through the warp's rows of a tile (16-bit numbers).
DEV_INLINE void mma_store_rows(dev_half type, int dim, int columns, const cuda_view *to, char *tile,
                               int64_t row, int64_t rows, int64_t head, float (*sums)[4],
                               const float factor[2])
{
    const int lane = dev_thread() % DEV_WARP, begin = mma_warp_row();
    DEV_UNROLL
    for (int n = 0; n < dim / 8; n++) {
        DEV_UNROLL
        for (int r = 0; r < 2; r++) {
            const uint32_t pair =
                tile_pair(type, sums[n][2 * r] * factor[r], sums[n][2 * r + 1] * factor[r]);
            dev_store4(tile + tile_chunk(dim, begin + mma_lane_row(r), n) + lane % 4 * 4, pair);
        }
    }
    dev_warp_barrier();
    DEV_ROLLED
    for (int i = lane; i < 16 * (dim / 8); i += DEV_WARP) {
        const int at = i / (dim / 8), chunk = i % (dim / 8);
        const int64_t left = columns - chunk * 8;
        if (at >= rows || left <= 0) continue;
        uint16_t *out = (uint16_t *)to->data + (row + at) * to->stride + head * columns + chunk * 8;
        const dev_words words = dev_load16(tile + tile_chunk(dim, begin + at, chunk));
        if (left >= 8 && ((uintptr_t)out & 15) == 0) {
            dev_store16(out, words);
            continue;
        }
        DEV_UNROLL
        for (int k = 0; k < 8; k++) {
            if (k < left) out[k] = (uint16_t)(words.w[k / 2] >> (k % 2 * 16));
        }
    }
}

// Writes the results of 16 queries, and the logarithms of their sums.
DEV_INLINE void mma_end(dev_half type, int wide, const cuda_attention_args *a, const dev_span *s,
                        int64_t t, int64_t head, const mma_state *state, char *tile,
                        float (*out)[4])
{
    float factor[2];
    DEV_UNROLL
    for (int r = 0; r < 2; r++) {
        const int64_t query = t + mma_lane_row(r);
        const bool sees_none = state->sum[r] == 0.0f;
        float lse = sees_none ? -INFINITY : state->highest[r] / MMA_LOG2_E + logf(state->sum[r]);
        factor[r] = sees_none ? 0.0f : dev_sink_add(a, head, &lse) / state->sum[r];
        if (dev_thread() % 4 != 0 || query >= a->seq || a->lse.data == NULL) continue;
        dev_store(&a->lse, s->query_begin + query, head, lse);
    }
    mma_store_rows(type, wide, a->value_dim, &a->y, tile, s->query_begin + t, a->seq - t, head, out,
                   factor);
}

#endif
