// The router: choice of experts, its gradient with the losses that balance, loads of experts. A
// warp works on a token; the formulas are in kernels/ref/route.c.
//
//   shared memory of a warp   | scores (E) | choice (E) | groups (G) | experts taken (T) |
#include "kernels/cuda/args_experts.h"
#include "kernels/cuda/view.h"

typedef struct route_token {
    int64_t n;
    float *scores, *choice, *groups, *taken;
    float top, sum; // of the softmax
} route_token;

// A choice of -infinity is taken, or its group is closed.
DEV_INLINE route_token route_token_of(const cuda_route_args *a, int64_t n)
{
    route_token t;
    const int64_t each = 2 * a->experts + a->groups + a->taken;
    t.n = n;
    t.scores = (float *)dev_shared() + dev_thread() / DEV_WARP * each;
    t.choice = t.scores + a->experts;
    t.groups = t.choice + a->experts;
    t.taken = t.groups + a->groups;
    t.top = -INFINITY;
    t.sum = 0.0f;
    return t;
}

DEV_INLINE int64_t route_lane(void)
{
    return dev_thread() % DEV_WARP;
}

// Computes the scores of a token, and the softmax's numbers in any case.
DEV_INLINE void route_scores(const cuda_route_args *a, route_token *t)
{
    float top = -INFINITY, sum = 0.0f;
    for (int64_t e = route_lane(); e < a->experts; e += DEV_WARP) {
        top = fmaxf(top, dev_load(&a->logits, t->n, e));
    }
    t->top = dev_warp_max(top);
    for (int64_t e = route_lane(); e < a->experts; e += DEV_WARP) {
        const float x = dev_load(&a->logits, t->n, e), power = expf(x - t->top);
        t->scores[e] = a->sigmoid ? dev_sigmoid(x) : power;
        sum += power;
    }
    t->sum = dev_warp_sum(sum);
    for (int64_t e = route_lane(); e < a->experts && !a->sigmoid; e += DEV_WARP) {
        t->scores[e] /= t->sum;
    }
}

// A lane's best expert so far: the value, and its number, which no value of a tie exceeds.
typedef struct route_best {
    float value, at;
} route_best;

DEV_INLINE route_best route_better(route_best x, route_best y)
{
    return y.value > x.value || (y.value == x.value && y.at < x.at) ? y : x;
}

// Closes the groups but the best ones; ties go to the lower group.
DEV_INLINE void route_close(const cuda_route_args *a, const route_token *t)
{
    const int64_t size = a->experts / a->groups;
    for (int64_t g = route_lane(); g < a->groups; g += DEV_WARP) {
        float best = -INFINITY, second = -INFINITY;
        for (int64_t e = g * size; e < (g + 1) * size; e++) {
            const float value = t->choice[e];
            second = value > best ? best : value > second ? value : second;
            best = value > best ? value : best;
        }
        t->groups[g] = a->group_pairs ? best + second : best;
    }
    dev_warp_barrier();
    for (int64_t e = route_lane(); e < a->experts; e += DEV_WARP) {
        const int64_t own = e / size;
        int64_t before = 0;
        for (int64_t g = 0; g < a->groups; g++) {
            const float other = t->groups[g];
            before += other > t->groups[own] || (other == t->groups[own] && g < own);
        }
        if (before >= a->top_groups) t->choice[e] = -INFINITY;
    }
}

// Returns the sum that the scores of the chosen experts are divided by.
DEV_INLINE float route_divisor(const cuda_route_args *a, const route_token *t)
{
    float sum = a->sigmoid ? 1e-20f : 0.0f;
    if (!a->normalize) return 1.0f;
    for (int64_t k = 0; k < a->taken; k++) sum += t->scores[(int64_t)t->taken[k]];
    return sum;
}

DEV_KERNEL(cuda_route, cuda_route_args, CUDA_THREADS)
{
    const int64_t warps = dev_threads() / DEV_WARP;
    const int64_t n = dev_block(0) * warps + dev_thread() / DEV_WARP;
    if (n >= dev_rows(&a.logits)) return;
    route_token t = route_token_of(&a, n);
    const bool plain = !a.sigmoid && a.bias.data == NULL && !a.group_pairs;
    route_scores(&a, &t);
    for (int64_t e = route_lane(); e < a.experts; e += DEV_WARP) {
        // The logits order experts as the softmax does, and no two become equal.
        const float bias = a.bias.data != NULL ? dev_load(&a.bias, 0, e) : 0.0f;
        t.choice[e] = plain ? dev_load(&a.logits, n, e) : t.scores[e] + bias;
    }
    dev_warp_barrier();
    if (a.groups > 0) route_close(&a, &t);
    for (int64_t k = 0; k < a.taken; k++) {
        route_best best;
        best.value = -INFINITY;
        best.at = (float)(a.experts - 1);
        for (int64_t e = route_lane(); e < a.experts; e += DEV_WARP) {
            route_best own;
            own.value = t.choice[e];
            own.at = (float)e;
            best = route_better(best, own);
        }
        for (int mask = DEV_WARP / 2; mask > 0; mask /= 2) {
            route_best other;
            other.value = dev_shuffle_xor(best.value, mask);
            other.at = dev_shuffle_xor(best.at, mask);
            best = route_better(best, other);
        }
        const int64_t e = (int64_t)best.at;
        if (e % DEV_WARP == route_lane()) t.choice[e] = -INFINITY;
        if (route_lane() == 0) {
            t.taken[k] = best.at;
            dev_index_put(&a.ids, n * a.ids.stride + k, e);
        }
    }
    dev_warp_barrier();
    const float factor = (a.scale > 0.0f ? a.scale : 1.0f) / route_divisor(&a, &t);
    for (int64_t k = route_lane(); k < a.taken; k += DEV_WARP) {
        dev_store(&a.weights, n, k, t.scores[(int64_t)t.taken[k]] * factor);
    }
}

// ---- losses that balance ------------------------------------------------------------------------
// Counts the tokens of each sequence that take an expert. Grid: parts of a sequence, sequences.
DEV_KERNEL(cuda_route_shares, cuda_route_args, CUDA_THREADS)
{
    const int64_t first = dev_block(1) * a.share_rows;
    const int64_t end = dev_min(first + a.share_rows, a.choices.rows) * a.taken;
    for (int64_t k = first * a.taken + dev_block(0) * dev_threads() + dev_thread(); k < end;
         k += dev_blocks(0) * dev_threads()) {
        const int64_t n = k / a.taken,
                      e = dev_index(&a.choices, n * a.choices.stride + k % a.taken);
        if (e < 0) continue;
        dev_index_check("route", n, e, a.experts);
        dev_atomic_add(&a.shares[dev_block(1) * a.experts + e], 1);
    }
}

// The share of rows that take an expert, of a token's sequence or of the batch of the step before.
DEV_INLINE float route_share(const cuda_route_args *a, const route_token *t, int64_t e)
{
    if (!a->aux_batch) {
        const int64_t sequence = t->n / a->own_rows, first = sequence * a->share_rows;
        const int64_t rows = dev_min(a->share_rows, a->choices.rows - first);
        return (float)((double)a->shares[sequence * a->experts + e] / (double)rows);
    }
    const int64_t *load = step_loads(a->step, a->load_layers, a->experts, a->layer, true);
    const int64_t tokens = load[a->experts + LOAD_TOKENS];
    return (float)(tokens > 0 ? (double)load[e] / (double)tokens
                              : (double)a->taken / (double)a->experts);
}

// The sum of a token's scores, and of its scores times the shares.
typedef struct route_sums {
    float all, mean;
} route_sums;

DEV_INLINE route_sums route_sums_of(const cuda_route_args *a, const route_token *t)
{
    route_sums s;
    s.all = s.mean = 0.0f;
    for (int64_t e = route_lane(); e < a->experts; e += DEV_WARP) {
        s.all += t->scores[e];
        s.mean += route_share(a, t, e) * t->scores[e];
    }
    s.all = dev_warp_sum(s.all);
    s.mean = dev_warp_sum(s.mean);
    return s;
}

// The gradient of a logit by the losses of its row.
DEV_INLINE float route_losses_slope(const cuda_route_args *a, const route_token *t, route_sums s,
                                    int64_t e)
{
    const float unit = (float)(a->step->device.loss_scale / a->loss_divisor);
    const float own = t->scores[e], lse = t->top + logf(t->sum);
    const float soft = expf(dev_load(&a->logits, t->n, e) - t->top) / t->sum;
    float d = 2.0f * a->z_loss * lse * soft;
    if (a->aux_loss > 0.0f) {
        const float slope = a->sigmoid ? own * (1.0f - own) / s.all : own;
        d += a->aux_loss * (float)a->experts * slope * (route_share(a, t, e) - s.mean / s.all);
    }
    return unit * d;
}

// With S the sum of the chosen scores: ds_t = f (dw_t - (sum over u of dw_u s_u) / S) / S. A logit
// of a softmax: s_e (ds_e - sum of ds s); of sigmoids: ds_e s_e (1 - s_e).
DEV_KERNEL(cuda_route_bwd, cuda_route_args, CUDA_THREADS)
{
    const int64_t warps = dev_threads() / DEV_WARP;
    const int64_t n = dev_block(0) * warps + dev_thread() / DEV_WARP;
    if (n >= dev_rows(&a.logits)) return;
    route_token t = route_token_of(&a, n);
    const bool has_loss = a.aux_loss > 0.0f || a.z_loss > 0.0f;
    route_sums s = {1.0f, 0.0f};
    route_scores(&a, &t);
    for (int64_t e = route_lane(); e < a.experts; e += DEV_WARP) t.choice[e] = 0.0f;
    for (int64_t k = route_lane(); k < a.taken; k += DEV_WARP) {
        const int64_t e = dev_index(&a.ids, n * a.ids.stride + k);
        dev_index_check("route_bwd", n, e, a.experts);
        t.taken[k] = (float)e;
    }
    dev_warp_barrier();
    const float factor = a.scale > 0.0f ? a.scale : 1.0f, sum = route_divisor(&a, &t);
    float mean = 0.0f, inner = 0.0f;
    for (int64_t k = 0; k < a.taken && a.normalize; k++) {
        mean += dev_load(&a.d_weights, n, k) * t.scores[(int64_t)t.taken[k]];
    }
    for (int64_t k = 0; k < a.taken; k++) {
        const int64_t e = (int64_t)t.taken[k];
        const float ds = factor * (dev_load(&a.d_weights, n, k) - mean / sum) / sum;
        if (e % DEV_WARP == route_lane()) t.choice[e] = ds;
        inner += ds * t.scores[e];
    }
    if (a.aux_loss > 0.0f) s = route_sums_of(&a, &t);
    for (int64_t e = route_lane(); e < a.experts; e += DEV_WARP) {
        const float p = t.scores[e], ds = t.choice[e];
        float d = a.sigmoid ? ds * p * (1.0f - p) : p * (ds - inner);
        if (has_loss) d += route_losses_slope(&a, &t, s, e);
        dev_store(&a.d_logits, n, e, d);
    }
}

// ---- loads --------------------------------------------------------------------------------------
// A token's loss in whole units, whose sums have one value in every order.
DEV_INLINE int64_t route_units(double loss)
{
    return llrint(fmin(loss, (double)(1 << LOAD_MOST_BITS)) * (double)(1 << LOAD_UNIT_BITS));
}

DEV_KERNEL(cuda_step_routes, cuda_route_args, CUDA_THREADS)
{
    const int64_t warps = dev_threads() / DEV_WARP;
    const int64_t n = dev_block(0) * warps + dev_thread() / DEV_WARP;
    int64_t *load = step_loads(a.step, a.load_layers, a.experts, a.layer, false);
    if (n >= a.rows) return;
    for (int64_t k = route_lane(); k < a.taken; k += DEV_WARP) {
        const int64_t e = dev_index(&a.ids, n * a.ids.stride + k);
        if (e < 0) continue; // it takes no expert
        dev_index_check("step_routes", n, e, a.experts);
        dev_atomic_add(&load[e], 1);
        if (a.kept.data != NULL && dev_index(&a.kept, n * a.kept.stride + k) < 0) {
            dev_atomic_add(&load[a.experts + LOAD_DROPPED], 1);
        }
    }
    if (route_lane() == 0) dev_atomic_add(&load[a.experts + LOAD_TOKENS], 1);
    if (a.logits.data == NULL) return;
    route_token t = route_token_of(&a, n);
    route_scores(&a, &t);
    const float lse = t.top + logf(t.sum);
    if (a.aux_loss > 0.0f) {
        const route_sums s = route_sums_of(&a, &t);
        const double loss = (double)a.experts * (double)s.mean / (double)s.all;
        if (route_lane() == 0) dev_atomic_add(&load[a.experts + LOAD_AUX], route_units(loss));
    }
    if (route_lane() != 0) return;
    dev_atomic_add(&load[a.experts + LOAD_Z], route_units((double)lse * (double)lse));
}

// weights: the shares that experts should have, or missing; bias -> d_logits, its new value.
DEV_KERNEL(cuda_balance, cuda_route_args, CUDA_THREADS)
{
    const int64_t *load = step_loads(a.step, a.load_layers, a.experts, a.layer, false);
    int64_t all = 0;
    if (a.step->device.skip != 0 || a.step->device.halt != 0) return;
    for (int64_t e = 0; e < a.experts; e++) all += load[e];
    for (int64_t e = dev_thread(); e < a.experts; e += dev_threads()) {
        double more = (double)(load[e] * a.experts - all);
        if (a.weights.data != NULL) {
            more = (double)a.experts *
                   ((double)load[e] - (double)dev_load(&a.weights, 0, e) * (double)all);
        }
        const float sign = more > 0.0 ? -1.0f : more < 0.0 ? 1.0f : 0.0f;
        dev_store(&a.d_logits, 0, e, dev_load(&a.bias, 0, e) + sign * a.rate);
    }
}
