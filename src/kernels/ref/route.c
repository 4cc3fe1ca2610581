// The router's choice of experts and its gradient, and gates of rows.
//
// Scores s are a softmax of the logits, or sigmoids. A bias is added to them for the choice alone,
// and groups of experts leave others out: for a softmax without a bias this orders experts by their
// logits. Weights are w = f s, or with `normalize` w = f s / (sum of s over the chosen + tiny).
#include "kernels/ref/ref.h"
#include "kernels/route_rows.h"

static bool is_chosen(const kern_tensor *ids, int64_t n, int64_t count, int64_t e)
{
    for (int64_t t = 0; t < count; t++) {
        if (ref_get_int(ids, n, t) == e) return true;
    }
    return false;
}

static double factor_of(const kern_call *c)
{
    return c->attrs.scale > 0.0f ? (double)c->attrs.scale : 1.0;
}

static double softmax_sum(const kern_tensor *logits, int64_t n, double *top)
{
    double sum = 0.0;
    *top = -HUGE_VAL;
    for (int64_t e = 0; e < logits->dims[1]; e++) *top = fmax(*top, ref_get(logits, n, e));
    for (int64_t e = 0; e < logits->dims[1]; e++) sum += exp(ref_get(logits, n, e) - *top);
    return sum;
}

enum { SCORES_KEPT = 256 };

// A token's scores: how they follow from its logits.
typedef struct token_scores {
    const kern_call *c;
    const kern_tensor *logits;
    int64_t n;
    double top, sum;          // of the softmax
    double kept[SCORES_KEPT]; // those of the first experts: groups ask for each many times
} token_scores;

static double score_make(const token_scores *s, int64_t e)
{
    const double x = ref_get(s->logits, s->n, e);
    return s->c->attrs.sigmoid ? 1.0 / (1.0 + exp(-x)) : exp(x - s->top) / s->sum;
}

static token_scores scores_of(const kern_call *c, const kern_tensor *logits, int64_t n)
{
    token_scores s = {.c = c, .logits = logits, .n = n};
    s.sum = softmax_sum(logits, n, &s.top);
    for (int64_t e = 0; e < min_i64(SCORES_KEPT, logits->dims[1]); e++)
        s.kept[e] = score_make(&s, e);
    return s;
}

static double score(const token_scores *s, int64_t e)
{
    return e < SCORES_KEPT ? s->kept[e] : score_make(s, e);
}

// Returns the value that experts are chosen by.
static double choice(const token_scores *s, int64_t e)
{
    const kern_tensor *bias = &s->c->in[1];
    const bool plain = !s->c->attrs.sigmoid && !ref_has(bias) && !s->c->attrs.group_pairs;
    if (plain) return ref_get(s->logits, s->n, e); // as the softmax orders them
    return score(s, e) + (ref_has(bias) ? ref_get(bias, 0, e) : 0.0);
}

static double group_value(const token_scores *s, int64_t group, int64_t size)
{
    double best = -HUGE_VAL, second = -HUGE_VAL;
    for (int64_t e = group * size; e < (group + 1) * size; e++) {
        const double value = choice(s, e);
        if (value > best) {
            second = best;
            best = value;
        } else if (value > second) {
            second = value;
        }
    }
    return s->c->attrs.group_pairs ? best + second : best;
}

// Returns whether a token may take an expert: fewer than top_groups groups come before its group.
static bool is_open(const token_scores *s, int64_t e)
{
    const int64_t groups = s->c->attrs.groups, experts = s->logits->dims[1];
    if (groups == 0) return true;
    const int64_t size = experts / groups, own = e / size;
    const double value = group_value(s, own, size);
    int64_t before = 0;
    for (int64_t g = 0; g < groups; g++) {
        const double other = group_value(s, g, size);
        before += other > value || (other == value && g < own);
    }
    return before < s->c->attrs.top_groups;
}

static double weights_sum(const token_scores *s, const kern_tensor *ids)
{
    double sum = 0.0;
    if (!s->c->attrs.normalize) return 1.0;
    for (int64_t t = 0; t < ids->dims[1]; t++) sum += score(s, ref_get_int(ids, s->n, t));
    return sum + (s->c->attrs.sigmoid ? 1e-20 : 0.0);
}

status ref_route(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *logits = &c->in[0], *ids = &c->out[0], *weights = &c->out[1];
    const int64_t experts = logits->dims[1], taken = ids->dims[1];
    for (int64_t n = 0; n < logits->dims[0]; n++) {
        const token_scores s = scores_of(c, logits, n);
        for (int64_t t = 0; t < taken; t++) {
            int64_t best = -1;
            for (int64_t e = 0; e < experts; e++) {
                if (is_chosen(ids, n, t, e) || !is_open(&s, e)) continue;
                if (best < 0 || choice(&s, e) > choice(&s, best)) best = e;
            }
            ref_put_int(ids, n, t, best);
        }
        const double sum = weights_sum(&s, ids);
        for (int64_t t = 0; t < taken; t++) {
            ref_put(weights, n, t, factor_of(c) * score(&s, ref_get_int(ids, n, t)) / sum);
        }
    }
    return ST_OK;
}

// Sets d[e] to the gradient of the score of expert e. With S the sum of the chosen scores,
//   w_t = f s_t / S:  ds_t = f dw_t / S - f (sum over u of dw_u s_u) / S^2
static double score_gradient(const token_scores *s, const kern_tensor *dweights,
                             const kern_tensor *ids, int64_t t)
{
    const double factor = factor_of(s->c), sum = weights_sum(s, ids);
    const double d = factor * ref_get(dweights, s->n, t) / sum;
    double mean = 0.0;
    if (!s->c->attrs.normalize) return d;
    for (int64_t u = 0; u < ids->dims[1]; u++) {
        mean += ref_get(dweights, s->n, u) * score(s, ref_get_int(ids, s->n, u));
    }
    return d - factor * mean / (sum * sum);
}

// Returns the share of rows that take an expert: those of the row's sequence, of all sequences of
// the call, or of the batch of the step before.
static double taken_share(const token_scores *s, const kern_tensor *ids, int64_t e)
{
    const kern_call *c = s->c;
    if (c->attrs.aux_batch) {
        const int64_t experts = s->logits->dims[1];
        const int64_t *load =
            step_loads(c->step, c->attrs.load_layers, experts, max_i64(c->layer, 0), true);
        if (load[experts + LOAD_TOKENS] == 0) return (double)ids->dims[1] / (double)experts;
        return (double)load[e] / (double)load[experts + LOAD_TOKENS];
    }
    const route_rows rows = route_rows_of(c, ids, route_whole(c));
    const int64_t first = s->n / rows.own * rows.all;
    int64_t count = 0;
    for (int64_t n = first; n < first + rows.all; n++) {
        for (int64_t t = 0; t < ids->dims[1]; t++) count += ref_get_int(rows.choices, n, t) == e;
    }
    return (double)count / (double)rows.all;
}

// The gradient of one logit of a row by the losses of its row (op_codes.h). With S the sum of all
// scores, which is 1 for a softmax, p = s / S and f the shares of rows:
//   a softmax: E p_e (f_e - sum of f p); sigmoids: E s_e (1 - s_e) / S (f_e - sum of f p)
static double losses_gradient(const token_scores *s, const kern_tensor *ids, int64_t e)
{
    const kern_call *c = s->c;
    const double aux = (double)c->attrs.aux_loss, z = (double)c->attrs.z_loss;
    if (!(aux > 0.0) && !(z > 0.0)) return 0.0;
    const double unit = c->step->device.loss_scale / c->loss_divisor;
    const double own = score(s, e), lse = s->top + log(s->sum);
    const double soft = exp(ref_get(s->logits, s->n, e) - s->top) / s->sum;
    double all = 0.0, mean = 0.0;
    for (int64_t i = 0; i < s->logits->dims[1] && aux > 0.0; i++) {
        all += score(s, i);
        mean += taken_share(s, ids, i) * score(s, i);
    }
    double d = 2.0 * z * lse * soft;
    if (aux > 0.0) {
        const double slope = c->attrs.sigmoid ? own * (1.0 - own) / all : own;
        d += aux * (double)s->logits->dims[1] * slope * (taken_share(s, ids, e) - mean / all);
    }
    return unit * d;
}

ref_route_loss ref_route_loss_of(const kern_call *c, const kern_tensor *logits,
                                 const kern_tensor *ids, int64_t n)
{
    const token_scores s = scores_of(c, logits, n);
    const double lse = s.top + log(s.sum);
    double all = 0.0, mean = 0.0;
    if (!(c->attrs.aux_loss > 0.0f)) return (ref_route_loss){.z = lse * lse};
    for (int64_t e = 0; e < logits->dims[1]; e++) {
        all += score(&s, e);
        mean += taken_share(&s, ids, e) * score(&s, e);
    }
    return (ref_route_loss){.balance = (double)logits->dims[1] * mean / all, .z = lse * lse};
}

// dlogits_e of a softmax: s_e (ds_e - sum of ds s over the chosen); of sigmoids:
// ds_e s_e (1 - s_e).
status ref_route_bwd(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *dweights = &c->in[0], *logits = &c->in[1], *ids = &c->in[2];
    const kern_tensor *dlogits = &c->out[0];
    for (int64_t n = 0; n < logits->dims[0]; n++) {
        const token_scores s = scores_of(c, logits, n);
        double mean = 0.0;
        for (int64_t t = 0; t < ids->dims[1] && !c->attrs.sigmoid; t++) {
            mean += score_gradient(&s, dweights, ids, t) * score(&s, ref_get_int(ids, n, t));
        }
        for (int64_t e = 0; e < logits->dims[1]; e++) {
            double ds = 0.0;
            for (int64_t t = 0; t < ids->dims[1]; t++) {
                if (ref_get_int(ids, n, t) == e) ds = score_gradient(&s, dweights, ids, t);
            }
            const double p = score(&s, e);
            const double d = c->attrs.sigmoid ? ds * p * (1.0 - p) : p * (ds - mean);
            ref_put(dlogits, n, e, d + losses_gradient(&s, ids, e));
        }
    }
    return ST_OK;
}

// ---- gates of rows ------------------------------------------------------------------------------

static double gate_of(const kern_tensor *gate, int64_t n)
{
    return 1.0 / (1.0 + exp(-ref_get(gate, n, 0)));
}

status ref_gate_rows(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *y = &c->out[0];
    for (int64_t n = 0; n < x->dims[0]; n++) {
        const double g = gate_of(&c->in[1], n);
        for (int64_t j = 0; j < x->dims[1]; j++) ref_put(y, n, j, ref_get(x, n, j) * g);
    }
    return ST_OK;
}

status ref_gate_rows_bwd(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *dy = &c->in[0], *x = &c->in[1];
    for (int64_t n = 0; n < x->dims[0]; n++) {
        const double g = gate_of(&c->in[2], n);
        double dot = 0.0;
        for (int64_t j = 0; j < x->dims[1]; j++) {
            dot += ref_get(dy, n, j) * ref_get(x, n, j);
            ref_put(&c->out[0], n, j, ref_get(dy, n, j) * g);
        }
        ref_put(&c->out[1], n, 0, dot * g * (1.0 - g));
    }
    return ST_OK;
}
