// Pass 2 of lowering: which tensors each run of a layer works on.
//
// Every run of a list becomes an action. Its binding is that of the layer in the slot of the
// micro-batch, with the accumulators of the shard. A weight list is cut where nodes that start an
// accumulator are next to nodes that continue one. Merges of accumulators, the norm of gradients
// and updates are actions on programs of their own (bind_uses.c, bind_update.c). Pass 3 adds the
// communications.
#include "plan/lower/bind_internal.h"

#include <string.h>

status bind_action(binder *b, const plan_action *action, int32_t *index)
{
    bound *out = b->out;
    TRY(arena_grow(b->in->a, (void **)&out->actions, &out->action_capacity, out->action_count + 1,
                   (int64_t)sizeof(plan_action)));
    if (index != NULL) *index = (int32_t)out->action_count;
    out->actions[out->action_count++] = *action;
    return ST_OK;
}

// ---- runs ---------------------------------------------------------------------------------------

// The accumulator that a node adds to; -1: the node adds to none.
static int32_t accumulator_of(const plan_binding *b, const op_node *node)
{
    for (int k = 0; k < OP_MAX_OUT; k++) {
        const tensor_id t = node->out[k];
        if (t == TENSOR_NONE || b->program->tensors[t].role != ROLE_WEIGHT_GRAD) continue;
        return b->tensor[t];
    }
    return -1;
}

static bool node_starts(const binder *b, const plan_binding *binding, const op_node *node)
{
    const int32_t row = accumulator_of(binding, node);
    return row >= 0 && !b->touched[row];
}

static void node_started(binder *b, const plan_binding *binding, const op_node *node)
{
    for (int k = 0; k < OP_MAX_OUT; k++) {
        const tensor_id t = node->out[k];
        if (t == TENSOR_NONE || binding->program->tensors[t].role != ROLE_WEIGHT_GRAD) continue;
        b->touched[binding->tensor[t]] = true;
    }
}

static bool is_of_run(const op_node *node, int32_t which)
{
    return which == NODES_ALL || op_kind_of(node->code)->finds_rows == (which == NODES_EXPERT);
}

// Binds a weight list as alternating ranges of nodes that start accumulators and nodes that
// continue them.
static status weight_list_bind(binder *b, plan_action action, int32_t which)
{
    const plan_binding binding = b->in->p->bindings[action.binding];
    const op_node *nodes = binding.program->lists[OP_BACKWARD_WEIGHT].nodes;
    const int32_t n = action.ops_count;
    for (int32_t i = 0; i < n;) {
        const bool starts = node_starts(b, &binding, &nodes[i]);
        int32_t end = i;
        if (!is_of_run(&nodes[i], which)) {
            i++;
            continue;
        }
        while (end < n && is_of_run(&nodes[end], which) &&
               node_starts(b, &binding, &nodes[end]) == starts) {
            node_started(b, &binding, &nodes[end]);
            end++;
        }
        action.ops_begin = i;
        action.ops_count = end - i;
        action.accumulate = !starts;
        TRY(bind_action(b, &action, NULL));
        i = end;
    }
    return ST_OK;
}

static status merge_bind(binder *b, const layer_visit *visit, const layer_run *run)
{
    const layer_tensors *tensors = &b->out->layers[visit->layer];
    for (int64_t u = 0; u < tensors->use_count; u++) {
        weight_use *use = &b->out->uses[tensors->use_begin + u];
        const bool is_expert = lower_kind_of(b->in, use->weight) == KIND_EXPERT;
        if (run->nodes != NODES_ALL && is_expert != (run->nodes == NODES_EXPERT)) continue;
        const int32_t source = use->buffer[run->source];
        TRY(bind_tree_add(b, use, use->buffer[run->buffer], source, visit->microbatch, NULL));
        b->touched[source] = false;
    }
    return ST_OK;
}

static status run_bind(binder *b, const layer_visit *visit, const layer_run *run)
{
    if (run->source >= 0) return merge_bind(b, visit, run);
    const int32_t slot = b->out->slots.slot_of[visit->chunk][visit->microbatch];
    const op_program *program = b->in->m->programs[b->in->m->layers[visit->layer].program];
    const plan_action action = {.kind = ACTION_COMPUTE,
                                .microbatch = visit->microbatch,
                                .layer = visit->layer,
                                .binding =
                                    b->out->layers[visit->layer].slots[slot].binding[run->buffer],
                                .list = run->list,
                                .ops_count = (int32_t)program->lists[run->list].count,
                                .sequence_begin = run->sequence_begin,
                                .sequence_count = run->sequence_count,
                                .position_begin = run->position_begin,
                                .position_count = run->position_count,
                                .rows_of = run->rows_of};
    return run->list == OP_BACKWARD_WEIGHT ? weight_list_bind(b, action, run->nodes)
                                           : bind_action(b, &action, NULL);
}

// ---- gradients that pass ------------------------------------------------------------------------

// Adds the sum of the micro-batches so far to this rank's own rows of the new whole gradient, so
// the next reduction includes it.
static status sum_bind(binder *b, const layer_visit *visit, weight_use *use, int32_t *action)
{
    const int32_t w = use->weight, whole = use->buffer[0];
    const plan_rows rows = lower_rows(b->in, w);
    int32_t mine = -1;
    *action = -1;
    b->touched[whole] = false; // every micro-batch starts it again
    if (!b->summed[w] || rows.count == 0) return ST_OK;
    if (use->adds > 0) {
        mine = b->out->adds[use->adds - 1].target;
    } else {
        TRY(lower_part(b->in, whole, rows, &mine));
    }
    return bind_tree_add(b, use, mine, b->out->rows_of[w], visit->microbatch, action);
}

static status sums_bind(binder *b, const layer_visit *visit, bound_visit *out)
{
    const layer_tensors *tensors = &b->out->layers[visit->layer];
    bound *all = b->out;
    out->sums_begin = (int32_t)all->sum_count;
    for (int64_t u = 0; u < tensors->use_count; u++) {
        weight_use *use = &all->uses[tensors->use_begin + u];
        int32_t action = -1;
        if (bind_is_unsharded(all, use->weight)) TRY(sum_bind(b, visit, use, &action));
        TRY(arena_grow(b->in->a, (void **)&all->sums, &all->sum_capacity, all->sum_count + 1,
                       (int64_t)sizeof(int32_t)));
        all->sums[all->sum_count++] = action;
    }
    for (int64_t u = 0; u < tensors->use_count; u++) {
        b->summed[all->uses[tensors->use_begin + u].weight] = true;
    }
    return ST_OK;
}

static status visits_bind(binder *b)
{
    const expanded *x = b->x;
    TRY(arena_new(b->in->a, x->visit_count + 1, &b->out->visits));
    for (int64_t i = 0; i < x->visit_count; i++) {
        const layer_visit *visit = &x->visits[i];
        bound_visit *out = &b->out->visits[i];
        out->actions_begin = (int32_t)b->out->action_count;
        if (visit->microbatch < 0) continue;
        if (visit->forward && visit->opens)
            TRY(bind_boundaries(b, visit->chunk, visit->microbatch));
        for (int32_t k = 0; k < visit->runs_count; k++) {
            TRY(run_bind(b, visit, &x->runs[visit->runs_begin + k]));
        }
        out->actions_count = (int32_t)b->out->action_count - out->actions_begin;
        if (visit->makes_gradients && lower_scatters_gradients(b->in->r)) {
            TRY(sums_bind(b, visit, out));
        }
    }
    return ST_OK;
}

// ---- the whole ----------------------------------------------------------------------------------

static status keep(binder *b, int32_t ref)
{
    bound *out = b->out;
    TRY(arena_grow(b->in->a, (void **)&out->kept, &out->kept_capacity, out->kept_count + 1,
                   (int64_t)sizeof(*out->kept)));
    out->kept[out->kept_count++] = ref;
    return ST_OK;
}

// Keeps the outputs of the model's last layer for the first micro-batch; the next micro-batch
// overwrites them.
static status outputs_keep(binder *b)
{
    const lower_input *in = b->in;
    const int32_t top = in->m->layer_count - 1, chunk = b->x->chunk_of[top];
    const int32_t slot = chunk >= 0 ? b->out->slots.slot_of[chunk][0] : -1;
    for (int k = 0; k < OP_MAX_BOUNDARY; k++) in->p->outputs[k] = -1;
    if (slot < 0) return ST_OK; // another rank has it, or the pipeline's other direction
    const plan_binding *binding = &in->p->bindings[b->out->layers[top].slots[slot].binding[0]];
    for (int k = 0; k < binding->program->output_count; k++) {
        const tensor_id t = op_owner(binding->program, binding->program->outputs[k]).id;
        in->p->outputs[k] = binding->tensor[t];
        if (in->p->own_sequences == in->r->micro_batch) TRY(keep(b, binding->tensor[t]));
    }
    return ST_OK;
}

static status gradients_keep(binder *b)
{
    const lower_input *in = b->in;
    for (int32_t w = 0; w < in->m->weight_count && in->r->keep_gradients; w++) {
        if (b->out->holds[w] && !in->m->weights[w].frozen) TRY(keep(b, b->out->update.final[w]));
    }
    return ST_OK;
}

status plan_bind(const lower_input *in, const expanded *x, bound *out)
{
    binder b = {.in = in, .x = x, .out = out};
    *out = (bound){.begin = -1, .update = {.decide = -1}};
    TRY(plan_bind_slots(in, x, &out->slots));
    TRY(bind_tensors(&b));
    TRY(bind_buffers(&b));
    TRY(arena_new(in->a, in->p->tensor_count + 1, &b.touched));
    TRY(arena_new(in->a, in->m->weight_count + 1, &b.summed));
    TRY(bind_step_node(&b, OP_STEP_BEGIN, &out->begin));
    TRY(visits_bind(&b));
    TRY(outputs_keep(&b));
    if (in->r->optimizer == NULL) return ST_OK;
    TRY(bind_update(&b));
    return gradients_keep(&b);
}
