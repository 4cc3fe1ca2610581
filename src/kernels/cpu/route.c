// Routing with sigmoids, groups, a bias or a factor, and gates of rows. The formulas are in
// kernels/ref/route.c. One task works on whole rows; scores are fp32, sums are in double, and no
// bit of a row depends on another row.
#include "kernels/cpu/route.h"
#include "kernels/cpu/vec_call.h"
#include "kernels/route_rows.h"

#include <math.h>
#include <string.h>

// A model with more experts is refused.
enum { MOST_EXPERTS = 4096, SIGMOID = 4 };

bool cpu_route_is_scored(const kern_call *call)
{
    const op_attrs *a = &call->attrs;
    const bool has_bias = call->code == OP_ROUTE && tensor_has(&call->in[1]);
    // The weights of a plain ROUTE_BWD give its softmax, which a choice by groups does not.
    return a->sigmoid || a->groups > 0 || has_bias || (a->scale > 0.0F && a->scale != 1.0F);
}

static float *statistic(const kern_tensor *t, int64_t row)
{
    return (float *)t->data + row * tensor_stride(t);
}

// Computes the scores of a token.
static void scores_make(const cpu_row_job *job, const kern_tensor *logits, int64_t n, float *scores)
{
    const int64_t experts = logits->dims[1];
    job->vec->cast(cpu_span_fp32(scores), tensor_row(logits, n), experts);
    if (job->call->attrs.sigmoid) {
        job->vec->function(SIGMOID, scores, scores, experts);
        return;
    }
    float top = scores[0];
    double sum = 0.0;
    for (int64_t e = 1; e < experts; e++) top = scores[e] > top ? scores[e] : top;
    for (int64_t e = 0; e < experts; e++) scores[e] -= top;
    job->vec->function(0, scores, scores, experts);
    for (int64_t e = 0; e < experts; e++) sum += (double)scores[e];
    for (int64_t e = 0; e < experts; e++) scores[e] = (float)((double)scores[e] / sum);
}

static float group_value(const op_attrs *a, const float *choice, int64_t size)
{
    float best = -INFINITY, second = -INFINITY;
    for (int64_t e = 0; e < size; e++) {
        if (choice[e] > best) {
            second = best;
            best = choice[e];
        } else if (choice[e] > second) {
            second = choice[e];
        }
    }
    return a->group_pairs ? best + second : best;
}

// Leaves out the experts of all groups but the best ones; ties go to the lower group.
static void groups_close(const op_attrs *a, float *choice, int64_t experts)
{
    const int64_t size = experts / a->groups;
    float values[MOST_EXPERTS];
    for (int64_t g = 0; g < a->groups; g++) {
        values[g] = group_value(a, choice + g * size, size);
    }
    for (int64_t g = 0; g < a->groups; g++) {
        int64_t before = 0;
        for (int64_t o = 0; o < a->groups; o++) {
            before += values[o] > values[g] || (values[o] == values[g] && o < g);
        }
        if (before < a->top_groups) continue;
        for (int64_t e = g * size; e < (g + 1) * size; e++) choice[e] = -INFINITY;
    }
}

// Takes the best experts in descending order; ties go to the lower one.
static void experts_take(const kern_tensor *ids, int64_t n, float *choice, int64_t experts)
{
    for (int64_t t = 0; t < ids->dims[1]; t++) {
        int64_t best = 0;
        for (int64_t e = 1; e < experts; e++) {
            if (choice[e] > choice[best]) best = e;
        }
        tensor_int_put(ids, n, t, best);
        choice[best] = -INFINITY;
    }
}

static double factor_of(const kern_call *c)
{
    return c->attrs.scale > 0.0F ? (double)c->attrs.scale : 1.0;
}

// Returns the sum that the scores of the chosen experts are divided by.
static double chosen_sum(const kern_call *c, const float *scores, const kern_tensor *ids, int64_t n)
{
    double sum = c->attrs.sigmoid ? 1e-20 : 0.0;
    if (!c->attrs.normalize) return 1.0;
    for (int64_t t = 0; t < ids->dims[1]; t++) sum += (double)scores[tensor_int_at(ids, n, t)];
    return sum;
}

static void route_row(const cpu_row_job *job, int64_t n)
{
    const kern_call *c = job->call;
    const kern_tensor *bias = &c->in[1], *ids = &c->out[0];
    const int64_t experts = c->in[0].dims[1];
    float scores[MOST_EXPERTS], choice[MOST_EXPERTS], *weights = statistic(&c->out[1], n);
    scores_make(job, &c->in[0], n, scores);
    if (tensor_has(bias)) {
        job->vec->add(cpu_span_fp32(choice), cpu_span_fp32(scores), tensor_row(bias, 0), experts);
    } else if (!c->attrs.sigmoid && !c->attrs.group_pairs) {
        job->vec->cast(cpu_span_fp32(choice), tensor_row(&c->in[0], n),
                       experts); // no two become equal
    } else {
        memcpy(choice, scores, (size_t)experts * sizeof(float));
    }
    if (c->attrs.groups > 0) groups_close(&c->attrs, choice, experts);
    experts_take(ids, n, choice, experts);
    const double factor = factor_of(c) / chosen_sum(c, scores, ids, n);
    for (int64_t t = 0; t < ids->dims[1]; t++) {
        weights[t] = (float)((double)scores[tensor_int_at(ids, n, t)] * factor);
    }
}

static void route_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) route_row(job, n);
}

static status experts_check(const kern_call *call, int64_t experts)
{
    if (experts <= MOST_EXPERTS) return ST_OK;
    return fail(ST_UNSUPPORTED, "backend cpu: %s with %lld experts, at most %d",
                op_kind_of(call->code)->name, (long long)experts, (int)MOST_EXPERTS);
}

status cpu_route_scored(const kern_context *context, const kern_call *call)
{
    TRY(experts_check(call, call->in[0].dims[1]));
    cpu_rows_run(context, call, call->in[0].dims[0], call->in[0].dims[1], route_task);
    return ST_OK;
}

static void bwd_row(const cpu_row_job *job, int64_t n)
{
    const kern_call *c = job->call;
    const kern_tensor *logits = &c->in[1], *ids = &c->in[2];
    const int64_t experts = logits->dims[1], taken = ids->dims[1];
    const float *dweights = statistic(&c->in[0], n);
    float scores[MOST_EXPERTS], d[MOST_EXPERTS];
    double mean = 0.0, inner = 0.0;
    scores_make(job, logits, n, scores);
    const double sum = chosen_sum(c, scores, ids, n), factor = factor_of(c);
    for (int64_t t = 0; t < taken && c->attrs.normalize; t++) {
        mean += (double)dweights[t] * (double)scores[tensor_int_at(ids, n, t)];
    }
    memset(d, 0, (size_t)experts * sizeof(float));
    for (int64_t t = 0; t < taken; t++) {
        const int64_t e = tensor_int_at(ids, n, t);
        const double ds = factor * ((double)dweights[t] - mean / sum) / sum;
        d[e] = (float)ds;
        inner += ds * (double)scores[e];
    }
    for (int64_t e = 0; e < experts; e++) {
        const double p = (double)scores[e];
        d[e] =
            (float)(c->attrs.sigmoid ? (double)d[e] * p * (1.0 - p) : p * ((double)d[e] - inner));
    }
    job->vec->cast(tensor_row(&c->out[0], n), cpu_span_fp32(d), experts);
}

static void bwd_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) bwd_row(job, n);
}

// Checks that all ids are from `least` on, and of an expert.
static status ids_of_check(const kern_call *call, const kern_tensor *ids, int64_t least,
                           int64_t experts)
{
    TRY(experts_check(call, experts));
    for (int64_t n = 0; ids->data != NULL && n < ids->dims[0]; n++) {
        for (int64_t t = 0; t < ids->dims[1]; t++) {
            const int64_t e = tensor_int_at(ids, n, t);
            if (e >= least && e < experts) continue;
            return fail(ST_DATA, "%s: token %lld has expert %lld of %lld",
                        op_kind_of(call->code)->name, (long long)n, (long long)e,
                        (long long)experts);
        }
    }
    return ST_OK;
}

static status ids_check(const kern_call *call)
{
    return ids_of_check(call, &call->in[2], 0, call->in[1].dims[1]);
}

status cpu_route_scored_bwd(const kern_context *context, const kern_call *call)
{
    TRY(ids_check(call));
    cpu_rows_run(context, call, call->in[1].dims[0], call->in[1].dims[1], bwd_task);
    return ST_OK;
}

// ---- losses that balance experts ----------------------------------------------------------------

// Computes the softmax's exponentials of a token; *sum: their sum. Returns the logarithm of the sum
// of the logits' exponentials.
static double soft_make(const cpu_row_job *job, const kern_tensor *logits, int64_t n, float *soft,
                        double *sum)
{
    const int64_t experts = logits->dims[1];
    float top = -INFINITY;
    *sum = 0.0;
    job->vec->cast(cpu_span_fp32(soft), tensor_row(logits, n), experts);
    for (int64_t e = 0; e < experts; e++) top = soft[e] > top ? soft[e] : top;
    for (int64_t e = 0; e < experts; e++) soft[e] -= top;
    job->vec->function(0, soft, soft, experts);
    for (int64_t e = 0; e < experts; e++) *sum += (double)soft[e];
    return (double)top + log(*sum);
}

// Adds the gradients of both losses to a row of dlogits. `share`: of rows, for each expert.
static void losses_row(const cpu_row_job *job, int64_t n, const float *share)
{
    const kern_call *c = job->call;
    const kern_tensor *logits = &c->in[1], *dlogits = &c->out[0];
    const int64_t experts = logits->dims[1];
    const double aux = (double)c->attrs.aux_loss * (double)experts, z = (double)c->attrs.z_loss;
    const double unit = c->step->device.loss_scale / c->loss_divisor;
    float scores[MOST_EXPERTS], soft[MOST_EXPERTS], d[MOST_EXPERTS];
    double all = 0.0, mean = 0.0, sum = 0.0;
    scores_make(job, logits, n, scores);
    for (int64_t e = 0; e < experts; e++) {
        all += (double)scores[e];
        mean += (double)share[e] * (double)scores[e];
    }
    const double lse = soft_make(job, logits, n, soft, &sum);
    job->vec->cast(cpu_span_fp32(d), tensor_row(dlogits, n), experts);
    for (int64_t e = 0; e < experts; e++) {
        const double own = (double)scores[e];
        const double slope = c->attrs.sigmoid ? own * (1.0 - own) / all : own;
        const double more =
            aux * slope * ((double)share[e] - mean / all) + 2.0 * z * lse * (double)soft[e] / sum;
        d[e] = (float)((double)d[e] + unit * more);
    }
    job->vec->cast(tensor_row(dlogits, n), cpu_span_fp32(d), experts);
}

// Computes the share of rows that take each expert: of set `set`, or with aux_batch of the whole
// batch of the step before.
static void shares_make(const kern_call *c, const route_rows *sets, int64_t set, int64_t experts,
                        float *share)
{
    const kern_tensor *ids = sets->choices;
    const int64_t first = set * sets->all, rows = min_i64(sets->all, ids->dims[0] - first);
    memset(share, 0, (size_t)experts * sizeof(*share));
    if (c->attrs.aux_batch) {
        const int64_t *load =
            step_loads(c->step, c->attrs.load_layers, experts, max_i64(c->layer, 0), true);
        const int64_t tokens = load[experts + LOAD_TOKENS];
        const double even = (double)ids->dims[1] / (double)experts;
        for (int64_t e = 0; e < experts; e++) {
            share[e] = (float)(tokens > 0 ? (double)load[e] / (double)tokens : even);
        }
        return;
    }
    for (int64_t n = first; n < first + rows; n++) {
        for (int64_t t = 0; t < ids->dims[1]; t++) {
            const int64_t e = tensor_int_at(ids, n, t);
            if (e >= 0) share[e] += 1.0F;
        }
    }
    for (int64_t e = 0; e < experts; e++) share[e] = (float)((double)share[e] / (double)rows);
}

static void losses_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const kern_tensor *ids = &c->in[2];
    const route_rows sets = route_rows_of(c, ids, route_whole(c));
    const int64_t first = index * sets.own, rows = min_i64(sets.own, ids->dims[0] - first);
    float share[MOST_EXPERTS];
    shares_make(c, &sets, index, c->in[1].dims[1], share);
    for (int64_t n = first; n < first + rows; n++) losses_row(job, n, share);
}

static bool has_loss(const kern_call *c)
{
    return c->attrs.aux_loss > 0.0F || c->attrs.z_loss > 0.0F;
}

status cpu_route_losses(const kern_context *context, const kern_call *call)
{
    const int64_t rows = call->in[1].dims[0];
    if (rows == 0 || !has_loss(call)) return ST_OK;
    TRY(ids_check(call));
    TRY(ids_of_check(call, route_whole(call), -1, call->in[1].dims[1]));
    cpu_row_job job = {.call = call, .vec = cpu_vec_of(context->level)};
    const route_rows sets = route_rows_of(call, &call->in[2], route_whole(call));
    kern_parallel(context->pool, sets.sets, losses_task, &job);
    return ST_OK;
}

// ---- the loads of experts -----------------------------------------------------------------------

// Tasks add whole numbers, so the order of threads changes no bit.
static void load_add(int64_t *sum, int64_t more)
{
    (void)__atomic_fetch_add(sum, more, __ATOMIC_RELAXED);
}

static int64_t units_of(double loss)
{
    return llround(fmin(loss, (double)(1 << LOAD_MOST_BITS)) * (double)(1 << LOAD_UNIT_BITS));
}

// Adds up the losses of the call's rows of a set, in units.
static void losses_sum(const cpu_row_job *job, const route_rows *sets, int64_t set, int64_t *words)
{
    const kern_call *c = job->call;
    const kern_tensor *logits = &c->in[2];
    const int64_t experts = logits->dims[1], first = set * sets->own;
    const int64_t rows = min_i64(sets->own, logits->dims[0] - first);
    float share[MOST_EXPERTS], scores[MOST_EXPERTS];
    int64_t aux = 0, z = 0;
    shares_make(c, sets, set, experts, share);
    for (int64_t n = first; n < first + rows; n++) {
        double all = 0.0, mean = 0.0, sum = 0.0;
        scores_make(job, logits, n, scores);
        for (int64_t e = 0; e < experts; e++) {
            all += (double)scores[e];
            mean += (double)share[e] * (double)scores[e];
        }
        const double lse = soft_make(job, logits, n, scores, &sum);
        aux += units_of((double)experts * mean / all);
        z += units_of(lse * lse);
    }
    if (c->attrs.aux_loss > 0.0F) load_add(&words[LOAD_AUX], aux);
    load_add(&words[LOAD_Z], z);
}

static void routes_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const op_attrs *a = &c->attrs;
    const kern_tensor *ids = &c->in[0], *kept = &c->in[1];
    const route_rows sets = route_rows_of(c, ids, route_whole(c));
    const int64_t first = index * sets.own, rows = min_i64(sets.own, ids->dims[0] - first);
    int64_t *load = step_loads(c->step, a->load_layers, a->experts, max_i64(c->layer, 0), false);
    int64_t *words = load + a->experts, dropped = 0;
    int32_t count[MOST_EXPERTS] = {0};
    for (int64_t n = first; n < first + rows; n++) {
        for (int64_t t = 0; t < ids->dims[1]; t++) {
            const int64_t e = tensor_int_at(ids, n, t);
            if (e < 0) continue; // it takes no expert
            count[e]++;
            if (tensor_has(kept)) dropped += tensor_int_at(kept, n, t) < 0;
        }
    }
    for (int64_t e = 0; e < a->experts; e++) load_add(&load[e], count[e]);
    load_add(&words[LOAD_TOKENS], rows);
    load_add(&words[LOAD_DROPPED], dropped);
    if (tensor_has(&c->in[2])) losses_sum(job, &sets, index, words);
}

status cpu_step_routes(const kern_context *context, const kern_call *call)
{
    const int64_t rows = call->in[0].dims[0];
    if (rows == 0) return ST_OK;
    TRY(ids_of_check(call, &call->in[0], -1, call->attrs.experts));
    TRY(ids_of_check(call, route_whole(call), -1, call->attrs.experts));
    cpu_row_job job = {.call = call, .vec = cpu_vec_of(context->level)};
    const route_rows sets = route_rows_of(call, &call->in[0], route_whole(call));
    kern_parallel(context->pool, sets.sets, routes_task, &job);
    return ST_OK;
}

// ---- gates of rows ------------------------------------------------------------------------------

static float gate_of(const cpu_row_job *job, const kern_tensor *gate, int64_t n)
{
    float value = 0.0F;
    job->vec->cast(cpu_span_fp32(&value), tensor_row(gate, n), 1);
    job->vec->function(SIGMOID, &value, &value, 1);
    return value;
}

static void gate_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) {
        job->vec->scale(tensor_row(&c->out[0], n), tensor_row(&c->in[0], n),
                        gate_of(job, &c->in[1], n), piece.columns);
    }
}

status cpu_gate_rows(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    cpu_rows_run(context, call, call->in[0].dims[0], call->in[0].dims[1], gate_task);
    return ST_OK;
}

static double dot(const cpu_row_job *job, cpu_span a, cpu_span b, int64_t n)
{
    enum { BLOCK = 256 };
    float x[BLOCK], y[BLOCK];
    double sum = 0.0;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        const int64_t count = min_i64(BLOCK, n - begin);
        job->vec->cast(cpu_span_fp32(x), cpu_span_offset(a, begin), count);
        job->vec->cast(cpu_span_fp32(y), cpu_span_offset(b, begin), count);
        for (int64_t i = 0; i < count; i++) sum += (double)x[i] * (double)y[i];
    }
    return sum;
}

static void gate_bwd_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) {
        const cpu_span dy = tensor_row(&c->in[0], n);
        const double g = (double)gate_of(job, &c->in[2], n);
        float d = (float)(dot(job, dy, tensor_row(&c->in[1], n), piece.columns) * g * (1.0 - g));
        job->vec->scale(tensor_row(&c->out[0], n), dy, (float)g, piece.columns);
        job->vec->cast(tensor_row(&c->out[1], n), cpu_span_fp32(&d), 1);
    }
}

status cpu_gate_rows_bwd(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    cpu_rows_run(context, call, call->in[0].dims[0], call->in[0].dims[1], gate_bwd_task);
    return ST_OK;
}
