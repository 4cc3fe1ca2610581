// Gradients of attention on GPUs of compute capability 9.0 (attention_wgmma.cu), in the two kernels
// of attention_bwd_mma.cu: every sum has one owner and a fixed order.
//
//   dq     a block has 128 queries of a head and goes over the keys in tiles of 64
//   dk dv  a block has 128 keys of a head of keys and goes over the queries in tiles of 64, for
//          each head of queries that shares the keys; rows of scores are keys
//
//   shared memory   own rows of q, or k (two groups, 64 rows each) | the same of dy, or v |
//                   two stages of 64 other rows of both | numbers of their queries | barriers
//
// The producer's first thread starts copies. Its second warp reads lse and delta of the queries of
// a stage where they go along columns. In dq the last product of a tile, into the sums, is computed
// while the scores of the next tile are; dk and dv leave no registers for that.
#include "kernels/cuda/attention_wgmma.h"

enum { WBWD_TILES = WBWD_SIDE / 8, WBWD_STEPS = WBWD_SIDE / 16 };

// The barriers of a block, at the end of shared memory.
typedef struct wbwd_barriers {
    uint64_t own, there[2], numbers[2], free[2];
} wbwd_barriers;

// The tiles of other rows that a block goes over: of one head (dq), or of all heads that share the
// keys, one after the other.
typedef struct wbwd_walk {
    int first, begin, tiles, heads; // first own row; first other row; tiles of a head; heads
    int own_head, other_head;       // the first one
} wbwd_walk;

// Own rows are 64 of each group, of two tensors.
DEV_INLINE char *wbwd_own(char *shared, int dim, int which, int group)
{
    return shared + (which * 2 + group) * WGMMA_GROUP_ROWS * dim * 2;
}

DEV_INLINE char *wbwd_stage(char *shared, int dim, int stage, int which)
{
    return shared + WGMMA_ROWS * dim * 4 + (stage * 2 + which) * WBWD_SIDE * dim * 2;
}

// lse (times log2 e) and delta of the queries of a stage.
DEV_INLINE float *wbwd_numbers(char *shared, int dim, int stage)
{
    char *const after = shared + WGMMA_ROWS * dim * 4 + WBWD_SIDE * dim * 8;
    return (float *)(void *)(after + stage * WBWD_SIDE * 8);
}

DEV_INLINE wbwd_barriers *wbwd_barriers_of(char *shared, int dim)
{
    return (wbwd_barriers *)(void *)wbwd_numbers(shared, dim, 2);
}

DEV_INLINE void wbwd_begin(wbwd_barriers *b)
{
    if (dev_thread() == 0) {
        dev_phase_init(&b->own, 1);
        for (int i = 0; i < 2; i++) {
            dev_phase_init(&b->there[i], 1);
            dev_phase_init(&b->numbers[i], DEV_WARP);
            dev_phase_init(&b->free[i], WGMMA_WARPS);
        }
        dev_phase_fence();
    }
    dev_barrier();
}

// maps: of the own rows, then of the others, two each.
DEV_INLINE void wbwd_produce(int dim, const cuda_tensor_map *const maps[4], const wbwd_walk *w,
                             char *shared, wbwd_barriers *b)
{
    const int sequence = (int)dev_block(2), pieces = dim / 64;
    dev_phase_expect(&b->own, WGMMA_ROWS * dim * 4);
    for (int i = 0; i < 4 * pieces; i++) {
        const int which = i / (2 * pieces), group = i / pieces % 2, piece = i % pieces;
        dev_tile_copy(wbwd_own(shared, dim, which, group) + piece * WGMMA_GROUP_ROWS * 128,
                      maps[which], piece * 64, w->own_head, w->first + group * WGMMA_GROUP_ROWS,
                      sequence, &b->own);
    }
    for (int n = 0; n < w->tiles * w->heads; n++) {
        dev_phase_wait(&b->free[n % 2], n / 2 % 2 ^ 1);
        dev_phase_expect(&b->there[n % 2], WBWD_SIDE * dim * 4);
        for (int i = 0; i < 2 * pieces; i++) {
            dev_tile_copy(wbwd_stage(shared, dim, n % 2, i / pieces) + i % pieces * WBWD_SIDE * 128,
                          maps[2 + i / pieces], i % pieces * 64, w->other_head + n / w->tiles,
                          w->begin + n % w->tiles * WBWD_SIDE, sequence, &b->there[n % 2]);
        }
    }
}

// The second warp of the producer. A query that is not there has zeros.
DEV_INLINE void wbwd_produce_numbers(int dim, const cuda_attention_args *a, const wbwd_walk *w,
                                     char *shared, wbwd_barriers *b)
{
    const int lane = dev_thread() % DEV_WARP;
    for (int n = 0; n < w->tiles * w->heads; n++) {
        float *const to = wbwd_numbers(shared, dim, n % 2);
        const int head = w->other_head + n / w->tiles;
        dev_phase_wait(&b->free[n % 2], n / 2 % 2 ^ 1);
        for (int i = lane; i < WBWD_SIDE; i += DEV_WARP) {
            const int t = w->begin + n % w->tiles * WBWD_SIDE + i;
            const int64_t row = dev_block(2) * a->seq + t;
            to[2 * i] = t < a->seq ? dev_load(&a->lse, row, head) * MMA_LOG2_E : 0.0f;
            to[2 * i + 1] = t < a->seq ? a->delta[row * a->heads + head] : 0.0f;
        }
        dev_phase_arrive(&b->numbers[n % 2]);
    }
}

// Products of the group's 64 rows with the 64 rows of a stage: scores, or dp.
DEV_INLINE void wbwd_products(dev_half type, int dim, uint64_t own, uint64_t others,
                              float p[WBWD_TILES][4])
{
    DEV_UNROLL
    for (int k = 0; k < dim / 16; k++) {
        const int at = k / 4 * WGMMA_GROUP_ROWS * 128 + k % 4 * 32;
        dev_group_product_shared(type, WBWD_TILES, p, dev_matrix_at(own, at),
                                 dev_matrix_at(others, at), k > 0);
    }
}

// Scores and dp with the rows of a stage.
DEV_INLINE void wbwd_scores(dev_half type, int dim, uint64_t first, uint64_t second, char *shared,
                            int stage, float p[WBWD_TILES][4], float dp[WBWD_TILES][4])
{
    wbwd_products(type, dim, first, dev_matrix(wbwd_stage(shared, dim, stage, 0), 0), p);
    wbwd_products(type, dim, second, dev_matrix(wbwd_stage(shared, dim, stage, 1), 0), dp);
    dev_group_commit();
}

// out (64, D) += left (64, 64) rows (64, D)
DEV_INLINE void wbwd_add(dev_half type, int dim, uint32_t left[WBWD_STEPS][4], const char *rows,
                         float (*out)[4])
{
    const uint64_t matrix = dev_matrix(rows, WBWD_SIDE * 128);
    DEV_UNROLL
    for (int k = 0; k < WBWD_STEPS; k++) {
        dev_group_product(type, dim / 8, out, left[k], dev_matrix_at(matrix, k * 16 * 128));
    }
}

DEV_INLINE void wbwd_pack(dev_half type, float p[WBWD_TILES][4], uint32_t out[WBWD_STEPS][4])
{
    DEV_UNROLL
    for (int k = 0; k < WBWD_STEPS; k++) tile_as_a(type, &p[2 * k], out[k]);
    dev_group_operands(WBWD_STEPS, out);
}

// p: products become probabilities, dp becomes ds. The lane's rows are queries, or keys; numbers of
// the queries are those of its rows, or of its columns in shared memory. row: the warp's first one;
// column: the first of the others. What rows see is found anew for each tile. m: NULL if there is
// neither dropout nor a cap. kept: what dropout keeps, found before the products take registers.
DEV_INLINE void wbwd_pairs(const cuda_attention_args *a, const cuda_wgmma_more *m, uint32_t kept,
                           bool rows_are_keys, int row, int column, const float *numbers,
                           float p[WBWD_TILES][4], float dp[WBWD_TILES][4])
{
    const float scale = a->scale * MMA_LOG2_E;
    const bool sees_all = rows_are_keys ? wgmma_sees_all(a, column, WBWD_SIDE, row, 16)
                                        : wgmma_sees_all(a, row, 16, column, WBWD_SIDE);
    const wgmma_sight sight = wgmma_sight_of(a, rows_are_keys, row);
    DEV_UNROLL
    for (int n = 0; n < WBWD_TILES; n++) {
        DEV_UNROLL
        for (int i = 0; i < 2; i++) {
            const int place = mma_lane_column(n) + i, at = column + place;
            const int64_t document = wgmma_document(a, at);
            DEV_UNROLL
            for (int r = 0; r < 2; r++) {
                const float *const query = numbers + 2 * (rows_are_keys ? place : r);
                const bool sees = sees_all || wgmma_sees(&sight, r, at, document);
                float score = p[n][2 * r + i], slope = 1.0f, keep = 1.0f;
                if (m != NULL) {
                    const float part = m->cap > 0.0f ? wgmma_tanh(score * m->to_cap) : 0.0f;
                    score = m->cap > 0.0f ? m->cap * part : score;
                    slope = 1.0f - part * part;
                    keep = (kept >> (4 * n + 2 * r + i) & 1u) != 0 ? m->keep : 0.0f;
                }
                const float x = dev_exp2(dev_fma(score, scale, -query[0]));
                const float ds = x * (m != NULL ? keep * dp[n][2 * r + i] - query[1]
                                                : dp[n][2 * r + i] - query[1]);
                p[n][2 * r + i] = sees ? (m != NULL ? x * keep : x) : 0.0f;
                dp[n][2 * r + i] = sees ? (m != NULL ? ds * slope : ds) : 0.0f;
            }
        }
    }
}

// ---- queries ------------------------------------------------------------------------------------
DEV_INLINE void wbwd_queries(dev_half type, int dim, bool with_more, const cuda_wgmma_args *args,
                             const wbwd_walk *w, char *shared, wbwd_barriers *b, float (*dq)[4])
{
    const cuda_attention_args *const a = &args->call;
    const cuda_wgmma_more *const m = with_more ? &args->more : NULL;
    const int group = dev_thread() / DEV_GROUP;
    const int t = w->first + mma_warp_row();
    const uint64_t q = dev_matrix(wbwd_own(shared, dim, 0, group), 0);
    const uint64_t dy = dev_matrix(wbwd_own(shared, dim, 1, group), 0);
    float p[WBWD_TILES][4], ds[WBWD_TILES][4], numbers[4];
    uint32_t left[WBWD_STEPS][4];
    DEV_UNROLL
    for (int r = 0; r < 2; r++) {
        const int64_t query = t + mma_lane_row(r), row = dev_block(2) * a->seq + query;
        const bool is_there = query < a->seq;
        numbers[2 * r] = is_there ? dev_load(&a->lse, row, w->own_head) * MMA_LOG2_E : 0.0f;
        numbers[2 * r + 1] = is_there ? a->delta[row * a->heads + w->own_head] : 0.0f;
    }
    DEV_UNROLL
    for (int i = 0; i < dim / 2; i++) dq[i / 4][i % 4] = 0.0f;
    uint32_t kept = with_more ? wgmma_kept(args, w->own_head, false, t, w->begin) : 0;
    dev_phase_wait(&b->own, 0);
    dev_phase_wait(&b->there[0], 0);
    dev_group_fence();
    wbwd_scores(type, dim, q, dy, shared, 0, p, ds);
    dev_group_wait(0);
    dev_group_sums(WBWD_TILES, p);
    dev_group_sums(WBWD_TILES, ds);
    wbwd_pairs(a, m, kept, false, t, w->begin, numbers, p, ds);
    wbwd_pack(type, ds, left);
    for (int n = 1; n < w->tiles; n++) {
        const int at = n % 2, key = w->begin + n * WBWD_SIDE;
        if (with_more) kept = wgmma_kept(args, w->own_head, false, t, key);
        dev_phase_wait(&b->there[at], n / 2 % 2);
        dev_group_fence();
        wbwd_scores(type, dim, q, dy, shared, at, p, ds);
        wbwd_add(type, dim, left, wbwd_stage(shared, dim, at ^ 1, 0), dq);
        dev_group_commit();
        dev_group_wait(1);
        dev_group_sums(WBWD_TILES, p);
        dev_group_sums(WBWD_TILES, ds);
        wbwd_pairs(a, m, kept, false, t, key, numbers, p, ds);
        dev_group_wait(0);
        dev_group_sums(dim / 8, dq);
        wgmma_free(&b->free[at ^ 1]);
        wbwd_pack(type, ds, left);
    }
    dev_group_fence();
    wbwd_add(type, dim, left, wbwd_stage(shared, dim, (w->tiles - 1) % 2, 0), dq);
    dev_group_commit();
    dev_group_wait(0);
    dev_group_sums(dim / 8, dq);
    dev_part_barrier(1 + group, DEV_GROUP); // the group's queries become its results
    const float factor[2] = {a->scale, a->scale};
    mma_store_rows(type, dim, a->head_dim, &a->dq, shared, dev_block(2) * a->seq + t, a->seq - t,
                   w->own_head, dq, factor);
}

DEV_INLINE void wbwd_dq(dev_half type, int dim, bool with_more, const cuda_wgmma_args *w,
                        float (*dq)[4])
{
    char *const shared = (char *)dev_shared();
    wbwd_barriers *const b = wbwd_barriers_of(shared, dim);
    const wgmma_walk keys = wgmma_walk_of(&w->call, WBWD_SIDE);
    wbwd_walk walk;
    walk.first = keys.first;
    walk.begin = keys.begin;
    walk.tiles = keys.tiles;
    walk.heads = 1;
    walk.own_head = keys.head;
    walk.other_head = keys.kv;
    wbwd_begin(b);
    if (dev_thread() >= WGMMA_CONSUMERS) {
        const cuda_tensor_map *const maps[4] = {&w->maps[0], &w->maps[3], &w->maps[1], &w->maps[2]};
        dev_registers_give(32);
        if (dev_thread() == WGMMA_CONSUMERS) wbwd_produce(dim, maps, &walk, shared, b);
    } else {
        dev_registers_take(240);
        wbwd_queries(type, dim, with_more, w, &walk, shared, b, dq);
    }
}

// ---- keys and values ----------------------------------------------------------------------------
DEV_INLINE void wbwd_keys(dev_half type, int dim, bool with_more, const cuda_wgmma_args *args,
                          const wbwd_walk *w, char *shared, wbwd_barriers *b, float (*dk)[4],
                          float (*dv)[4])
{
    const cuda_attention_args *const a = &args->call;
    const int group = dev_thread() / DEV_GROUP;
    const int key = w->first + mma_warp_row();
    const uint64_t k = dev_matrix(wbwd_own(shared, dim, 0, group), 0);
    const uint64_t v = dev_matrix(wbwd_own(shared, dim, 1, group), 0);
    DEV_UNROLL
    for (int i = 0; i < dim / 2; i++) dk[i / 4][i % 4] = dv[i / 4][i % 4] = 0.0f;
    dev_phase_wait(&b->own, 0);
    for (int n = 0; n < w->tiles * w->heads; n++) {
        float p[WBWD_TILES][4], ds[WBWD_TILES][4];
        uint32_t left[WBWD_STEPS][4], left_ds[WBWD_STEPS][4];
        const int at = n % 2, t = w->begin + n % w->tiles * WBWD_SIDE;
        const int head = w->other_head + n / w->tiles;
        const uint32_t kept = with_more ? wgmma_kept(args, head, true, key, t) : 0;
        dev_phase_wait(&b->there[at], n / 2 % 2);
        dev_group_fence();
        wbwd_scores(type, dim, k, v, shared, at, p, ds);
        dev_phase_wait(&b->numbers[at], n / 2 % 2);
        dev_group_wait(0);
        dev_group_sums(WBWD_TILES, p);
        dev_group_sums(WBWD_TILES, ds);
        wbwd_pairs(a, with_more ? &args->more : NULL, kept, true, key, t,
                   wbwd_numbers(shared, dim, at), p, ds);
        wbwd_pack(type, p, left);
        wbwd_pack(type, ds, left_ds);
        dev_group_fence();
        wbwd_add(type, dim, left, wbwd_stage(shared, dim, at, 1), dv);
        wbwd_add(type, dim, left_ds, wbwd_stage(shared, dim, at, 0), dk);
        dev_group_commit();
        dev_group_wait(0);
        dev_group_sums(dim / 8, dk);
        dev_group_sums(dim / 8, dv);
        wgmma_free(&b->free[at]);
    }
    dev_part_barrier(1 + group, DEV_GROUP); // the group's keys and values become its results
    const float factor[2] = {a->scale, a->scale}, one[2] = {1.0f, 1.0f};
    const int64_t row = dev_block(2) * a->seq + key, left_rows = a->seq - key;
    mma_store_rows(type, dim, a->head_dim, &a->dk, shared, row, left_rows, w->own_head, dk, factor);
    mma_store_rows(type, dim, a->value_dim, &a->dv, wbwd_own(shared, dim, 1, 0), row, left_rows,
                   w->own_head, dv, one);
}

DEV_INLINE void wbwd_dkv(dev_half type, int dim, bool with_more, const cuda_wgmma_args *w,
                         float (*dk)[4], float (*dv)[4])
{
    char *const shared = (char *)dev_shared();
    wbwd_barriers *const b = wbwd_barriers_of(shared, dim);
    const cuda_attention_args *const a = &w->call;
    wbwd_walk walk;
    walk.first = (int)dev_block(0) * WGMMA_ROWS;
    walk.begin = walk.first; // keys and queries have the same places
    const int seen = walk.first + WGMMA_ROWS - 1 + a->window, seq = (int)a->seq;
    const int end = a->window > 0 && seen < seq ? seen : seq;
    walk.tiles = (end - walk.begin + WBWD_SIDE - 1) / WBWD_SIDE;
    walk.heads = a->heads / a->kv_heads;
    walk.own_head = (int)dev_block(1);
    walk.other_head = walk.own_head * walk.heads;
    wbwd_begin(b);
    if (dev_thread() >= WGMMA_CONSUMERS) {
        const cuda_tensor_map *const maps[4] = {&w->maps[1], &w->maps[2], &w->maps[0], &w->maps[3]};
        dev_registers_give(32);
        if (dev_thread() == WGMMA_CONSUMERS) wbwd_produce(dim, maps, &walk, shared, b);
        if (dev_thread() / DEV_WARP == WGMMA_WARPS + 1) {
            wbwd_produce_numbers(dim, a, &walk, shared, b);
        }
    } else {
        dev_registers_take(240);
        wbwd_keys(type, dim, with_more, w, &walk, shared, b, dk, dv);
    }
}

#define WGMMA_BACKWARD(name, type, dim, with_more)                                    \
    DEV_KERNEL_ALONE(cuda_attention_wgmma_dq_##name, cuda_wgmma_args, WGMMA_THREADS)  \
    {                                                                                 \
        float dq[(dim) / 8][4];                                                       \
        if (DEV_SM90) wbwd_dq(type, dim, with_more, &a, dq);                          \
    }                                                                                 \
    DEV_KERNEL_ALONE(cuda_attention_wgmma_dkv_##name, cuda_wgmma_args, WGMMA_THREADS) \
    {                                                                                 \
        float dk[(dim) / 8][4], dv[(dim) / 8][4];                                     \
        if (DEV_SM90) wbwd_dkv(type, dim, with_more, &a, dk, dv);                     \
    }
WGMMA_EACH(WGMMA_BACKWARD)
