// Choice of the next token: the candidates, order and random words of `ref`, a block for each
// sequence. Without filters the draw goes over ids in order, first over the sums of the threads'
// pieces of the vocabulary. With filters the likeliest candidates are gathered and sorted by digits
// of four bits: those within a few temperatures of the best, more if that was not enough.
//
//   shared memory   sums of the threads | their best candidates | for each digit their counts
#include "base/rng.h"
#include "kernels/cuda/args_generation.h"
#include "kernels/cuda/view.h"

enum { SAMPLE_DIGITS = 16, SAMPLE_PASSES = 8 };

typedef struct sample_state {
    double *sums;         // of each thread
    cuda_candidate *best; // of each thread
    int32_t *counts;      // (digits, threads)
    double *weights;
    cuda_candidate *items, *other;
    double temperature, top_p, min_p, total;
    int64_t b, vocabulary, top_k, begin, end; // begin, end: ids of this thread
    int32_t id;                               // the best one
} sample_state;

// NaN counts as lowest, and both zeros are equal, so that ties go to the lower id.
DEV_INLINE uint32_t sample_order(float logit)
{
    const float x = isnan(logit) ? -INFINITY : logit;
    const uint32_t bits = dev_bits_of(x == 0.0f ? 0.0f : x);
    return bits >> 31 != 0 ? bits : ~(bits | 0x80000000u);
}

// rng_word() of stream 0.
DEV_INLINE uint32_t sample_word(uint64_t seed, uint64_t index)
{
    const uint32_t counter[4] = {(uint32_t)(index >> 2), (uint32_t)(index >> 34), 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const philox_words words = philox4x32_10(counter, key);
    const int at = (int)(index & 3);
    return at == 0 ? words.w[0] : at == 1 ? words.w[1] : at == 2 ? words.w[2] : words.w[3];
}

DEV_INLINE bool sample_is_before(cuda_candidate a, cuda_candidate b)
{
    return a.order < b.order || (a.order == b.order && a.id < b.id);
}

DEV_INLINE void sample_best(const cuda_sample_args *a, sample_state *s)
{
    cuda_candidate best = {UINT32_MAX, INT32_MAX};
    for (int64_t v = dev_thread(); v < s->vocabulary; v += CUDA_THREADS) {
        cuda_candidate here;
        here.order = sample_order(dev_load(&a->logits, s->b, v));
        here.id = (int32_t)v;
        if (sample_is_before(here, best)) best = here;
    }
    s->best[dev_thread()] = best;
    dev_barrier();
    for (int t = 0; t < CUDA_THREADS; t++) {
        if (sample_is_before(s->best[t], best)) best = s->best[t];
    }
    s->id = best.id;
}

DEV_INLINE double sample_sum(const sample_state *s)
{
    double sum = 0.0;
    for (int t = 0; t < CUDA_THREADS; t++) sum += s->sums[t];
    return sum;
}

DEV_INLINE void sample_weights(const cuda_sample_args *a, sample_state *s)
{
    const double best = (double)dev_load(&a->logits, s->b, s->id);
    const double inverse = 1.0 / s->temperature;
    double sum = 0.0;
    for (int64_t v = s->begin; v < s->end; v++) {
        const double x = (double)dev_load(&a->logits, s->b, v);
        const double weight = exp((x - best) * inverse);
        s->weights[v] = isnan(weight) ? 0.0 : weight;
        sum += s->weights[v];
    }
    s->sums[dev_thread()] = sum;
    dev_barrier();
    s->total = sample_sum(s);
}

// One thread draws in the order of ids.
DEV_INLINE int64_t sample_draw_any(const sample_state *s, double uniform)
{
    const double wanted = uniform * s->total;
    const int64_t each = s->end - s->begin;
    double front = 0.0;
    int64_t t = 0, last = s->id; // where no weight is a number
    while (t < CUDA_THREADS && !(wanted < front + s->sums[t])) front += s->sums[t++];
    if (t == CUDA_THREADS) return last;
    for (int64_t v = t * each; v < dev_min((t + 1) * each, s->vocabulary); v++) {
        front += s->weights[v];
        if (s->weights[v] > 0.0) last = v; // the sum may be a bit more than its terms here
        if (wanted < front) return v;
    }
    return last;
}

// Gathers the candidates with a weight of at least `least`; *sum: of their weights.
DEV_INLINE int64_t sample_gather(const cuda_sample_args *a, sample_state *s, double least,
                                 double *sum)
{
    int64_t at = 0, count = 0;
    int32_t own = 0;
    double here = 0.0;
    for (int64_t v = s->begin; v < s->end; v++) {
        if (!(s->weights[v] >= least)) continue;
        here += s->weights[v];
        own++;
    }
    dev_barrier(); // all have read the sums before
    s->sums[dev_thread()] = here;
    s->counts[dev_thread()] = own;
    dev_barrier();
    for (int t = 0; t < CUDA_THREADS; t++) {
        if (t < dev_thread()) at += s->counts[t];
        count += s->counts[t];
    }
    *sum = sample_sum(s);
    for (int64_t v = s->begin; v < s->end; v++) {
        if (!(s->weights[v] >= least)) continue;
        s->items[at].order = sample_order(dev_load(&a->logits, s->b, v));
        s->items[at++].id = (int32_t)v;
    }
    return count;
}

// Whether the filters keep only candidates among the `count` likeliest, which are all that reach
// `least`.
DEV_INLINE bool sample_is_enough(const sample_state *s, int64_t count, double sum, double least)
{
    if (count == 0) return false;
    if (s->top_k > 0) return count >= s->top_k; // the share is of these
    if (s->min_p >= least) return true;
    return s->top_p > 0.0 && s->top_p < 1.0 && sum >= s->top_p * s->total * (1.0 + 1e-9);
}

// A stable pass by one digit, from items to other.
DEV_INLINE void sample_pass(sample_state *s, int64_t count, int shift)
{
    const int64_t each = (count + CUDA_THREADS - 1) / CUDA_THREADS;
    const int64_t begin = dev_thread() * each, end = dev_min(begin + each, count);
    int32_t *const own = s->counts + dev_thread(), *const some = s->counts + 16 * dev_thread();
    int32_t sum = 0, before = 0;
    dev_barrier();
    for (int d = 0; d < SAMPLE_DIGITS; d++) own[d * CUDA_THREADS] = 0;
    for (int64_t i = begin; i < end; i++) {
        own[(s->items[i].order >> shift & 15u) * CUDA_THREADS]++;
    }
    dev_barrier();
    // Counts become places: a thread takes sixteen that lie together.
    for (int k = 0; k < 16; k++) sum += some[k];
    s->best[dev_thread()].id = sum;
    dev_barrier();
    for (int t = 0; t < dev_thread(); t++) before += s->best[t].id;
    for (int k = 0; k < 16; k++) {
        const int32_t here = some[k];
        some[k] = before;
        before += here;
    }
    dev_barrier();
    for (int64_t i = begin; i < end; i++) {
        s->other[own[(s->items[i].order >> shift & 15u) * CUDA_THREADS]++] = s->items[i];
    }
}

DEV_INLINE void sample_sort(sample_state *s, int64_t count)
{
    for (int pass = 0; pass < SAMPLE_PASSES; pass++) { // an even number: they end in items
        cuda_candidate *const swap = s->items;
        sample_pass(s, count, 4 * pass);
        s->items = s->other;
        s->other = swap;
    }
    dev_barrier();
}

// Cuts the tail of `count` sorted candidates: top-k, top-p, min-p.
DEV_INLINE int64_t sample_keep_front(const sample_state *s, int64_t count)
{
    double total = s->total;
    if (s->top_k > 0) {
        count = dev_min(count, s->top_k);
        total = 0.0;
        for (int64_t i = 0; i < count; i++) total += s->weights[s->items[i].id];
    }
    if (s->top_p > 0.0 && s->top_p < 1.0) {
        double front = 0.0;
        for (int64_t i = 0; i < count; i++) {
            front += s->weights[s->items[i].id];
            if (front >= s->top_p * total) count = i + 1;
        }
    }
    const double least = s->min_p * s->weights[s->items[0].id];
    while (count > 1 && s->weights[s->items[count - 1].id] < least) count--;
    return count;
}

DEV_INLINE int64_t sample_draw(const sample_state *s, int64_t count, double uniform)
{
    double sum = 0.0, front = 0.0;
    for (int64_t i = 0; i < count; i++) sum += s->weights[s->items[i].id];
    for (int64_t i = 0; i < count; i++) {
        front += s->weights[s->items[i].id];
        if (uniform * sum < front) return s->items[i].id;
    }
    return s->items[0].id; // only where no weight is a number
}

DEV_INLINE int64_t sample_draw_filtered(const cuda_sample_args *a, sample_state *s, double uniform)
{
    int64_t count = 0;
    for (int level = 0; level < 4; level++) {
        const double least = level == 0 ? 0.02 : level == 1 ? 1e-3 : level == 2 ? 1e-6 : 0.0;
        double sum = 0.0;
        count = sample_gather(a, s, least, &sum);
        if (sample_is_enough(s, count, sum, least)) break;
    }
    sample_sort(s, count);
    return dev_thread() == 0 ? sample_draw(s, sample_keep_front(s, count), uniform) : 0;
}

DEV_KERNEL(cuda_sample, cuda_sample_args, CUDA_THREADS)
{
    sample_state s;
    s.b = dev_block(0);
    s.vocabulary = a.logits.columns;
    s.sums = (double *)dev_shared();
    s.best = (cuda_candidate *)(void *)(s.sums + CUDA_THREADS);
    s.counts = (int32_t *)(void *)(s.best + CUDA_THREADS);
    s.weights = a.weights + s.b * s.vocabulary;
    s.items = a.candidates + 2 * s.b * s.vocabulary;
    s.other = s.items + s.vocabulary;
    s.temperature = (double)dev_load(&a.params, s.b, 0);
    s.top_k = (int64_t)dev_load(&a.params, s.b, 1);
    s.top_p = (double)dev_load(&a.params, s.b, 2);
    s.min_p = (double)dev_load(&a.params, s.b, 3);
    const uint64_t low = dev_bits_of(dev_load(&a.params, s.b, 4));
    const uint64_t high = dev_bits_of(dev_load(&a.params, s.b, 5));
    const uint32_t word = sample_word(low | high << 32, (uint64_t)dev_index(&a.draws, s.b));
    const double uniform = (double)rng_uniform(word);
    const int64_t each = (s.vocabulary + CUDA_THREADS - 1) / CUDA_THREADS;
    s.begin = dev_min(dev_thread() * each, s.vocabulary);
    s.end = dev_min(s.begin + each, s.vocabulary);
    sample_best(&a, &s);
    int64_t id = s.id;
    if (s.temperature > 0.0) {
        const bool cuts = s.top_p > 0.0 && s.top_p < 1.0;
        sample_weights(&a, &s);
        if (s.top_k > 0 || cuts || s.min_p > 0.0) {
            id = sample_draw_filtered(&a, &s, uniform);
        } else if (dev_thread() == 0) {
            id = sample_draw_any(&s, uniform); // the first thread has a whole piece
        }
    }
    if (dev_thread() == 0) dev_index_put(&a.ids, s.b, id);
}
