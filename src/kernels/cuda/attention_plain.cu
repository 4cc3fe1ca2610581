// Attention of any types, in fp32: tiles of 32 queries and 32 keys, without a score matrix.
//
// Eight neighbouring lanes share a row of a tile: a query, or in the gradients of keys and values a
// key. Each of them has every eighth column. The probabilities of a tile go through shared memory,
// but only within a warp. Every sum has a fixed order. Source: Dao et al. 2022, arXiv:2205.14135.
#include "kernels/cuda/attention.h"

enum { PLAIN_TILE = 32, PLAIN_LANES = 8, PLAIN_COLUMNS = 256 / PLAIN_LANES, PLAIN_PAIRS = 4 };

// Elements of a row of a tile: those of the wider heads, to a multiple of eight, and one against
// conflicts of banks.
DEV_INLINE int plain_stride(const cuda_attention_args *a)
{
    const int wide = a->head_dim > a->value_dim ? a->head_dim : a->value_dim;
    return (wide + PLAIN_LANES - 1) / PLAIN_LANES * PLAIN_LANES + 1;
}

// Copies rows first to first + 31 of a head of `dim` columns; zeros where there is no row or
// column.
DEV_INLINE void plain_load(const cuda_attention_args *a, const cuda_view *v, int dim, int64_t first,
                           int64_t rows, int64_t head, float *to)
{
    const int stride = plain_stride(a);
    for (int i = dev_thread(); i < PLAIN_TILE * stride; i += CUDA_THREADS) {
        const int row = i / stride, d = i % stride;
        const bool is_there = row < rows && d < dim;
        to[i] = is_there ? dev_load(v, first + row, head * dim + d) : 0.0f;
    }
}

// Copies keys `key` to key + 31, in the order of their numbers.
DEV_INLINE void plain_load_keys(const cuda_attention_args *a, const dev_span *s, const cuda_view *v,
                                int dim, int64_t key, int64_t head, float *to)
{
    const int stride = plain_stride(a);
    for (int i = dev_thread(); i < PLAIN_TILE * stride; i += CUDA_THREADS) {
        const int row = i / stride, d = i % stride;
        const bool is_there = key + row < s->key_count && d < dim;
        to[i] = is_there ? dev_load(v, dev_key_row(a, s, key + row), head * dim + d) : 0.0f;
    }
}

DEV_INLINE float plain_dot(int dim, const float *x, const float *y)
{
    float sum = 0.0f;
    for (int d = 0; d < dim; d++) sum = dev_fma(x[d], y[d], sum);
    return sum;
}

// Adds weight[i] * rows[i][d] over the 32 rows of a tile to this thread's columns d.
DEV_INLINE void plain_add(const cuda_attention_args *a, int dim, const float *weight,
                          const float *rows, float sums[PLAIN_COLUMNS])
{
    const int stride = plain_stride(a), lane = dev_thread() % PLAIN_LANES;
    for (int i = 0; i < PLAIN_TILE; i++) {
        const float w = weight[i];
        DEV_UNROLL
        for (int j = 0; j < PLAIN_COLUMNS; j++) {
            if (j * PLAIN_LANES >= dim) continue;
            sums[j] = dev_fma(w, rows[i * stride + j * PLAIN_LANES + lane], sums[j]);
        }
    }
}

DEV_INLINE void plain_store(int dim, const cuda_view *v, int64_t row, int64_t head, float factor,
                            const float sums[PLAIN_COLUMNS])
{
    const int lane = dev_thread() % PLAIN_LANES;
    DEV_UNROLL
    for (int j = 0; j < PLAIN_COLUMNS; j++) {
        const int d = j * PLAIN_LANES + lane;
        if (d < dim) dev_store(v, row, head * dim + d, sums[j] * factor);
    }
}

DEV_INLINE float plain_row_max(float x)
{
    for (int mask = PLAIN_LANES / 2; mask > 0; mask /= 2) x = fmaxf(x, dev_shuffle_xor(x, mask));
    return x;
}

DEV_INLINE float plain_row_sum(float x)
{
    for (int mask = PLAIN_LANES / 2; mask > 0; mask /= 2) x += dev_shuffle_xor(x, mask);
    return x;
}

// Queries in rows begin to end - 1: all of a sequence, or one of the two pieces of a shard.
typedef struct plain_run {
    int64_t begin, end;
} plain_run;

DEV_INLINE plain_run plain_run_of(const cuda_attention_args *a, int i)
{
    plain_run out = {0, i == 0 ? a->seq : 0};
    zigzag_run runs[2];
    if (a->shards == 0) return out;
    zigzag_shard(a->cp_ways, a->cp_at, a->seq, a->shards, a->shard, runs);
    out.begin = i == 0 ? runs[0].row : runs[1].row;
    out.end = out.begin + runs[0].count;
    return out;
}

// ---- forward ------------------------------------------------------------------------------------
// The state of one query: highest score so far, sum of exp(score - highest).
typedef struct plain_state {
    float highest, sum;
} plain_state;

// Replaces the scores of this thread's four keys by exp(score - highest); returns the factor of
// what was summed before.
DEV_INLINE float plain_softmax(plain_state *state, float p[PLAIN_PAIRS])
{
    float highest = state->highest, sum = 0.0f;
    DEV_UNROLL
    for (int j = 0; j < PLAIN_PAIRS; j++) highest = fmaxf(highest, p[j]);
    highest = plain_row_max(highest);
    const bool sees_none = highest == -INFINITY;
    const float factor = sees_none ? 1.0f : expf(state->highest - highest);
    DEV_UNROLL
    for (int j = 0; j < PLAIN_PAIRS; j++) {
        p[j] = sees_none || p[j] == -INFINITY ? 0.0f : expf(p[j] - highest);
        sum += p[j];
    }
    state->sum = state->sum * factor + plain_row_sum(sum);
    state->highest = highest;
    return factor;
}

// Grid: tiles of queries, heads, sequences.
DEV_KERNEL(cuda_attention_plain, cuda_attention_args, CUDA_THREADS)
{
    const int stride = plain_stride(&a), row = dev_thread() / PLAIN_LANES;
    const int lane = dev_thread() % PLAIN_LANES;
    float *q = (float *)dev_shared(), *k = q + PLAIN_TILE * stride, *v = k + PLAIN_TILE * stride;
    float *p_row = v + PLAIN_TILE * stride + row * PLAIN_TILE;
    const dev_span s = dev_span_of(&a, dev_block(2));
    const int64_t first = dev_block(0) * PLAIN_TILE, t = first + row, head = dev_block(1);
    const int64_t kv = head / (a.heads / a.kv_heads);
    const int64_t end = dev_keys_end(&a, &s, first, dev_min(PLAIN_TILE, a.seq - first));
    plain_state state = {-INFINITY, 0.0f};
    float sums[PLAIN_COLUMNS];
    DEV_UNROLL
    for (int j = 0; j < PLAIN_COLUMNS; j++) sums[j] = 0.0f;
    plain_load(&a, &a.q, a.head_dim, s.query_begin + first, a.seq - first, head, q);
    // Tiles of keys begin at multiples, so that a query's bits do not depend on its tile.
    const int64_t begin = dev_keys_begin(&a, &s, first) / PLAIN_TILE * PLAIN_TILE;
    for (int64_t key = begin; key < end; key += PLAIN_TILE) {
        float p[PLAIN_PAIRS];
        if (!dev_tiles_meet(&a, &s, first, PLAIN_TILE, key, PLAIN_TILE)) continue;
        plain_load_keys(&a, &s, &a.k, a.head_dim, key, kv, k);
        plain_load_keys(&a, &s, &a.v, a.value_dim, key, kv, v);
        dev_barrier();
        for (int j = 0; j < PLAIN_PAIRS; j++) {
            const int i = j * PLAIN_LANES + lane;
            p[j] = -INFINITY;
            if (dev_sees(&a, &s, t, key + i)) {
                p[j] = dev_score(&a,
                                 plain_dot(a.head_dim, q + row * stride, k + i * stride) * a.scale);
            }
        }
        const float factor = plain_softmax(&state, p);
        for (int j = 0; j < PLAIN_PAIRS; j++) {
            const int i = j * PLAIN_LANES + lane;
            p_row[i] = p[j] == 0.0f ? 0.0f : p[j] * dev_keep(&a, &s, head, t, key + i);
        }
        DEV_UNROLL
        for (int j = 0; j < PLAIN_COLUMNS; j++) sums[j] *= factor;
        dev_warp_barrier();
        plain_add(&a, a.value_dim, p_row, v, sums);
        dev_barrier();
    }
    if (t >= a.seq) return;
    float lse = state.sum == 0.0f ? -INFINITY : state.highest + logf(state.sum);
    const float factor = dev_sink_add(&a, head, &lse);
    plain_store(a.value_dim, &a.y, s.query_begin + t, head,
                state.sum == 0.0f ? 0.0f : factor / state.sum, sums);
    if (lane == 0 && a.lse.data != NULL) dev_store(&a.lse, s.query_begin + t, head, lse);
}

// ---- backward -----------------------------------------------------------------------------------
//   dv += m p dy,  dp = m (dy . v),  ds = p (dp - delta) scale,  dq = ds k,  dk += ds q
// where m is the factor of dropout and delta = dy . y = sum of p dp.

// delta (N, H): a warp for each row and head.
DEV_KERNEL(cuda_attention_delta, cuda_attention_args, CUDA_THREADS)
{
    const int64_t at = (dev_block(0) * dev_threads() + dev_thread()) / DEV_WARP;
    const int64_t row = at / a.heads, head = at % a.heads;
    if (row >= a.y.rows) return;
    float sum = 0.0f;
    for (int d = dev_thread() % DEV_WARP; d < a.value_dim; d += DEV_WARP) {
        const int64_t column = head * a.value_dim + d;
        sum += dev_load(&a.dy, row, column) * dev_load(&a.y, row, column);
    }
    sum = dev_warp_sum(sum);
    if (dev_thread() % DEV_WARP == 0) a.delta[at] = sum;
}

// One query and one key: the probability that multiplied v, and ds. Tiles hold their rows.
typedef struct plain_pair {
    float p, ds;
} plain_pair;

DEV_INLINE plain_pair plain_pair_of(const cuda_attention_args *a, const dev_span *s, int64_t head,
                                    int64_t t, int64_t key, const float *const row[4])
{
    plain_pair out = {0.0f, 0.0f};
    if (!dev_sees(a, s, t, key)) return out;
    const int64_t at = s->query_begin + t;
    const float score = dev_score(a, plain_dot(a->head_dim, row[0], row[1]) * a->scale);
    const float p = expf(score - dev_load(&a->lse, at, head)), keep = dev_keep(a, s, head, t, key);
    const float dp = keep * plain_dot(a->value_dim, row[2], row[3]);
    out.p = p * keep;
    out.ds = p * (dp - a->delta[at * a->heads + head]) * a->scale * dev_score_slope(a, score);
    return out;
}

// Grid: tiles of queries (of both runs of a shard), heads, sequences.
DEV_KERNEL(cuda_attention_dq_plain, cuda_attention_args, CUDA_THREADS)
{
    const int stride = plain_stride(&a), row = dev_thread() / PLAIN_LANES;
    const int lane = dev_thread() % PLAIN_LANES;
    float *q = (float *)dev_shared(), *k = q + PLAIN_TILE * stride, *dy = k + PLAIN_TILE * stride;
    float *v = dy + PLAIN_TILE * stride, *ds = v + PLAIN_TILE * stride + row * PLAIN_TILE;
    const dev_span s = dev_span_of(&a, dev_block(2));
    plain_run run = plain_run_of(&a, 0);
    const int64_t tiles = (run.end - run.begin + PLAIN_TILE - 1) / PLAIN_TILE;
    const bool is_second = dev_block(0) >= tiles;
    if (is_second) run = plain_run_of(&a, 1);
    const int64_t first = run.begin + (dev_block(0) - (is_second ? tiles : 0)) * PLAIN_TILE;
    const int64_t t = first + row, head = dev_block(1), kv = head / (a.heads / a.kv_heads);
    const int64_t end = dev_keys_end(&a, &s, first, dev_min(PLAIN_TILE, run.end - first));
    float sums[PLAIN_COLUMNS];
    DEV_UNROLL
    for (int j = 0; j < PLAIN_COLUMNS; j++) sums[j] = 0.0f;
    plain_load(&a, &a.q, a.head_dim, s.query_begin + first, run.end - first, head, q);
    plain_load(&a, &a.dy, a.value_dim, s.query_begin + first, run.end - first, head, dy);
    for (int64_t key = dev_keys_begin(&a, &s, first); key < end; key += PLAIN_TILE) {
        if (!dev_tiles_meet(&a, &s, first, PLAIN_TILE, key, PLAIN_TILE)) continue;
        plain_load_keys(&a, &s, &a.k, a.head_dim, key, kv, k);
        plain_load_keys(&a, &s, &a.v, a.value_dim, key, kv, v);
        dev_barrier();
        for (int i = lane; i < PLAIN_TILE; i += PLAIN_LANES) {
            const float *const rows[4] = {q + row * stride, k + i * stride, dy + row * stride,
                                          v + i * stride};
            ds[i] = plain_pair_of(&a, &s, head, t, key + i, rows).ds;
        }
        dev_warp_barrier();
        plain_add(&a, a.head_dim, ds, k, sums);
        dev_barrier();
    }
    if (t < run.end) plain_store(a.head_dim, &a.dq, s.query_begin + t, head, 1.0f, sums);
}

// Grid: tiles of keys, heads of keys, sequences. The heads of queries that share the keys come in
// order, and so do the runs of queries of each.
DEV_KERNEL(cuda_attention_dkv_plain, cuda_attention_args, CUDA_THREADS)
{
    const int stride = plain_stride(&a), row = dev_thread() / PLAIN_LANES;
    const int lane = dev_thread() % PLAIN_LANES;
    float *q = (float *)dev_shared(), *k = q + PLAIN_TILE * stride, *dy = k + PLAIN_TILE * stride;
    float *v = dy + PLAIN_TILE * stride, *p = v + PLAIN_TILE * stride + row * PLAIN_TILE;
    float *ds = p + PLAIN_TILE * PLAIN_TILE;
    const dev_span s = dev_span_of(&a, dev_block(2));
    const int64_t key = dev_block(0) * PLAIN_TILE, kv = dev_block(1);
    const int64_t group = a.heads / a.kv_heads;
    float dk[PLAIN_COLUMNS], dv[PLAIN_COLUMNS];
    DEV_UNROLL
    for (int j = 0; j < PLAIN_COLUMNS; j++) dk[j] = dv[j] = 0.0f;
    plain_load_keys(&a, &s, &a.k, a.head_dim, key, kv, k);
    plain_load_keys(&a, &s, &a.v, a.value_dim, key, kv, v);
    for (int64_t i = 2 * kv * group; i < 2 * (kv + 1) * group; i++) {
        const int64_t head = i / 2;
        const plain_run run = plain_run_of(&a, (int)(i % 2));
        const int64_t end = dev_min(run.end, dev_queries_end(&a, &s, key, PLAIN_TILE));
        int64_t t = dev_max(run.begin, dev_queries_begin(&a, &s, key));
        for (; t < end; t += PLAIN_TILE) {
            if (!dev_tiles_meet(&a, &s, t, PLAIN_TILE, key, PLAIN_TILE)) continue;
            plain_load(&a, &a.q, a.head_dim, s.query_begin + t, run.end - t, head, q);
            plain_load(&a, &a.dy, a.value_dim, s.query_begin + t, run.end - t, head, dy);
            dev_barrier();
            for (int n = lane; n < PLAIN_TILE; n += PLAIN_LANES) {
                const float *const rows[4] = {q + n * stride, k + row * stride, dy + n * stride,
                                              v + row * stride};
                plain_pair pair = {0.0f, 0.0f};
                if (t + n < run.end) pair = plain_pair_of(&a, &s, head, t + n, key + row, rows);
                p[n] = pair.p;
                ds[n] = pair.ds;
            }
            dev_warp_barrier();
            plain_add(&a, a.head_dim, ds, q, dk);
            plain_add(&a, a.value_dim, p, dy, dv);
            dev_barrier();
        }
    }
    if (key + row >= s.key_count) return;
    const int64_t at = dev_key_row(&a, &s, key + row);
    plain_store(a.head_dim, &a.dk, at, kv, 1.0f, dk);
    plain_store(a.value_dim, &a.dv, at, kv, 1.0f, dv);
}

// ---- two sets of keys, and sinks ----------------------------------------------------------------
// y and lse over both sets; a warp for each row and head.
DEV_KERNEL(cuda_attention_merge, cuda_merge_args, CUDA_THREADS)
{
    const int64_t heads = a.lse.columns, dim = a.y.columns / heads;
    const int64_t at = (dev_block(0) * dev_threads() + dev_thread()) / DEV_WARP;
    const int64_t row = at / heads, head = at % heads;
    if (row >= a.y.rows) return;
    const float first = dev_load(&a.lse_a, row, head), second = dev_load(&a.lse_b, row, head);
    dev_warp_barrier(); // lse may lie on lse_a: all lanes read first
    const float highest = fmaxf(first, second);
    const bool sees_none = highest == -INFINITY;
    const float wa = sees_none ? 0.0f : expf(first - highest);
    const float wb = sees_none ? 0.0f : expf(second - highest);
    for (int64_t j = head * dim + dev_thread() % DEV_WARP; j < (head + 1) * dim; j += DEV_WARP) {
        const float sum = wa * dev_load(&a.a, row, j) + wb * dev_load(&a.b, row, j);
        dev_store(&a.y, row, j, sees_none ? 0.0f : sum / (wa + wb));
    }
    if (dev_thread() % DEV_WARP != 0) return;
    dev_store(&a.lse, row, head, sees_none ? highest : highest + logf(wa + wb));
}

// Terms of the gradients of sinks: of head x, rows of part y, in order. A warp has a row at a time.
DEV_KERNEL(cuda_sinks_terms, cuda_sinks_args, CUDA_THREADS)
{
    float *shared = (float *)dev_shared();
    const int warp = dev_thread() / DEV_WARP, lane = dev_thread() % DEV_WARP;
    const int64_t head = dev_block(0);
    const int64_t end = dev_min((dev_block(1) + 1) * a.part_rows, a.y.rows);
    const float sink = dev_load(&a.sinks, 0, head);
    float sum = 0.0f;
    for (int64_t row = dev_block(1) * a.part_rows + warp; row < end;
         row += CUDA_THREADS / DEV_WARP) {
        float dot = 0.0f;
        for (int64_t j = head * a.dim + lane; j < (head + 1) * a.dim; j += DEV_WARP) {
            dot += dev_load(&a.dy, row, j) * dev_load(&a.y, row, j);
        }
        sum -= expf(sink - dev_load(&a.lse, row, head)) * dev_warp_sum(dot);
    }
    if (lane == 0) shared[warp] = sum;
    dev_barrier();
    if (dev_thread() != 0) return;
    for (int i = 1; i < CUDA_THREADS / DEV_WARP; i++) sum += shared[i];
    a.partial[dev_block(1) * a.heads + head] = sum;
}

DEV_KERNEL(cuda_sinks_finish, cuda_sinks_args, CUDA_THREADS)
{
    const int64_t head = dev_block(0) * dev_threads() + dev_thread();
    if (head >= a.heads) return;
    float sum = a.accumulate != 0 ? dev_load(&a.out, 0, head) : 0.0f;
    for (int64_t part = 0; part < a.parts; part++) sum += a.partial[part * a.heads + head];
    dev_store(&a.out, 0, head, sum);
}
