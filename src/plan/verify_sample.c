// See verify_sample.h.
#include "plan/verify_sample.h"

#include <string.h>

enum { QUEUE_ITEMS = 128 };

static int64_t sample_workspace(void *context, const op_program *program, const op_node *node,
                                const extent_binding *bound, int64_t seq, int64_t cache_seq)
{
    (void)context, (void)program, (void)seq, (void)cache_seq;
    return node->code == OP_MATMUL_DW ? 512 + bound->value[EXTENT_TOKENS] * 16 : 0;
}

static int64_t sample_panels(void *context, const op_program *program, const op_node *node,
                             const extent_binding *bound)
{
    (void)context, (void)program, (void)bound;
    return node->code == OP_MATMUL || node->code == OP_MATMUL_DX ? 200 : 0;
}

static int64_t sample_codec_bytes(void *context, int64_t count, int32_t ranks, int64_t piece)
{
    (void)context, (void)ranks;
    return (piece > 0 ? piece : count) * 2;
}

static void microbatches_count(const sample_settings *s, plan_request *r)
{
    plan_mesh at = r->mesh;
    const int32_t dp = plan_mesh_size(&at, AXIS_DP);
    int64_t first = 0, own = 0;
    for (at.at[AXIS_DP] = 0; at.at[AXIS_DP] < dp; at.at[AXIS_DP]++) {
        plan_own_sequences(&at, s->strict, r->shards, s->sequences, &first, &own);
        const int64_t count = s->micro_batch == 0 ? 1 : own / s->micro_batch;
        const int64_t fewest = at.at[AXIS_DP] == 0 ? count : r->fewest_microbatches;
        r->fewest_microbatches = min_i64(count, fewest);
        r->most_microbatches = max_i64(count, r->most_microbatches);
    }
    plan_own_sequences(&r->mesh, s->strict, r->shards, s->sequences, &first, &own);
    if (s->micro_batch == 0) r->micro_batch = own;
}

status sample_make(arena *a, const sample_settings *s, sample_job *out)
{
    const plan_codec codec = {.name = "half",
                              .reals = 5,
                              .feedback_bytes = sample_codec_bytes,
                              .work_bytes = sample_codec_bytes,
                              .stream_bytes = sample_codec_bytes};
    const plan_sample_config config = {.layers = s->layers > 0 ? s->layers : 2,
                                       .dim = s->dim > 0 ? s->dim : 32,
                                       .ffn = 48,
                                       .heads = 4,
                                       .vocab = 67,
                                       .tied = !s->untied,
                                       .recompute = s->recompute,
                                       .purpose = s->alone ? PURPOSE_EVALUATE : PURPOSE_TRAIN};
    int32_t stages = 0;
    while (stages < 8 && s->stages[stages] > 0) stages++;
    *out = (sample_job){.a = a, .mesh = {.size = {[AXIS_DP] = s->dp, [AXIS_PP] = s->pp}}};
    out->mesh.zero_group = s->zero_group;
    out->ranks = (int32_t)plan_mesh_ranks(&out->mesh);
    TRY(arena_new(a, out->ranks, &out->tables));
    TRY(arena_new(a, out->ranks, &out->plans));
    for (int32_t r = 0; r < out->ranks; r++) {
        op_model *m = NULL;
        plan_request request = {
            .mesh = plan_mesh_from(&out->mesh, r),
            .sequences = s->sequences,
            .micro_batch = s->micro_batch,
            .seq = 8,
            .pipeline = {.schedule = s->pp > 1 ? plan_schedule_find(s->schedule) : NULL,
                         .chunks = s->chunks,
                         .rows = stages > 0 ? s->stages : NULL,
                         .rows_count = stages},
            .zero = s->zero,
            .strict = s->strict,
            .shards = s->shards > 0 ? s->shards : 8,
            .codec = s->compressed ? &codec : NULL,
            .scratch_bytes = 4096,
            .workspace = sample_workspace,
            .panels = s->compressed ? NULL : sample_panels};
        TRY(plan_sample_model(a, &config, &m));
        request.model = m;
        if (!s->alone) {
            TRY(plan_sample_rows_optimizer(a, m, &request.mesh, s->zero, &request.optimizer));
        }
        microbatches_count(s, &request);
        out->tables[r].a = a;
        TRY(plan_create(a, &request, &out->tables[r], &out->plans[r]));
        plan_table_place(&out->tables[r]);
    }
    return ST_OK;
}

status sample_verify(const sample_job *j, plan_verified *out)
{
    return plan_verify(j->a, &j->mesh, (const plan *const *)j->plans, QUEUE_ITEMS, out);
}

plan_action *sample_action(plan *p, int32_t index)
{
    ASSERT(index >= 0 && index < p->action_count);
    return &p->actions[index];
}

int32_t sample_find_comm(const plan *p, plan_comm_op op, const char *name, int n)
{
    for (int32_t i = 0; i < p->action_count; i++) {
        if (p->actions[i].kind != ACTION_COMMUNICATE) continue;
        const plan_comm *c = &p->comms[p->actions[i].comm];
        if (c->op == op && strncmp(c->name, name, strlen(name)) == 0 && n-- == 0) return i;
    }
    ASSERT(false);
    return -1;
}

int32_t sample_find_list(const plan *p, const char *layer, op_list list, int32_t microbatch, int n)
{
    for (int32_t i = 0; i < p->action_count; i++) {
        const plan_action *a = &p->actions[i];
        if (a->kind != ACTION_COMPUTE || a->layer < 0 || a->list != (int32_t)list) continue;
        if (a->microbatch != microbatch) continue;
        if (strcmp(p->model->layers[a->layer].name, layer) == 0 && n-- == 0) return i;
    }
    ASSERT(false);
    return -1;
}

int32_t sample_find_node(const plan *p, op_code code, int n)
{
    for (int32_t i = 0; i < p->action_count; i++) {
        const plan_action *a = &p->actions[i];
        if (a->binding < 0 || a->ops_count == 0) continue;
        const op_program *program = p->bindings[a->binding].program;
        if (program->lists[a->list].nodes[a->ops_begin].code == code && n-- == 0) return i;
    }
    ASSERT(false);
    return -1;
}

int32_t sample_find_kind(const plan *p, action_kind kind)
{
    for (int32_t i = 0; i < p->action_count; i++) {
        if (p->actions[i].kind == kind) return i;
    }
    ASSERT(false);
    return -1;
}

plan_tensor *sample_tensor(plan *p, const char *name)
{
    for (int64_t i = 0; i < p->tensor_count; i++) {
        if (strcmp(p->tensors[i].name, name) == 0) return &p->tensors[i];
    }
    for (int64_t i = 0; i < p->run->count; i++) {
        if (strcmp(p->run->tensors[i].name, name) == 0) return &p->run->tensors[i];
    }
    ASSERT(false);
    return NULL;
}

plan_comm *sample_comm(plan *p, int32_t action)
{
    return &p->comms[sample_action(p, action)->comm];
}

plan_comm_item *sample_item(plan *p, int32_t action, int32_t item)
{
    return &p->items[sample_comm(p, action)->items_begin + item];
}

// ---- small changes ------------------------------------------------------------------------------

void sample_leave_out(plan *p, int32_t index)
{
    plan_action *a = sample_action(p, index);
    *a = (plan_action){.kind = ACTION_COMPUTE,
                       .lane = a->lane,
                       .microbatch = -1,
                       .layer = -1,
                       .waits_begin = a->waits_begin,
                       .waits_count = a->waits_count};
}

void sample_forget_waits(plan *p, int32_t index)
{
    ASSERT(sample_action(p, index)->waits_count > 0);
    sample_action(p, index)->waits_count = 0;
}

void sample_wait_for(plan *p, int32_t index, int32_t on)
{
    plan_action *a = sample_action(p, index);
    int32_t *waits = NULL;
    ASSERT(arena_new(p->run->a, p->wait_count + a->waits_count + 1, &waits) == ST_OK);
    memcpy(waits, p->waits, (size_t)p->wait_count * sizeof(*waits));
    for (int32_t k = 0; k < a->waits_count; k++) {
        waits[p->wait_count + k] = p->waits[a->waits_begin + k];
    }
    waits[p->wait_count + a->waits_count] = on;
    a->waits_begin = (int32_t)p->wait_count;
    p->wait_count += ++a->waits_count;
    p->waits = waits;
}

int32_t *sample_own_map(plan *p, int32_t index)
{
    plan_binding *b = &p->bindings[sample_action(p, index)->binding];
    int32_t *map = NULL;
    ASSERT(arena_new(p->run->a, b->program->tensor_count, &map) == ST_OK);
    memcpy(map, b->tensor, (size_t)b->program->tensor_count * sizeof(*map));
    b->tensor = map;
    return map;
}

void sample_swap_comms(plan *p, int32_t one, int32_t other)
{
    const int32_t comm = sample_action(p, one)->comm;
    sample_action(p, one)->comm = sample_action(p, other)->comm;
    sample_action(p, other)->comm = comm;
}
