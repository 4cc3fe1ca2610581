// The end of a model: the head's GEMM with its cross-entropy, and the choice of the next token.
#include "base/rng.h"
#include "kernels/ref/ref.h"

#include <string.h>

// dw gains a term from every row. If its type is narrower than fp32, an fp32 accumulator in the
// workspace takes the terms and is rounded to dw once, at the end.
static bool needs_fp32_sum(const kern_tensor *dw)
{
    return ref_has(dw) && dw->type != DTYPE_F32 && dw->type != DTYPE_F64;
}

// Bytes of one row of logits and their slopes, and of the fp32 accumulator if one is needed.
int64_t ref_head_loss_workspace(const kern_call *c, int threads)
{
    (void)threads;
    const int64_t logits = 2 * c->in[1].dims[0] * (int64_t)sizeof(double);
    const int64_t weights = c->in[1].dims[0] * c->in[1].dims[1];
    return logits + (needs_fp32_sum(&c->out[2]) ? weights * (int64_t)sizeof(float) : 0);
}

static kern_tensor fp32_accumulator(const kern_call *c)
{
    kern_tensor sum = c->out[2];
    sum.data = (double *)c->workspace + 2 * c->in[1].dims[0];
    sum.type = DTYPE_F32;
    sum.strides[0] = sum.dims[1];
    return sum;
}

static void copy(const kern_tensor *target, const kern_tensor *source)
{
    for (int64_t i = 0; i < ref_rows(target); i++) {
        for (int64_t j = 0; j < ref_columns(target); j++) {
            ref_put(target, i, j, ref_get(source, i, j));
        }
    }
}

// ---- a vocabulary in shards ---------------------------------------------------------------------
static int64_t whole_of(const kern_call *c)
{
    return c->piece.whole_rows > 0 ? c->piece.whole_rows : c->in[1].dims[0];
}

// Returns the first row of a shard in w.
static int64_t shard_begin(const kern_call *c, int64_t shard)
{
    return whole_of(c) * shard / c->piece.shards - c->piece.first_row;
}

int64_t ref_head_stats_workspace(const kern_call *c, int threads)
{
    (void)threads;
    return c->in[1].dims[0] * (int64_t)sizeof(double);
}

static status label_check(const kern_call *c, int64_t n, int64_t label)
{
    if (label < whole_of(c)) return ST_OK;
    return fail(ST_DATA, "head: row %lld has label %lld, the vocabulary has %lld", (long long)n,
                (long long)label, (long long)whole_of(c));
}

static void logits_make(const kern_call *c, int64_t n, double *logits)
{
    const kern_tensor *x = &c->in[0], *w = &c->in[1];
    for (int64_t v = 0; v < w->dims[0]; v++) {
        logits[v] = 0.0;
        for (int64_t j = 0; j < x->dims[1]; j++) logits[v] += ref_get(x, n, j) * ref_get(w, v, j);
        if (c->attrs.cap > 0.0f) {
            logits[v] = (double)c->attrs.cap * tanh(logits[v] / (double)c->attrs.cap);
        }
    }
}

status ref_head_stats(const kern_context *context, const kern_call *c)
{
    (void)context;
    double *logits = c->workspace;
    for (int64_t n = 0; n < c->in[0].dims[0]; n++) {
        const int64_t label = ref_int(&c->in[2], n);
        TRY(label_check(c, n, label));
        if (label >= 0) logits_make(c, n, logits);
        for (int64_t i = 0; i < c->piece.shard_count; i++) {
            const int64_t begin = shard_begin(c, c->piece.first_shard + i);
            const int64_t end = shard_begin(c, c->piece.first_shard + i + 1);
            const int64_t at = label - c->piece.first_row;
            double highest = label < 0 ? 0.0 : -HUGE_VAL, sum = 0.0;
            for (int64_t v = begin; v < end && label >= 0; v++) highest = fmax(highest, logits[v]);
            for (int64_t v = begin; v < end && label >= 0; v++) sum += exp(logits[v] - highest);
            const bool is_here = label >= 0 && at >= begin && at < end;
            ref_put(&c->out[0], n, 3 * i, highest);
            ref_put(&c->out[0], n, 3 * i + 1, sum);
            ref_put(&c->out[0], n, 3 * i + 2, is_here ? logits[at] : 0.0);
        }
    }
    return ST_OK;
}

typedef struct row_stats {
    double highest, sum, label; // of the whole row of logits; sum: of exp(logit - highest)
} row_stats;

// Adds the sums of shards by the tree: neighbours first.
static row_stats stats_of(const kern_call *c, int64_t n)
{
    const kern_tensor *stats = &c->in[3];
    const int64_t rows = c->in[0].dims[0], per_tile = stats->dims[1] / 3;
    row_stats out = {-HUGE_VAL, 0.0, 0.0};
    double sums[64];
    const int64_t count = c->piece.shards;
    ASSERT(count <= COUNT_OF(sums));
    for (int64_t s = 0; s < count; s++) {
        out.highest = fmax(out.highest, ref_get(stats, s / per_tile * rows + n, s % per_tile * 3));
    }
    for (int64_t s = 0; s < count; s++) {
        const int64_t row = s / per_tile * rows + n, at = s % per_tile * 3;
        const double shift = ref_get(stats, row, at) - out.highest;
        sums[s] = ref_get(stats, row, at + 1) * exp(shift);
        out.label += ref_get(stats, row, at + 2);
    }
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t s = 0; s + width < count; s += 2 * width) sums[s] += sums[s + width];
    }
    out.sum = sums[0];
    return out;
}

// Like row_loss, for a piece of the logits.
static double piece_loss(const kern_call *c, int64_t n, int64_t label, double *logits)
{
    const row_stats s = stats_of(c, n);
    const double z_loss = (double)c->attrs.z_loss, lse = s.highest + log(s.sum);
    const int64_t at = label - c->piece.first_row;
    for (int64_t v = 0; v < c->in[1].dims[0]; v++) {
        logits[v] = exp(logits[v] - s.highest) / s.sum * (1.0 + 2.0 * z_loss * lse);
    }
    if (at >= 0 && at < c->in[1].dims[0]) logits[at] -= 1.0;
    return (s.highest - s.label) + log(s.sum) + z_loss * lse * lse;
}

// Returns the loss, lse - logit[label] + z lse^2; its gradient is p (1 + 2 z lse) - [v = label]. On
// return logits[v] holds the gradient of the unscaled loss.
static double row_loss(double *logits, int64_t vocab, int64_t label, double z_loss)
{
    double highest = -HUGE_VAL, sum = 0.0;
    for (int64_t v = 0; v < vocab; v++) highest = fmax(highest, logits[v]);
    for (int64_t v = 0; v < vocab; v++) sum += exp(logits[v] - highest);
    const double lse = highest + log(sum);
    // The two differences are taken first, so that a loss near 0 keeps its bits if logits are
    // large.
    const double loss = (highest - logits[label]) + log(sum) + z_loss * lse * lse;
    for (int64_t v = 0; v < vocab; v++) {
        logits[v] = exp(logits[v] - highest) / sum * (1.0 + 2.0 * z_loss * lse);
    }
    logits[label] -= 1.0;
    return loss;
}

static void row_gradients(const kern_call *c, const kern_tensor *dw, int64_t n,
                          const double *d_logits)
{
    const kern_tensor *x = &c->in[0], *w = &c->in[1], *dx = &c->out[1];
    const bool cut = ref_has(&c->in[3]);
    for (int64_t i = 0; i < (cut ? c->piece.shard_count : 1) && ref_has(dx); i++) {
        const int64_t begin = cut ? shard_begin(c, c->piece.first_shard + i) : 0;
        const int64_t end = cut ? shard_begin(c, c->piece.first_shard + i + 1) : w->dims[0];
        for (int64_t j = 0; j < x->dims[1]; j++) {
            double sum = 0.0;
            for (int64_t v = begin; v < end; v++) sum += d_logits[v] * ref_get(w, v, j);
            ref_put(dx, n, i * x->dims[1] + j, sum);
        }
    }
    for (int64_t v = 0; v < w->dims[0] && ref_has(dw); v++) {
        for (int64_t j = 0; j < x->dims[1]; j++) {
            ref_total total = ref_total_begin(dw, true, v, j);
            ref_total_add(&total, d_logits[v], ref_get(x, n, j));
            ref_total_end(&total, dw, v, j);
        }
    }
}

// Returns the slope of the cap where it gave this logit.
static double cap_slope(const kern_call *c, double logit)
{
    const double part = c->attrs.cap > 0.0f ? logit / (double)c->attrs.cap : 0.0;
    return 1.0 - part * part;
}

status ref_head_loss(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *w = &c->in[1], *labels = &c->in[2];
    const kern_tensor *loss = &c->out[0], *dx = &c->out[1], *dw = &c->out[2];
    const int64_t vocab = w->dims[0];
    const bool wants_grad = ref_has(dx) || ref_has(dw);
    const double unit = wants_grad ? c->step->device.loss_scale / c->loss_divisor : 0.0;
    double *logits = c->workspace, *slopes = logits + vocab;
    const kern_tensor sum = needs_fp32_sum(dw) ? fp32_accumulator(c) : *dw;
    if (ref_has(dw) && !c->accumulate) ref_zero(&sum);
    if (needs_fp32_sum(dw) && c->accumulate) copy(&sum, dw);
    for (int64_t n = 0; n < x->dims[0]; n++) {
        const int64_t label = ref_int(labels, n);
        TRY(label_check(c, n, label));
        if (label < 0) {
            ref_put(loss, 0, n, 0.0);
            for (int64_t j = 0; ref_has(dx) && j < dx->dims[1]; j++) ref_put(dx, n, j, 0.0);
            continue;
        }
        logits_make(c, n, logits);
        for (int64_t v = 0; v < vocab; v++) slopes[v] = cap_slope(c, logits[v]);
        ref_put(loss, 0, n,
                ref_has(&c->in[3]) ? piece_loss(c, n, label, logits)
                                   : row_loss(logits, vocab, label, (double)c->attrs.z_loss));
        if (!wants_grad) continue;
        const double slope = ref_has(&c->in[4]) ? ref_get(&c->in[4], 0, n) : 1.0;
        for (int64_t v = 0; v < vocab; v++) logits[v] *= unit * slope * slopes[v];
        row_gradients(c, &sum, n, logits);
    }
    if (needs_fp32_sum(dw)) copy(dw, &sum);
    return ST_OK;
}

// ---- the next token -----------------------------------------------------------------------------

typedef struct candidate {
    double weight; // logit, then probability
    int64_t id;
} candidate;

int64_t ref_sample_workspace(const kern_call *c, int threads)
{
    (void)threads;
    return c->in[0].dims[1] * (int64_t)sizeof(candidate);
}

// Orders candidates by descending logit; ties go to the lower id. NaN counts as lowest, so the
// order is total.
static bool comes_before(const candidate *a, const candidate *b)
{
    const double x = isnan(a->weight) ? -HUGE_VAL : a->weight;
    const double y = isnan(b->weight) ? -HUGE_VAL : b->weight;
    return x > y || (x == y && a->id < b->id);
}

// Heap sort, because it works in place and kernels allocate nothing.
static void sift_down(candidate *items, int64_t root, int64_t count)
{
    for (;;) {
        int64_t last = root;
        for (int64_t child = 2 * root + 1; child <= 2 * root + 2 && child < count; child++) {
            if (comes_before(&items[last], &items[child])) last = child;
        }
        if (last == root) return;
        const candidate swap = items[root];
        items[root] = items[last];
        items[last] = swap;
        root = last;
    }
}

static void sort_candidates(candidate *items, int64_t count)
{
    for (int64_t root = count / 2 - 1; root >= 0; root--) sift_down(items, root, count);
    for (int64_t end = count - 1; end > 0; end--) {
        const candidate swap = items[0];
        items[0] = items[end];
        items[end] = swap;
        sift_down(items, 0, end);
    }
}

// Turns logits into probabilities, `best` the highest, and cuts the tail of sorted ones: top-k,
// then top-p (the shortest front whose probabilities reach it), then min-p (less than that share of
// the best one). A filter is off at 0, top-p also at 1. Returns how many are left, at least one.
static int64_t keep_front(candidate *items, int64_t count, double best, double temperature,
                          int64_t top_k, double top_p, double min_p)
{
    if (top_k > 0) count = min_i64(count, top_k);
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double weight = exp((items[i].weight - best) / temperature);
        items[i].weight = isnan(weight) ? 0.0 : weight;
        sum += items[i].weight;
    }
    if (top_p > 0.0 && top_p < 1.0) {
        double front = 0.0;
        for (int64_t i = 0; i < count; i++) {
            front += items[i].weight;
            if (front >= top_p * sum) count = i + 1;
        }
    }
    while (count > 1 && items[count - 1].weight < min_p * items[0].weight) count--;
    return count;
}

static int64_t draw(const candidate *items, int64_t count, float uniform, int64_t best)
{
    double sum = 0.0, front = 0.0;
    for (int64_t i = 0; i < count; i++) sum += items[i].weight;
    for (int64_t i = 0; i < count; i++) {
        front += items[i].weight;
        if ((double)uniform * sum < front) return items[i].id;
    }
    return best; // only where no weight is a number
}

// Returns whether any filter is on. Without one every candidate stays, in the order of ids.
static bool has_filter(const float *params)
{
    return params[1] >= 1.0F || (params[2] > 0.0F && params[2] < 1.0F) || params[3] > 0.0F;
}

// The random word of a draw depends on the seed of the sequence and the number of its draws so far,
// so the text does not depend on the other sequences of the batch, nor on its row.
status ref_sample(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *logits = &c->in[0], *draws = &c->in[2], *ids = &c->out[0];
    candidate *items = c->workspace;
    for (int64_t b = 0; b < logits->dims[0]; b++) {
        const int64_t vocab = logits->dims[1];
        const float *params = (const float *)c->in[1].data + b * c->in[1].strides[0];
        uint32_t bits[2];
        memcpy(bits, params + 4, sizeof(bits));
        const uint64_t seed = (uint64_t)bits[0] | (uint64_t)bits[1] << 32;
        const double temperature = (double)params[0];
        for (int64_t v = 0; v < vocab; v++) {
            items[v] = (candidate){.weight = ref_get(logits, b, v), .id = v};
        }
        int64_t id = 0;
        for (int64_t v = 1; v < vocab; v++) {
            if (comes_before(&items[v], &items[id])) id = v;
        }
        if (temperature > 0.0) {
            const double best = items[id].weight;
            if (has_filter(params)) sort_candidates(items, vocab);
            const int64_t count = keep_front(items, vocab, best, temperature, (int64_t)params[1],
                                             (double)params[2], (double)params[3]);
            const uint32_t word = rng_word(seed, 0, (uint64_t)ref_int(draws, b));
            id = draw(items, count, rng_uniform(word), id);
        }
        ref_put(ids, 0, b, (double)id);
    }
    return ST_OK;
}
