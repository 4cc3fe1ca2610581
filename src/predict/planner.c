// The planner's searches: the request, its model and the number of devices.
#include "predict/planner.h"

#include "catalog/catalog.h"

// Collectives of tensor parallelism stand between GEMMs, so tp stays within the innermost level.
static int32_t tp_most(const cluster *c)
{
    return (int32_t)max_i64(c->levels[0].devices, 1);
}

int64_t predict_usable_bytes(const predict_planner *p)
{
    const cluster_device *d = &p->each.base.machine.device;
    return (int64_t)(d->usable_bytes > 0.0 ? d->usable_bytes : d->memory_bytes);
}

status predict_search(predict_planner *p, arena *a, int32_t simulations, search_result *out)
{
    const cost_model prices = {.c = &p->each.base.machine,
                               .profile = &p->each.base.profile,
                               .fp8 = p->each.base.r->train.precision == RUN_FP8,
                               .top_k = p->each.base.spec.experts.top_k};
    const run_config *r = p->each.base.r;
    const decoder_spec *s = &p->each.base.spec;
    const run_types types = run_config_types(r);
    const bool is_processor = cost_is_processor(&prices.c->device);
    const kern_hint hint = {.threads = is_processor ? assemble_threads(r) : 1,
                            .checked = is_processor ? r->sdc.abft : 0.0};
    kern_context *kernels = NULL;
    TRY(kern_context_create(a, "cpu", &hint, &kernels));
    p->workspace = (exec_workspace_context){.kernels = kernels};
    p->codec = assemble_codec_of(r);
    const plan_codec codec = p->codec.codec != NULL ? exec_plan_codec(&p->codec) : (plan_codec){0};
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
                                    .zero_group =
                                        p->each.has_layout ? (int32_t)r->layout.zero_group : 0,
                                    .pipeline = p->pipeline.rows != NULL ? &p->pipeline : NULL,
                                    .tp_max = tp_most(&p->each.base.machine),
                                    .states = {.moments = types.moments,
                                               .has_master = types.has_master,
                                               .optimizer = (run_optimizer)r->optimizer.name},
                                    .codec = p->codec.codec != NULL ? &codec : NULL,
                                    .sums_once = r->layout.zero_sums == RUN_SUMS_STEP,
                                    .scratch_bytes = kern_scratch_bytes(kernels),
                                    .workspace = exec_workspace,
                                    .workspace_context = &p->workspace,
                                    .prices = &prices,
                                    .usable_bytes = predict_usable_bytes(p),
                                    .fixed = p->fixed,
                                    .wanted = p->wanted,
                                    .simulations = simulations,
                                    .limit_ns = p->limit_ns,
                                    .rows = p->rows,
                                    .each = &p->each,
                                    .progress = p->progress,
                                    .progress_context = p->progress_context};
    candidates_begin(&p->each, simulations > 0);
    return search_run(a, &request, out);
}

status predict_best_layout(predict_planner *p, search_layout *out)
{
    arena *a = NULL;
    search_result found = {.count = 0};
    TRY(arena_create("layout: auto", 0, &a));
    status st = predict_search(p, a, p->simulations, &found);
    const search_found *best = found.count > 0 ? &found.plans[0] : &found.smallest;
    if (st == ST_OK && best->layout.dp == 0) {
        st = fail(ST_CONFIG_CONFLICT,
                  "layout = auto: none of the layouts of %lld devices has a plan",
                  (long long)p->devices);
    }
    search_layout layout = best->layout;
    if (st == ST_OK) st = predict_micro_batch_of(p, &layout);
    arena_destroy(a);
    if (st == ST_OK) *out = layout;
    return st;
}

// ---- the run and the cluster -------------------------------------------------------------------

status predict_planner_devices(predict_planner *p, int64_t devices)
{
    char *count = NULL;
    const char **keys = NULL;
    TRY(arena_new(p->a, p->cluster_key_count + 1, &keys));
    for (int64_t i = 0; i < p->cluster_key_count; i++) keys[i] = p->cluster_keys[i];
    int64_t n = p->cluster_key_count;
    if (devices > 0) {
        TRY(arena_format(p->a, &count, "devices=%lld", (long long)devices));
        keys[n++] = count;
    }
    TRY(catalog_cluster_load(p->h, p->a, p->cluster, keys, n, &p->each.base.machine));
    p->devices = p->each.base.machine.devices;
    return ST_OK;
}

// Windows repeat as they do in the model.
static status windows_repeat(const predict_planner *p, int64_t layers, decoder_spec *spec)
{
    int32_t *windows = NULL;
    if (spec->windows == NULL || layers <= spec->layers) return ST_OK;
    TRY(arena_new(p->a, layers, &windows));
    for (int64_t i = 0; i < layers; i++) windows[i] = spec->windows[i % spec->layers];
    spec->windows = windows;
    return ST_OK;
}

status predict_planner_layers(predict_planner *p, int64_t layers)
{
    op_model *whole = NULL;
    TRY(windows_repeat(p, layers, &p->each.base.spec));
    p->each.base.spec.layers = layers;
    TRY(candidates_whole_model(&p->each, &whole));
    p->parameters = (double)whole->parameters;
    return ST_OK;
}
