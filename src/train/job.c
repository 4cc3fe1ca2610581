// A job on a device: uploads constants, loads weights, clears optimizer state.
#include "train/job.h"

#include "assemble/base.h"

#include <stdlib.h>
#include <string.h>

// Optimizer state starts at zero: in all floating-point types zero is zero bytes.
static status state_clear(train_job *job)
{
    const plan_table *run = &job->plans->run;
    for (int64_t i = 0; i < run->count; i++) {
        if (run->tensors[i].role == ROLE_STATE) TRY(exec_zero(job->e, i));
    }
    return ST_OK;
}

// Gathers pieces for a checkpoint: the first rank receives the pieces of the others.
static status state_give(void *ranks, int rank, int owner, void *data, int64_t bytes)
{
    const op_collective op = rank == owner ? COLLECTIVE_SEND : COLLECTIVE_RECEIVE;
    return comm_pass(ranks, op, rank == owner ? 0 : owner, data, bytes, "piece of the state",
                     __func__);
}

// Brings a piece from one rank to another.
static status state_pass(void *ranks, int from, int to, void *data, int64_t bytes)
{
    const bool sends = comm_group_rank(ranks) == from;
    return comm_pass(ranks, sends ? COLLECTIVE_SEND : COLLECTIVE_RECEIVE, sends ? to : from, data,
                     bytes, "piece for another rank", __func__);
}

// Broadcasts the pieces of each rank to all ranks.
static status state_share(void *ranks, int owner, void *data, int64_t bytes)
{
    return comm_pass(ranks, COLLECTIVE_BROADCAST, owner, data, bytes, "state of the run", __func__);
}

// The memory belongs to the caller, who may have several jobs in it.
static status memory_given(void *context, int64_t bytes, void **out)
{
    const train_job *job = context;
    ASSERT(bytes <= job->plans->arena_bytes);
    *out = job->plans->memory;
    return ST_OK;
}

static void memory_left(void *context, void *memory)
{
    const train_job *job = context;
    ASSERT(memory == job->plans->memory);
}

// Finds the groups of a job among those of another one with an equal layout, which outlives it.
static status groups_borrow(train_job *job, arena *a)
{
    const train_job *lender = job->ranks.lender;
    const plan_table *run = &job->plans->run, *of = &lender->plans->run;
    TRY(arena_new(a, run->group_count + 1, &job->groups));
    for (int64_t i = 0; i < run->group_count; i++) {
        char name[PLAN_GROUP_NAME_BYTES];
        int64_t k = 0;
        while (k < of->group_count && plan_group_compare(&run->groups[i], &of->groups[k]) != 0) k++;
        if (k < of->group_count) {
            job->groups[i] = lender->groups[k];
            continue;
        }
        plan_group_name(&run->groups[i], name);
        return fail(ST_UNSUPPORTED,
                    "adapter.files: an adapter communicates along %s, and the first one does not; "
                    "name it first in adapter.files",
                    name);
    }
    return ST_OK;
}

static status groups_find(train_job *job, arena *a, const assemble_options *options)
{
    if (job->ranks.all == NULL) return ST_OK;
    if (job->ranks.lender != NULL) return groups_borrow(job, a);
    return exec_groups_make(a, job->ranks.all, &options->mesh, &job->plans->run, &job->groups);
}

static double first_scale(const run_config *r)
{
    return r->train.precision == RUN_FP16 ? r->precision.loss_scale.initial : 1.0;
}

status train_job_create(const host *h, arena *a, assemble_plans *plans,
                        const assemble_options *options, const train_ranks *ranks,
                        trace_ring *trace, train_job *out)
{
    const run_config *r = plans->config;
    memset(out, 0, sizeof(*out));
    out->h = h;
    out->plans = plans;
    TRY(kern_level_check(run_config_level(r)));
    if (ranks != NULL) out->ranks = *ranks;
    TRY(groups_find(out, a, options));
    exec_config wanted = {
        .api = device_find(options->device),
        .device = {.h = h,
                   .run = &kern_device_kernels,
                   .kernels = plans->kernels,
                   .seed = (uint64_t)r->train.seed,
                   .trace = trace,
                   .trace_begin = r->trace.steps.begin,
                   .trace_end = r->trace.steps.end},
        .run = &plans->run,
        .plans = plans->all,
        .plan_count = plans->count,
        .memory_limit_bytes = r->memory.limit,
        .groups = out->groups,
        .graphs = r->kernels.graphs,
        .codec = plans->codec,
    };
    wanted.codec.settings.vectors = comm_vectors_of_machine();
    if (wanted.api == NULL) return fail(ST_UNSUPPORTED, "there is no device %s", options->device);
    out->shared = (exec_shared){.ranks = out->ranks.all,
                                .kept = out->ranks.kept,
                                .kept_is_fresh = out->ranks.kept_is_fresh};
    if (out->ranks.all != NULL) exec_memory_share(&out->shared, &wanted);
    if (plans->memory != NULL) {
        wanted.device.memory_take = memory_given;
        wanted.device.memory_give = memory_left;
        wanted.device.memory_context = out;
        wanted.device.memory_is_used = true;
    }
    TRY(exec_create(&wanted, &out->e));
    out->has_state = out->shared.is_kept && out->ranks.keeps_state;
    out->state = (ckpt_state){.h = h,
                              .e = out->e,
                              .model = plans->whole,
                              .optimizer = plans->optimizer,
                              .run = &plans->run,
                              .places = &plans->places,
                              .derived_weights = assemble_derives_weights(r),
                              .part = assemble_saved_part(plans->spec),
                              .rank = (int)plan_mesh_rank(&options->mesh),
                              .share = state_share,
                              .give = state_give,
                              .pass = state_pass,
                              .ranks = out->ranks.hosts};
    status st = ST_OK;
    TRY_TO(destroy_job, exec_constants_write(out->e, plans->model));
    if (!out->has_state) TRY_TO(destroy_job, train_job_clear(out));
    return ST_OK;
destroy_job:
    train_job_destroy(out);
    return st;
}

status train_job_clear(train_job *job)
{
    job->has_state = false;
    TRY(state_clear(job));
    return exec_step_reset(job->e, first_scale(job->plans->config));
}

status train_job_scale_reset(train_job *job)
{
    const int64_t row = plan_table_find(&job->plans->run, "step");
    step_block *block = calloc(2, sizeof(*block));
    if (block == NULL) return fail(ST_NO_MEMORY, "no memory for the step block");
    status st = exec_read(job->e, row, 0, &block[0], (int64_t)sizeof(*block));
    if (st == ST_OK) {
        step_device_init(&block[1].device, first_scale(job->plans->config));
        block->device.loss_scale = block[1].device.loss_scale;
        block->device.scale_good_steps = block[1].device.scale_good_steps;
        block->device.scale_hysteresis_left = block[1].device.scale_hysteresis_left;
        st = exec_write(job->e, row, 0, &block[0], (int64_t)sizeof(*block));
    }
    free(block);
    return st;
}

char *train_job_memory(const train_job *job)
{
    return job->shared.memory != NULL ? comm_memory_at(job->shared.memory) : NULL;
}

void train_job_destroy(train_job *job)
{
    exec_destroy(job->e);
    job->e = NULL;
    const bool has_own = job->groups != NULL && job->ranks.lender == NULL;
    if (has_own) exec_groups_destroy(job->groups, &job->plans->run);
    job->groups = NULL;
}

// Sets initial values; a task fills one piece of a chunk. The bits depend only on names and
// elements. A chunk stays in the last-level cache until it is on the device.
enum { INIT_PIECE = 1 << 15, INIT_CHUNK = 1 << 21 };
typedef struct init_task {
    const op_model *m;
    int64_t weight, begin, count;
    uint64_t seed;
    float *values; // values of element `begin` and those after it
} init_task;

static void init_piece(void *context, int64_t index, int thread)
{
    const init_task *t = context;
    (void)thread;
    const int64_t at = index * INIT_PIECE;
    model_weight_init_range(t->m, t->weight, t->seed, t->begin + at,
                            min_i64(INIT_PIECE, t->count - at), t->values + at);
}

// Initial values of a weight, all at once.
static status whole_init(const train_job *job, const ckpt_state *state, int64_t w)
{
    const op_model *m = job->plans->whole;
    const int64_t count = m->weights[w].rows * m->weights[w].columns;
    if (!ckpt_weight_is_here(state, w, 0, count)) return ST_OK;
    float *values = malloc((size_t)count * sizeof(float));
    if (values == NULL) return fail(ST_NO_MEMORY, "no memory for %s", m->weights[w].name);
    model_weight_init(m, w, (uint64_t)job->plans->config->train.seed, values);
    const status st = ckpt_weight_put(state, w, values);
    free(values);
    return st;
}

static status weights_init(train_job *job, const kern_context *kernels, float *values)
{
    const op_model *m = job->plans->whole;
    const uint64_t seed = (uint64_t)job->plans->config->train.seed;
    for (int64_t w = 0; w < m->weight_count; w++) {
        const int64_t all = m->weights[w].rows * m->weights[w].columns;
        if (m->weights[w].is_adapter) continue;
        if (m->weights[w].quant != QUANT_NONE) {
            TRY(whole_init(job, &job->state, w)); // it is stored by whole rows
            continue;
        }
        for (int64_t begin = 0; begin < all; begin += INIT_CHUNK) {
            const int64_t count = min_i64(INIT_CHUNK, all - begin);
            if (!ckpt_weight_is_here(&job->state, w, begin, count)) continue;
            init_task task = {m, w, begin, count, seed, values};
            kern_parallel_in(kernels, (count + INIT_PIECE - 1) / INIT_PIECE, init_piece, &task);
            TRY(ckpt_weight_put_range(&job->state, w, begin, count, values));
        }
    }
    return ST_OK;
}

static status weights_from_seed(train_job *job)
{
    float *values = malloc(INIT_CHUNK * sizeof(float));
    if (values == NULL) return fail(ST_NO_MEMORY, "no memory for initial values");
    kern_context *kernels = NULL;
    status st = kern_context_open(job->plans->kernels, 0, &kernels);
    if (st == ST_OK) {
        kern_context_lead(kernels);
        st = weights_init(job, kernels, values);
        kern_context_close(kernels);
    }
    free(values);
    return st;
}

typedef struct files_of {
    const safetensors *files;
    const assemble_plans *plans;
} files_of;

static status weight_from_files(void *context, int64_t weight, float *values)
{
    const files_of *f = context;
    const op_weight *w = &f->plans->whole->weights[weight];
    if (w->is_adapter || w->is_history) { // train_job_adapter() sets the first
        memset(values, 0, (size_t)(w->rows * w->columns) * sizeof(float));
        return ST_OK;
    }
    if (model_score_is_new(f->plans->spec, f->plans->whole, weight) &&
        safetensors_find(f->files, "score.weight") == NULL) {
        model_weight_init(f->plans->whole, weight, (uint64_t)f->plans->config->train.seed, values);
        return ST_OK;
    }
    return model_weight_read(f->files, f->plans->spec, f->plans->whole, weight, values);
}

static bool is_lengths(const op_model *m, int64_t weight)
{
    return strstr(m->weights[weight].name, ".lora_magnitude_vector") != NULL;
}

// Initial lengths of rows are those of the base model, as are weights that are trained whole; an
// adapter in files has its own.
static status adapter_values(const train_job *job, const model_adapter_source *from,
                             const assemble_base_values *base, int64_t weight, float *values)
{
    const op_model *m = job->plans->whole;
    const bool is_whole = strstr(m->weights[weight].name, ".lora_") == NULL;
    if (from->file != NULL) return model_adapter_weight(from, weight, values);
    if (is_lengths(m, weight)) return assemble_base_lengths(base, m, weight, values);
    return is_whole && !model_score_is_new(from->spec, m, weight)
               ? assemble_base_weight(base, m, weight, values)
               : model_adapter_weight(from, weight, values);
}

// Stores the adapter's weights, after those of the base model.
static status adapter_put(train_job *job, const model_adapter_source *from,
                          const assemble_base_values *base)
{
    const op_model *m = from->m;
    int64_t most = 0;
    for (int64_t w = 0; w < m->weight_count; w++) {
        if (m->weights[w].is_adapter) {
            most = max_i64(most, m->weights[w].rows * m->weights[w].columns);
        }
    }
    float *values = malloc((size_t)max_i64(most, 1) * sizeof(float));
    status st = values == NULL ? fail(ST_NO_MEMORY, "no memory for the adapter's values") : ST_OK;
    for (int64_t w = 0; w < m->weight_count && st == ST_OK; w++) {
        const int64_t count = m->weights[w].rows * m->weights[w].columns;
        if (!m->weights[w].is_adapter || !ckpt_weight_is_here(&job->state, w, 0, count)) continue;
        st = adapter_values(job, from, base, w, values);
        if (st == ST_OK) st = ckpt_weight_put(&job->state, w, values);
    }
    free(values);
    return st;
}

status train_job_adapter_off(train_job *job, arena *a, const char *from)
{
    const assemble_plans *plans = job->plans;
    const op_model *m = plans->whole;
    assemble_base_values base;
    TRY(assemble_base_open(job->h, a, plans->spec, from, (uint64_t)plans->config->train.seed,
                           &base));
    status st = ST_OK;
    for (int64_t w = 0; w < m->weight_count && st == ST_OK; w++) {
        const int64_t count = m->weights[w].rows * m->weights[w].columns;
        if (!m->weights[w].is_adapter || !ckpt_weight_is_here(&job->state, w, 0, count)) continue;
        float *values = calloc((size_t)count, sizeof(float));
        if (values == NULL) st = fail(ST_NO_MEMORY, "no memory for %s", m->weights[w].name);
        if (st == ST_OK && is_lengths(m, w)) st = assemble_base_lengths(&base, m, w, values);
        if (st == ST_OK) st = ckpt_weight_put(&job->state, w, values);
        free(values);
    }
    assemble_base_close(&base);
    return st;
}

status train_job_adapter(train_job *job, arena *a)
{
    const assemble_plans *plans = job->plans;
    model_adapter_source from;
    TRY(model_adapter_open(job->h, a, plans->spec, plans->whole,
                           (uint64_t)plans->config->train.seed, &from));
    assemble_base_values base;
    status st = assemble_base_open(job->h, a, plans->spec, plans->config->model.from,
                                   (uint64_t)plans->config->train.seed, &base);
    if (st == ST_OK) st = adapter_put(job, &from, &base);
    assemble_base_close(&base);
    model_adapter_close(&from);
    return st;
}

status train_job_base(train_job *job, arena *a)
{
    return train_job_weights_of(job, a, job->plans->config->model.from);
}

// A checkpoint of a language model has no head of a reward model, which begins with initial values.
static status score_init(const train_job *job, ckpt_state *state)
{
    const op_model *m = job->plans->whole;
    for (int64_t w = 0; w < m->weight_count; w++) {
        if (!model_score_is_new(job->plans->spec, m, w)) continue;
        state->may_lack = m->weights[w].name;
        return whole_init(job, state, w);
    }
    return ST_OK;
}

// Histories of factors in 8 bits belong to a run, not to the model that it begins with.
static status histories_init(train_job *job)
{
    const op_model *m = job->plans->whole;
    for (int64_t w = 0; w < m->weight_count; w++) {
        if (m->weights[w].is_history) TRY(whole_init(job, &job->state, w));
    }
    return ST_OK;
}

status train_job_weights_of(train_job *job, arena *a, const char *from)
{
    if (from == NULL) return weights_from_seed(job);
    bool is_checkpoint = false; // from a run, or imported
    TRY(ckpt_folder_is(job->h, a, from, &is_checkpoint));
    if (is_checkpoint) {
        ckpt_info facts;
        ckpt_state base = job->state;
        base.part = CKPT_BASE;
        TRY(score_init(job, &base));
        TRY(histories_init(job));
        return ckpt_load(&base, a, from, true, &facts);
    }
    safetensors *files = NULL;
    TRY(safetensors_open(job->h, from, &files));
    status st = model_hf_check(a, files, job->plans->spec, job->plans->whole);
    files_of from_files = {.files = files, .plans = job->plans};
    if (st == ST_OK) st = ckpt_weights_put(&job->state, weight_from_files, &from_files);
    safetensors_close(files);
    return st;
}

status train_job_weights(train_job *job, arena *a)
{
    TRY(train_job_base(job, a));
    return train_job_has_base(job) ? train_job_adapter(job, a) : ST_OK;
}

status train_job_numerics(const train_job *job, const assemble_options *options, arena *a,
                          char **out)
{
    return arena_format(a, out, "%s %s %s", options->device, options->backend,
                        exec_facts(job->e).level);
}

step_settings train_step_settings(const run_config *r)
{
    return (step_settings){
        .clip = r->optimizer.clip,
        .nan = (nan_policy)r->policy.nan.mode,
        .spike = (spike_policy)r->policy.spike.mode,
        .spike_threshold = r->policy.spike.threshold,
        .spike_warmup = r->policy.spike.warmup,
        .loss_scaling = r->train.precision == RUN_FP16,
        .scale_window = r->precision.loss_scale.window,
        .scale_hysteresis = r->precision.loss_scale.hysteresis,
        .scale_floor = r->precision.loss_scale.floor,
    };
}
