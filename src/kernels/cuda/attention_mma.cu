// Attention of 16-bit types by mma instructions: a block has 128 queries of a head and goes over
// the keys in tiles of 64. While a tile is used, the next one arrives. Scores and probabilities
// stay in registers: the sums of the first product have the layout of the second one's left
// operand. Queries and keys have D columns, values V of them.
//
//   shared memory   queries, later results (128, D) | keys (64, D), values (64, V) | the same again
//
// Queries of up to 128 columns stay in registers; wider ones are read for each tile of keys.
//
// Source: Dao 2023, arXiv:2307.08691.
#include "kernels/cuda/attention_mma.h"

enum { MMA_KEYS = 64, MMA_TILES = MMA_KEYS / 8 };

enum { MMA_QUERY_REGISTERS = 128 }; // columns of queries that stay in registers

DEV_INLINE void mma_copy_keys(const cuda_attention_args *a, const dev_span *s, int dim, int wide,
                              int64_t key, int64_t kv, char *to)
{
    const int64_t row = s->key_begin + key, rows = s->key_count - key;
    tile_copy(&a->k, a->aligned != 0, dim, MMA_KEYS, row, rows, kv * a->head_dim, a->head_dim, to);
    tile_copy(&a->v, a->aligned != 0, wide, MMA_KEYS, row, rows, kv * a->value_dim, a->value_dim,
              to + MMA_KEYS * dim * 2);
}

// Adds the products of 16 columns of 16 queries and 64 keys.
DEV_INLINE void mma_product(dev_half type, int dim, const uint32_t a[4], const char *keys, int k,
                            float p[MMA_TILES][4])
{
    DEV_UNROLL
    for (int n = 0; n < MMA_TILES; n += 2) {
        uint32_t b[4];
        tile_load_b(dim, keys, n * 8, k, b);
        dev_mma(type, p[n], a, b);
        dev_mma(type, p[n + 1], a, b + 2);
    }
}

// Products of 16 queries and 64 keys. q: the queries in registers, or NULL: they are in the tile,
// and a rolled loop does not load more of them than it multiplies, as there is no register left.
DEV_INLINE void mma_products(dev_half type, int dim, uint32_t (*q)[4], const char *queries,
                             const char *keys, float p[MMA_TILES][4])
{
    DEV_UNROLL
    for (int i = 0; i < MMA_TILES * 4; i++) p[i / 4][i % 4] = 0.0f;
    if (q != NULL) {
        DEV_UNROLL
        for (int k = 0; k < dim / 16; k++) mma_product(type, dim, q[k], keys, k * 16, p);
        return;
    }
    DEV_ROLLED
    for (int k = 0; k < dim / 16; k++) {
        uint32_t a[4];
        tile_load_a(dim, queries, mma_warp_row(), k * 16, a);
        mma_product(type, dim, a, keys, k * 16, p);
    }
}

// Products become scores, times log2 e; -infinity where a key is not seen.
DEV_INLINE void mma_scores(const cuda_attention_args *a, const dev_span *s, int64_t t, int key,
                           const mma_bounds *bounds, uint32_t seen, float p[MMA_TILES][4])
{
    const float scale = a->scale * MMA_LOG2_E;
    const bool sees_all = mma_sees_all(a, s, t, 16, key, MMA_KEYS);
    DEV_UNROLL
    for (int n = 0; n < MMA_TILES; n++) {
        DEV_UNROLL
        for (int i = 0; i < 4; i++) {
            const int at = key + mma_lane_column(n) + i % 2;
            const bool sees = sees_all || (mma_sees(bounds, i / 2, at) && mma_bit(seen, 4 * n + i));
            if (a->cap > 0.0f) {
                p[n][i] = dev_capped(a->cap, p[n][i] * a->scale) * MMA_LOG2_E;
            } else {
                p[n][i] *= scale;
            }
            if (!sees) p[n][i] = -INFINITY;
        }
    }
}

// Replaces scores by probabilities relative to the highest score so far and scales what was summed
// before.
DEV_INLINE void mma_softmax(int dim, mma_state *state, float p[MMA_TILES][4], float (*out)[4])
{
    DEV_UNROLL
    for (int r = 0; r < 2; r++) {
        float highest = state->highest[r], sum = 0.0f;
        DEV_UNROLL
        for (int n = 0; n < MMA_TILES; n++) {
            highest = fmaxf(highest, fmaxf(p[n][2 * r], p[n][2 * r + 1]));
        }
        highest = fmaxf(highest, dev_shuffle_xor(highest, 1));
        highest = fmaxf(highest, dev_shuffle_xor(highest, 2));
        const float base = highest == -INFINITY ? 0.0f : highest; // exp2 of -infinity is 0
        const float factor = dev_exp2(state->highest[r] - base);
        DEV_UNROLL
        for (int n = 0; n < MMA_TILES; n++) {
            p[n][2 * r] = dev_exp2(p[n][2 * r] - base);
            p[n][2 * r + 1] = dev_exp2(p[n][2 * r + 1] - base);
            sum += p[n][2 * r] + p[n][2 * r + 1];
        }
        sum += dev_shuffle_xor(sum, 1);
        sum += dev_shuffle_xor(sum, 2);
        state->sum[r] = state->sum[r] * factor + sum;
        state->highest[r] = highest;
        DEV_UNROLL
        for (int n = 0; n < dim / 8; n++) {
            out[n][2 * r] *= factor;
            out[n][2 * r + 1] *= factor;
        }
    }
}

DEV_INLINE void mma_drop(const cuda_attention_args *a, uint32_t kept, float p[MMA_TILES][4])
{
    const float factor = 1.0f / (1.0f - a->dropout);
    if (!(a->dropout > 0.0f)) return;
    DEV_UNROLL
    for (int i = 0; i < MMA_TILES * 4; i++) p[i / 4][i % 4] *= mma_bit(kept, i) ? factor : 0.0f;
}

DEV_INLINE void mma_values(dev_half type, int dim, const char *values, float p[MMA_TILES][4],
                           float (*out)[4])
{
    DEV_UNROLL
    for (int k = 0; k < MMA_KEYS / 16; k++) {
        uint32_t left[4];
        tile_as_a(type, &p[2 * k], left);
        DEV_UNROLL
        for (int n = 0; n < dim / 8; n += 2) {
            uint32_t b[4];
            tile_load_rows(dim, values, k * 16, n * 8, b);
            dev_mma(type, out[n], left, b);
            dev_mma(type, out[n + 1], left, b + 2);
        }
    }
}

// The queries of a block in fragments: each warp reads its own 16 rows. q NULL: none are kept.
DEV_INLINE void mma_forward(dev_half type, int dim, int wide, const cuda_attention_args *a,
                            uint32_t (*q)[4], float (*out)[4])
{
    char *shared = (char *)dev_shared(), *stages = shared + MMA_ROWS * dim * 2;
    const int stage_bytes = MMA_KEYS * (dim + wide) * 2;
    const dev_span s = dev_span_of(a, dev_block(2));
    // The last queries see the most keys: their blocks start first.
    const int64_t first = (dev_blocks(0) - 1 - dev_block(0)) * MMA_ROWS, t = first + mma_warp_row();
    const int64_t head = dev_block(1), kv = head / (a->heads / a->kv_heads);
    // Places of keys are 32-bit numbers (rows_attention.c), which take fewer registers.
    const int begin = (int)(dev_keys_begin(a, &s, first) / MMA_KEYS * MMA_KEYS);
    const int end = (int)dev_keys_end(a, &s, first, dev_min(MMA_ROWS, a->seq - first));
    const mma_bounds bounds = mma_keys_of(a, &s, t);
    mma_state state = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
    DEV_UNROLL
    for (int i = 0; i < wide / 2; i++) out[i / 4][i % 4] = 0.0f;
    tile_copy(&a->q, a->aligned != 0, dim, MMA_ROWS, s.query_begin + first, a->seq - first,
              head * a->head_dim, a->head_dim, shared);
    mma_copy_keys(a, &s, dim, wide, begin, kv, stages);
    dev_copy_async_commit();
    for (int key = begin, n = 0; key < end; key += MMA_KEYS, n ^= 1) {
        const char *stage = stages + n * stage_bytes;
        float p[MMA_TILES][4];
        dev_copy_async_wait(0);
        dev_barrier();
        if (key == begin && q != NULL) {
            DEV_UNROLL
            for (int k = 0; k < dim / 16; k++)
                tile_load_a(dim, shared, mma_warp_row(), k * 16, q[k]);
        }
        if (key + MMA_KEYS < end) {
            mma_copy_keys(a, &s, dim, wide, key + MMA_KEYS, kv, stages + (n ^ 1) * stage_bytes);
        }
        dev_copy_async_commit();
        const mma_masks masks = mma_masks_of(a, head, false, MMA_TILES, t, key);
        mma_products(type, dim, q, shared, stage, p);
        mma_scores(a, &s, t, key, &bounds, masks.seen, p);
        mma_softmax(wide, &state, p, out);
        mma_drop(a, masks.kept, p);
        mma_values(type, wide, stage + MMA_KEYS * dim * 2, p, out);
    }
    dev_copy_async_wait(0);
    dev_barrier();
    mma_end(type, wide, a, &s, t, head, &state, shared, out);
}

#define MMA_FORWARD(name, type, dim, wide)                                              \
    DEV_KERNEL(cuda_attention_##name, cuda_attention_args, CUDA_THREADS)                \
    {                                                                                   \
        uint32_t q[(dim) / 16][4];                                                      \
        float out[(wide) / 8][4];                                                       \
        mma_forward(type, dim, wide, &a, (dim) <= MMA_QUERY_REGISTERS ? q : NULL, out); \
    }
MMA_FORWARD(bf16_64, DEV_BF16, 64, 64)
MMA_FORWARD(bf16_128, DEV_BF16, 128, 128)
MMA_FORWARD(bf16_192, DEV_BF16, 192, 128)
MMA_FORWARD(bf16_256, DEV_BF16, 256, 256)
MMA_FORWARD(f16_64, DEV_F16, 64, 64)
MMA_FORWARD(f16_128, DEV_F16, 128, 128)
MMA_FORWARD(f16_192, DEV_F16, 192, 128)
MMA_FORWARD(f16_256, DEV_F16, 256, 256)
