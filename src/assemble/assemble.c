// Makes programs and plans from a configuration, and suggests what to change when they do not fit.
// Pure.
#include "assemble/assemble.h"
#include "assemble/optim/optim.h"
#include "assemble/rollouts.h"
#include "base/thread_pool.h"
#include "checkpoint/shard.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef TRIREME_DEBUG
static const bool poison_dead_bytes = true;
#else
static const bool poison_dead_bytes = false;
#endif

bool assemble_goes_in_ring(const run_config *r, const decoder_spec *spec, const plan_mesh *mesh,
                           int64_t micro_batch)
{
    enum { GATHERED_BYTES = 64 << 20 };
    const int64_t cp = plan_mesh_size(mesh, AXIS_CP), heads = plan_mesh_heads(mesh);
    if (cp == heads || r->determinism.mode == RUN_STRICT || spec->latent.kv_rank > 0) return false;
    if (r->layout.cp_ring != RUN_AUTO) return r->layout.cp_ring == RUN_YES;
    const int64_t own = spec->kv_heads / plan_mesh_size(mesh, AXIS_TP);
    const int64_t columns = max_i64(own / heads, 1) * spec->head_dim;
    const int64_t gathered = micro_batch * r->train.seq * 4 * columns; // k, v, dk, dv
    return gathered * dtype_bytes(run_config_types(r).compute) > GATHERED_BYTES;
}

op_cuts assemble_cuts(const run_config *r, const decoder_spec *spec, const plan_mesh *mesh,
                      bool even_experts)
{
    const bool strict = r->determinism.mode == RUN_STRICT;
    return (op_cuts){
        .tp = {.ways = plan_mesh_size(mesh, AXIS_TP),
               .at = mesh->at[AXIS_TP],
               .shards = strict ? (int32_t)r->determinism.tp_shards : 1,
               .ordered = strict,
               .rows = r->layout.sp,
               .gathers_experts = even_experts && !strict,
               // In strict order the sums of an expert have as many terms in each layout.
               .whole_experts = mesh->whole_experts || (strict && r->determinism.etp_shards == 1 &&
                                                        plan_mesh_size(mesh, AXIS_TP) == 1),
               .expert_shards = strict ? (int32_t)r->determinism.etp_shards : 1},
        .cp = {.ways = plan_mesh_size(mesh, AXIS_CP),
               .at = mesh->at[AXIS_CP],
               .heads = plan_mesh_heads(mesh),
               .shards = strict ? (int32_t)r->determinism.cp_shards : 1,
               .ordered = strict,
               .ring = assemble_goes_in_ring(r, spec, mesh, r->train.micro_batch),
               .turns = run_config_cp_turns(r)},
        .ep = {.ways = plan_mesh_ep(mesh),
               .at = plan_ep_place(mesh),
               .pieces = plan_ep_tp(mesh),
               .cp_own =
                   strict ? (int32_t)r->determinism.cp_shards / plan_mesh_size(mesh, AXIS_CP) : 1,
               .ordered = strict,
               .even = even_experts,
               .moves_layers = r->moe.rebalance > 0 ? (int32_t)model_all_layers(spec) : 0,
               .dispatch = r->moe.dispatch == RUN_DISPATCH_BF16  ? DISPATCH_BF16
                           : r->moe.dispatch == RUN_DISPATCH_FP8 ? DISPATCH_FP8
                                                                 : DISPATCH_WHOLE},
    };
}

static bool is_whole_again(const assemble_options *o, const run_config *r)
{
    return o->whole_again && r->train.recompute == RUN_RECOMPUTE_FULL;
}

void assemble_router_options(const run_config *r, model_options *options)
{
    options->expert_capacity = r->moe.capacity_factor;
    options->moe_aux_loss = (float)r->moe.aux_loss;
    options->moe_z_loss = (float)r->moe.z_loss;
    options->moe_aux_micro = r->moe.aux_loss_scope == RUN_AUX_MICRO;
    options->moe_aux_batch = r->moe.aux_loss_scope == RUN_AUX_BATCH;
    options->router_bias_rate = (float)r->model.router.bias_rate;
}

static status models_make(arena *a, const assemble_options *o, assemble_plans *out)
{
    const run_config *r = out->config;
    model_options options = {.purpose = PURPOSE_TRAIN,
                             .compute = out->types.compute,
                             .grad = out->types.grads,
                             .fp8 = assemble_fp8(r),
                             .fp8_margin = (int32_t)r->precision.fp8_margin,
                             .fp8_exact = r->precision.fp8_exact,
                             .recompute = (op_recompute)r->train.recompute,
                             .recompute_layers = r->train.recompute_layers,
                             .seq = r->train.seq,
                             .z_loss = (float)r->train.z_loss,
                             .next_loss = (float)r->train.mtp_loss,
                             .freeze = r->train.freeze,
                             .objective = run_config_objective(r),
                             .documents = o->documents,
                             .sizes_only = o->sizes_only};
    int32_t *halved = NULL;
    assemble_router_options(r, &options);
    TRY(run_config_halved(r, a, &halved, &options.halved_count));
    options.halved = halved;
    TRY(model_build(a, out->spec, &options, &out->whole));
    TRY(assemble_fp8_check(r, out->whole));
    op_cuts cuts = assemble_cuts(r, out->spec, &o->mesh, o->even_experts);
    op_model *of_tp = NULL;
    TRY(op_model_cut(a, out->whole, &cuts, &of_tp, &out->model));
    for (int32_t i = 0; i < out->model->program_count && is_whole_again(o, r); i++) {
        TRY(op_program_recompute_rest(out->model->programs[i]));
    }
    if (!o->evaluate) return ST_OK;
    options.purpose = PURPOSE_EVALUATE;
    options.recompute = RECOMPUTE_NONE;
    options.z_loss = 0.0f; // the reported loss is the cross-entropy
    options.logits = o->logits;
    op_model *whole = NULL;
    of_tp = NULL;
    TRY(model_build(a, out->spec, &options, &whole));
    return op_model_cut(a, whole, &cuts, &of_tp, &out->evaluate);
}

// `most` sequences at once.
static status plan_push(arena *a, assemble_plan_fn make, plan_request *request, int64_t most,
                        assemble_plans *out)
{
    plan *p = NULL;
    int64_t first = 0, own = 0;
    if (out->count == ASSEMBLE_MAX_PLANS) {
        return fail(ST_CONFIG_RANGE, "train.batch_ramp has more than %d sizes",
                    out->codec.codec != NULL ? ASSEMBLE_MAX_PLANS / 2 - 1 : ASSEMBLE_MAX_PLANS - 1);
    }
    plan_mesh at = request->mesh;
    const int32_t dp = plan_mesh_size(&at, AXIS_DP);
    request->fewest_microbatches = INT64_MAX;
    request->most_microbatches = 0;
    for (at.at[AXIS_DP] = 0; at.at[AXIS_DP] < dp; at.at[AXIS_DP]++) {
        plan_own_sequences(&at, request->strict, request->shards, request->sequences, &first, &own);
        const int64_t count = own / assemble_divisor_below(own, most);
        request->fewest_microbatches = min_i64(request->fewest_microbatches, count);
        request->most_microbatches = max_i64(request->most_microbatches, count);
    }
    plan_own_sequences(&request->mesh, request->strict, request->shards, request->sequences, &first,
                       &own);
    request->micro_batch = assemble_divisor_below(own, most);
    TRY(make != NULL ? make(a, request, &out->run, &p) : plan_create(a, request, &out->run, &p));
    out->all[out->count++] = p;
    return ST_OK;
}

exec_codec assemble_codec_of(const run_config *r)
{
    static const char *const names[] = {NULL, "bf16", "int8", "fp8", "topk", "onebit"};
    const int32_t mode = r->comm.compression.mode;
    if (mode == RUN_COMPRESS_NONE) return (exec_codec){.codec = NULL};
    const exec_codec out = {.codec = comm_codec_find(names[mode]),
                            .settings = {.keep = r->comm.compression.keep}};
    ASSERT(out.codec != NULL && out.codec->feedback == run_config_has_error_feedback(r));
    return out;
}

// Compression needs several ranks: the step of a single rank (a dry run) compresses nothing.
static void codec_choose(const assemble_options *o, assemble_plans *out)
{
    const run_config *r = out->config;
    const bool alone =
        plan_mesh_size(&o->mesh, AXIS_DP) == 1 && plan_mesh_size(&o->mesh, AXIS_CP) == 1;
    if (r->comm.compression.mode == RUN_COMPRESS_NONE || alone) return;
    out->codec = assemble_codec_of(r);
    const double bound = r->comm.compression.bound;
    out->codec_bound = bound > 0.0 ? bound : out->codec.codec->bound;
}

// Chooses the stage of each layer, and thereby the rank that holds each weight.
static status pipeline_choose(arena *a, const assemble_options *o, plan_request *request,
                              assemble_plans *out)
{
    const run_config *r = out->config;
    if (r->layout.pp == 1) return ST_OK;
    plan_pipeline *pipeline = NULL;
    int32_t *rows = NULL;
    TRY(run_config_pipeline(r, a, &request->pipeline));
    TRY(arena_new(a, 1, &pipeline));
    TRY(plan_pipeline_make(a, out->whole, &o->mesh, &request->pipeline, 0, pipeline));
    // All plans use the same cut into stages. With a cut by its own FLOPs, evaluation would need
    // weights that other stages hold.
    // The embedding and the rows at the top have no number.
    TRY(arena_new(a, pipeline->depth, &rows));
    for (int32_t i = 0; i < pipeline->depth; i++) {
        rows[i] = pipeline->first_layer[i + 1] - pipeline->first_layer[i] - (i == 0 ? 1 : 0) -
                  (i + 1 == pipeline->depth ? 1 + out->whole->next_rows : 0);
    }
    request->pipeline.rows = rows;
    request->pipeline.rows_count = pipeline->depth;
    return plan_places_stages(&out->places, a, pipeline);
}

static status steps_plan(arena *a, plan_request *request, assemble_plans *out)
{
    const run_config *r = out->config;
    plan_codec codec = {0};
    if (out->codec.codec != NULL) codec = exec_plan_codec(&out->codec);
    for (int64_t i = 0; i < run_config_ramp_count(r); i++) {
        int64_t step = 0;
        run_config_ramp_at(r, i, &step, &request->sequences);
        if (assemble_plan_of(out, request->sequences, false) != NULL) continue;
        TRY(plan_push(a, NULL, request, r->train.micro_batch, out));
        if (out->codec.codec == NULL) continue;
        request->codec = &codec;
        TRY(plan_push(a, NULL, request, r->train.micro_batch, out));
        request->codec = NULL;
    }
    return ST_OK;
}

// Packed weights have the layout of one level, so a plan with them needs a machine with that level.
static status kernels_make(arena *a, const assemble_options *options, assemble_plans *out)
{
    const run_config *r = out->config;
    const kern_hint hint = {
        .threads = options->threads, .level = run_config_level(r), .checked = r->sdc.abft};
    if (r->kernels.keep_panels) TRY(kern_level_check(hint.level));
    return kern_context_create(a, options->backend, &hint, &out->kernels);
}

// Makes what all ranks of a pipeline share: models, the optimizer's programs and the request for
// plans.
static status parts_make(arena *a, const run_config *r, const decoder_spec *spec,
                         const assemble_options *options, plan_request *request,
                         assemble_plans *out)
{
    if (!options->sizes_only) TRY(assemble_train_check(r, spec));
    memset(out, 0, sizeof(*out));
    out->config = r;
    out->spec = spec;
    out->types = run_config_types(r);
    out->run.a = a;
    TRY(models_make(a, options, out));
    exec_workspace_context *workspace = NULL;
    TRY(arena_new(a, 1, &workspace));
    TRY(kernels_make(a, options, out));
    *workspace = (exec_workspace_context){.kernels = out->kernels,
                                          .strict = r->determinism.mode == RUN_STRICT};
    const bool *whole = NULL;
    TRY(assemble_optimizer_programs(a, out->model, r, &options->mesh, &out->optimizer, &whole));
    out->places = (plan_places){.whole = out->whole,
                                .mesh = options->mesh,
                                .zero = (int32_t)r->layout.zero,
                                .whole_units = whole};
    *request = (plan_request){.model = out->model,
                              .mesh = options->mesh,
                              .zero = (int32_t)r->layout.zero,
                              .seq = r->train.seq,
                              .sums_once = r->layout.zero_sums == RUN_SUMS_STEP,
                              .strict = workspace->strict,
                              .shards = (int32_t)r->determinism.shards,
                              .cp_shards = (int32_t)r->determinism.cp_shards,
                              .tp_shards = (int32_t)r->determinism.tp_shards,
                              .etp_shards = (int32_t)r->determinism.etp_shards,
                              .keep_gradients = options->keep_gradients,
                              .last = options->last,
                              .rows_inline = options->rows_inline,
                              .poison = poison_dead_bytes,
                              .optimizer = out->optimizer,
                              .whole_units = whole,
                              .scratch_bytes = kern_scratch_bytes(out->kernels),
                              .workspace = exec_workspace,
                              .fuses = exec_fuses,
                              .packed_bytes = r->kernels.keep_panels ? exec_packed_bytes : NULL,
                              .workspace_context = workspace};
    TRY(pipeline_choose(a, options, request, out));
    codec_choose(options, out);
    return ST_OK;
}

// ---- all stages --------------------------------------------------------------------------------

struct assemble_scratch {
    plan_scratch all[THREAD_POOL_MAX]; // [worker] those without arenas have had no work yet
};

status assemble_scratch_create(assemble_scratch **out)
{
    assemble_scratch *r = calloc(1, sizeof(*r));
    if (r == NULL) return fail(ST_NO_MEMORY, "no memory for the scratch memory of plans");
    *out = r;
    return ST_OK;
}

void assemble_scratch_destroy(assemble_scratch *r)
{
    for (int i = 0; r != NULL && i < THREAD_POOL_MAX; i++) {
        arena_destroy(r->all[i].lists);
        arena_destroy(r->all[i].places);
        for (int k = 0; k < 2; k++) arena_destroy(r->all[i].boundary[k].a);
    }
    free(r);
}

// Earlier plans made in this memory may be gone.
static status scratch_prepare(plan_scratch *r)
{
    r->similar = NULL;
    if (r->lists == NULL) TRY(arena_create("lowering", 0, &r->lists));
    if (r->places == NULL) TRY(arena_create("plan memory", 0, &r->places));
    for (int k = 0; k < 2; k++) {
        if (r->boundary[k].a == NULL) TRY(arena_create("boundary buffers", 0, &r->boundary[k].a));
    }
    return ST_OK;
}

// Plans of stages are independent: as many threads as there are cores make them.
typedef struct stage_pool {
    arena *a; // shared by the workers
    const assemble_options *options;
    const assemble_plans *parts;
    const plan_request *request;
    assemble_scratch *scratch;
    assemble_plans *out;
    int32_t count;
    int64_t limit; // bytes: no stage is begun after one exceeds it
    atomic_int next;
    _Atomic int64_t most; // bytes of the largest one made so far
    atomic_bool failed;
} stage_pool;

static status stage_assemble(const stage_pool *c, int32_t stage, plan_request *request,
                             assemble_plans *out)
{
    arena *a = c->a;
    *out = *c->parts;
    request->mesh.at[AXIS_PP] = out->places.mesh.at[AXIS_PP] = stage;
    TRY(plan_push(a, c->options->make, request, out->config->train.micro_batch, out));
    plan_table_place(&out->run);
    out->arena_bytes = plan_arena_bytes(&out->run, out->all, out->count);
    return ST_OK;
}

static int32_t stage_of(const stage_pool *c, int32_t k)
{
    return c->options->peak_stages != NULL ? c->options->peak_stages[k] : k;
}

static status stages_work(stage_pool *c, plan_scratch *scratch)
{
    const bool peak = c->options->peak_stages != NULL;
    plan_request request = *c->request;
    TRY(scratch_prepare(scratch));
    request.scratch = scratch;
    while (atomic_load(&c->most) <= c->limit && !atomic_load(&c->failed)) {
        const int32_t k = atomic_fetch_add(&c->next, 1); // every stage that is begun is finished
        if (k >= c->count) break;
        int64_t most = atomic_load(&c->most);
        assemble_plans *out = &c->out[stage_of(c, k)];
        // A plan over the limit is placed as well as possible, so that the result does not depend
        // on the order of the workers.
        request.enough_bytes = peak ? min_i64(most - 1, c->limit) : 0;
        TRY(stage_assemble(c, stage_of(c, k), &request, out));
        scratch->similar = out->all[0];
        while (out->arena_bytes > most &&
               !atomic_compare_exchange_weak(&c->most, &most, out->arena_bytes)) {
        }
    }
    return ST_OK;
}

static status worker_work(void *context, int32_t worker)
{
    stage_pool *c = context;
    const status st = stages_work(c, &c->scratch->all[worker]);
    if (st != ST_OK) atomic_store(&c->failed, true);
    return st;
}

static int32_t core_count(void)
{
    static atomic_int cores; // cached: asking takes milliseconds
    if (atomic_load(&cores) == 0) atomic_store(&cores, kern_core_count());
    return atomic_load(&cores);
}

static status stages_share(stage_pool *c)
{
    const int32_t count = c->count > 1 ? (int32_t)min_i64(core_count(), c->count) : 1;
    assemble_scratch *own = NULL;
    if (c->options->scratch == NULL) TRY(assemble_scratch_create(&own));
    c->scratch = own != NULL ? own : c->options->scratch;
    arena_share(c->a, count > 1);
    const status st = thread_pool_run(count, worker_work, c);
    arena_share(c->a, false);
    assemble_scratch_destroy(own);
    return st;
}

static status stages_make(arena *a, const assemble_options *options, const assemble_plans *parts,
                          const plan_request *request, assemble_plans *out)
{
    const bool peak = options->peak_stages != NULL;
    stage_pool c = {.a = a,
                    .options = options,
                    .parts = parts,
                    .request = request,
                    .out = out,
                    .count = peak ? options->peak_count : plan_mesh_size(&options->mesh, AXIS_PP),
                    .limit = peak && options->peak_limit > 0 ? options->peak_limit : INT64_MAX};
    TRY(stages_share(&c));
    int32_t k = 0;
    while (k < c.count && out[stage_of(&c, k)].arena_bytes <= c.limit) k++;
    for (k++; k < c.count; k++)
        out[stage_of(&c, k)] = (assemble_plans){.count = 0}; // begun by chance
    return ST_OK;
}

status assemble_stages(arena *a, const run_config *r, const decoder_spec *spec,
                       const assemble_options *options, assemble_plans *out)
{
    plan_request request;
    assemble_plans parts;
    plan_codec codec = {0};
    ASSERT(options->mesh.at[AXIS_PP] == 0);
    TRY(parts_make(a, r, spec, options, &request, &parts));
    request.sequences = run_config_batch_max(r);
    if (parts.codec.codec != NULL) {
        codec = exec_plan_codec(&parts.codec);
        request.codec = &codec;
    }
    return stages_make(a, options, &parts, &request, out);
}

// ---- one rank ----------------------------------------------------------------------------------

// The copies of the state that a rank of a run with resilience.buddy.ranks keeps for itself and for
// another rank.
static status copies_predict(arena *a, const run_config *r, const assemble_options *options,
                             const ckpt_state *state, int64_t *out)
{
    const bool has_copies =
        r->resilience.mode == RUN_RESILIENCE_LIVE && r->resilience.buddy.ranks > 0;
    ckpt_sharder *sharder = NULL;
    *out = 0;
    if (!has_copies) return ST_OK;
    TRY(ckpt_sharder_create(state, a, run_config_ranks(r), max_i64(options->domain, 1), &sharder));
    *out = ckpt_sharder_kept_bytes(sharder);
    return ST_OK;
}

status assemble_rank(arena *a, const run_config *r, const decoder_spec *spec,
                     const assemble_options *options, assemble_plans *out)
{
    plan_request request;
    TRY(parts_make(a, r, spec, options, &request, out));
    TRY(steps_plan(a, &request, out));
    if (options->evaluate) {
        request.model = out->evaluate;
        request.optimizer = NULL;
        request.sequences =
            options->eval_sequences > 0 ? options->eval_sequences : r->train.global_batch;
        TRY(plan_push(a, NULL, &request, options->logits ? request.sequences : r->train.micro_batch,
                      out));
        out->eval = out->all[out->count - 1];
    }
    if (options->rollouts) TRY(assemble_rollouts(a, options, &request, out));
    TRY(assemble_operations_check(out, options->device));
    plan_table_place(&out->run);
    out->arena_bytes = plan_arena_bytes(&out->run, out->all, out->count);
    const ckpt_state state = {.model = out->whole,
                              .optimizer = out->optimizer,
                              .run = &out->run,
                              .places = &out->places,
                              .derived_weights = assemble_derives_weights(r),
                              .part = assemble_saved_part(spec),
                              .rank = (int)plan_mesh_rank(&options->mesh)};
    if (options->snapshots > 0) TRY(ckpt_image_bytes(&state, &out->snapshot_bytes));
    out->snapshot_bytes *= options->snapshots;
    return copies_predict(a, r, options, &state, &out->copies_bytes);
}

int64_t assemble_copies_bytes(const assemble_plans *plans)
{
    return plans->config->kernels.device == RUN_DEVICE_CUDA ? 0 : plans->copies_bytes;
}

int64_t assemble_snapshot_bytes(const assemble_plans *plans)
{
    return plans->config->kernels.device == RUN_DEVICE_CUDA ? 0 : plans->snapshot_bytes;
}

int64_t assemble_peak_bytes(const assemble_plans *plans)
{
    return plans->arena_bytes + assemble_snapshot_bytes(plans) + assemble_copies_bytes(plans);
}

bool assemble_cuts_state(const run_config *r)
{
    return r->layout.zero > 0 || r->layout.tp > 1 || r->layout.pp > 1 || r->layout.ep > 1 ||
           run_config_has_error_feedback(r);
}

int assemble_snapshots(const run_config *r)
{
    const bool keeps = r->resilience.mode != RUN_RESILIENCE_OFF;
    return (int)assemble_saves_in_background(r) + (int)keeps;
}

bool assemble_saves_in_background(const run_config *r)
{
    // The last save is waited for anyway. State that is cut over ranks is fetched before the first
    // byte is written, because a failing disk must not leave the other ranks waiting.
    return (r->checkpoint.async && r->checkpoint.every != 0) || assemble_cuts_state(r);
}

ckpt_part assemble_saved_part(const decoder_spec *spec)
{
    return spec->adapter.rank > 0 ? CKPT_ADAPTER : CKPT_ALL;
}

bool assemble_derives_weights(const run_config *r)
{
    return !r->optimizer.stochastic_rounding;
}

const plan *assemble_plan_of(const assemble_plans *plans, int64_t sequences, bool compressed)
{
    for (int64_t i = 0; i < plans->count; i++) {
        const plan *p = plans->all[i];
        if (p->purpose != PURPOSE_TRAIN || p->sequences != sequences) continue;
        if ((p->codec != NULL) == compressed) return p;
    }
    return NULL;
}

// ---- what would fit -----------------------------------------------------------------------------

// Bytes of the run with one setting changed; -1 if it cannot be made.
static int64_t bytes_with(const run_config *changed, const decoder_spec *spec,
                          const assemble_options *options)
{
    arena *a = NULL;
    if (arena_create("what would fit", 0, &a) != ST_OK) return -1;
    assemble_plans *plans = NULL;
    int64_t bytes = -1;
    if (arena_new(a, 1, &plans) == ST_OK &&
        assemble_rank(a, changed, spec, options, plans) == ST_OK) {
        bytes = assemble_peak_bytes(plans);
    }
    arena_destroy(a);
    return bytes;
}

static status suggest(text *t, const char *setting, int64_t bytes, int64_t now, int64_t limit,
                      int *found)
{
    char need[32], less[32];
    if (bytes < 0 || bytes > limit) return ST_OK;
    (*found)++;
    return text_add(t, "\n    %-28s needs %s, %s less", setting, text_bytes_human(bytes, need),
                    text_bytes_human(now - bytes, less));
}

// Suggests full recomputation of as few layers as necessary.
static status suggest_layers(text *t, const run_config *r, const decoder_spec *spec,
                             const assemble_options *options, int64_t now, int64_t limit,
                             int *found)
{
    run_config changed = *r;
    int64_t low = r->train.recompute == RUN_RECOMPUTE_FULL ? r->train.recompute_layers + 1 : 1;
    int64_t high = spec->layers, bytes = -1;
    char setting[64];
    changed.train.recompute = RUN_RECOMPUTE_FULL;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        changed.train.recompute_layers = middle;
        const int64_t its = bytes_with(&changed, spec, options);
        if (its >= 0 && its <= limit) {
            high = middle;
            bytes = its;
        } else {
            low = middle + 1;
        }
    }
    (void)snprintf(setting, sizeof(setting), "train.recompute=full train.recompute_layers=%lld",
                   (long long)high);
    return high < spec->layers ? suggest(t, setting, bytes, now, limit, found) : ST_OK;
}

static status suggest_all(text *t, const run_config *r, const decoder_spec *spec,
                          const assemble_options *options, int64_t now, int64_t limit)
{
    static const char *const names[] = {"none", "selective", "full"};
    char setting[64];
    int found = 0;
    run_config changed = *r;
    for (int64_t mb = r->train.micro_batch / 2; mb >= 1 && found == 0; mb /= 2) {
        if (r->train.global_batch % mb != 0) continue;
        changed.train.micro_batch = mb;
        (void)snprintf(setting, sizeof(setting), "train.micro_batch=%lld", (long long)mb);
        TRY(suggest(t, setting, bytes_with(&changed, spec, options), now, limit, &found));
    }
    const bool some = r->train.recompute_layers > 0;
    for (int32_t p = r->train.recompute + (some ? 0 : 1); p <= RUN_RECOMPUTE_FULL; p++) {
        changed = *r;
        changed.train.recompute = p;
        changed.train.recompute_layers = 0;
        (void)snprintf(setting, sizeof(setting), "train.recompute=%s%s", names[p],
                       some ? " train.recompute_layers=all" : "");
        const int64_t bytes = bytes_with(&changed, spec, options);
        TRY(suggest(t, setting, bytes, now, limit, &found));
        if (p != RUN_RECOMPUTE_FULL || bytes < 0 || bytes > limit) continue;
        TRY(suggest_layers(t, r, spec, options, now, limit, &found));
    }
    changed = *r;
    if (r->train.precision == RUN_FP32) {
        changed.train.precision = RUN_BF16;
        TRY(suggest(t, "train.precision=bf16", bytes_with(&changed, spec, options), now, limit,
                    &found));
    }
    if (options->snapshots > 0 && assemble_saves_in_background(r)) {
        assemble_options without = *options;
        without.snapshots--;
        TRY(suggest(t, "checkpoint.async=no", bytes_with(r, spec, &without), now, limit, &found));
    }
    changed = *r;
    changed.train.micro_batch = 1;
    changed.train.recompute = RUN_RECOMPUTE_FULL;
    changed.train.recompute_layers = 0;
    const int64_t least = bytes_with(&changed, spec, options);
    if (found == 0) {
        TRY(suggest(t, "train.micro_batch=1 train.recompute=full", least, now, limit, &found));
    }
    if (found > 0) return ST_OK;
    char bytes[32];
    return text_add(t, "\n    none of these: the least for this model and seq is %s",
                    text_bytes_human(least, bytes));
}

status assemble_fit_check(const run_config *r, const decoder_spec *spec,
                          const assemble_options *options, const assemble_plans *plans,
                          int64_t limit_bytes)
{
    const int64_t peak = assemble_peak_bytes(plans);
    if (limit_bytes <= 0 || peak <= limit_bytes) return ST_OK;
    arena *a = NULL;
    TRY(arena_create("memory table", 0, &a));
    text t = {.a = a};
    char need[32], have[32];
    const plan *largest = plans->all[0];
    for (int64_t i = 1; i < plans->count; i++) {
        if (plans->all[i]->transient_bytes > largest->transient_bytes) largest = plans->all[i];
    }
    status st = ST_OK;
    TRY_TO(done, plan_print_memory(largest, plans->arena_bytes, assemble_snapshot_bytes(plans),
                                   assemble_copies_bytes(plans), options->outside_bytes, &t));
    TRY_TO(done, text_add(&t, "  any one of these is predicted to fit:"));
    TRY_TO(done, suggest_all(&t, r, spec, options, peak, limit_bytes));
    st = fail(ST_DOES_NOT_FIT, "the run needs %s and the limit is %s\n%s",
              text_bytes_human(peak, need), text_bytes_human(limit_bytes, have), t.bytes);
done:
    arena_destroy(a);
    return st;
}
