// The planner's callbacks: programs of a model, and a layout played by the simulator.
#include "cli/plan/plan.h"

#include "base/thread_pool.h"
#include "catalog/catalog.h"
#include "cli/run_folder.h"

#include "op/pass/context.h"
#include "op/pass/expert_ranks.h"
#include "op/pass/partition.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { ENOUGH_PLAYS = 8, ENOUGH_ROWS = 64 << 10 }; // some four seconds

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
    r->layout.vpp = l->pp > 1 && l->chunks > 1 ? l->chunks : 0;
    r->layout.zero = l->zero;
    r->layout.sp = l->sp;
    r->layout.pipeline = l->schedule;
    r->layout.schedule = l->schedule != NULL ? l->schedule->name : "1f1b";
}

static run_config config_of(const planner *p, const search_layout *l)
{
    run_config r = *p->base.r;
    if (!p->has_layout) layout_take(l, &r);
    r.train.recompute = (int32_t)l->recompute;
    r.train.recompute_layers = l->recompute_layers;
    r.train.micro_batch = l->micro_batch;
    r.train.micro_batch_chosen = false;
    r.train.memory_settled = true;
    return r;
}

status plan_config_of(const planner *p, const search_layout *l, run_config *out)
{
    *out = config_of(p, l);
    return train_layout_check(out, &p->base.spec);
}

// Ranks of cp that deal heads out.
static int32_t heads_of(const planner *p)
{
    return p->has_layout ? (int32_t)p->base.r->layout.cp_heads : 1;
}

static bool ring_of(void *context, const search_layout *l)
{
    const planner *p = context;
    const plan_mesh mesh = {.size = {[AXIS_CP] = l->cp, [AXIS_TP] = l->tp},
                            .cp_heads = heads_of(p)};
    return train_goes_in_ring(p->base.r, &p->base.spec, &mesh, l->micro_batch);
}

static status part_make(const planner *p, arena *a, plan_part *x)
{
    const run_config *r = p->base.r;
    run_config of_cp = *r;
    of_cp.layout.cp = x->cp;
    const run_types types = run_config_types(r);
    model_options options = {.purpose = PURPOSE_TRAIN,
                             .compute = types.compute,
                             .grad = types.grads,
                             .recompute = x->recompute,
                             .recompute_layers = x->recompute_layers,
                             .seq = r->train.seq,
                             .z_loss = (float)r->train.z_loss,
                             .documents = r->data.packing == RUN_PACKING_MASKED,
                             .sizes_only = true};
    int32_t *halved = NULL;
    if (p->has_layout) TRY(run_config_halved(r, a, &halved, &options.halved_count));
    options.halved = halved;
    const op_cut cut = {
        .ways = x->tp, .shards = 1, .rows = x->sp, .whole_experts = x->whole_experts};
    const op_context pieces = {.ways = x->cp,
                               .heads = heads_of(p),
                               .shards = 1,
                               .ring = x->ring,
                               .turns = run_config_cp_turns(&of_cp)};
    if (x->whole == NULL) TRY(model_build(a, &p->base.spec, &options, &x->whole));
    if (x->cut == NULL) TRY(op_model_partition(a, x->whole, &cut, &x->cut));
    return op_model_context(a, x->cut, &pieces, &x->local);
}

// Layouts that recompute alike have one model, those that cut it alike along tp one part of it.
static status part_of(planner *p, arena *a, const search_layout *l, plan_part **out)
{
    const bool ring = ring_of(p, l);
    for (int64_t i = 0; i < p->part_count; i++) {
        plan_part *x = &p->parts[i];
        if (!search_recomputes_alike(l, x->recompute, x->recompute_layers)) continue;
        if (x->tp != l->tp || x->sp != l->sp || x->cp != l->cp || x->ring != ring) continue;
        if (x->whole_experts != l->whole_experts) continue;
        *out = x;
        return ST_OK;
    }
    const int64_t from = p->part_count; // others that begin alike
    TRY(arena_grow(a, (void **)&p->parts, &p->part_capacity, p->part_count + 1,
                   (int64_t)sizeof(plan_part)));
    plan_part *x = &p->parts[p->part_count];
    *x = (plan_part){.recompute = l->recompute,
                     .recompute_layers = l->recompute_layers,
                     .tp = l->tp,
                     .cp = l->cp,
                     .sp = l->sp,
                     .whole_experts = l->whole_experts,
                     .ring = ring};
    for (int64_t i = 0; i < from; i++) {
        const plan_part *y = &p->parts[i];
        if (!search_recomputes_alike(l, y->recompute, y->recompute_layers)) continue;
        x->whole = y->whole;
        const bool is_alike = y->tp == x->tp && y->sp == x->sp;
        if (is_alike && y->whole_experts == x->whole_experts) x->cut = y->cut;
    }
    TRY(part_make(p, a, x));
    p->part_count++;
    *out = x;
    return ST_OK;
}

static status model_of(void *context, arena *a, const search_layout *l, op_model **whole,
                       op_model **local)
{
    plan_part *part = NULL;
    TRY(part_of(context, a, l, &part));
    *whole = part->whole;
    return op_model_experts(a, part->local, l->ep > 0 ? l->ep : 1, local);
}

static status layout_set(const planner *p, arena *a, const search_layout *l, simulation *s)
{
    run_config *r = NULL;
    TRY(arena_new(a, 1, &r));
    *s = p->base;
    TRY(plan_config_of(p, l, r));
    s->r = r;
    return ST_OK;
}

status plan_step(const planner *p, arena *a, const search_layout *l, simulation *s, simulated *out)
{
    TRY(layout_set(p, a, l, s));
    return simulate_shown(a, s, out);
}

status plan_times(const planner *p, arena *a, const search_layout *l, simulation *s, simulated *out)
{
    TRY(layout_set(p, a, l, s));
    return simulate_times(a, s, out);
}

static void figures_keep(planner *p, const search_layout *l, const simulated *x)
{
    plan_figures *f = &p->figures[p->figure_count++ % PLAN_FIGURES];
    *f = (plan_figures){.layout = *l,
                        .step_s = x->step_s,
                        .tokens_per_s = x->tokens_per_s / (double)x->devices,
                        .mfu = x->mfu,
                        .bubble = x->bubble};
    for (int k = 0; k < TRAFFIC_COUNT; k++) f->waits += x->exposed[k];
}

// In `a`; player: 0, or 1 of one that plays at the same time.
static status play_in(const planner *p, arena *a, int32_t player, const search_layout *l,
                      const simulated **out)
{
    simulation *s = NULL;
    simulated *x = NULL;
    arena_reset(a);
    TRY(arena_new(a, 1, &s));
    TRY(arena_new(a, 1, &x));
    TRY(layout_set(p, a, l, s));
    if (player > 0) {
        s->rooms = NULL;
        s->plays[0] = p->base.plays[1];
        s->plays[1] = p->base.plays[0];
    }
    TRY(simulate_times(a, s, x));
    *out = x;
    return ST_OK;
}

typedef struct ahead_pool {
    planner *p;
    atomic_int next;
} ahead_pool;

// What a layout cannot is said when it is asked for.
static status ahead_work(void *context, int32_t worker)
{
    ahead_pool *c = context;
    planner *p = c->p;
    (void)worker;
    for (;;) {
        const int32_t k = atomic_fetch_add(&c->next, 1);
        if (k >= p->ahead_count) return ST_OK;
        plan_ahead *x = &p->ahead[k];
        x->st = play_in(p, x->a, k, x->layout, &x->x);
        if (x->st != ST_OK) error_take(&x->why);
    }
}

// While no play is kept there is room for two, and each takes about a gigabyte where it takes seconds.
static status ahead(void *context, const search_layout *const *l, int32_t count)
{
    planner *p = context;
    ahead_pool c = {.p = p};
    if (p->best == NULL || p->best_play != NULL) return ST_OK;
    arena *const rooms[PLAN_AHEAD] = {p->work, p->best};
    p->ahead_next = 0;
    p->ahead_count = (int32_t)min_i64(count, PLAN_AHEAD);
    for (int32_t i = 0; i < p->ahead_count; i++) {
        p->ahead[i] = (plan_ahead){.layout = l[i], .a = rooms[i]};
    }
    return thread_pool_run((int32_t)min_i64(p->ahead_count, kern_core_count()), ahead_work, &c);
}

// As it was played ahead, or now.
static status played_of(planner *p, const search_layout *l, arena **a, const simulated **out)
{
    *a = p->work;
    if (p->ahead_next == p->ahead_count) return play_in(p, *a, 0, l, out);
    const plan_ahead *x = &p->ahead[p->ahead_next++];
    ASSERT(x->layout == l);
    if (x->st != ST_OK) return error_put(&x->why);
    *a = x->a;
    *out = x->x;
    return ST_OK;
}

static status play(void *context, const search_layout *l, search_played *out)
{
    planner *p = context;
    arena *a = NULL;
    const simulated *x = NULL;
    TRY(played_of(p, l, &a, &x));
    *out = (search_played){.step_ns = x->step->step_ns};
    figures_keep(p, l, x);
    const bool is_slower = p->best_play != NULL && p->best_play->step->step_ns <= out->step_ns;
    if (p->best == NULL || is_slower) return ST_OK;
    if (a == p->work) { // else it is there already
        p->work = p->best;
        p->best = a;
    }
    p->best_play = x;
    p->best_layout = *l;
    return ST_OK;
}

static int64_t rows_of(void *context, const search_layout *l)
{
    const planner *p = context;
    const run_config r = config_of(p, l);
    return simulate_weight(&r) * p->base.spec.layers;
}

static status fit(void *context, const search_layout *l, const int32_t *stages, int32_t count,
                  search_played *out)
{
    const planner *p = context;
    simulation *s = NULL;
    simulated *x = NULL;
    arena_reset(p->work);
    TRY(arena_new(p->work, 1, &s));
    TRY(arena_new(p->work, 1, &x));
    TRY(layout_set(p, p->work, l, s));
    TRY(simulate_peak(p->work, s, stages, count, x));
    out->peak_bytes = x->peak_bytes;
    memcpy(out->kind, x->memory, sizeof(out->kind));
    return ST_OK;
}

// As simulate_bytes() counts them.
static int64_t bytes_held(void *context, const estimate_memory *m)
{
    const planner *p = context;
    const cost_profile *profile = &p->base.profile;
    const double kept = (double)m->kind[BYTES_ACTIVATIONS] * profile->activations;
    const int64_t lost =
        cost_lost_bytes(profile, kept, m->kind[BYTES_GRADIENTS], run_config_types(p->base.r).grads);
    return estimate_memory_bytes(m) - m->kind[BYTES_ACTIVATIONS] + (int64_t)kept + lost +
           profile->context_bytes;
}

// Tensor parallelism talks between products: within what is joined most closely.
static int32_t tp_most(const cluster *c)
{
    return (int32_t)max_i64(c->levels[0].devices, 1);
}

int64_t plan_usable(const planner *p)
{
    const cluster_device *d = &p->base.machine.device;
    return (int64_t)(d->usable_bytes > 0.0 ? d->usable_bytes : d->memory_bytes);
}

status plan_search(planner *p, arena *a, int32_t plays, search_result *out)
{
    const cost_model prices = {.c = &p->base.machine,
                               .profile = &p->base.profile,
                               .fp8 = p->base.r->train.precision == RUN_FP8,
                               .top_k = p->base.spec.experts.top_k};
    const run_config *r = p->base.r;
    const decoder_spec *s = &p->base.spec;
    const run_types types = run_config_types(r);
    p->workspace = (exec_workspace_context){.backend = kern_backend_find("cpu"), .threads = 1};
    if (cost_is_processor(&prices.c->device)) p->workspace.threads = train_threads(r);
    p->codec = train_codec_of(r);
    const plan_codec codec = p->codec.codec != NULL ? exec_plan_codec(&p->codec) : (plan_codec){0};
    const search_calls calls = {.context = p,
                                .model = model_of,
                                .ring = ring_of,
                                .play = play,
                                .ahead = ahead,
                                .rows = rows_of,
                                .fit = fit,
                                .bytes = bytes_held};
    const search_request request = {.devices = p->devices,
                                    .layers = (int32_t)s->layers,
                                    .heads = s->heads,
                                    .kv_heads = s->kv_heads,
                                    .ffn_dim = s->ffn_dim,
                                    .experts = s->experts.count,
                                    .expert_ffn_dim = s->experts.ffn_dim,
                                    .shared_ffn_dim = s->experts.shared * s->experts.ffn_dim,
                                    .seq = r->train.seq,
                                    .global_batch = run_config_batch_max(r),
                                    .batch_divisor = run_config_batch_divisor(r),
                                    .zero_group = p->has_layout ? (int32_t)r->layout.zero_group : 0,
                                    .pipeline = p->pipeline.rows != NULL ? &p->pipeline : NULL,
                                    .tp_max = tp_most(&p->base.machine),
                                    .states = {.moments = types.moments,
                                               .has_master = types.has_master,
                                               .muon = r->optimizer.name == RUN_MUON},
                                    .codec = p->codec.codec != NULL ? &codec : NULL,
                                    .sums_once = r->layout.zero_sums == RUN_SUMS_STEP,
                                    .scratch_bytes =
                                        (int64_t)p->workspace.threads * KERN_SCRATCH_BYTES,
                                    .workspace = exec_workspace,
                                    .workspace_context = &p->workspace,
                                    .prices = &prices,
                                    .usable_bytes = plan_usable(p),
                                    .fixed = p->fixed,
                                    .wanted = p->wanted,
                                    .plays = plays,
                                    .rows = p->plays_rows,
                                    .calls = calls};
    if (plays > 0) p->best_play = NULL;
    p->ahead_next = p->ahead_count = 0;
    p->parts = NULL; // they are in `a`
    p->part_count = p->part_capacity = 0;
    return search_run(a, &request, out);
}

// ---- what is searched ---------------------------------------------------------------------------

static bool begins(const char *key, const char *with)
{
    return strncmp(key, with, strlen(with)) == 0;
}

// Keys that the search decides, and so no part of the run that it starts from.
static bool is_searched(const char *key)
{
    static const char *const keys[] = {
        "layout.", "layout=", "train.micro_batch=", "train.recompute=", "train.recompute_layers=",
        "cluster."};
    for (int64_t i = 0; i < COUNT_OF(keys); i++) {
        if (begins(key, keys[i])) return true;
    }
    return false;
}

status plan_fix(planner *p, const config *c)
{
    const run_config *r = p->given;
    search_fixed *f = &p->fixed;
    static const char *const not_searched[] = {"layout.zero_group", "layout.stages",
                                               "layout.cp_heads"};
    for (int64_t i = 0; i < COUNT_OF(not_searched); i++) {
        if (!config_is_given(c, not_searched[i])) continue;
        return fail(ST_UNSUPPORTED,
                    "%s: a search does not vary %s; `simulate` takes it of a layout that is given",
                    config_place(c, not_searched[i]), not_searched[i]);
    }
    *f = search_fixed_none();
    if (config_is_given(c, "layout.dp")) f->dp = (int32_t)r->layout.dp;
    if (config_is_given(c, "layout.tp")) f->tp = (int32_t)r->layout.tp;
    if (config_is_given(c, "layout.pp")) f->pp = (int32_t)r->layout.pp;
    if (config_is_given(c, "layout.cp")) f->cp = (int32_t)r->layout.cp;
    if (config_is_given(c, "layout.ep")) f->ep = (int32_t)r->layout.ep;
    if (config_is_given(c, "layout.etp")) f->whole_experts = r->layout.etp == 1 ? 1 : 0;
    if (config_is_given(c, "layout.vpp")) f->chunks = (int32_t)r->layout.vpp;
    if (config_is_given(c, "layout.zero")) f->zero = (int32_t)r->layout.zero;
    if (config_is_given(c, "layout.sp")) f->sp = r->layout.sp ? 1 : 0;
    const bool leaves = r->train.recompute_chosen || r->train.recompute == RUN_RECOMPUTE_AUTO;
    if (!leaves) f->recompute = r->train.recompute;
    if (config_is_given(c, "train.recompute_layers")) {
        f->recompute_layers = (int32_t)r->train.recompute_layers;
    }
    if (config_is_given(c, "train.micro_batch") && !r->train.micro_batch_chosen) {
        f->micro_batch = max_i64(r->train.micro_batch, 0);
    }
    if (!config_is_given(c, "layout.schedule")) return ST_OK;
    f->schedule = plan_schedule_find(r->layout.schedule);
    if (f->schedule != NULL) return ST_OK;
    return fail(ST_UNSUPPORTED, "%s: `plan` takes a schedule by name, not \"%s\"",
                config_place(c, "layout.schedule"), r->layout.schedule);
}

status plan_devices(planner *p, int64_t devices)
{
    char *count = NULL;
    const char **keys = NULL;
    cli_context *cli = p->cli;
    TRY(arena_new(cli->a, p->cluster_key_count + 1, &keys));
    for (int64_t i = 0; i < p->cluster_key_count; i++) keys[i] = p->cluster_keys[i];
    int64_t n = p->cluster_key_count;
    if (devices > 0) {
        TRY(arena_format(cli->a, &count, "devices=%lld", (long long)devices));
        keys[n++] = count;
    }
    TRY(catalog_cluster_load(cli->h, cli->a, p->cluster, keys, n, &p->base.machine));
    p->devices = p->base.machine.devices;
    return ST_OK;
}

// The rest of plan_open(), with an arena for plays.
static status model_open(planner *p, const config *c)
{
    TRY(simulate_open(p->cli, p->operand, p->cluster, p->run_keys, p->run_key_count, true,
                      &p->base));
    if (config_is_given(c, "layout.cp_ring")) {
        p->base.r->layout.cp_ring = p->given->layout.cp_ring;
    }
    if (config_is_given(c, "layout.zero_sums")) {
        p->base.r->layout.zero_sums = p->given->layout.zero_sums;
    }
    p->layers_given = p->base.spec.layers;
    TRY(plan_layers(p, p->base.spec.layers));
    return plan_devices(p, 0);
}

status plan_open(cli_context *cli, const char *operand, const char *cluster_name,
                 const char *const *keys, int64_t key_count, planner *out)
{
    const char **rest = NULL, **of_layout = NULL, **of_cluster = NULL;
    int64_t rest_count = 0, layout_count = 0;
    config *c = NULL;
    memset(out, 0, sizeof(*out));
    *out = (planner){.cli = cli,
                     .operand = operand,
                     .cluster = cluster_name,
                     .wanted = 3,
                     .plays = ENOUGH_PLAYS,
                     .plays_rows = ENOUGH_ROWS};
    TRY(arena_new(cli->a, key_count + 2, &rest));
    TRY(arena_new(cli->a, key_count + 1, &of_layout));
    TRY(arena_new(cli->a, key_count + 1, &of_cluster));
    for (int64_t i = 0; i < key_count; i++) {
        if (begins(keys[i], "cluster.")) {
            of_cluster[out->cluster_key_count++] = keys[i] + strlen("cluster.");
        } else if (is_searched(keys[i])) {
            of_layout[layout_count++] = keys[i];
        } else {
            rest[rest_count++] = keys[i];
        }
    }
    rest[rest_count++] =
        "layout.mode=given"; // whatever the file says: the search is asked for here
    out->cluster_keys = of_cluster;
    out->run_keys = rest;
    out->run_key_count = rest_count;
    TRY(arena_new(cli->a, 1, &out->given));
    TRY(config_load(cli->h, cli->a, &run_config_table, NULL, of_layout, layout_count, out->given,
                    &c));
    TRY(plan_fix(out, c));
    TRY(arena_create("a play", 0, &out->work));
    status st = arena_create("the best play", 0, &out->best);
    if (st == ST_OK) st = model_open(out, c);
    for (int i = 0; i < SIMULATE_PLAYS && st == ST_OK; i++) {
        st = arena_create("times of a play", 0, &out->base.plays[i]);
    }
    if (st == ST_OK) st = train_rooms_create(&out->base.rooms);
    if (st != ST_OK) plan_close(out);
    return st;
}

void plan_close(planner *p)
{
    arena_destroy(p->work);
    arena_destroy(p->best);
    for (int i = 0; i < SIMULATE_PLAYS; i++) arena_destroy(p->base.plays[i]);
    train_rooms_destroy(p->base.rooms);
}

// Windows repeat as they are in the model.
static status windows_repeat(const planner *p, int64_t layers, decoder_spec *spec)
{
    int32_t *windows = NULL;
    if (spec->windows == NULL || layers <= spec->layers) return ST_OK;
    TRY(arena_new(p->cli->a, layers, &windows));
    for (int64_t i = 0; i < layers; i++) windows[i] = spec->windows[i % spec->layers];
    spec->windows = windows;
    return ST_OK;
}

status plan_layers(planner *p, int64_t layers)
{
    plan_part one = {.tp = 1, .cp = 1};
    TRY(windows_repeat(p, layers, &p->base.spec));
    p->base.spec.layers = layers;
    arena_reset(p->work);
    TRY(part_make(p, p->work, &one));
    p->parameters = (double)one.whole->parameters;
    return ST_OK;
}

// ---- the configuration to write -------------------------------------------------------------------

static status key_add(cli_context *cli, const char **keys, int64_t *count, const char *key,
                      const char *value)
{
    char *line = NULL;
    TRY(arena_format(cli->a, &line, "%s=%s", key, value));
    keys[(*count)++] = line;
    return ST_OK;
}

static status number_add(cli_context *cli, const char **keys, int64_t *count, const char *key,
                         int64_t value)
{
    char digits[32];
    (void)snprintf(digits, sizeof(digits), "%lld", (long long)value);
    return key_add(cli, keys, count, key, digits);
}

status plan_memory_keys(cli_context *cli, const run_config *r, const char **keys, int64_t *n)
{
    static const char *const recompute[] = {"none", "selective", "full"};
    TRY(key_add(cli, keys, n, "train.recompute", recompute[r->train.recompute]));
    if (r->train.recompute_layers > 0) {
        TRY(number_add(cli, keys, n, "train.recompute_layers", r->train.recompute_layers));
    }
    return number_add(cli, keys, n, "train.micro_batch", r->train.micro_batch);
}

status plan_layout_keys(const planner *p, const search_layout *l, const char **keys, int64_t *n)
{
    TRY(key_add(p->cli, keys, n, "layout.mode", "given"));
    TRY(number_add(p->cli, keys, n, "layout.dp", l->dp));
    TRY(number_add(p->cli, keys, n, "layout.tp", l->tp));
    TRY(number_add(p->cli, keys, n, "layout.pp", l->pp));
    TRY(number_add(p->cli, keys, n, "layout.cp", l->cp));
    if (p->base.r->layout.cp_ring != RUN_AUTO) {
        TRY(key_add(p->cli, keys, n, "layout.cp_ring",
                    p->base.r->layout.cp_ring == RUN_YES ? "yes" : "no"));
    }
    if (l->ep > 1) TRY(number_add(p->cli, keys, n, "layout.ep", l->ep));
    if (l->whole_experts) TRY(number_add(p->cli, keys, n, "layout.etp", 1));
    TRY(number_add(p->cli, keys, n, "layout.zero", l->zero));
    if (l->zero > 0 && p->base.r->layout.zero_sums == RUN_SUMS_STEP) {
        TRY(key_add(p->cli, keys, n, "layout.zero_sums", "step"));
    }
    TRY(key_add(p->cli, keys, n, "layout.sp", l->sp ? "yes" : "no"));
    TRY(key_add(p->cli, keys, n, "layout.schedule",
                l->schedule != NULL ? l->schedule->name : "1f1b"));
    TRY(number_add(p->cli, keys, n, "layout.vpp", l->pp > 1 && l->chunks > 1 ? l->chunks : 0));
    const run_config r = config_of(p, l);
    return plan_memory_keys(p->cli, &r, keys, n);
}

// What simulate_open() chose where there is no run file.
static status model_keys(const planner *p, const char **keys, int64_t *n)
{
    static const char *const precisions[] = {"fp32", "bf16", "fp16", "fp8"};
    const run_config *r = p->base.r;
    if (r->model.preset != NULL) TRY(key_add(p->cli, keys, n, "model.preset", r->model.preset));
    if (r->model.from != NULL) TRY(key_add(p->cli, keys, n, "model.from", r->model.from));
    TRY(key_add(p->cli, keys, n, "train.precision", precisions[r->train.precision]));
    TRY(number_add(p->cli, keys, n, "train.seq", r->train.seq));
    if (r->train.batch_ramp.count > 0) return ST_OK;
    return number_add(p->cli, keys, n, "train.global_batch", r->train.global_batch);
}

status plan_config_write(const planner *p, const search_layout *l, const char *path)
{
    enum { OWN_KEYS = 24 };
    cli_context *cli = p->cli;
    const char **keys = NULL, *yaml = NULL;
    int64_t n = 0;
    bool is_hf = false, is_resolved = false;
    file_info info;
    run_config *r = NULL;
    config *c = NULL;
    text t = {.a = cli->a};
    TRY(arena_new(cli->a, p->run_key_count + OWN_KEYS, &keys));
    TRY(cli->h->api->path_info(cli->h, p->operand, &info));
    if (info.kind == FILE_KIND_FOLDER) TRY(cli_has_file(cli, p->operand, "config.json", &is_hf));
    if (info.kind != FILE_KIND_NONE && !is_hf) {
        TRY(cli_config_file(cli, p->operand, &yaml, &is_resolved));
    } else {
        TRY(model_keys(p, keys, &n));
    }
    for (int64_t i = 0; i < p->run_key_count; i++) keys[n++] = p->run_keys[i];
    if (p->base.spec.layers != p->layers_given) {
        TRY(number_add(p->cli, keys, &n, "model.layers", p->base.spec.layers));
    }
    TRY(plan_layout_keys(p, l, keys, &n));
    TRY(arena_new(cli->a, 1, &r));
    TRY(run_config_load_planned(cli->h, cli->a, yaml, keys, n, r, &c));
    TRY(config_print_resolved(c, r, &t));
    return host_write_all(cli->h, path, t.bytes, t.length);
}
