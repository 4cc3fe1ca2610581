// A model on a device: configuration, plans in one arena, constants, weights.
#include "infer/open.h"

#include "exec/pages.h"

#include "assemble/assemble.h"
#include "assemble/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef TRIREME_DEBUG
static const bool poison_dead_bytes = true;
#else
static const bool poison_dead_bytes = false;
#endif

status infer_adapter_read(const host *h, arena *a, const char *folder, const char *adapter,
                          decoder_spec *spec)
{
    bool is_there = false, is_checkpoint = false;
    TRY(model_adapter_is_there(h, a, folder, &is_there));
    if (is_there && adapter != NULL) {
        return fail(ST_UNSUPPORTED,
                    "%s has an adapter already, so %s cannot be added; give its base model", folder,
                    adapter);
    }
    if (adapter != NULL) return model_adapter_read(h, a, adapter, true, &spec->adapter);
    if (!is_there) return ST_OK;
    TRY(ckpt_folder_is(h, a, folder, &is_checkpoint));
    return model_adapter_read(h, a, folder, !is_checkpoint, &spec->adapter);
}

static status scores_check(const infer_core *c, const char *folder, bool wanted)
{
    if (wanted == (c->spec.scores != MODEL_WRITES)) return ST_OK;
    return wanted ? fail(ST_MODEL,
                         "%s is no reward model: its config.json names no class for sequence "
                         "classification",
                         folder)
                  : fail(ST_UNSUPPORTED,
                         "%s is a reward model, which scores texts and writes none; give it to a "
                         "run as reward.model",
                         folder);
}

// Takes the device, its backend and the memory that it has for each rank.
static void device_take(infer_core *c, const infer_options *o, const char **backend)
{
    c->device = o->device != NULL ? o->device : "cpu";
    const bool is_gpu = strcmp(c->device, device_cuda.name) == 0;
    const int64_t local = o->ranks != NULL ? comm_local_ranks(o->ranks) : 1;
    *backend = is_gpu ? "cuda" : o->backend != NULL ? o->backend : "cpu";
    c->ordinal = o->ordinal;
    c->driver = o->driver;
    c->graphs = !o->by_calls;
    c->memory_limit_bytes = o->memory_limit_bytes;
    if (c->memory_limit_bytes == 0) {
        c->memory_limit_bytes = assemble_memory_share(c->h, is_gpu, local);
    }
}

status infer_core_begin(infer_core *c, const host *h, arena *a, const char *folder,
                        const infer_options *o)
{
    const char *backend = NULL;
    c->h = h;
    c->a = c->run.a = a;
    c->threads = o->threads != 0 ? o->threads : kern_core_count();
    device_take(c, o, &backend);
    c->compute = o->compute;
    c->strict = o->strict;
    c->trace = o->trace;
    c->fresh = o->fresh;
    c->fresh_seed = o->fresh_seed;
    infer_ranks_begin(c, o);
    const kern_hint hint = {.threads = c->threads, .level = o->level};
    TRY(kern_context_create(a, backend, &hint, &c->kernels));
    c->workspace = (exec_workspace_context){.kernels = c->kernels, .strict = o->strict};
    if (folder != NULL) {
        TRY(model_spec_from_hf(h, a, folder, &c->spec));
        TRY(scores_check(c, folder, o->scores));
        TRY(infer_adapter_read(h, a, folder, o->adapter, &c->spec));
        return infer_adapters_begin(c, o);
    }
    ASSERT(o->fresh != NULL);
    c->spec = *o->fresh;
    return ST_OK;
}

status infer_core_context(infer_core *c, int64_t context)
{
    // Dynamic rotary positions scale with the length; other models end at their context.
    const bool stretches =
        c->spec.position == MODEL_POSITION_ROPE && c->spec.rope.kind == MODEL_ROPE_DYNAMIC;
    c->context = context;
    if (context >= 1 && (context <= c->spec.context || stretches)) return ST_OK;
    return fail(ST_CONFIG_RANGE,
                "the text would have %lld tokens with its continuation, the model's context is "
                "%lld",
                (long long)context, (long long)c->spec.context);
}

status infer_core_plan(infer_core *c, const infer_plan_wanted *wanted, plan **out)
{
    const model_options options = {.purpose = wanted->purpose,
                                   .compute = c->compute,
                                   .grad = DTYPE_F32,
                                   .seq = c->context,
                                   .page = c->pages > 0 ? EXEC_PAGE : 0,
                                   .pages = c->pages,
                                   .documents = wanted->documents,
                                   .losses = wanted->losses,
                                   .whole_vocabulary =
                                       c->spec.vocab % plan_mesh_size(&c->mesh, AXIS_TP) != 0};
    op_model *model = NULL, *own = NULL;
    TRY(model_build(c->a, &c->spec, &options, &model));
    TRY(infer_ranks_cut(c, model, &own));
    if (c->model == NULL) {
        c->model = c->places.whole = model;
        c->own = own;
    }
    const run_config *r = c->layout;
    const plan_request request = {
        .model = own,
        .mesh = c->mesh,
        .sequences = wanted->sequences,
        .micro_batch = wanted->micro_batch,
        .seq = wanted->seq,
        .cache_seq = c->context,
        .strict = c->strict,
        .shards = 1,
        .tp_shards = c->strict && r != NULL ? (int32_t)r->determinism.tp_shards : 1,
        .etp_shards = c->strict && r != NULL ? (int32_t)r->determinism.etp_shards : 1,
        .poison = poison_dead_bytes,
        .scratch_bytes = kern_scratch_bytes(c->kernels),
        .workspace = exec_workspace,
        .fuses = exec_fuses,
        .workspace_context = &c->workspace,
    };
    return plan_create(c->a, &request, &c->run, out);
}

static status exec_make(infer_core *c, const plan *const *plans, int64_t count)
{
    exec_config wanted = {
        .api = device_find(c->device),
        .device = {.h = c->h,
                   .run = &kern_device_kernels,
                   .kernels = c->kernels,
                   .ordinal = c->ordinal,
                   .driver = c->driver,
                   .trace = c->trace,
                   .trace_begin = 1,
                   .trace_end = INT64_MAX},
        .run = &c->run,
        .plans = plans,
        .plan_count = count,
        .memory_limit_bytes = c->memory_limit_bytes,
        .graphs = c->graphs,
    };
    if (wanted.api == NULL) return fail(ST_UNSUPPORTED, "there is no device %s", c->device);
    for (int64_t i = 0; i < count; i++) {
        TRY(assemble_plan_operations_check(plans[i], c->kernels, c->device));
    }
    if (c->ranks != NULL) {
        TRY(infer_ranks_fit(c, plans, count));
        TRY(infer_ranks_device(c, &wanted));
    }
    return exec_create(&wanted, &c->e);
}

// ---- weights ------------------------------------------------------------------------------------

typedef struct files_of {
    const safetensors *files;
    const infer_core *core;
} files_of;

// adapter_put() sets the adapter's weights.
static bool is_set_later(const infer_core *c, int64_t weight, float *values)
{
    const op_weight *w = &c->model->weights[weight];
    if (w->is_adapter) memset(values, 0, (size_t)(w->rows * w->columns) * sizeof(float));
    return w->is_adapter;
}

static status weight_from_files(void *context, int64_t weight, float *values)
{
    const files_of *f = context;
    if (is_set_later(f->core, weight, values)) return ST_OK;
    return model_weight_read(f->files, &f->core->spec, f->core->model, weight, values);
}

static status weight_fresh(void *context, int64_t weight, float *values)
{
    const infer_core *c = context;
    model_weight_init(c->model, weight, c->fresh_seed, values);
    return ST_OK;
}

ckpt_state infer_core_state(const infer_core *c, ckpt_part part)
{
    return (ckpt_state){.h = c->h,
                        .e = c->e,
                        .model = c->model,
                        .run = &c->run,
                        .places = c->ranks != NULL ? &c->places : NULL,
                        .part = part,
                        .rank = c->ranks != NULL ? comm_rank(c->ranks) : 0};
}

// Sets the weights of the base model; without an adapter these are all.
static status base_put(infer_core *c, const char *folder)
{
    const ckpt_state state = infer_core_state(c, CKPT_BASE);
    bool is_checkpoint = false;
    if (folder == NULL) return ckpt_weights_put(&state, weight_fresh, c);
    TRY(ckpt_folder_is(c->h, c->a, folder, &is_checkpoint));
    if (is_checkpoint) {
        ckpt_info facts;
        return ckpt_load(&state, c->a, folder, true, &facts);
    }
    safetensors *files = NULL;
    TRY(safetensors_open(c->h, folder, &files));
    status st = model_hf_check(c->a, files, &c->spec, c->model);
    files_of from_files = {.files = files, .core = c};
    if (st == ST_OK) st = ckpt_weights_put(&state, weight_from_files, &from_files);
    safetensors_close(files);
    return st;
}

// Sets the weights of an adapter from a folder of PEFT.
static status adapter_put(infer_core *c)
{
    const ckpt_state state = infer_core_state(c, CKPT_ADAPTER);
    model_adapter_source from;
    TRY(model_adapter_open(c->h, c->a, &c->spec, c->model, 0, &from));
    status st = ST_OK;
    for (int64_t w = 0; w < c->model->weight_count && st == ST_OK; w++) {
        const int64_t count = c->model->weights[w].rows * c->model->weights[w].columns;
        if (!c->model->weights[w].is_adapter) continue;
        float *values = malloc((size_t)count * sizeof(float));
        if (values == NULL) {
            st = fail(ST_NO_MEMORY, "no memory for %s", c->model->weights[w].name);
            break;
        }
        st = model_adapter_weight(&from, w, values);
        if (st == ST_OK) st = ckpt_weight_put(&state, w, values);
        free(values);
    }
    model_adapter_close(&from);
    return st;
}

// A checkpoint of a run with an adapter holds the adapter, and names its base model.
static status adapted_put(infer_core *c, const char *folder, const assemble_base *was)
{
    const ckpt_state state = infer_core_state(c, CKPT_ADAPTER);
    assemble_base now;
    ckpt_info facts;
    file_info info = {.kind = FILE_KIND_NONE};
    if (was->from != NULL) TRY(c->h->api->path_info(c->h, was->from, &info));
    if (was->from != NULL && info.kind == FILE_KIND_NONE) {
        return fail(ST_NOT_FOUND,
                    "%s holds an adapter, and its base model %s is not there; put it back, or "
                    "link its new place there",
                    folder, was->from);
    }
    TRY(assemble_base_describe(c->h, c->a, &c->spec, was->from, was->seed, &now));
    TRY(assemble_base_compare(folder, was, &now));
    c->fresh_seed = (uint64_t)was->seed;
    TRY(base_put(c, was->from));
    return ckpt_load(&state, c->a, folder, true, &facts);
}

static status weights_put(infer_core *c, const char *folder)
{
    bool is_checkpoint = false, has_base = false;
    assemble_base base;
    if (folder != NULL) TRY(ckpt_folder_is(c->h, c->a, folder, &is_checkpoint));
    if (is_checkpoint) TRY(assemble_base_read(c->h, c->a, folder, &base, &has_base));
    if (has_base) return adapted_put(c, folder, &base);
    TRY(base_put(c, folder));
    return c->spec.adapter.rank > 0 ? adapter_put(c) : ST_OK;
}

status infer_core_load(infer_core *c, const char *folder, const plan *const *plans, int64_t count)
{
    plan_table_place(&c->run);
    TRY(exec_make(c, plans, count));
    TRY(exec_constants_write(c->e, c->own));
    TRY(exec_step_reset(c->e, 1.0));
    TRY(weights_put(c, folder));
    return infer_adapters_load(c);
}

void infer_core_end(infer_core *c)
{
    exec_destroy(c->e);
    c->e = NULL;
    infer_ranks_end(c);
}

// ---- runs ---------------------------------------------------------------------------------------

status infer_core_run(infer_core *c, const plan *p, exec_input *input)
{
    input->host.step = ++c->steps;
    input->host.sequences = p->sequences;
    TRY(exec_begin(c->e, p, input));
    return exec_finish(c->e);
}

status infer_core_output(const infer_core *c, const plan *p, int output, void *data, int64_t bytes)
{
    return exec_read_transient(c->e, p, p->outputs[output], data, bytes);
}

status infer_core_token_check(const infer_core *c, int32_t id)
{
    if (id >= 0 && id < c->spec.vocab) return ST_OK;
    return fail(ST_DATA, "token %d is not below the model's vocabulary of %lld", id,
                (long long)c->spec.vocab);
}
