// Gradients of attention of 16-bit types by mma instructions, in two kernels, so that every sum has
// one owner and a fixed order:
//
//   dq     a block has 128 queries of a head and goes over the keys in tiles of 32
//   dk dv  a block has 128 keys of a head of keys and goes over the queries in tiles of 32, for
//          each head of queries that shares the keys; scores are transposed: rows are keys. Sums of
//          256 columns of both do not fit into registers: then each has a launch of its own
//
// q and k have D columns in tiles, v and dy V of them.
//
// With m the factor of dropout: dv += m p dy, dp = m (dy . v), ds = p (dp - delta), dq += ds k,
// dk += ds q; the scale comes last. p and ds are rounded to 16 bits as operands.
#include "kernels/cuda/attention_mma.h"

enum { BWD_SIDE = 32, BWD_TILES = BWD_SIDE / 8 };

// Adds the products of 16 columns from k on.
DEV_INLINE void bwd_product_part(dev_half type, int dim, const char *rows, const char *others,
                                 int k, float out[BWD_TILES][4])
{
    uint32_t a[4], b[4];
    tile_load_a(dim, rows, mma_warp_row(), k, a);
    DEV_UNROLL
    for (int n = 0; n < BWD_TILES; n += 2) {
        tile_load_b(dim, others, n * 8, k, b);
        dev_mma(type, out[n], a, b);
        dev_mma(type, out[n + 1], a, b + 2);
    }
}

// Products of 16 rows of a tile with 32 rows of another: scores, or dp. Sums of more than 128
// columns leave no registers for operands that are loaded early: that loop is rolled.
DEV_INLINE void bwd_product(dev_half type, int dim, const char *rows, const char *others,
                            float out[BWD_TILES][4])
{
    DEV_UNROLL
    for (int i = 0; i < BWD_TILES * 4; i++) out[i / 4][i % 4] = 0.0f;
    if (dim > 128) {
        DEV_ROLLED
        for (int k = 0; k < dim; k += 16) bwd_product_part(type, dim, rows, others, k, out);
    } else {
        DEV_UNROLL
        for (int k = 0; k < dim; k += 16) bwd_product_part(type, dim, rows, others, k, out);
    }
}

// out (16, D) += left (16, 32) rows (32, D)
DEV_INLINE void bwd_add(dev_half type, int dim, float left[BWD_TILES][4], const char *rows,
                        float (*out)[4])
{
    DEV_UNROLL
    for (int k = 0; k < BWD_SIDE / 16; k++) {
        uint32_t a[4];
        tile_as_a(type, &left[2 * k], a);
        DEV_UNROLL
        for (int n = 0; n < dim / 8; n += 2) {
            uint32_t b[4];
            tile_load_rows(dim, rows, k * 16, n * 8, b);
            dev_mma(type, out[n], a, b);
            dev_mma(type, out[n + 1], a, b + 2);
        }
    }
}

// Turns a score and dp into p and ds of one pair. numbers: lse (times log2 e) and delta of the
// query; keep: the factor of dropout.
DEV_INLINE void bwd_pair(const cuda_attention_args *a, float keep, const float numbers[2],
                         bool sees, float *score, float *dp)
{
    float slope = 1.0f, x = *score * (a->scale * MMA_LOG2_E);
    if (a->cap > 0.0f) {
        const float capped = dev_capped(a->cap, *score * a->scale);
        slope = dev_score_slope(a, capped);
        x = capped * MMA_LOG2_E;
    }
    const float p = sees ? dev_exp2(x - numbers[0]) : 0.0f;
    *dp = sees ? p * (keep * *dp - numbers[1]) * slope : 0.0f;
    *score = p * keep;
}

DEV_INLINE float bwd_keep(float factor, const mma_masks *m, int i)
{
    return mma_bit(m->kept, i) ? factor : 0.0f;
}

// The factor of what dropout keeps.
DEV_INLINE float bwd_factor(const cuda_attention_args *a)
{
    return a->dropout > 0.0f ? 1.0f / (1.0f - a->dropout) : 1.0f;
}

// lse (times log2 e) and delta of a query. A query that is not there has zeros.
DEV_INLINE void bwd_numbers(const cuda_attention_args *a, const dev_span *s, int64_t head,
                            int64_t t, float out[2])
{
    const int64_t row = s->query_begin + t;
    out[0] = t < a->seq ? dev_load(&a->lse, row, head) * MMA_LOG2_E : 0.0f;
    out[1] = t < a->seq ? a->delta[row * a->heads + head] : 0.0f;
}

// Copies `count` rows of a head of two tensors: the first has the columns of q, the second of v.
DEV_INLINE void bwd_copy(const cuda_attention_args *a, const cuda_view *first,
                         const cuda_view *second, int dim, int wide, int count, int64_t row,
                         int64_t rows, int64_t head, char *to)
{
    const bool aligned = a->aligned != 0;
    tile_copy(first, aligned, dim, count, row, rows, head * a->head_dim, a->head_dim, to);
    tile_copy(second, aligned, wide, count, row, rows, head * a->value_dim, a->value_dim,
              to + count * dim * 2);
}

// ---- queries ------------------------------------------------------------------------------------
DEV_INLINE void bwd_queries(dev_half type, int dim, int wide, const cuda_attention_args *a,
                            float (*dq)[4])
{
    char *shared = (char *)dev_shared(), *stages = shared + MMA_ROWS * (dim + wide) * 2;
    const int stage_bytes = BWD_SIDE * (dim + wide) * 2;
    const dev_span s = dev_span_of(a, dev_block(2));
    const int64_t first = (dev_blocks(0) - 1 - dev_block(0)) * MMA_ROWS, t = first + mma_warp_row();
    const int64_t head = dev_block(1), kv = head / (a->heads / a->kv_heads);
    const int begin = (int)(dev_keys_begin(a, &s, first) / BWD_SIDE * BWD_SIDE);
    const int end = (int)dev_keys_end(a, &s, first, dev_min(MMA_ROWS, a->seq - first));
    const char *const rows[2] = {shared, shared + MMA_ROWS * dim * 2};
    const mma_bounds bounds = mma_keys_of(a, &s, t);
    const float keep = bwd_factor(a);
    float numbers[2][2];
    bwd_numbers(a, &s, head, t + mma_lane_row(0), numbers[0]);
    bwd_numbers(a, &s, head, t + mma_lane_row(1), numbers[1]);
    DEV_UNROLL
    for (int i = 0; i < dim / 2; i++) dq[i / 4][i % 4] = 0.0f;
    bwd_copy(a, &a->q, &a->dy, dim, wide, MMA_ROWS, s.query_begin + first, a->seq - first, head,
             shared);
    bwd_copy(a, &a->k, &a->v, dim, wide, BWD_SIDE, s.key_begin + begin, s.key_count - begin, kv,
             stages);
    dev_copy_async_commit();
    for (int key = begin, n = 0; key < end; key += BWD_SIDE, n ^= 1) {
        const char *stage = stages + n * stage_bytes;
        const char *const others[2] = {stage, stage + BWD_SIDE * dim * 2};
        float p[BWD_TILES][4], ds[BWD_TILES][4];
        dev_copy_async_wait(0);
        dev_barrier();
        if (key + BWD_SIDE < end) {
            const int64_t next = key + BWD_SIDE;
            bwd_copy(a, &a->k, &a->v, dim, wide, BWD_SIDE, s.key_begin + next, s.key_count - next,
                     kv, stages + (n ^ 1) * stage_bytes);
        }
        dev_copy_async_commit();
        const mma_masks masks = mma_masks_of(a, head, false, BWD_TILES, t, key);
        bwd_product(type, dim, rows[0], others[0], p);
        bwd_product(type, wide, rows[1], others[1], ds);
        DEV_UNROLL
        for (int i = 0; i < BWD_TILES * 4; i++) {
            const int at = key + mma_lane_column(i / 4) + i % 2;
            bwd_pair(a, bwd_keep(keep, &masks, i), numbers[i % 4 / 2],
                     mma_sees(&bounds, i % 4 / 2, at) && mma_bit(masks.seen, i), &p[i / 4][i % 4],
                     &ds[i / 4][i % 4]);
        }
        bwd_add(type, dim, ds, others[0], dq);
    }
    dev_copy_async_wait(0);
    dev_barrier();
    const float factor[2] = {a->scale, a->scale};
    mma_store_rows(type, dim, a->head_dim, &a->dq, shared, s.query_begin + t, a->seq - t, head, dq,
                   factor);
}

// ---- keys and values ----------------------------------------------------------------------------
// The tiles of queries of all heads that share the keys, one after the other.
typedef struct bwd_walk {
    int begin, tiles, group; // first query; tiles of a head; heads
} bwd_walk;

DEV_INLINE void bwd_copy_queries(const cuda_attention_args *a, const dev_span *s, int dim, int wide,
                                 const bwd_walk *w, int n, int kv, char *to)
{
    const int head = kv * w->group + n / w->tiles, t = w->begin + n % w->tiles * BWD_SIDE;
    bwd_copy(a, &a->q, &a->dy, dim, wide, BWD_SIDE, s->query_begin + t, a->seq - t, head, to);
    float *numbers = (float *)(void *)(to + BWD_SIDE * (dim + wide) * 2);
    if (dev_thread() < BWD_SIDE) {
        bwd_numbers(a, s, head, t + dev_thread(), numbers + 2 * dev_thread());
    }
}

// dk or dv may be NULL: the kernel leaves it out, and with dk also dp.
DEV_INLINE void bwd_keys(dev_half type, int dim, int wide, const cuda_attention_args *a,
                         float (*dk)[4], float (*dv)[4])
{
    char *shared = (char *)dev_shared(), *stages = shared + MMA_ROWS * (dim + wide) * 2;
    const int stage_bytes = BWD_SIDE * (dim + wide) * 2 + BWD_SIDE * 8;
    const dev_span s = dev_span_of(a, dev_block(2));
    const int64_t first = dev_block(0) * MMA_ROWS, key = first + mma_warp_row();
    const int end = (int)dev_queries_end(a, &s, first, MMA_ROWS), kv = (int)dev_block(1);
    const char *const rows[2] = {shared, shared + MMA_ROWS * dim * 2};
    const mma_bounds bounds = mma_queries_of(a, &s, key);
    const float keep = bwd_factor(a);
    bwd_walk w;
    w.begin = (int)(dev_queries_begin(a, &s, first) / BWD_SIDE * BWD_SIDE);
    w.tiles = end > w.begin ? (end - w.begin + BWD_SIDE - 1) / BWD_SIDE : 0;
    w.group = (int)(a->heads / a->kv_heads);
    DEV_UNROLL
    for (int i = 0; dk != NULL && i < dim / 2; i++) dk[i / 4][i % 4] = 0.0f;
    DEV_UNROLL
    for (int i = 0; dv != NULL && i < wide / 2; i++) dv[i / 4][i % 4] = 0.0f;
    bwd_copy(a, &a->k, &a->v, dim, wide, MMA_ROWS, s.key_begin + first, s.key_count - first, kv,
             shared);
    if (w.tiles > 0) bwd_copy_queries(a, &s, dim, wide, &w, 0, kv, stages);
    dev_copy_async_commit();
    for (int n = 0; n < w.tiles * w.group; n++) {
        const char *stage = stages + n % 2 * stage_bytes;
        const char *const others[2] = {stage, stage + BWD_SIDE * dim * 2};
        const float *numbers = (const float *)(const void *)(stage + BWD_SIDE * (dim + wide) * 2);
        const int head = kv * w.group + n / w.tiles, t = w.begin + n % w.tiles * BWD_SIDE;
        float p[BWD_TILES][4], ds[BWD_TILES][4] = {{0.0f}};
        dev_copy_async_wait(0);
        dev_barrier();
        if (n + 1 < w.tiles * w.group) {
            bwd_copy_queries(a, &s, dim, wide, &w, n + 1, kv, stages + (n + 1) % 2 * stage_bytes);
        }
        dev_copy_async_commit();
        const mma_masks masks = mma_masks_of(a, head, true, BWD_TILES, key, t);
        bwd_product(type, dim, rows[0], others[0], p);
        if (dk != NULL) bwd_product(type, wide, rows[1], others[1], ds);
        DEV_UNROLL
        for (int i = 0; i < BWD_TILES * 4; i++) {
            const int column = mma_lane_column(i / 4) + i % 2;
            bwd_pair(a, bwd_keep(keep, &masks, i), numbers + 2 * column,
                     mma_sees(&bounds, i % 4 / 2, t + column) && mma_bit(masks.seen, i),
                     &p[i / 4][i % 4], &ds[i / 4][i % 4]);
        }
        if (dv != NULL) bwd_add(type, wide, p, others[1], dv);
        if (dk != NULL) bwd_add(type, dim, ds, others[0], dk);
    }
    dev_copy_async_wait(0);
    dev_barrier();
    const float factor[2] = {a->scale, a->scale}, one[2] = {1.0f, 1.0f};
    const int64_t left = s.key_count - key;
    if (dk != NULL) {
        mma_store_rows(type, dim, a->head_dim, &a->dk, shared, s.key_begin + key, left, kv, dk,
                       factor);
    }
    if (dv != NULL) {
        mma_store_rows(type, wide, a->value_dim, &a->dv, shared + MMA_ROWS * dim * 2,
                       s.key_begin + key, left, kv, dv, one);
    }
}

#define BWD_QUERIES(suffix, type, dim, wide)                                  \
    DEV_KERNEL(cuda_attention_dq_##suffix, cuda_attention_args, CUDA_THREADS) \
    {                                                                         \
        float dq[(dim) / 8][4];                                               \
        bwd_queries(type, dim, wide, &a, dq);                                 \
    }
#define BWD_KEYS(suffix, type, dim, wide)                                      \
    DEV_KERNEL(cuda_attention_dkv_##suffix, cuda_attention_args, CUDA_THREADS) \
    {                                                                          \
        float dk[(dim) / 8][4], dv[(wide) / 8][4];                             \
        bwd_keys(type, dim, wide, &a, dk, dv);                                 \
    }
#define BWD_KEYS_ALONE(suffix, type, dim, wide)                               \
    DEV_KERNEL(cuda_attention_dk_##suffix, cuda_attention_args, CUDA_THREADS) \
    {                                                                         \
        float dk[(dim) / 8][4];                                               \
        bwd_keys(type, dim, wide, &a, dk, NULL);                              \
    }                                                                         \
    DEV_KERNEL(cuda_attention_dv_##suffix, cuda_attention_args, CUDA_THREADS) \
    {                                                                         \
        float dv[(wide) / 8][4];                                              \
        bwd_keys(type, dim, wide, &a, NULL, dv);                              \
    }
#define BWD_KERNELS(suffix, type)                \
    BWD_QUERIES(suffix##_64, type, 64, 64)       \
    BWD_QUERIES(suffix##_128, type, 128, 128)    \
    BWD_QUERIES(suffix##_192, type, 192, 128)    \
    BWD_QUERIES(suffix##_256, type, 256, 256)    \
    BWD_KEYS(suffix##_64, type, 64, 64)          \
    BWD_KEYS(suffix##_128, type, 128, 128)       \
    BWD_KEYS_ALONE(suffix##_192, type, 192, 128) \
    BWD_KEYS_ALONE(suffix##_256, type, 256, 256)
BWD_KERNELS(bf16, DEV_BF16)
BWD_KERNELS(f16, DEV_F16)
