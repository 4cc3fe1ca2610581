// One sequence at a time: two plans, one cache.
//
//   prompt of 7, chunk 4     . 0 1 2 | 3 4 5 6        prefill; dots are padding, which has no place
//   then                                      7 8 9   decode, one token each
//
// The first chunk is padded in front, so the last row of every chunk is the text's last token and
// every chunk has the plan's one shape. Padding rows are computed and thrown away.
#include "infer/infer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_MAX = 256 };

struct infer {
    const host *h;
    arena *a;
    infer_options options;
    decoder_spec spec;
    exec_workspace_context workspace;
    op_model *prefill, *decode;
    plan_table run;
    plan *plans[2]; // prefill, decode
    const plan *last;
    exec *e;
    int32_t *text;     // the tokens taken in
    int64_t table_seq; // the length that the rotary table on the device is for
    // What a step is given.
    int32_t *ids, *positions;
    int32_t length, row;
    float params[8];
    int64_t draws, steps;
    uint64_t seed;
};

// ---- putting it together ------------------------------------------------------------------------

static status options_complete(infer *g)
{
    infer_options *o = &g->options;
    if (o->threads == 0) o->threads = kern_core_count();
    if (o->device == NULL) o->device = "cpu";
    if (o->backend == NULL) o->backend = "cpu";
    if (o->memory_limit_bytes == 0) o->memory_limit_bytes = host_memory_bytes(g->h);
    // Dynamic rotary positions stretch with the text; others end at the model's context.
    const bool stretches =
        g->spec.position == MODEL_POSITION_ROPE && g->spec.rope.kind == MODEL_ROPE_DYNAMIC;
    if (o->context < 1 || (o->context > g->spec.context && !stretches)) {
        return fail(ST_CONFIG_RANGE,
                    "the text would have %lld tokens with its continuation, the model's context is "
                    "%lld",
                    (long long)o->context, (long long)g->spec.context);
    }
    if (o->chunk == 0) o->chunk = CHUNK_MAX;
    o->chunk = min_i64(o->chunk, o->context);
    g->workspace = (exec_workspace_context){
        .backend = kern_backend_find(o->backend), .threads = o->threads, .strict = o->strict};
    if (g->workspace.backend == NULL) {
        return fail(ST_UNSUPPORTED, "there is no backend %s", o->backend);
    }
    return ST_OK;
}

static status plan_make(infer *g, op_purpose purpose, int64_t seq, op_model **model, plan **out)
{
    const model_options options = {.purpose = purpose,
                                   .compute = g->options.compute,
                                   .grad = DTYPE_F32,
                                   .seq = g->options.context};
    TRY(model_build(g->a, &g->spec, &options, model));
    const plan_request request = {
        .model = *model,
        .sequences = 1,
        .micro_batch = 1,
        .seq = seq,
        .cache_seq = g->options.context,
        .strict = g->options.strict,
        .shards = 1,
        .scratch_bytes = (int64_t)g->options.threads * KERN_SCRATCH_BYTES,
        .workspace = exec_workspace,
        .workspace_context = &g->workspace,
    };
    return plan_create(g->a, &request, &g->run, out);
}

static status exec_make(infer *g)
{
    const exec_config wanted = {
        .api = kern_device_find(g->options.device),
        .device = {.h = g->h,
                   .backend = g->workspace.backend,
                   .threads = g->options.threads,
                   .level = kern_level_of_machine()},
        .run = &g->run,
        .plans = (const plan *const *)g->plans,
        .plan_count = 2,
        .memory_limit_bytes = g->options.memory_limit_bytes,
    };
    if (wanted.api == NULL) return fail(ST_UNSUPPORTED, "there is no device %s", g->options.device);
    return exec_create(&wanted, &g->e);
}

static status constants_put(infer *g)
{
    for (int32_t i = 0; i < g->prefill->constant_count; i++) {
        const op_constant *c = &g->prefill->constants[i];
        char name[PLAN_NAME_BYTES] = "constant.";
        strncat(name, c->name, sizeof(name) - strlen(name) - 1);
        const int64_t row = plan_table_find(&g->run, name);
        if (row < 0) continue;
        TRY(exec_write(g->e, row, 0, c->data, c->rows * c->columns * (int64_t)sizeof(float)));
    }
    return ST_OK;
}

// A text of `seq` tokens may need another rotary table than the one on the device.
static status table_for(infer *g, int64_t seq)
{
    if (!model_rope_changes(&g->spec, g->table_seq, seq)) return ST_OK;
    const int64_t row = plan_table_find(&g->run, "constant.rope");
    ASSERT(row >= 0);
    arena *work = NULL;
    float *table = NULL;
    TRY(arena_create("rotary table", 0, &work));
    const int64_t rows = g->options.context;
    status st = model_rope_table(work, &g->spec, rows, seq, &table);
    if (st == ST_OK) {
        st = exec_write(g->e, row, 0, table, rows * g->spec.head_dim * (int64_t)sizeof(float));
    }
    arena_destroy(work);
    if (st == ST_OK) g->table_seq = seq;
    return st;
}

static status step_put(infer *g)
{
    step_block *block = calloc(1, sizeof(*block));
    if (block == NULL) return fail(ST_NO_MEMORY, "no memory for the step block");
    step_device_init(&block->device, 1.0);
    const status st =
        exec_write(g->e, plan_table_find(&g->run, "step"), 0, block, (int64_t)sizeof(*block));
    free(block);
    return st;
}

// ---- weights ------------------------------------------------------------------------------------

// One weight at a time, so the host holds the largest weight and no more.
static status weights_read(infer *g, const ckpt_state *state, const safetensors *files)
{
    const op_model *m = g->prefill;
    int64_t largest = 0;
    for (int64_t w = 0; w < m->weight_count; w++) {
        largest = max_i64(largest, m->weights[w].rows * m->weights[w].columns);
    }
    float *values = malloc((size_t)largest * sizeof(float));
    if (values == NULL) return fail(ST_NO_MEMORY, "no memory for the largest weight");
    status st = ST_OK;
    for (int64_t w = 0; w < m->weight_count && st == ST_OK; w++) {
        st = model_weight_read(files, &g->spec, m, w, values);
        if (st == ST_OK) st = ckpt_weight_put(state, w, values);
    }
    free(values);
    return st;
}

static status weights_put(infer *g, const char *folder)
{
    const ckpt_state state = {.h = g->h, .e = g->e, .model = g->prefill, .run = &g->run};
    char *manifest = NULL;
    file_info info;
    TRY(path_join(g->a, folder, "manifest.json", &manifest));
    TRY(g->h->api->path_info(g->h, manifest, &info));
    if (info.kind == FILE_KIND_REGULAR) {
        ckpt_info facts;
        return ckpt_load(&state, g->a, folder, true, &facts);
    }
    safetensors *files = NULL;
    TRY(safetensors_open(g->h, folder, &files));
    status st = model_hf_check(g->a, files, &g->spec, g->prefill);
    if (st == ST_OK) st = weights_read(g, &state, files);
    safetensors_close(files);
    return st;
}

static status open_parts(infer *g, const char *folder)
{
    TRY(model_spec_from_hf(g->h, g->a, folder, &g->spec));
    TRY(options_complete(g));
    TRY(plan_make(g, PURPOSE_PREFILL, g->options.chunk, &g->prefill, &g->plans[0]));
    TRY(plan_make(g, PURPOSE_DECODE, 1, &g->decode, &g->plans[1]));
    plan_table_place(&g->run);
    TRY(exec_make(g));
    TRY(constants_put(g));
    TRY(step_put(g));
    g->table_seq = g->options.context;
    TRY(arena_new(g->a, g->options.context, &g->text));
    TRY(arena_new(g->a, g->options.chunk, &g->ids));
    TRY(arena_new(g->a, g->options.chunk, &g->positions));
    return weights_put(g, folder);
}

status infer_open(const host *h, arena *a, const char *folder, const infer_options *options,
                  infer **out)
{
    infer *g = NULL;
    TRY(arena_new(a, 1, &g));
    g->h = h;
    g->a = g->run.a = a;
    g->options = *options;
    const status st = open_parts(g, folder);
    if (st != ST_OK) {
        infer_close(g);
        return st;
    }
    *out = g;
    return ST_OK;
}

void infer_close(infer *g)
{
    if (g == NULL) return;
    exec_destroy(g->e);
    g->e = NULL;
}

const decoder_spec *infer_spec(const infer *g)
{
    return &g->spec;
}

int64_t infer_arena_bytes(const infer *g)
{
    return exec_arena_bytes(g->e);
}

int64_t infer_length(const infer *g)
{
    return g->length;
}

// ---- tokens -------------------------------------------------------------------------------------

// Runs a plan on the last `seq` tokens: g->ids and g->positions hold them, g->length counts them.
static status run(infer *g, const plan *p)
{
    const int64_t row_bytes = p->seq * (int64_t)sizeof(int32_t);
    g->row = (int32_t)p->seq - 1;
    exec_input input = {.host = {.step = ++g->steps, .seed = g->seed, .sequences = 1},
                        .batch = {{"ids", g->ids, row_bytes},
                                  {"positions", g->positions, row_bytes},
                                  {"lengths", &g->length, (int64_t)sizeof(g->length)},
                                  {"rows", &g->row, (int64_t)sizeof(g->row)},
                                  {"params", g->params, (int64_t)sizeof(g->params)},
                                  {"draws", &g->draws, (int64_t)sizeof(g->draws)}},
                        .batch_count = 6};
    TRY(exec_begin(g->e, p, &input));
    TRY(exec_finish(g->e));
    g->last = p;
    return ST_OK;
}

// The boundary outputs of the head, by the names that lowering gives them.
static status output_read(const infer *g, int output, void *data, int64_t bytes)
{
    const op_model *m = g->last->model;
    const op_layer *head = &m->layers[m->layer_count - 1];
    const op_program *program = m->programs[head->program];
    char name[PLAN_NAME_BYTES];
    (void)snprintf(name, sizeof(name), "%s/%s", head->name,
                   program->tensors[program->outputs[output]].name);
    return exec_read_transient(g->e, g->last, name, data, bytes);
}

static status drawn(infer *g, int32_t *next)
{
    int32_t id = 0;
    TRY(output_read(g, 0, &id, (int64_t)sizeof(id)));
    if (id < 0 || id >= g->spec.vocab) {
        return fail(ST_NUMERICS, "the token drawn is %d of a vocabulary of %lld", id,
                    (long long)g->spec.vocab);
    }
    g->draws++;
    *next = id;
    return ST_OK;
}

static status token_check(const infer *g, int32_t id)
{
    if (id >= 0 && id < g->spec.vocab) return ST_OK;
    return fail(ST_DATA, "token %d is not below the model's vocabulary of %lld", id,
                (long long)g->spec.vocab);
}

static void sampling_set(infer *g, const infer_sampling *s)
{
    // The seed's bits as they are; a float's value would lose most of them.
    const uint32_t low = (uint32_t)s->seed, high = (uint32_t)(s->seed >> 32);
    g->params[0] = (float)s->temperature;
    g->params[1] = (float)s->top_k;
    g->params[2] = (float)s->top_p;
    g->params[3] = (float)s->min_p;
    memcpy(&g->params[4], &low, sizeof(low));
    memcpy(&g->params[5], &high, sizeof(high));
    g->seed = s->seed;
}

// Takes in g->text[0 .. count - 1] from its beginning, a chunk at a time.
static status prefill(infer *g, int64_t count)
{
    const int64_t chunk = g->plans[0]->seq;
    TRY(table_for(g, count));
    int64_t taken = count % chunk != 0 ? count % chunk - chunk : 0; // negative: padding in front
    for (; taken < count; taken += chunk) {
        for (int64_t i = 0; i < chunk; i++) {
            const int64_t at = taken + i;
            g->ids[i] = at < 0 ? 0 : g->text[at];
            g->positions[i] = at < 0 ? 0 : (int32_t)at;
        }
        g->length = (int32_t)(taken + chunk);
        TRY(run(g, g->plans[0]));
    }
    return ST_OK;
}

status infer_begin(infer *g, const infer_sampling *sampling, const int32_t *ids, int64_t count,
                   int32_t *next)
{
    if (count < 1) return fail(ST_DATA, "the prompt has no token");
    if (count > g->options.context) {
        return fail(ST_CONFIG_RANGE, "the prompt has %lld tokens, there is room for %lld",
                    (long long)count, (long long)g->options.context);
    }
    for (int64_t i = 0; i < count; i++) TRY(token_check(g, ids[i]));
    memcpy(g->text, ids, (size_t)count * sizeof(*ids));
    sampling_set(g, sampling);
    g->draws = 0;
    TRY(prefill(g, count));
    return drawn(g, next);
}

status infer_next(infer *g, int32_t id, int32_t *next)
{
    ASSERT(g->length > 0);
    TRY(token_check(g, id));
    if (g->length >= g->options.context) {
        return fail(ST_CONFIG_RANGE, "the text has %d tokens, there is room for no more",
                    g->length);
    }
    g->text[g->length] = id;
    if (model_rope_changes(&g->spec, g->table_seq, g->length + 1)) {
        // Keys in the cache were turned by another table: the text is taken in anew.
        TRY(prefill(g, g->length + 1));
        return drawn(g, next);
    }
    g->ids[0] = id;
    g->positions[0] = g->length;
    g->length++;
    TRY(run(g, g->plans[1]));
    return drawn(g, next);
}

status infer_logits(infer *g, float *out)
{
    ASSERT(g->last != NULL);
    return output_read(g, 1, out, g->spec.vocab * (int64_t)sizeof(float));
}
