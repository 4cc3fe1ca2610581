// Pass 3 of lowering, the end of a step: sums of the step block over ranks, gradients of weights
// that two stages hold, and the update.
//
//   sums of gradients | uses added | holders summed | norm | sums of the step block | decide |
//   optimizer | gathers
#include "plan/lower/collect_internal.h"

#include <stddef.h>

static status word_push(collector *c, plan_comm *comm, int64_t offset, int64_t words)
{
    const int32_t step = c->b->step_ref;
    const int64_t at = (int64_t)offsetof(step_block, device) + offset;
    const plan_comm_item item = {
        .in = step, .out = step, .in_offset = at, .out_offset = at, .count = words};
    return collect_item(c, comm, &item);
}

// Adds a sum or another collective that the decision waits for.
static status step_sum_push(collector *c, const plan_comm *comm, const char *name, int32_t after)
{
    const comm_note note = {.before = name, .from = -1};
    int32_t action = -1;
    TRY(collect_comm(c, comm, &note, after, &action));
    return collect_wait_next(c, action);
}

status collect_step_sums(collector *c)
{
    enum { SUM_WORDS = (int64_t)(sizeof(exact_sum) / sizeof(int64_t)) };
    const lower_input *in = c->in;
    if (plan_mesh_ranks(&in->r->mesh) == 1) return ST_OK;
    const int32_t last = c->last_compute;
    const plan_group all = plan_group_of(&in->r->mesh, MESH_ALL, GROUP_OVERLAPPED);
    TRY(collect_codec_losses(c));
    plan_comm sums = {.op = COLLECTIVE_ALL_REDUCE, .reduction = REDUCTION_SUM, .type = DTYPE_I64};
    TRY(plan_table_group(in->p->run, &all, &sums.group));
    TRY(word_push(c, &sums, (int64_t)offsetof(step_device, tokens), 1));
    TRY(word_push(c, &sums, (int64_t)offsetof(step_device, loss_sum), SUM_WORDS));
    const bool norms = lower_norm_is_summed(in);
    const int64_t loads = plan_load_words(in->p);
    if (loads > 0) TRY(word_push(c, &sums, (int64_t)sizeof(step_device), loads));
    if (norms) TRY(word_push(c, &sums, (int64_t)offsetof(step_device, norm_sum), SUM_WORDS));
    TRY(step_sum_push(c, &sums, "sums of the step", last));
    if (!norms) return ST_OK;
    // The value -1 (none) is above all others as an unsigned number.
    plan_comm bad = {.op = COLLECTIVE_ALL_REDUCE,
                     .reduction = REDUCTION_MIN,
                     .group = sums.group,
                     .type = DTYPE_U64};
    TRY(word_push(c, &bad, (int64_t)offsetof(step_device, bad_tensor), 1));
    return step_sum_push(c, &bad, "lowest bad tensor", last);
}

// Sums the gradients of weights that two stages hold, on the rows that this rank updates.
static status holders_reduce(collector *c)
{
    const lower_input *in = c->in;
    const comm_note note = {.before = "weights of two stages", .from = -1};
    plan_comm comm = {.op = COLLECTIVE_ALL_REDUCE, .reduction = REDUCTION_SUM};
    const int32_t last = c->last_compute;
    int32_t action = -1;
    for (int32_t w = 0; w < in->m->weight_count; w++) {
        const int32_t final = c->b->update.final[w];
        int32_t holders[PLAN_MAX_HOLDERS];
        if (!c->b->holds[w] || in->m->weights[w].frozen) continue;
        if (plan_pipeline_holders(&in->pipe, w, holders) < 2) continue;
        if (c->x->two_ways && !bind_is_unsharded(c->b, w))
            continue; // their sum is complete already
        const plan_group pair = plan_group_pair(&in->r->mesh, holders[0], holders[1], 0);
        const plan_tensor *t = plan_tensor_at(in->p, final);
        if (t->dims[0] == 0) continue; // on both stages, because dp cuts the rows
        const plan_comm_item item = {
            .in = final, .out = final, .count = t->dims[0] * (t->ndim > 1 ? t->dims[1] : 1)};
        TRY(plan_table_group(in->p->run, &pair, &comm.group));
        comm.type = t->type;
        TRY(collect_item(c, &comm, &item));
    }
    if (comm.items_count == 0) return ST_OK;
    TRY(collect_comm(c, &comm, &note, last, &action));
    TRY(collect_sums_wait(c, action));
    return collect_wait_next(c, action);
}

static status actions_add(collector *c, int32_t begin, int32_t count)
{
    for (int32_t i = begin; i < begin + count; i++) TRY(collect_nodes(c, &c->b->actions[i]));
    return ST_OK;
}

status collect_update(collector *c, int32_t *decide)
{
    const bound_update *update = &c->b->update;
    for (int32_t i = c->in->m->layer_count - 1; i >= 0 && c->x->two_ways; i--) {
        if (c->x->chunk_of[i] >= 0) TRY(collect_gradients(c, i));
    }
    TRY(collect_unsharded_end(c));
    for (int i = 0; i < KIND_COUNT * SUM_STREAMS; i++) {
        const int32_t sum = c->last_sum[i / SUM_STREAMS][i % SUM_STREAMS];
        if (sum >= 0) TRY(collect_wait_next(c, sum));
    }
    TRY(collect_terms_end(c));
    TRY(actions_add(c, update->adds_begin, update->adds_count));
    TRY(holders_reduce(c));
    TRY(actions_add(c, update->norms_begin, update->norms_count));
    TRY(collect_step_sums(c));
    *decide = (int32_t)c->in->p->action_count;
    TRY(actions_add(c, update->decide, 1));
    for (int32_t w = 0; w < c->in->m->weight_count; w++) {
        const op_weight *weight = &c->in->m->weights[w];
        if (!c->b->holds[w] || (weight->frozen && !weight->balanced)) continue;
        if (update->optimize[w] >= 0) TRY(actions_add(c, update->optimize[w], 1));
        TRY(collect_weight_gather(c, w, c->last_compute));
    }
    return collect_forward_waits(c);
}
