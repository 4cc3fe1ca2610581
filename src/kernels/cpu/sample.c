// Choice of the next token: the same candidates, order and random words as `ref`, without sorting
// candidates that cannot be drawn.
//
//   1. the best logit            in blocks of the vocabulary, by all threads
//   2. weights and their sums    likewise: exp((logit - best) / temperature)
//   3. the draw                  a task for each sequence. Without filters it walks through the
//                                sums of the blocks, then through one block, in the order of ids.
//                                With filters the likeliest candidates are gathered and sorted by
//                                digits: those within a few temperatures of the best, more if that
//                                was not enough.
//
// A sequence's text does not depend on what else is in the batch. Sums are taken by
// blocks, in their order, whichever thread adds them; `ref` has one sum, so the last bit of the
// boundary between two tokens may differ.
#include "kernels/cpu/vec_call.h"

#include <math.h>
#include <string.h>

typedef struct candidate {
    uint32_t order; // falls as the logit rises
    int32_t id;
} candidate;

enum { DIGIT_BITS = 11, DIGITS = 3, BUCKETS = 1 << DIGIT_BITS, BLOCK = 2048 };

typedef struct block {
    double sum; // of its weights
    candidate best;
} block;

typedef struct sample_job {
    const kern_call *call;
    int64_t vocab, blocks; // of a sequence
    double *weights;       // (sequences, vocab)
    block *parts;          // (sequences, blocks)
    char *scratch;         // of threads: three arrays of candidates and weights
    int64_t scratch_bytes;
} sample_job;

static int64_t block_count(const kern_call *call)
{
    return (call->in[0].dims[1] + BLOCK - 1) / BLOCK;
}

static int64_t weights_bytes(const kern_call *call)
{
    return align_up(call->in[0].dims[0] * call->in[0].dims[1] * (int64_t)sizeof(double), 64);
}

static int64_t parts_bytes(const kern_call *call)
{
    return align_up(call->in[0].dims[0] * block_count(call) * (int64_t)sizeof(block), 64);
}

// Returns the bytes of two arrays of candidates and one of weights.
static int64_t scratch_bytes(const kern_call *call)
{
    return align_up(call->in[0].dims[1] * (int64_t)(2 * sizeof(candidate) + sizeof(double)), 64);
}

int64_t cpu_sample_workspace(const kern_call *call, int threads)
{
    return weights_bytes(call) + parts_bytes(call) + threads * scratch_bytes(call);
}

// Maps a logit to its order. NaN counts as lowest, and both zeros are equal, so that ties go to the
// lower id.
static uint32_t order_of(double logit)
{
    float x = isnan(logit) ? -INFINITY : (float)logit;
    if (x == 0.0F) x = 0.0F;
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    const uint32_t rising = bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
    return ~rising;
}

// Radix sort from the lowest digit, each pass stable; an odd number of passes ends in `other`.
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

// Cuts the tail of sorted weights: top-k, then top-p (the shortest front that reaches it), then
// min-p (less than that share of the best one). A filter is off at 0, top-p also at 1. `total` is
// the sum of all weights, also of those that are not here. Returns how many are left, at least one.
static int64_t keep_front(const double *weights, int64_t count, const sample_params *p,
                          double total)
{
    if (p->top_k > 0) {
        count = min_i64(count, p->top_k);
        total = 0.0;
        for (int64_t i = 0; i < count; i++) total += weights[i];
    }
    if (p->top_p > 0.0 && p->top_p < 1.0) {
        double front = 0.0;
        for (int64_t i = 0; i < count; i++) {
            front += weights[i];
            if (front >= p->top_p * total) count = i + 1;
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

// ---- blocks of a row ----------------------------------------------------------------------------

static double logit_at(const kern_tensor *logits, int64_t b, int64_t v)
{
    if (logits->type == DTYPE_F32) {
        return (double)((const float *)logits->data)[b * logits->strides[0] + v];
    }
    return dtype_load(logits->type, logits->data, b * logits->strides[0] + v);
}

static sample_params params_of(const kern_call *c, int64_t b)
{
    const float *values = (const float *)c->in[1].data + b * c->in[1].strides[0];
    return (sample_params){.temperature = (double)values[0],
                           .top_k = (int64_t)values[1],
                           .top_p = (double)values[2],
                           .min_p = (double)values[3]};
}

static bool draws_at_all(const sample_params *p)
{
    return p->temperature > 0.0;
}

static bool has_filter(const sample_params *p)
{
    return p->top_k > 0 || (p->top_p > 0.0 && p->top_p < 1.0) || p->min_p > 0.0;
}

static void best_task(void *context, int64_t index, int thread)
{
    const sample_job *job = context;
    const int64_t b = index / job->blocks, begin = index % job->blocks * BLOCK;
    (void)thread;
    candidate best = {UINT32_MAX, -1};
    for (int64_t v = begin; v < min_i64(begin + BLOCK, job->vocab); v++) {
        const uint32_t order = order_of(logit_at(&job->call->in[0], b, v));
        if (order < best.order || best.id < 0) best = (candidate){order, (int32_t)v};
    }
    job->parts[index].best = best;
}

static int32_t best_of(const sample_job *job, int64_t b)
{
    const block *parts = job->parts + b * job->blocks;
    candidate best = parts[0].best;
    for (int64_t i = 1; i < job->blocks; i++) {
        if (parts[i].best.order < best.order) best = parts[i].best;
    }
    return best.id;
}

static double weight_of(double logit, double best, double temperature)
{
    const double weight = exp((logit - best) / temperature);
    return isnan(weight) ? 0.0 : weight;
}

static void weights_task(void *context, int64_t index, int thread)
{
    const sample_job *job = context;
    const int64_t b = index / job->blocks, begin = index % job->blocks * BLOCK;
    const sample_params p = params_of(job->call, b);
    (void)thread;
    if (!draws_at_all(&p)) return;
    const kern_tensor *logits = &job->call->in[0];
    const double best = logit_at(logits, b, best_of(job, b));
    double *weights = job->weights + b * job->vocab, sum = 0.0;
    for (int64_t v = begin; v < min_i64(begin + BLOCK, job->vocab); v++) {
        weights[v] = weight_of(logit_at(logits, b, v), best, p.temperature);
        sum += weights[v];
    }
    job->parts[index].sum = sum;
}

// ---- a sequence ---------------------------------------------------------------------------------

static double total_of(const sample_job *job, int64_t b)
{
    double sum = 0.0;
    for (int64_t i = 0; i < job->blocks; i++) sum += job->parts[b * job->blocks + i].sum;
    return sum;
}

// Draws in the order of ids, over blocks and then inside one.
static int64_t draw_any(const sample_job *job, int64_t b, float uniform)
{
    const block *parts = job->parts + b * job->blocks;
    const double wanted = (double)uniform * total_of(job, b);
    double front = 0.0;
    int64_t i = 0;
    while (i < job->blocks && !(wanted < front + parts[i].sum)) front += parts[i++].sum;
    int64_t last = best_of(job, b); // where no weight is a number
    if (i == job->blocks) return last;
    for (int64_t v = i * BLOCK; v < min_i64((i + 1) * BLOCK, job->vocab); v++) {
        const double weight = job->weights[b * job->vocab + v];
        front += weight;
        if (weight > 0.0) last = v; // the sum of the block may be a bit more than its terms here
        if (wanted < front) return v;
    }
    return last;
}

// Gathers the candidates with a weight of at least `least`, and the sum of their weights.
static int64_t gather(const sample_job *job, int64_t b, double least, candidate *items, double *sum)
{
    const double *weights = job->weights + b * job->vocab;
    int64_t count = 0;
    *sum = 0.0;
    for (int64_t v = 0; v < job->vocab; v++) {
        if (!(weights[v] >= least)) continue;
        *sum += weights[v];
        items[count].order = order_of(logit_at(&job->call->in[0], b, v));
        items[count++].id = (int32_t)v;
    }
    return count;
}

// Returns whether the filters keep only candidates among the `count` likeliest, whose weights sum
// up to `sum` and are all that reach `least`.
static bool is_enough(const sample_params *p, int64_t count, double sum, double least, double total)
{
    if (p->top_k > 0) return count >= p->top_k; // the share is of these
    if (p->min_p >= least) return true;
    return p->top_p > 0.0 && p->top_p < 1.0 && sum >= p->top_p * total * (1.0 + 1e-9);
}

static int64_t draw_filtered(const sample_job *job, int64_t b, const sample_params *p,
                             float uniform, void *scratch)
{
    static const double least[] = {0.02, 1e-3, 1e-6, 0.0};
    candidate *items = scratch, *other = items + job->vocab;
    double *weights = (double *)(void *)(other + job->vocab), sum = 0.0;
    const double total = total_of(job, b);
    int64_t count = 0;
    for (int i = 0; i < COUNT_OF(least); i++) {
        count = gather(job, b, least[i], items, &sum);
        if (count > 0 && is_enough(p, count, sum, least[i], total)) break;
    }
    ASSERT(count > 0); // no weight is below 0
    const candidate *sorted = sort(items, other, count);
    for (int64_t i = 0; i < count; i++) weights[i] = job->weights[b * job->vocab + sorted[i].id];
    count = keep_front(weights, count, p, total);
    return sorted[draw(weights, count, uniform)].id;
}

static void draw_task(void *context, int64_t b, int thread)
{
    const sample_job *job = context;
    const kern_call *c = job->call;
    const sample_params p = params_of(c, b);
    const kern_tensor *ids = &c->out[0];
    uint32_t bits[2];
    memcpy(bits, (const float *)c->in[1].data + b * c->in[1].strides[0] + 4, sizeof(bits));
    const uint64_t seed = (uint64_t)bits[0] | (uint64_t)bits[1] << 32;
    const float uniform = rng_uniform(rng_word(seed, 0, (uint64_t)tensor_int(&c->in[2], b)));
    int64_t id = 0;
    if (!draws_at_all(&p)) {
        id = best_of(job, b);
    } else if (!has_filter(&p)) {
        id = draw_any(job, b, uniform);
    } else {
        id = draw_filtered(job, b, &p, uniform, job->scratch + thread * job->scratch_bytes);
    }
    dtype_store(ids->type, ids->data, b, (double)id);
}

status cpu_sample(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    ASSERT(call->workspace_bytes >= cpu_sample_workspace(call, kern_pool_threads(context->pool)));
    const int64_t sequences = call->in[0].dims[0];
    char *space = call->workspace;
    sample_job job = {.call = call,
                      .vocab = call->in[0].dims[1],
                      .blocks = block_count(call),
                      .weights = (double *)(void *)space,
                      .parts = (block *)(void *)(space + weights_bytes(call)),
                      .scratch = space + weights_bytes(call) + parts_bytes(call),
                      .scratch_bytes = scratch_bytes(call)};
    kern_parallel(context->pool, sequences * job.blocks, best_task, &job);
    kern_parallel(context->pool, sequences * job.blocks, weights_task, &job);
    kern_parallel(context->pool, sequences, draw_task, &job);
    return ST_OK;
}
