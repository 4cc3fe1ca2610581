// Models that can be counted but not trained yet: experts and latent attention.
//
// They have no plan of their own. What is played is the plan of a dense *stand-in*, whose layers have the
// feed-forward width that a token meets (taken and shared experts, the mean over layers) and projections of
// as many weights as latent attention has. On it comes, in closed form:
//
//   products   each expert's own rows are few, so its products reach less of the peak: the difference, per layer
//   messages   tokens to their experts and back, forward and backward: four all_to_alls a layer of layout.ep
//              ranks, hidden as those of tp are
//   bytes      the experts that a token does not meet, cut over tp and ep, their state by ZeRO over the ranks
//              that hold the same ones
//
// Experts are taken to be evenly loaded. Attention's scores are those of the stand-in's heads, which for latent
// attention are narrower than the real ones; at 4,096 tokens that is a few percent of its FLOPs.
#include "cli/simulate.h"

#include <math.h>

bool simulate_is_sparse(const decoder_spec *s)
{
    return s->experts.count > 0 || s->latent.kv_rank > 0;
}

static int64_t mixed_layers(const decoder_spec *s)
{
    const model_experts *e = &s->experts;
    if (e->count == 0) return 0;
    return (s->layers - e->dense_layers) / max_i64(e->every, 1);
}

static int64_t met_width(const decoder_spec *s) // of a layer with experts
{
    return (s->experts.top_k + s->experts.shared) * s->experts.ffn_dim;
}

decoder_spec simulate_stand_in(const simulation *s)
{
    decoder_spec d = s->spec;
    const int64_t mixed = mixed_layers(&d), step = 64 * s->r->layout.tp;
    if (mixed > 0) {
        const int64_t sum = (d.layers - mixed) * d.ffn_dim + mixed * met_width(&d);
        d.ffn_dim = max_i64(sum / d.layers / step, 1) * step;
    }
    if (d.latent.kv_rank > 0) {
        const model_latent *l = &d.latent;
        const int64_t head = l->nope_dim + l->rope_dim;
        const int64_t queries =
            l->q_rank > 0 ? d.dim * l->q_rank + l->q_rank * d.heads * head : d.dim * d.heads * head;
        const int64_t weights = queries + d.dim * (l->kv_rank + l->rope_dim) +
                                l->kv_rank * d.heads * (l->nope_dim + l->value_dim) +
                                d.heads * l->value_dim * d.dim;
        d.kv_heads = s->r->layout.tp;
        d.head_dim = max_i64(weights / (2 * d.dim * (d.heads + d.kv_heads)) / 8, 1) * 8;
    }
    d.experts = (model_experts){0};
    d.latent = (model_latent){0};
    return d;
}

status simulate_sparse_check(const simulation *s)
{
    const int64_t ep = s->r->layout.ep, count = s->spec.experts.count;
    const int64_t ranks = s->r->layout.dp * s->r->layout.cp;
    int64_t below = 1;
    if (ep == 1) return ST_OK;
    if (count == 0) {
        return fail(ST_CONFIG_CONFLICT, "layout.ep = %lld has no effect: the model has no experts",
                    (long long)ep);
    }
    if (count % ep == 0 && ranks % ep == 0) return ST_OK;
    for (int64_t i = 1; i < ep; i++) {
        if (count % i == 0 && ranks % i == 0) below = i;
    }
    return fail(ST_CONFIG_CONFLICT,
                "layout.ep = %lld does not divide the model's %lld experts, and layout.dp x cp = "
                "%lld; nearest below that does: %lld",
                (long long)ep, (long long)count, (long long)ranks, (long long)below);
}

// ---- time -----------------------------------------------------------------------------------------

// Up and down of a feed-forward part of this width on so many rows.
static double mlp_ns(const cost_model *m, const decoder_spec *s, double rows, double width)
{
    const double wide = s->mlp == MODEL_MLP_SWIGLU ? 2.0 * width : width;
    const cost_product up = {rows, wide, (double)s->dim}, down = {rows, (double)s->dim, width};
    return (double)cost_product_ns(m, &up, DTYPE_BF16, 2.0 * wide * (double)s->dim) +
           (double)cost_product_ns(m, &down, DTYPE_BF16, 2.0 * width * (double)s->dim);
}

// By how much a forward of one layer's experts is longer than the stand-in's.
static double experts_ns(const cost_model *m, const simulation *s, double rows)
{
    const model_experts *e = &s->spec.experts;
    const double tp = (double)s->r->layout.tp, ep = (double)s->r->layout.ep;
    const double own = (double)e->count / ep, width = (double)e->ffn_dim / tp;
    const double each = rows * (double)e->top_k * ep / (double)e->count;
    const double apart = own * mlp_ns(m, &s->spec, each, width) +
                         mlp_ns(m, &s->spec, rows, width * (double)e->shared);
    return fmax(apart - mlp_ns(m, &s->spec, rows, (double)met_width(&s->spec) / tp), 0.0);
}

// How often a row is sent: once to each node that some of its experts are on, where it is dealt out. Of n
// nodes, k draws meet n (1 - (1 - 1/n)^k).
static double copies_of(const simulation *s)
{
    const double k = (double)s->spec.experts.top_k;
    const double inside = (double)max_i64(s->machine.node.devices / s->r->layout.tp, 1);
    const double nodes = (double)s->r->layout.ep / inside;
    return nodes > 1.0 ? nodes * (1.0 - pow(1.0 - 1.0 / nodes, k)) : k;
}

// One all_to_all: every token of the micro-batch to its experts. Ranks of ep are tp apart.
static status exchange_ns(arena *a, const cost_model *m, const simulation *s, double rows,
                          double *out)
{
    const int64_t ep = s->r->layout.ep, tp = s->r->layout.tp;
    int32_t *members = NULL;
    cost_group g;
    *out = 0.0;
    if (ep == 1) return ST_OK;
    TRY(arena_new(a, ep, &members));
    for (int64_t i = 0; i < ep; i++) members[i] = (int32_t)(i * tp);
    cost_group_make(m->c, members, ep, 0, MESH_AXIS(AXIS_EP), &g);
    const double share = s->r->layout.sp ? rows / (double)tp : rows;
    const double bytes = share * copies_of(s) * (double)s->spec.dim * 2.0;
    *out = (double)cost_message_ns(m, &g, PLAN_ALL_TO_ALL, bytes);
    return ST_OK;
}

status simulate_sparse_price(arena *a, const simulated *x, sim_prices *prices)
{
    const simulation *s = x->of;
    const cost_model m = simulate_prices(s);
    const decoder_spec *spec = &s->spec;
    double exchange = 0.0;
    if (spec->experts.count == 0) return ST_OK;
    // Mixed layers are spread over all: each decoder layer has its share.
    const double share = (double)mixed_layers(spec) / (double)spec->layers;
    const double rows = (double)(x->micro_batch * x->ranks[0].p->seq);
    const double extra = share * experts_ns(&m, s, rows);
    TRY(exchange_ns(a, &m, s, rows, &exchange));
    for (int32_t r = 0; r < x->stages; r++) {
        const plan *p = x->ranks[r].p;
        for (int64_t i = 0; i < p->action_count; i++) {
            const plan_action *act = &p->actions[i];
            if (act->kind != ACTION_COMPUTE || act->layer < 0 || act->ops_begin > 0) continue;
            if (p->model->layers[act->layer].index < 0 || act->list == OP_BACKWARD_WEIGHT) continue;
            const double times = act->list == OP_BACKWARD_INPUT ? 2.0 : 1.0;
            prices[r].ns[i] += (int64_t)(times * extra);
            // Recompute sends again too. They stand between products, as those of tp do.
            prices[r].held[i] += (int64_t)(2.0 * share * exchange * (1.0 - s->profile.tp_overlap));
        }
    }
    return ST_OK;
}

// ---- bytes ----------------------------------------------------------------------------------------

// What the experts of a rank have beyond the stand-in's feed-forward parts.
void simulate_sparse_bytes(const simulated *x, int64_t bytes[BYTES_KIND_COUNT])
{
    const simulation *s = x->of;
    const run_config *r = s->r;
    const run_types t = run_config_types(r);
    const model_experts *e = &s->spec.experts;
    if (e->count == 0) return;
    const double wide = s->spec.mlp == MODEL_MLP_SWIGLU ? 3.0 : 2.0;
    const double expert = wide * (double)(s->spec.dim * e->ffn_dim);
    const double cut = (double)(r->layout.tp * r->layout.pp);
    const double layers = (double)mixed_layers(&s->spec);
    const double own = layers * (double)e->count * expert / cut / (double)r->layout.ep;
    const double met = layers * (double)e->top_k * expert / cut;
    // ZeRO cuts over the ranks that hold the same experts; the stand-in's over all.
    const double ways = (double)(r->layout.dp * r->layout.cp) / (double)r->layout.ep;
    const double all = (double)r->layout.dp;
    const struct {
        plan_kind_of_bytes kind;
        double each;
        int64_t stage; // of ZeRO that cuts it
    } rows[] = {{BYTES_WEIGHTS, (double)dtype_bytes(t.weights), 3},
                {BYTES_GRADIENTS, (double)dtype_bytes(t.grads), 2},
                {BYTES_MASTER, t.has_master ? 4.0 : 0.0, 1},
                {BYTES_MOMENTS, 2.0 * (double)dtype_bytes(t.moments), 1}};
    for (int i = 0; i < COUNT_OF(rows); i++) {
        const bool is_cut = r->layout.zero >= rows[i].stage;
        const double here = is_cut ? own / ways : own, there = is_cut ? met / all : met;
        const double more = rows[i].each * (here - there);
        bytes[rows[i].kind] = max_i64(bytes[rows[i].kind] + (int64_t)more, 0);
    }
}
