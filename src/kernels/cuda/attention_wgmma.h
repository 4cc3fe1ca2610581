// Parts of the attention kernels for GPUs of compute capability 9.0 (attention_wgmma.cu and
// attention_bwd_wgmma.cu). Their lanes have the rows and columns of scores that those of
// attention_mma.h have: a group of four warps has 64 rows, a block two groups that compute.
#ifndef KERNELS_CUDA_ATTENTION_WGMMA_H
#define KERNELS_CUDA_ATTENTION_WGMMA_H

#include "kernels/cuda/args_wgmma.h"
#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda/dev_sm90.h"

enum {
    WGMMA_KEY_TILES = WGMMA_KEYS / 8,
    WGMMA_CONSUMERS = 2 * DEV_GROUP,
    WGMMA_WARPS = WGMMA_CONSUMERS / DEV_WARP
};

// Sequences have as many keys as queries here, and places are 32-bit numbers: sums leave few
// registers.
DEV_INLINE dev_span wgmma_span(const cuda_attention_args *a)
{
    dev_span s;
    s.sequence = dev_block(2);
    s.query_begin = s.key_begin = s.sequence * a->seq;
    s.key_count = a->seq;
    s.shift = 0;
    return s;
}

// The tiles of keys that the queries of a block may see.
typedef struct wgmma_walk {
    int first, head, kv; // query
    int begin, tiles;    // first key; number of tiles
} wgmma_walk;

DEV_INLINE wgmma_walk wgmma_walk_of(const cuda_attention_args *a, int keys)
{
    wgmma_walk w;
    // The last queries see the most keys: their blocks start first.
    w.first = (int)(dev_blocks(0) - 1 - dev_block(0)) * WGMMA_ROWS;
    w.head = (int)dev_block(1);
    w.kv = w.head / (a->heads / a->kv_heads);
    const int end = w.first + WGMMA_ROWS < (int)a->seq ? w.first + WGMMA_ROWS : (int)a->seq;
    const int begin = a->window > 0 && w.first >= a->window ? w.first - a->window + 1 : 0;
    w.begin = begin / keys * keys;
    w.tiles = (end - w.begin + keys - 1) / keys;
    return w;
}

// Whether all of `rows` queries from t on see all of `columns` keys from `key` on.
DEV_INLINE bool wgmma_sees_all(const cuda_attention_args *a, int t, int rows, int key, int columns)
{
    const int seq = (int)a->seq;
    if (a->documents.data != NULL || t + rows > seq || key + columns > seq) return false;
    return key + columns - 1 <= t && (a->window <= 0 || key > t + rows - 1 - a->window);
}

// The columns that a lane's two rows see, from low to high, and documents. row: the warp's first.
typedef struct wgmma_sight {
    int low[2], high[2];
    int64_t document[2];
} wgmma_sight;

DEV_INLINE int64_t wgmma_document(const cuda_attention_args *a, int at)
{
    if (a->documents.data == NULL || at >= (int)a->seq) return 0;
    return dev_index(&a->documents, dev_block(2) * a->seq + at);
}

DEV_INLINE wgmma_sight wgmma_sight_of(const cuda_attention_args *a, bool rows_are_keys, int row)
{
    wgmma_sight s;
    const int last = (int)a->seq - 1;
    DEV_UNROLL
    for (int r = 0; r < 2; r++) {
        const int at = row + mma_lane_row(r);
        if (rows_are_keys) {
            const int high = at + a->window - 1;
            s.low[r] = at;
            s.high[r] = a->window > 0 && high < last ? high : last;
        } else {
            s.low[r] = a->window > 0 ? at - a->window + 1 : 0;
            s.high[r] = at;
        }
        if (at > last) s.high[r] = -1;
        s.document[r] = wgmma_document(a, at);
    }
    return s;
}

DEV_INLINE bool wgmma_sees(const wgmma_sight *s, int r, int column, int64_t document)
{
    return column >= s->low[r] && column <= s->high[r] && document == s->document[r];
}

// ---- dropout and caps ---------------------------------------------------------------------------
// Kernels `with_more` have them. No function is called, which products on their way do not allow.

DEV_INLINE float wgmma_tanh(float x)
{
    return 1.0f - 2.0f * dev_reciprocal(1.0f + dev_exp2(2.0f * MMA_LOG2_E * x));
}

// Bit k: whether key 4 quad + k of a query is kept.
DEV_INLINE uint32_t wgmma_kept_quad(const dropout_stream *s, float dropout, int query, int quad)
{
    const philox_words words = dropout_words(s, query, quad);
    uint32_t kept = 0;
    DEV_UNROLL
    for (int k = 0; k < 4; k++) kept |= (rng_uniform(words.w[k]) >= dropout ? 1u : 0u) << k;
    return kept;
}

// Bit 4 n + 2 r + i: whether column i of the lane's row r in tile n of eight is kept. row: the
// warp's first one; column: that of the first tile. One call of Philox gives four keys of a query,
// which two lanes share where columns are keys, and four lanes where rows are keys: each of them
// computes a part.
DEV_INLINE uint32_t wgmma_kept(const cuda_wgmma_args *w, int head, bool rows_are_keys, int row,
                               int column)
{
    const cuda_attention_args *const a = &w->call;
    const float dropout = w->more.dropout;
    const int lane = dev_thread() % DEV_WARP, down = lane / 4, across = lane % 4;
    uint32_t all = 0;
    if (!(dropout > 0.0f)) return 0xffffffffu;
    const dropout_stream stream = dropout_stream_of(
        a->step, a->site, (int32_t)(a->first_head + head), a->first_sequence + dev_block(2));
    DEV_ROLLED
    for (int n = 0; n < 8; n++) {
        const int at = column + 8 * n;
        uint32_t own = 0;
        if (rows_are_keys) {
            const int part = down % 4; // row part / 2, column part % 2
            const uint32_t kept = wgmma_kept_quad(&stream, dropout, at + 2 * across + part % 2,
                                                  (row + 8 * (part / 2)) / 4 + down / 4);
            uint32_t shared = kept << 4 * part;
            shared |= dev_shuffle_xor_bits(shared, 4);
            shared |= dev_shuffle_xor_bits(shared, 8);
            DEV_UNROLL
            for (int e = 0; e < 4; e++) own |= (shared >> (4 * e + part) & 1u) << e;
        } else {
            const int part = across % 2; // row
            const uint32_t kept =
                wgmma_kept_quad(&stream, dropout, row + down + 8 * part, at / 4 + across / 2);
            uint32_t shared = kept << 4 * part;
            shared |= dev_shuffle_xor_bits(shared, 1);
            own = (shared >> 2 * part & 3u) | (shared >> (4 + 2 * part) & 3u) << 2;
        }
        all |= own << 4 * n;
    }
    return all;
}

// One arrival for each warp, whose products have all read their operands.
DEV_INLINE void wgmma_free(uint64_t *barrier)
{
    if (dev_thread() % DEV_WARP == 0) dev_phase_arrive(barrier);
}

// The kernels of a pass, KERNEL(name, type, columns, with dropout or caps).
#define WGMMA_EACH(KERNEL)                     \
    KERNEL(bf16_64, DEV_BF16, 64, false)       \
    KERNEL(bf16_128, DEV_BF16, 128, false)     \
    KERNEL(f16_64, DEV_F16, 64, false)         \
    KERNEL(f16_128, DEV_F16, 128, false)       \
    KERNEL(more_bf16_64, DEV_BF16, 64, true)   \
    KERNEL(more_bf16_128, DEV_BF16, 128, true) \
    KERNEL(more_f16_64, DEV_F16, 64, true)     \
    KERNEL(more_f16_128, DEV_F16, 128, true)

#endif
