// Choosing the next token: the same order of candidates, sums and random words as `ref`, but sorted
// by digits, which for a vocabulary is twenty times as fast as a heap.
//
// A task is one sequence; its text does not depend on what else is in the batch.
#include "kernels/cpu/vec_call.h"

#include <math.h>
#include <string.h>

typedef struct candidate {
    uint32_t order; // falls as the logit rises
    int32_t id;
} candidate;

enum { DIGIT_BITS = 11, DIGITS = 3, BUCKETS = 1 << DIGIT_BITS };

// Two arrays of candidates and one of weights.
static int64_t sequence_bytes(int64_t vocab)
{
    return align_up(vocab * (int64_t)(2 * sizeof(candidate) + sizeof(double)), 64);
}

int64_t cpu_sample_workspace(const kern_call *call, int threads)
{
    return threads * sequence_bytes(call->in[0].dims[1]);
}

// NaN counts as lowest, and both zeros are equal, so that ties go to the lower id.
static uint32_t order_of(double logit)
{
    float x = isnan(logit) ? -INFINITY : (float)logit;
    if (x == 0.0F) x = 0.0F;
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    const uint32_t rising = bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
    return ~rising;
}

// By digits from the lowest, each pass stable; an odd number of passes ends in `other`.
static candidate *sort(candidate *items, candidate *other, int64_t count)
{
    for (int digit = 0; digit < DIGITS; digit++) {
        const int shift = digit * DIGIT_BITS;
        int32_t begin[BUCKETS] = {0};
        for (int64_t i = 0; i < count; i++) begin[(items[i].order >> shift) % BUCKETS]++;
        int32_t sum = 0;
        for (int b = 0; b < BUCKETS; b++) {
            const int32_t here = begin[b];
            begin[b] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < count; i++) {
            other[begin[(items[i].order >> shift) % BUCKETS]++] = items[i];
        }
        candidate *swap = items;
        items = other;
        other = swap;
    }
    return items;
}

typedef struct sample_params {
    double temperature, top_p, min_p;
    int64_t top_k;
} sample_params;

// Turns sorted logits into weights and cuts the tail: top-k, then top-p (the shortest front that
// reaches it), then min-p (less than that share of the best one). A filter is off at 0, top-p also at
// 1. Returns how many are left, at least one.
static int64_t keep_front(double *weights, int64_t count, const sample_params *p)
{
    const double best = weights[0];
    double sum = 0.0;
    if (p->top_k > 0) count = min_i64(count, p->top_k);
    for (int64_t i = 0; i < count; i++) {
        const double weight = exp((weights[i] - best) / p->temperature);
        weights[i] = isnan(weight) ? 0.0 : weight;
        sum += weights[i];
    }
    if (p->top_p > 0.0 && p->top_p < 1.0) {
        double front = 0.0;
        for (int64_t i = 0; i < count; i++) {
            front += weights[i];
            if (front >= p->top_p * sum) count = i + 1;
        }
    }
    while (count > 1 && weights[count - 1] < p->min_p * weights[0]) count--;
    return count;
}

static int64_t draw(const double *weights, int64_t count, float uniform)
{
    double sum = 0.0, front = 0.0;
    for (int64_t i = 0; i < count; i++) sum += weights[i];
    for (int64_t i = 0; i < count; i++) {
        front += weights[i];
        if ((double)uniform * sum < front) return i;
    }
    return 0; // only where no weight is a number
}

static int64_t choose(const kern_call *c, int64_t b, const sample_params *p, uint64_t seed,
                      void *scratch)
{
    const kern_tensor *logits = &c->in[0];
    const int64_t vocab = logits->dims[1], row = b * logits->strides[0];
    candidate *items = scratch, *other = items + vocab;
    double *weights = (double *)(void *)(other + vocab);
    int64_t best = 0;
    for (int64_t v = 0; v < vocab; v++) {
        items[v].order = order_of(dtype_load(logits->type, logits->data, row + v));
        items[v].id = (int32_t)v;
        if (items[v].order < items[best].order) best = v;
    }
    if (!(p->temperature > 0.0)) return best;
    const candidate *sorted = sort(items, other, vocab);
    for (int64_t i = 0; i < vocab; i++) {
        weights[i] = dtype_load(logits->type, logits->data, row + sorted[i].id);
    }
    const int64_t count = keep_front(weights, vocab, p);
    const uint32_t word = rng_word(seed, 0, (uint64_t)tensor_int(&c->in[2], b));
    return sorted[draw(weights, count, rng_uniform(word))].id;
}

static void sample_task(void *context, int64_t index, int thread)
{
    const kern_call *c = context;
    const float *values = (const float *)c->in[1].data + index * c->in[1].strides[0];
    uint32_t bits[2];
    memcpy(bits, values + 4, sizeof(bits));
    const sample_params p = {.temperature = (double)values[0],
                             .top_k = (int64_t)values[1],
                             .top_p = (double)values[2],
                             .min_p = (double)values[3]};
    const uint64_t seed = (uint64_t)bits[0] | (uint64_t)bits[1] << 32;
    char *scratch = (char *)c->workspace + thread * sequence_bytes(c->in[0].dims[1]);
    const kern_tensor *ids = &c->out[0];
    dtype_store(ids->type, ids->data, index, (double)choose(c, index, &p, seed, scratch));
}

status cpu_sample(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    ASSERT(call->workspace_bytes >= cpu_sample_workspace(call, kern_pool_threads(context->pool)));
    kern_call copy = *call;
    kern_parallel(context->pool, call->in[0].dims[0], sample_task, &copy);
    return ST_OK;
}
