// `layout: auto`: the fastest layout of this machine's cores, by the catalogue's entry of a CPU with as many
// cores and bytes as there are. A rank has its share of the cores, of the memory and of its bandwidth. And, of a layout that
// is given, `train.micro_batch: auto`.
#include "cli/plan/plan.h"

#include "catalog/catalog.h"
#include "cli/run_model.h"

enum { AUTO_PLAYS = 4, VOCAB_ANY = 1 << 14 };

// Bytes of each of `local` ranks here. Free memory changes while ranks start, so those that find it for themselves go by what
// is there, less what the system takes.
static int64_t memory_of(const planner *p, const launch_place *started, int64_t local)
{
    const host *h = p->cli->h;
    const run_config *r = p->base.r;
    if (started == NULL || r->memory.limit > 0) return train_memory_limit(h, r, local);
    return host_memory_installed(h) / 8 * 7 / local;
}

// `ranks` of them, each a device.
static status machine_share(planner *p, const launch_place *started, int64_t ranks)
{
    cluster *c = &p->base.machine;
    const bool others = started != NULL && started->local_ranks > 0;
    const int64_t local = others ? started->local_ranks : ranks;
    const int64_t cores = max_i64(train_threads(p->base.r), local);
    TRY(plan_devices(p, ranks));
    const double units = c->device.units > 0 ? c->device.units : 1.0;
    const double share = (double)cores / units / (double)local;
    for (int i = 0; i < MATH_COUNT; i++) c->device.peak_flops[i] *= share;
    c->device.vector_flops *= share;
    c->device.pointwise_fp32_s *= share;
    c->device.pointwise_16_s *= share;
    c->device.memory_bytes_s /= (double)local; // all cores share it
    c->device.units = (int32_t)cores;
    cost_units_share(&c->device, local);
    c->device.memory_bytes = c->device.usable_bytes = (double)memory_of(p, started, local);
    c->levels[0].devices = ranks;
    return ST_OK;
}

static status model_find(planner *p)
{
    bool is_known = false;
    TRY(cli_run_model(p->cli, p->base.r, &p->base.spec, &is_known));
    if (p->base.spec.vocab == 0) p->base.spec.vocab = VOCAB_ANY;
    return ST_OK;
}

// Its run and model are still to come.
static status planner_here(cli_context *cli, const char *name, planner **out)
{
    planner *p = NULL;
    TRY(arena_new(cli->a, 1, &p));
    *p = (planner){.cli = cli, .cluster = "cpu", .wanted = 1};
    TRY(arena_new(cli->a, 1, &p->base.r));
    p->base.name = name;
    p->base.profile = cost_profile_trireme();
    p->base.rule = plan_flops_at(0);
    *out = p;
    return ST_OK;
}

// The fastest layout of so many ranks; best->layout.dp stays 0 where there is none, or none that fits.
static status best_of(planner *p, const launch_place *started, int64_t ranks, search_found *best)
{
    arena *a = NULL;
    search_result found = {.count = 0};
    TRY(machine_share(p, started, ranks));
    TRY(arena_create("layout: auto", 0, &a));
    status st = plan_search(p, a, AUTO_PLAYS, &found);
    if (st == ST_CONFIG_CONFLICT) {
        error_clear();
        st = ST_OK;
    }
    const bool is_better =
        found.count > 0 &&
        (best->layout.dp == 0 || found.plans[0].played.step_ns < best->played.step_ns);
    if (st == ST_OK && is_better) *best = found.plans[0];
    arena_destroy(a);
    return st;
}

static status ranks_each(planner *p, const launch_place *started, search_found *best)
{
    const run_config *r = p->base.r;
    const int64_t cores = train_threads(r), most = started != NULL ? started->ranks : cores;
    for (int64_t n = started != NULL ? most : 1; n <= most; n++) {
        if (started == NULL && cores % n != 0) continue;
        TRY(best_of(p, started, n, best));
    }
    if (best->layout.dp > 0) return ST_OK;
    return fail(
        ST_CONFIG_CONFLICT,
        "layout = auto: no layout of %lld rank%s fits in the %lld bytes that each has on this "
        "machine for train.global_batch = %lld; `trireme plan --cluster cpu` says why",
        (long long)most, most == 1 ? "" : "s", (long long)plan_usable(p),
        (long long)run_config_batch_max(r));
}

status plan_auto(cli_context *cli, const char *yaml, const char *const *keys, int64_t key_count,
                 const launch_place *started, const char ***out, int64_t *count)
{
    planner *p = NULL;
    config *c = NULL;
    const char **all = NULL;
    search_found best = {.layout = {.dp = 0}};
    TRY(arena_new(cli->a, key_count + PLAN_LAYOUT_KEYS + 1, &all));
    for (int64_t i = 0; i < key_count; i++) all[i] = keys[i];
    all[key_count] = "layout.mode=given";
    TRY(planner_here(cli, "layout: auto", &p));
    TRY(run_config_load_searched(cli->h, cli->a, yaml, all, key_count + 1, false, p->base.r, &c));
    p->given = p->base.r;
    TRY(plan_fix(p, c));
    TRY(model_find(p));
    TRY(arena_create("a play", 0, &p->work));
    status st = ranks_each(p, started, &best);
    const search_layout *l = &best.layout;
    if (st == ST_OK) st = machine_share(p, started, (int64_t)l->dp * l->tp * l->pp * l->cp);
    if (st == ST_OK) st = plan_micro_batch_of(p, &best.layout);
    plan_close(p);
    TRY(st);
    int64_t n = key_count;
    TRY(plan_layout_keys(p, &best.layout, all, &n));
    *out = all;
    *count = n;
    return ST_OK;
}

status plan_micro_batch_here(cli_context *cli, const launch_place *started, run_config *r)
{
    planner *p = NULL;
    if (!r->train.micro_batch_planned) return ST_OK;
    TRY(planner_here(cli, "train.micro_batch: auto", &p));
    *p->base.r = *r;
    TRY(model_find(p));
    TRY(train_layout_check(r, &p->base.spec));
    TRY(machine_share(p, started, run_config_ranks(r)));
    TRY(plan_micro_batch(cli, &p->base));
    r->train = p->base.r->train;
    return ST_OK;
}
