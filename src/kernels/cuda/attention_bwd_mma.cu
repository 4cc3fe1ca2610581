// Gradients of attention of 16-bit types by mma instructions, in two kernels, so that every sum has
// one owner and a fixed order:
//
//   dq     a block has 128 queries of a head and goes over the keys in tiles of 32
//   dk dv  a block has 128 keys of a head of keys and goes over the queries in tiles of 32, for
//          each head of queries that shares the keys; scores are transposed: rows are keys
//
// With m the factor of dropout: dv += m p dy, dp = m (dy . v), ds = p (dp - delta), dq += ds k,
// dk += ds q; the scale comes last. p and ds are rounded to 16 bits as operands.
#include "kernels/cuda/attention_mma.h"

enum { BWD_SIDE = 32, BWD_TILES = BWD_SIDE / 8 };

// Products of 16 rows of two tiles with 32 rows of two others: scores and dp.
DEV_INLINE void bwd_products(dev_half type, int dim, const char *const rows[2],
                             const char *const others[2], float s[BWD_TILES][4],
                             float dp[BWD_TILES][4])
{
    DEV_UNROLL
    for (int i = 0; i < BWD_TILES * 4; i++) s[i / 4][i % 4] = dp[i / 4][i % 4] = 0.0f;
    DEV_UNROLL
    for (int k = 0; k < dim; k += 16) {
        uint32_t a[4], b[4];
        tile_load_a(dim, rows[0], mma_warp_row(), k, a);
        DEV_UNROLL
        for (int n = 0; n < BWD_TILES; n += 2) {
            tile_load_b(dim, others[0], n * 8, k, b);
            dev_mma(type, s[n], a, b);
            dev_mma(type, s[n + 1], a, b + 2);
        }
        tile_load_a(dim, rows[1], mma_warp_row(), k, a);
        DEV_UNROLL
        for (int n = 0; n < BWD_TILES; n += 2) {
            tile_load_b(dim, others[1], n * 8, k, b);
            dev_mma(type, dp[n], a, b);
            dev_mma(type, dp[n + 1], a, b + 2);
        }
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
// query.
DEV_INLINE void bwd_pair(const cuda_attention_args *a, const dev_span *s, int64_t head, int64_t t,
                         int64_t key, const float numbers[2], bool sees, float *score, float *dp)
{
    const float p = sees ? dev_exp2(*score * (a->scale * MMA_LOG2_E) - numbers[0]) : 0.0f;
    const float keep = a->dropout > 0.0f && sees ? dev_keep(a, s, head, t, key) : 1.0f;
    *dp = sees ? p * (keep * *dp - numbers[1]) : 0.0f;
    *score = p * keep;
}

// `column`: the one of the two that goes along columns.
DEV_INLINE bool bwd_sees(const cuda_attention_args *a, const dev_span *s, const mma_bounds *b,
                         int r, int64_t column, int64_t t, int64_t key)
{
    if (!mma_sees(b, r, column)) return false;
    return a->documents.data == NULL || dev_same_document(a, s, s->shift + t, key);
}

// lse (times log2 e) and delta of a query. A query that is not there has zeros.
DEV_INLINE void bwd_numbers(const cuda_attention_args *a, const dev_span *s, int64_t head,
                            int64_t t, float out[2])
{
    const int64_t row = s->query_begin + t;
    out[0] = t < a->seq ? dev_load(&a->lse, row, head) * MMA_LOG2_E : 0.0f;
    out[1] = t < a->seq ? a->delta[row * a->heads + head] : 0.0f;
}

DEV_INLINE void bwd_copy(const cuda_attention_args *a, const cuda_view *first,
                         const cuda_view *second, int dim, int count, int64_t row, int64_t rows,
                         int64_t head, char *to)
{
    const int64_t column = head * a->head_dim;
    const bool aligned = a->aligned != 0;
    tile_copy(first, aligned, dim, count, row, rows, column, a->head_dim, to);
    tile_copy(second, aligned, dim, count, row, rows, column, a->head_dim, to + count * dim * 2);
}

// ---- queries ------------------------------------------------------------------------------------
DEV_INLINE void bwd_queries(dev_half type, int dim, const cuda_attention_args *a, float (*dq)[4])
{
    char *shared = (char *)dev_shared(), *stages = shared + 2 * MMA_ROWS * dim * 2;
    const int stage_bytes = 2 * BWD_SIDE * dim * 2;
    const dev_span s = dev_span_of(a, dev_block(2));
    const int64_t first = (dev_blocks(0) - 1 - dev_block(0)) * MMA_ROWS, t = first + mma_warp_row();
    const int64_t head = dev_block(1), kv = head / (a->heads / a->kv_heads);
    const int64_t begin = dev_keys_begin(a, &s, first) / BWD_SIDE * BWD_SIDE;
    const int64_t end = dev_keys_end(a, &s, first, dev_min(MMA_ROWS, a->seq - first));
    const char *const rows[2] = {shared, shared + MMA_ROWS * dim * 2};
    const mma_bounds bounds = mma_keys_of(a, &s, t);
    float numbers[2][2];
    bwd_numbers(a, &s, head, t + mma_lane_row(0), numbers[0]);
    bwd_numbers(a, &s, head, t + mma_lane_row(1), numbers[1]);
    DEV_UNROLL
    for (int i = 0; i < dim / 2; i++) dq[i / 4][i % 4] = 0.0f;
    bwd_copy(a, &a->q, &a->dy, dim, MMA_ROWS, s.query_begin + first, a->seq - first, head, shared);
    bwd_copy(a, &a->k, &a->v, dim, BWD_SIDE, s.key_begin + begin, s.key_count - begin, kv, stages);
    dev_copy_async_commit();
    for (int64_t key = begin, n = 0; key < end; key += BWD_SIDE, n++) {
        const char *stage = stages + n % 2 * stage_bytes;
        const char *const others[2] = {stage, stage + BWD_SIDE * dim * 2};
        float p[BWD_TILES][4], ds[BWD_TILES][4];
        dev_copy_async_wait(0);
        dev_barrier();
        if (key + BWD_SIDE < end) {
            const int64_t next = key + BWD_SIDE;
            bwd_copy(a, &a->k, &a->v, dim, BWD_SIDE, s.key_begin + next, s.key_count - next, kv,
                     stages + (n + 1) % 2 * stage_bytes);
        }
        dev_copy_async_commit();
        bwd_products(type, dim, rows, others, p, ds);
        DEV_UNROLL
        for (int i = 0; i < BWD_TILES * 4; i++) {
            const int64_t query = t + mma_lane_row(i % 4 / 2);
            const int64_t at = key + mma_lane_column(i / 4) + i % 2;
            bwd_pair(a, &s, head, query, at, numbers[i % 4 / 2],
                     bwd_sees(a, &s, &bounds, i % 4 / 2, at, query, at), &p[i / 4][i % 4],
                     &ds[i / 4][i % 4]);
        }
        bwd_add(type, dim, ds, others[0], dq);
    }
    dev_copy_async_wait(0);
    dev_barrier();
    const float factor[2] = {a->scale, a->scale};
    mma_store_rows(type, dim, a, &a->dq, shared, s.query_begin + t, a->seq - t, head, dq, factor);
}

// ---- keys and values ----------------------------------------------------------------------------
// The tiles of queries of all heads that share the keys, one after the other.
typedef struct bwd_walk {
    int64_t begin, tiles, group; // first query; tiles of a head; heads
} bwd_walk;

DEV_INLINE void bwd_copy_queries(const cuda_attention_args *a, const dev_span *s, int dim,
                                 const bwd_walk *w, int64_t n, int64_t kv, char *to)
{
    const int64_t head = kv * w->group + n / w->tiles, t = w->begin + n % w->tiles * BWD_SIDE;
    bwd_copy(a, &a->q, &a->dy, dim, BWD_SIDE, s->query_begin + t, a->seq - t, head, to);
    float *numbers = (float *)(void *)(to + 2 * BWD_SIDE * dim * 2);
    if (dev_thread() < BWD_SIDE) {
        bwd_numbers(a, s, head, t + dev_thread(), numbers + 2 * dev_thread());
    }
}

DEV_INLINE void bwd_keys(dev_half type, int dim, const cuda_attention_args *a, float (*dk)[4],
                         float (*dv)[4])
{
    char *shared = (char *)dev_shared(), *stages = shared + 2 * MMA_ROWS * dim * 2;
    const int stage_bytes = 2 * BWD_SIDE * dim * 2 + BWD_SIDE * 8;
    const dev_span s = dev_span_of(a, dev_block(2));
    const int64_t first = dev_block(0) * MMA_ROWS, key = first + mma_warp_row(), kv = dev_block(1);
    const int64_t end = dev_queries_end(a, &s, first, MMA_ROWS);
    const char *const rows[2] = {shared, shared + MMA_ROWS * dim * 2};
    const mma_bounds bounds = mma_queries_of(a, &s, key);
    bwd_walk w;
    w.begin = dev_queries_begin(a, &s, first) / BWD_SIDE * BWD_SIDE;
    w.tiles = end > w.begin ? (end - w.begin + BWD_SIDE - 1) / BWD_SIDE : 0;
    w.group = a->heads / a->kv_heads;
    DEV_UNROLL
    for (int i = 0; i < dim / 2; i++) dk[i / 4][i % 4] = dv[i / 4][i % 4] = 0.0f;
    bwd_copy(a, &a->k, &a->v, dim, MMA_ROWS, s.key_begin + first, s.key_count - first, kv, shared);
    if (w.tiles > 0) bwd_copy_queries(a, &s, dim, &w, 0, kv, stages);
    dev_copy_async_commit();
    for (int64_t n = 0; n < w.tiles * w.group; n++) {
        const char *stage = stages + n % 2 * stage_bytes;
        const char *const others[2] = {stage, stage + BWD_SIDE * dim * 2};
        const float *numbers = (const float *)(const void *)(stage + 2 * BWD_SIDE * dim * 2);
        const int64_t head = kv * w.group + n / w.tiles, t = w.begin + n % w.tiles * BWD_SIDE;
        float p[BWD_TILES][4], ds[BWD_TILES][4];
        dev_copy_async_wait(0);
        dev_barrier();
        if (n + 1 < w.tiles * w.group) {
            bwd_copy_queries(a, &s, dim, &w, n + 1, kv, stages + (n + 1) % 2 * stage_bytes);
        }
        dev_copy_async_commit();
        bwd_products(type, dim, rows, others, p, ds);
        DEV_UNROLL
        for (int i = 0; i < BWD_TILES * 4; i++) {
            const int column = mma_lane_column(i / 4) + i % 2;
            const int64_t at = key + mma_lane_row(i % 4 / 2);
            bwd_pair(a, &s, head, t + column, at, numbers + 2 * column,
                     bwd_sees(a, &s, &bounds, i % 4 / 2, t + column, t + column, at),
                     &p[i / 4][i % 4], &ds[i / 4][i % 4]);
        }
        bwd_add(type, dim, p, others[1], dv);
        bwd_add(type, dim, ds, others[0], dk);
    }
    dev_copy_async_wait(0);
    dev_barrier();
    const float factor[2] = {a->scale, a->scale}, one[2] = {1.0f, 1.0f};
    const int64_t left = s.key_count - key;
    mma_store_rows(type, dim, a, &a->dk, shared, s.key_begin + key, left, kv, dk, factor);
    mma_store_rows(type, dim, a, &a->dv, shared + MMA_ROWS * dim * 2, s.key_begin + key, left, kv,
                   dv, one);
}

#define BWD_KERNELS(suffix, type, dim)                                         \
    DEV_KERNEL(cuda_attention_dq_##suffix, cuda_attention_args, CUDA_THREADS)  \
    {                                                                          \
        float dq[(dim) / 8][4];                                                \
        bwd_queries(type, dim, &a, dq);                                        \
    }                                                                          \
    DEV_KERNEL(cuda_attention_dkv_##suffix, cuda_attention_args, CUDA_THREADS) \
    {                                                                          \
        float dk[(dim) / 8][4], dv[(dim) / 8][4];                              \
        bwd_keys(type, dim, &a, dk, dv);                                       \
    }
BWD_KERNELS(bf16_64, DEV_BF16, 64)
BWD_KERNELS(bf16_128, DEV_BF16, 128)
BWD_KERNELS(f16_64, DEV_F16, 64)
BWD_KERNELS(f16_128, DEV_F16, 128)
