// The layouts of a search: their models and their simulated steps.
#include "predict/candidates.h"

#include "base/thread_pool.h"
#include "predict/habits.h"
#include "predict/step.h"

#include <stdatomic.h>
#include <string.h>

status candidates_scratch_create(candidates *c)
{
    TRY(arena_create("a simulation", 0, &c->work));
    TRY(arena_create("the best simulation", 0, &c->best));
    for (int i = 0; i < PREDICT_ARENAS; i++) {
        TRY(arena_create("times of a simulation", 0, &c->base.scratch[i]));
    }
    return assemble_scratch_create(&c->base.plan_scratch);
}

void candidates_scratch_destroy(candidates *c)
{
    arena_destroy(c->work);
    arena_destroy(c->best);
    for (int i = 0; i < PREDICT_ARENAS; i++) arena_destroy(c->base.scratch[i]);
    assemble_scratch_destroy(c->base.plan_scratch);
}

void candidates_begin(candidates *c, bool simulates)
{
    if (simulates) c->best_step = NULL;
    c->ahead_next = c->ahead_count = 0;
    c->models = NULL;
    c->model_count = c->model_capacity = 0;
}

// ---- models ------------------------------------------------------------------------------------

static void layout_take(const search_layout *l, run_config *r)
{
    r->layout.dp = l->dp;
    r->layout.tp = l->tp;
    r->layout.pp = l->pp;
    r->layout.cp = l->cp;
    r->layout.ep = l->ep > 0 ? l->ep : 1;
    r->layout.etp = l->whole_experts ? 1 : 0;
    r->layout.zero_group = 0;
    r->layout.cp_heads = 1;
    r->layout.stages = (option_list){0};
    r->layout.parts = NULL;
    r->layout.vpp = l->pp > 1 && l->chunks > 1 ? l->chunks : 0;
    r->layout.zero = l->zero;
    r->layout.sp = l->sp;
    r->layout.pipeline = l->schedule;
    r->layout.schedule = l->schedule != NULL ? l->schedule->name : "1f1b";
}

run_config candidates_config(const candidates *c, const search_layout *l)
{
    run_config r = *c->base.r;
    if (!c->has_layout) layout_take(l, &r);
    r.train.recompute = (int32_t)l->recompute;
    r.train.recompute_layers = l->recompute_layers;
    r.train.micro_batch = l->micro_batch;
    r.train.micro_batch_chosen = false;
    r.train.memory_settled = true;
    return r;
}

status candidates_config_check(const candidates *c, const search_layout *l, run_config *out)
{
    *out = candidates_config(c, l);
    return assemble_layout_check(out, &c->base.spec);
}

// Number of cp ranks that distribute heads.
static int32_t heads_of(const candidates *c)
{
    return c->has_layout ? (int32_t)c->base.r->layout.cp_heads : 1;
}

bool candidates_ring(const candidates *c, const search_layout *l)
{
    const plan_mesh mesh = {.size = {[AXIS_CP] = l->cp, [AXIS_TP] = l->tp},
                            .cp_heads = heads_of(c)};
    return assemble_goes_in_ring(c->base.r, &c->base.spec, &mesh, l->micro_batch);
}

static status model_make(const candidates *c, arena *a, candidate_model *x)
{
    const run_config *r = c->base.r;
    run_config own = *r;
    own.layout.cp = x->cp;
    own.layout.sp = x->sp;
    const plan_mesh mesh = {.size = {[AXIS_CP] = x->cp, [AXIS_TP] = x->tp},
                            .cp_heads = heads_of(c),
                            .whole_experts = x->whole_experts};
    const run_types types = run_config_types(r);
    model_options options = {.purpose = PURPOSE_TRAIN,
                             .compute = types.compute,
                             .grad = types.grads,
                             .recompute = x->recompute,
                             .recompute_layers = x->recompute_layers,
                             .seq = r->train.seq,
                             .z_loss = (float)r->train.z_loss,
                             .next_loss = (float)r->train.mtp_loss,
                             .documents = r->data.packing != RUN_PACKING_PLAIN,
                             .sizes_only = true};
    int32_t *halved = NULL;
    assemble_router_options(r, &options);
    if (c->has_layout) TRY(run_config_halved(r, a, &halved, &options.halved_count));
    options.halved = halved;
    op_cuts cuts = assemble_cuts(&own, &c->base.spec, &mesh, predict_experts_even(&c->base));
    cuts.cp.ring = x->ring; // as the micro-batch of the layout decides
    // Candidates are compared without the additional terms of strict order.
    cuts.tp.ordered = cuts.cp.ordered = false;
    cuts.tp.shards = cuts.cp.shards = 1;
    cuts.ep = (op_expert_cut){.ways = 1}; // candidates_model
    if (x->whole == NULL) TRY(model_build(a, &c->base.spec, &options, &x->whole));
    return op_model_cut(a, x->whole, &cuts, &x->cut, &x->local);
}

// Layouts with equal recomputation share a model; those that also cut it equally along tp share one
// part of it.
static status model_find(candidates *c, arena *a, const search_layout *l, candidate_model **out)
{
    const bool ring = candidates_ring(c, l);
    for (int64_t i = 0; i < c->model_count; i++) {
        candidate_model *x = &c->models[i];
        if (!search_recompute_equals(l, x->recompute, x->recompute_layers)) continue;
        if (x->tp != l->tp || x->sp != l->sp || x->cp != l->cp || x->ring != ring) continue;
        if (x->whole_experts != l->whole_experts) continue;
        *out = x;
        return ST_OK;
    }
    const int64_t from = c->model_count; // other candidates of the same whole model
    TRY(arena_grow(a, (void **)&c->models, &c->model_capacity, c->model_count + 1,
                   (int64_t)sizeof(candidate_model)));
    candidate_model *x = &c->models[c->model_count];
    *x = (candidate_model){.recompute = l->recompute,
                           .recompute_layers = l->recompute_layers,
                           .tp = l->tp,
                           .cp = l->cp,
                           .sp = l->sp,
                           .whole_experts = l->whole_experts,
                           .ring = ring};
    for (int64_t i = 0; i < from; i++) {
        const candidate_model *y = &c->models[i];
        if (!search_recompute_equals(l, y->recompute, y->recompute_layers)) continue;
        x->whole = y->whole;
        const bool is_equivalent = y->tp == x->tp && y->sp == x->sp;
        if (is_equivalent && y->whole_experts == x->whole_experts) x->cut = y->cut;
    }
    TRY(model_make(c, a, x));
    c->model_count++;
    *out = x;
    return ST_OK;
}

status candidates_model(candidates *c, arena *a, const search_layout *l, op_model **whole,
                        op_model **local)
{
    candidate_model *of = NULL;
    TRY(model_find(c, a, l, &of));
    *whole = of->whole;
    const op_expert_cut how = {.ways = l->ep > 0 ? l->ep : 1,
                               .even = predict_experts_even(&c->base)};
    return op_model_experts(a, of->local, &how, local);
}

status candidates_whole_model(const candidates *c, op_model **out)
{
    candidate_model one = {.tp = 1, .cp = 1};
    arena_reset(c->work);
    TRY(model_make(c, c->work, &one));
    *out = one.whole;
    return ST_OK;
}

// ---- simulation --------------------------------------------------------------------------------

static status layout_set(const candidates *c, arena *a, const search_layout *l, predict_setup *s)
{
    run_config *r = NULL;
    TRY(arena_new(a, 1, &r));
    *s = c->base;
    TRY(candidates_config_check(c, l, r));
    s->r = r;
    return ST_OK;
}

status candidates_show(const candidates *c, arena *a, const search_layout *l, predict_setup *s,
                       predict_step *out)
{
    TRY(layout_set(c, a, l, s));
    return predict_step_show(a, s, out);
}

status candidates_times(const candidates *c, arena *a, const search_layout *l, predict_setup *s,
                        predict_step *out)
{
    TRY(layout_set(c, a, l, s));
    return predict_step_times(a, s, out);
}

status candidates_step(const candidates *c, arena *a, const search_layout *l,
                       const predict_step **out)
{
    predict_setup *s = NULL;
    predict_step *x = NULL;
    *out = c->best_step;
    if (*out != NULL && search_layout_is_same(l, &c->best_layout)) return ST_OK;
    TRY(arena_new(a, 1, &s));
    TRY(arena_new(a, 1, &x));
    *out = x;
    return candidates_times(c, a, l, s, x);
}

static void figures_keep(candidates *c, const search_layout *l, const predict_step *x)
{
    predict_figures *f = &c->figures[c->figure_count++ % PREDICT_FIGURES];
    *f = (predict_figures){.layout = *l,
                           .step_s = x->step_s,
                           .tokens_per_s = x->tokens_per_s / (double)x->devices,
                           .mfu = x->mfu,
                           .bubble = x->bubble};
    for (int k = 0; k < TRAFFIC_COUNT; k++) f->waits += x->exposed[k];
}

// Simulates in arena `a`; number: 0, or 1 for one that is simulated at the same time.
static status step_in(const candidates *c, arena *a, int32_t number, const search_layout *l,
                      const predict_step **out)
{
    predict_setup *s = NULL;
    predict_step *x = NULL;
    arena_reset(a);
    TRY(arena_new(a, 1, &s));
    TRY(arena_new(a, 1, &x));
    TRY(layout_set(c, a, l, s));
    if (number > 0) {
        s->plan_scratch = NULL;
        s->scratch[0] = c->base.scratch[1];
        s->scratch[1] = c->base.scratch[0];
    }
    TRY(predict_step_times(a, s, x));
    *out = x;
    return ST_OK;
}

typedef struct ahead_pool {
    candidates *c;
    atomic_int next;
} ahead_pool;

// Keeps an error until the layout's turn.
static status ahead_work(void *context, int32_t worker)
{
    ahead_pool *pool = context;
    const candidates *c = pool->c;
    (void)worker;
    for (;;) {
        const int32_t k = atomic_fetch_add(&pool->next, 1);
        if (k >= c->ahead_count) return ST_OK;
        candidate_ahead *x = &pool->c->ahead[k];
        x->st = step_in(c, x->a, k, x->layout, &x->x);
        if (x->st != ST_OK) error_take(&x->why);
    }
}

// While no best step is kept, two arenas are free; each takes about a gigabyte when a simulation
// takes seconds.
status candidates_ahead(candidates *c, const search_layout *const *l, int32_t count)
{
    ahead_pool pool = {.c = c};
    if (c->best == NULL || c->best_step != NULL) return ST_OK;
    arena *const arenas[CANDIDATES_AHEAD] = {c->work, c->best};
    c->ahead_next = 0;
    c->ahead_count = (int32_t)min_i64(count, CANDIDATES_AHEAD);
    for (int32_t i = 0; i < c->ahead_count; i++) {
        c->ahead[i] = (candidate_ahead){.layout = l[i], .a = arenas[i]};
    }
    return thread_pool_run((int32_t)min_i64(c->ahead_count, kern_core_count()), ahead_work, &pool);
}

// The step as simulated ahead, or simulated now.
static status step_of(candidates *c, const search_layout *l, arena **a, const predict_step **out)
{
    *a = c->work;
    if (c->ahead_next == c->ahead_count) return step_in(c, *a, 0, l, out);
    const candidate_ahead *x = &c->ahead[c->ahead_next++];
    ASSERT(x->layout == l);
    if (x->st != ST_OK) return error_put(&x->why);
    *a = x->a;
    *out = x->x;
    return ST_OK;
}

status candidates_simulate(candidates *c, const search_layout *l, search_simulated *out)
{
    arena *a = NULL;
    const predict_step *x = NULL;
    TRY(step_of(c, l, &a, &x));
    *out = (search_simulated){.step_ns = x->step->step_ns};
    figures_keep(c, l, x);
    const bool is_slower = c->best_step != NULL && c->best_step->step->step_ns <= out->step_ns;
    if (c->best == NULL || is_slower) return ST_OK;
    if (a == c->work) { // otherwise it is there already
        c->work = c->best;
        c->best = a;
    }
    c->best_step = x;
    c->best_layout = *l;
    return ST_OK;
}

int64_t candidates_rows(const candidates *c, const search_layout *l)
{
    const run_config r = candidates_config(c, l);
    return predict_step_weight(&r) * c->base.spec.layers;
}

status candidates_fit(const candidates *c, const search_layout *l, const int32_t *stages,
                      int32_t count, search_simulated *out)
{
    predict_setup *s = NULL;
    predict_step *x = NULL;
    arena_reset(c->work);
    TRY(arena_new(c->work, 1, &s));
    TRY(arena_new(c->work, 1, &x));
    TRY(layout_set(c, c->work, l, s));
    TRY(predict_step_peak(c->work, s, stages, count, x));
    out->peak_bytes = x->peak_bytes;
    memcpy(out->kind, x->memory, sizeof(out->kind));
    return ST_OK;
}

// Counts bytes as predict_step_bytes() does.
int64_t candidates_bytes(const candidates *c, const estimate_memory *m)
{
    const cost_profile *profile = &c->base.profile;
    const double kept = predict_habit_activations(profile, m->kind[PLAN_BYTES_ACTIVATIONS]);
    const int64_t lost = cost_lost_bytes(profile, kept, m->kind[PLAN_BYTES_GRADIENTS],
                                         run_config_types(c->base.r).grads);
    return estimate_memory_bytes(m) - m->kind[PLAN_BYTES_ACTIVATIONS] + (int64_t)kept + lost +
           profile->context_bytes;
}
