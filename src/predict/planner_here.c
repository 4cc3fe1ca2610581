// Layouts of this machine. Of its cores: based on the catalogue's entry of a CPU with as many cores
// and bytes; each rank has its share of the cores, of the memory and of its bandwidth. Of its GPUs
// (kernels.device = cuda): based on the catalogue's entry of the first one; each rank has a GPU.
#include "predict/planner.h"

#include "catalog/files.h"
#include "device/gpus.h"

#include <string.h>

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

static bool is_on_gpus(const predict_planner *p)
{
    return p->each.base.r->kernels.device == RUN_DEVICE_CUDA;
}

// The cluster of the GPUs: of their name, or the H100's with them in it.
static status gpus_find(predict_planner *p)
{
    const char **names = NULL, **keys = NULL, *entry = NULL;
    char gpu[64], *key = NULL;
    int64_t count = 0;
    if (strcmp(p->cluster, "cpu") != 0) return ST_OK; // found already
    device_cuda_name(gpu);
    TRY(catalog_gpu_entry(p->a, gpu, &entry));
    TRY(catalog_names(p->a, "clusters", &names, &count));
    p->cluster = "h100";
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(names[i], entry) == 0) p->cluster = names[i];
    }
    TRY(arena_format(p->a, &key, "device=%s", entry));
    TRY(arena_new(p->a, 1, &keys));
    keys[0] = key;
    p->cluster_keys = keys;
    p->cluster_key_count = 1;
    return ST_OK;
}

// Makes `ranks` devices, which share the GPUs if there are more of them. But a launcher that starts
// more ranks than this one sees GPUs shows each its own, as a rule; the run will know.
static status gpus_share(predict_planner *p, const predict_started *started, int64_t ranks)
{
    cluster *c = &p->each.base.machine;
    const int64_t gpus = max_i64(device_cuda_count(), 1);
    const int64_t local = started != NULL ? min_i64(ranks, gpus) : ranks;
    const int64_t sharing = (local + gpus - 1) / gpus;
    TRY(gpus_find(p));
    TRY(predict_planner_devices(p, ranks));
    for (int i = 0; i < MATH_COUNT; i++) c->device.peak_flops[i] /= (double)sharing;
    c->device.memory_bytes_s /= (double)sharing;
    const int64_t bytes = assemble_memory_limit(p->h, p->each.base.r, local);
    c->device.memory_bytes = c->device.usable_bytes = (double)bytes;
    c->levels[0].devices = ranks;
    return ST_OK;
}

// Makes `ranks` of them, each a device.
status predict_here_share(predict_planner *p, const predict_started *started, int64_t ranks)
{
    cluster *c = &p->each.base.machine;
    const bool others = started != NULL && started->local_ranks > 0;
    const int64_t local = others ? started->local_ranks : ranks;
    if (is_on_gpus(p)) return gpus_share(p, started, ranks);
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
    const int64_t units = is_on_gpus(p) ? max_i64(device_cuda_count(), 1) : assemble_threads(r);
    const int64_t most = started != NULL ? started->ranks : units;
    for (int64_t n = started != NULL ? most : 1; n <= most; n++) {
        if (started == NULL && units % n != 0) continue;
        TRY(best_of(p, started, n, best));
    }
    if (best->layout.dp > 0) return ST_OK;
    return fail(
        ST_CONFIG_CONFLICT,
        "layout = auto: no layout of %lld rank%s fits in the %lld bytes that each has on this "
        "machine for train.global_batch = %lld; `trireme plan --cluster %s` says why",
        (long long)most, text_plural(most, "s"), (long long)predict_usable_bytes(p),
        (long long)run_config_batch_max(r), p->cluster);
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
