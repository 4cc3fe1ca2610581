// Layouts of this machine's cores, based on the catalogue's entry of a CPU with as many cores and
// bytes. Each rank has its share of the cores, of the memory and of its bandwidth.
#include "predict/planner.h"

enum { AUTO_SIMULATIONS = 4 };

// Bytes of each of `local` ranks on this host. Free memory changes while ranks start, so ranks that
// decide for themselves use the installed memory less the system's share.
static int64_t memory_of(const predict_planner *p, const predict_started *started, int64_t local)
{
    const host *h = p->h;
    const run_config *r = p->each.base.r;
    if (started == NULL || r->memory.limit > 0) return assemble_memory_limit(h, r, local);
    return host_memory_installed(h) / 8 * 7 / local;
}

// Makes `ranks` of them, each a device.
status predict_here_share(predict_planner *p, const predict_started *started, int64_t ranks)
{
    cluster *c = &p->each.base.machine;
    const bool others = started != NULL && started->local_ranks > 0;
    const int64_t local = others ? started->local_ranks : ranks;
    const int64_t cores = max_i64(assemble_threads(p->each.base.r), local);
    TRY(predict_planner_devices(p, ranks));
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

// The fastest layout of this many ranks; best->layout.dp stays 0 if there is none, or none that
// fits.
static status best_of(predict_planner *p, const predict_started *started, int64_t ranks,
                      search_found *best)
{
    arena *a = NULL;
    search_result found = {.count = 0};
    TRY(predict_here_share(p, started, ranks));
    TRY(arena_create("layout: auto", 0, &a));
    status st = predict_search(p, a, AUTO_SIMULATIONS, &found);
    if (st == ST_CONFIG_CONFLICT) {
        error_clear();
        st = ST_OK;
    }
    const bool is_better =
        found.count > 0 &&
        (best->layout.dp == 0 || found.plans[0].simulated.step_ns < best->simulated.step_ns);
    if (st == ST_OK && is_better) *best = found.plans[0];
    arena_destroy(a);
    return st;
}

static status ranks_each(predict_planner *p, const predict_started *started, search_found *best)
{
    const run_config *r = p->each.base.r;
    const int64_t cores = assemble_threads(r), most = started != NULL ? started->ranks : cores;
    for (int64_t n = started != NULL ? most : 1; n <= most; n++) {
        if (started == NULL && cores % n != 0) continue;
        TRY(best_of(p, started, n, best));
    }
    if (best->layout.dp > 0) return ST_OK;
    return fail(
        ST_CONFIG_CONFLICT,
        "layout = auto: no layout of %lld rank%s fits in the %lld bytes that each has on this "
        "machine for train.global_batch = %lld; `trireme plan --cluster cpu` says why",
        (long long)most, text_plural(most, "s"), (long long)predict_usable_bytes(p),
        (long long)run_config_batch_max(r));
}

status predict_here(const host *h, arena *a, const char *name, predict_planner **out)
{
    predict_planner *p = NULL;
    TRY(arena_new(a, 1, &p));
    *p = (predict_planner){.h = h, .a = a, .cluster = "cpu", .wanted = 1};
    TRY(arena_new(a, 1, &p->each.base.r));
    p->each.base.name = name;
    p->each.base.profile = cost_profile_trireme();
    p->each.base.rule = cost_flops_at(0);
    *out = p;
    return ST_OK;
}

status predict_here_layout(predict_planner *p, const predict_started *started, search_layout *out)
{
    search_found best = {.layout = {.dp = 0}};
    TRY(ranks_each(p, started, &best));
    search_layout *l = &best.layout;
    TRY(predict_here_share(p, started, (int64_t)l->dp * l->tp * l->pp * l->cp));
    TRY(predict_micro_batch_of(p, l));
    *out = *l;
    return ST_OK;
}
