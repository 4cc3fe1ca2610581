// A cache of generation: rows that are appended, and latent attention over it (op/latent.c).
#include "kernels/cuda/args_generation.h"
#include "kernels/cuda/turn.h"

// The row of a cache of `rows` rows that is position `at` of sequence b.
DEV_INLINE int64_t cache_row(const cuda_cache *c, int64_t b, int64_t at, int64_t rows)
{
    if (c->pages.data == NULL) return b * c->cache_seq + at;
    return dev_page_row(&c->pages, c->page, c->page_count, b, at, rows);
}

DEV_INLINE int64_t cache_length(const cuda_cache *c, int64_t b)
{
    const int64_t length = dev_index(&c->lengths, b);
    dev_index_check("a cache", b, length, c->cache_seq + 1);
    return length;
}

// Positions before 0 are padding at the front of a prompt that is shorter than the others.
DEV_KERNEL(cuda_cache_append, cuda_append_args, CUDA_THREADS)
{
    float x[DEV_VECTOR];
    for (int64_t n = dev_block(1); n < a.x.rows; n += dev_blocks(1)) {
        const int64_t b = n / a.cache.seq;
        const int64_t at = cache_length(&a.cache, b) - a.cache.seq + n % a.cache.seq;
        if (at < 0) continue;
        const int64_t row = cache_row(&a.cache, b, at, a.out.rows);
        for (int64_t j = dev_column_first(); j < a.x.columns; j += dev_column_step()) {
            dev_load8(&a.x, n, j, x);
            dev_store8(&a.out, row, j, x);
        }
    }
}

// ---- latent attention ---------------------------------------------------------------------------
// A block has a head of a query. The query is multiplied into the space of the latent rows, so that
// scores and values are products with the narrow rows of the cache and no key is made.
//
//   shared memory   query in that space (R) | rotated query (P) | mean of latent rows (R)
//                   | scores of 64 keys | their exponentials
enum { LATENT_KEYS = 64, LATENT_WARPS = CUDA_THREADS / DEV_WARP };

typedef struct latent_query {
    float *wide, *rotated, *mean, *scores, *weights;
    int64_t n, b, head, keys, plain, rank;
} latent_query;

DEV_INLINE void latent_query_make(const cuda_latent_cached_args *a, const latent_query *s)
{
    const int64_t at = s->head * a->dim, of = s->head * (s->plain + a->value);
    for (int64_t k = dev_thread(); k < s->rank; k += CUDA_THREADS) {
        float sum = 0.0f;
        for (int64_t j = 0; j < s->plain; j++) {
            sum = dev_fma(dev_load(&a->q, s->n, at + j), dev_load(&a->w, of + j, k), sum);
        }
        s->wide[k] = sum;
        s->mean[k] = 0.0f;
    }
    const int64_t half = a->rope / 2, position = dev_index(&a->positions, s->n);
    dev_index_check("latent attention", s->n, position, a->table.rows);
    for (int64_t i = dev_thread(); i < half; i += CUDA_THREADS) {
        const int64_t first = a->interleaved ? 2 * i : i;
        const int64_t second = a->interleaved ? first + 1 : first + half;
        const float x = dev_load(&a->q, s->n, at + s->plain + first);
        const float y = dev_load(&a->q, s->n, at + s->plain + second);
        const float cosine = dev_load(&a->table, position, i);
        const float sine = dev_load(&a->table, position, half + i);
        s->rotated[first] = x * cosine - y * sine;
        s->rotated[second] = y * cosine + x * sine;
    }
}

// A warp has a key at a time.
DEV_INLINE void latent_scores(const cuda_latent_cached_args *a, const latent_query *s, int64_t key,
                              int64_t count)
{
    const int64_t lane = dev_thread() % DEV_WARP;
    for (int64_t i = dev_thread() / DEV_WARP; i < count; i += LATENT_WARPS) {
        const int64_t row = cache_row(&a->cache, s->b, key + i, a->c.rows);
        float sum = 0.0f;
        for (int64_t k = lane; k < s->rank; k += DEV_WARP) {
            sum = dev_fma(s->wide[k], dev_load(&a->c, row, k), sum);
        }
        for (int64_t k = lane; k < a->rope; k += DEV_WARP) {
            sum = dev_fma(s->rotated[k], dev_load(&a->r, row, k), sum);
        }
        sum = dev_warp_sum(sum);
        if (lane == 0) s->scores[i] = sum * a->scale;
    }
}

// Adds the latent rows of some keys. Returns the sum of weights so far; *highest: of all scores.
DEV_INLINE float latent_add(const cuda_latent_cached_args *a, const latent_query *s, int64_t key,
                            int64_t count, float sum, float *highest)
{
    float most = *highest;
    for (int64_t i = 0; i < count; i++) most = fmaxf(most, s->scores[i]);
    const float factor = *highest == -INFINITY ? 0.0f : expf(*highest - most);
    if (dev_thread() < count) s->weights[dev_thread()] = expf(s->scores[dev_thread()] - most);
    dev_barrier();
    sum *= factor;
    for (int64_t i = 0; i < count; i++) sum += s->weights[i];
    for (int64_t k = dev_thread(); k < s->rank; k += CUDA_THREADS) {
        float mean = s->mean[k] * factor;
        for (int64_t i = 0; i < count; i++) {
            const int64_t row = cache_row(&a->cache, s->b, key + i, a->c.rows);
            mean = dev_fma(s->weights[i], dev_load(&a->c, row, k), mean);
        }
        s->mean[k] = mean;
    }
    *highest = most;
    return sum;
}

// Grid: queries, heads.
DEV_KERNEL(cuda_latent_cached, cuda_latent_cached_args, CUDA_THREADS)
{
    latent_query s;
    s.n = dev_block(0);
    s.head = dev_block(1);
    s.b = s.n / a.cache.seq;
    s.plain = a.dim - a.rope;
    s.rank = a.c.columns;
    s.keys = dev_max(0, cache_length(&a.cache, s.b) - a.cache.seq + s.n % a.cache.seq + 1);
    s.wide = (float *)dev_shared();
    s.rotated = s.wide + s.rank;
    s.mean = s.rotated + a.rope;
    s.scores = s.mean + s.rank;
    s.weights = s.scores + LATENT_KEYS;
    float sum = 0.0f, highest = -INFINITY;
    latent_query_make(&a, &s);
    dev_barrier();
    for (int64_t key = 0; key < s.keys; key += LATENT_KEYS) {
        const int64_t count = dev_min(LATENT_KEYS, s.keys - key);
        latent_scores(&a, &s, key, count);
        dev_barrier();
        sum = latent_add(&a, &s, key, count, sum, &highest);
        dev_barrier();
    }
    const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
    const int64_t of = s.head * (s.plain + a.value) + s.plain, lane = dev_thread() % DEV_WARP;
    for (int64_t j = dev_thread() / DEV_WARP; j < a.value; j += LATENT_WARPS) {
        float y = 0.0f;
        for (int64_t k = lane; k < s.rank; k += DEV_WARP) {
            y = dev_fma(dev_load(&a.w, of + j, k), s.mean[k], y);
        }
        y = dev_warp_sum(y);
        if (lane == 0) dev_store(&a.y, s.n, s.head * a.value + j, y * inverse);
    }
}
