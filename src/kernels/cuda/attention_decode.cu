// Attention of one query of each sequence over its cache: parts of 128 keys, then their sum.
//
//   keys      0 .. 127       128 .. 255     256 ..         a block for each part, for up to
//   parts     highest, sum   highest, sum   highest, sum   eight heads that share the keys
//             values         values         values
//   joined    in the order of parts: y, lse                a warp for each head
//
// The beginning of a part depends on the numbers of keys alone. So the bits of a sequence do not
// depend on the size of the cache, on pages or on other sequences. Source: Dao et al. 2023,
// "Flash-Decoding for long-context inference".
#include "kernels/cuda/args_generation.h"
#include "kernels/cuda/attention.h"

// LANES share a key, of which each has every eighth vector of columns.
enum {
    PART_LANES = 8,
    PART_AT_ONCE = CUDA_THREADS / PART_LANES,
    PART_VECTORS = 256 / (PART_LANES * DEV_VECTOR)
};

// The keys of part `part` that the query sees: [begin, end).
typedef struct part_keys {
    int64_t first, begin, end;
} part_keys;

DEV_INLINE part_keys part_of(const cuda_attention_args *a, const dev_span *s, int64_t part)
{
    part_keys k;
    k.first = part * CUDA_PART_KEYS;
    k.begin = dev_max(k.first, dev_keys_begin(a, s, 0));
    k.end = dev_min(k.first + CUDA_PART_KEYS, dev_keys_end(a, s, 0, 1));
    return k;
}

DEV_INLINE int part_stride(const cuda_attention_args *a)
{
    return (a->head_dim + DEV_VECTOR - 1) / DEV_VECTOR * DEV_VECTOR;
}

// scores[head][key] of all keys of the part; -infinity for those that the query does not see.
DEV_INLINE void part_scores(const cuda_attention_args *a, const dev_span *s, const part_keys *k,
                            int64_t kv, int heads, const float *q, float *scores)
{
    const int lane = dev_thread() % PART_LANES, stride = part_stride(a);
    for (int i = dev_thread() / PART_LANES; i < CUDA_PART_KEYS; i += PART_AT_ONCE) {
        const int64_t key = k->first + i;
        const bool is_there = key >= k->begin && key < k->end;
        const int64_t row = is_there ? dev_key_row(a, s, key) : 0;
        float own[PART_VECTORS][DEV_VECTOR];
        DEV_UNROLL
        for (int j = 0; j < PART_VECTORS; j++) {
            const int column = (j * PART_LANES + lane) * DEV_VECTOR;
            DEV_UNROLL
            for (int n = 0; n < DEV_VECTOR; n++) own[j][n] = 0.0f;
            if (is_there && column < a->head_dim) {
                dev_load_some(&a->k, row, kv * a->head_dim + column, a->head_dim - column, own[j]);
            }
        }
        for (int h = 0; h < heads; h++) {
            float x = 0.0f;
            DEV_UNROLL
            for (int j = 0; j < PART_VECTORS; j++) {
                const int column = (j * PART_LANES + lane) * DEV_VECTOR;
                if (column >= stride) continue;
                DEV_UNROLL
                for (int n = 0; n < DEV_VECTOR; n++) {
                    x = dev_fma(q[h * stride + column + n], own[j][n], x);
                }
            }
            for (int mask = PART_LANES / 2; mask > 0; mask /= 2) x += dev_shuffle_xor(x, mask);
            if (lane != 0) continue;
            scores[h * CUDA_PART_KEYS + i] = is_there ? dev_score(a, x * a->scale) : -INFINITY;
        }
    }
}

// Replaces a head's scores by exp(score - highest). A warp has a head.
DEV_INLINE void part_softmax(float *scores, float *highest, float *sum)
{
    enum { EACH = CUDA_PART_KEYS / DEV_WARP };
    const int lane = dev_thread() % DEV_WARP;
    float x[EACH], most = -INFINITY, all = 0.0f;
    DEV_UNROLL
    for (int j = 0; j < EACH; j++) {
        x[j] = scores[j * DEV_WARP + lane];
        most = fmaxf(most, x[j]);
    }
    most = dev_warp_max(most);
    DEV_UNROLL
    for (int j = 0; j < EACH; j++) {
        const float p = x[j] == -INFINITY || most == -INFINITY ? 0.0f : expf(x[j] - most);
        scores[j * DEV_WARP + lane] = p;
        all += p;
    }
    all = dev_warp_sum(all);
    if (lane != 0) return;
    *highest = most;
    *sum = all;
}

// The probabilities times the values: a thread has a column and every so-many-th key; then the
// shares of threads with one column are added in order.
DEV_INLINE void part_values(const cuda_decode_args *a, const dev_span *s, const part_keys *k,
                            int64_t kv, int heads, const float *p, float *shares, float *out)
{
    const int value = a->all.value_dim;
    const int wide = value <= 32 ? 32 : value <= 64 ? 64 : value <= 128 ? 128 : 256;
    const int column = dev_thread() % wide, share = dev_thread() / wide;
    float sums[CUDA_PART_HEADS];
    DEV_UNROLL
    for (int h = 0; h < CUDA_PART_HEADS; h++) sums[h] = 0.0f;
    for (int64_t i = k->begin - k->first + share; column < value && i < k->end - k->first;
         i += CUDA_THREADS / wide) {
        const int64_t row = dev_key_row(&a->all, s, k->first + i);
        const float v = dev_load(&a->all.v, row, kv * value + column);
        DEV_UNROLL
        for (int h = 0; h < CUDA_PART_HEADS; h++) {
            if (h < heads) sums[h] = dev_fma(p[h * CUDA_PART_KEYS + i], v, sums[h]);
        }
    }
    DEV_UNROLL
    for (int h = 0; h < CUDA_PART_HEADS; h++) {
        shares[(h * CUDA_THREADS / wide + share) * wide + column] = sums[h];
    }
    dev_barrier();
    for (int i = dev_thread(); i < heads * value; i += CUDA_THREADS) {
        const int h = i / value, d = i % value;
        float sum = 0.0f;
        for (int n = 0; n < CUDA_THREADS / wide; n++) {
            sum += shares[(h * CUDA_THREADS / wide + n) * wide + d];
        }
        out[h * a->parts * value + d] = sum;
    }
}

// Grid: parts, heads of keys (several blocks of each if many queries share them), sequences.
DEV_KERNEL(cuda_attention_parts, cuda_decode_args, CUDA_THREADS)
{
    const cuda_attention_args *const all = &a.all;
    const int stride = part_stride(all), warp = dev_thread() / DEV_WARP;
    float *const q = (float *)dev_shared(), *const p = q + CUDA_PART_HEADS * stride;
    float *const shares = p + CUDA_PART_HEADS * CUDA_PART_KEYS;
    const dev_span s = dev_span_of(all, dev_block(2));
    const part_keys k = part_of(all, &s, dev_block(0));
    const int64_t group = all->heads / all->kv_heads;
    const int64_t blocks = (group + CUDA_PART_HEADS - 1) / CUDA_PART_HEADS;
    const int64_t kv = dev_block(1) / blocks;
    const int64_t head = kv * group + dev_block(1) % blocks * CUDA_PART_HEADS;
    const int heads = (int)dev_min(CUDA_PART_HEADS, (kv + 1) * group - head);
    const int64_t at = (s.sequence * all->heads + head) * a.parts + dev_block(0);
    if (k.begin >= k.end) return; // the sum leaves this part out
    for (int i = dev_thread(); i < heads * stride; i += CUDA_THREADS) {
        const int h = i / stride, d = i % stride;
        q[i] = d < all->head_dim ? dev_load(&all->q, s.sequence, (head + h) * all->head_dim + d)
                                 : 0.0f;
    }
    dev_barrier();
    part_scores(all, &s, &k, kv, heads, q, p);
    dev_barrier();
    if (warp < heads) {
        part_softmax(p + warp * CUDA_PART_KEYS, &a.highest[at + warp * a.parts],
                     &a.sums[at + warp * a.parts]);
    }
    dev_barrier();
    part_values(&a, &s, &k, kv, heads, p, shares, a.values + at * all->value_dim);
}

// A warp for each sequence and head.
DEV_KERNEL(cuda_attention_join, cuda_decode_args, CUDA_THREADS)
{
    const cuda_attention_args *const all = &a.all;
    const int64_t at = (dev_block(0) * dev_threads() + dev_thread()) / DEV_WARP;
    const int64_t sequence = at / all->heads, head = at % all->heads;
    const int lane = dev_thread() % DEV_WARP;
    if (sequence >= all->q.rows) return;
    const dev_span s = dev_span_of(all, sequence);
    const int64_t first = dev_keys_begin(all, &s, 0) / CUDA_PART_KEYS;
    const int64_t end = (dev_keys_end(all, &s, 0, 1) + CUDA_PART_KEYS - 1) / CUDA_PART_KEYS;
    const float *const highest = a.highest + at * a.parts, *const sums = a.sums + at * a.parts;
    float most = -INFINITY, sum = 0.0f;
    for (int64_t part = first; part < end; part++) most = fmaxf(most, highest[part]);
    const bool sees_none = most == -INFINITY;
    for (int64_t part = first; part < end && !sees_none; part++) {
        sum = dev_fma(sums[part], expf(highest[part] - most), sum);
    }
    float lse = sum == 0.0f ? -INFINITY : most + logf(sum);
    const float factor = dev_sink_add(all, head, &lse);
    for (int d = lane; d < all->value_dim; d += DEV_WARP) {
        float y = 0.0f;
        for (int64_t part = first; part < end && !sees_none; part++) {
            const float value = a.values[(at * a.parts + part) * all->value_dim + d];
            y = dev_fma(value, expf(highest[part] - most), y);
        }
        dev_store(&all->y, sequence, head * all->value_dim + d,
                  sum == 0.0f ? 0.0f : y * (factor / sum));
    }
    if (lane == 0 && all->lse.data != NULL) dev_store(&all->lse, sequence, head, lse);
}
