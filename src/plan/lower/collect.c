// Pass 3 of lowering: the finished list of actions.
//
//   copy in | begin | micro-batch 0: forward of all layers, backward of all layers | 1 | ... |
//           norm of all gradients | decide | optimizer, weight by weight | read back
//
// The walk follows the visits of pass 1 in the order of the compute stream and adds the actions
// that pass 2 has bound to them. A list is cut at its communications (collect_nodes.c); between
// visits the walk adds sums of gradients, gathers of weights and transfers between stages, on
// streams of their own. It also records the waits between actions.
#include "plan/lower/collect_internal.h"

#include <string.h>

// ---- actions and waits --------------------------------------------------------------------------

status collect_action(collector *c, const plan_action *action, int32_t *index)
{
    plan *p = c->in->p;
    TRY(arena_grow(p->a, (void **)&p->actions, &p->action_capacity, p->action_count + 1,
                   (int64_t)sizeof(plan_action)));
    TRY(arena_grow(c->in->a, (void **)&c->out->ticks, &c->out->tick_capacity, p->action_count + 1,
                   (int64_t)sizeof(int32_t)));
    c->out->ticks[p->action_count] = action->kind == ACTION_COMMUNICATE ? 0 : action->ops_count;
    if (index != NULL) *index = (int32_t)p->action_count;
    p->actions[p->action_count++] = *action;
    return ST_OK;
}

void collect_tick(collector *c)
{
    const int64_t last = c->in->p->action_count - 1;
    ASSERT(last >= 0 && c->in->p->actions[last].kind == ACTION_COMMUNICATE);
    c->out->ticks[last] = 1;
}

status collect_wait(collector *c, int32_t action, int32_t on)
{
    TRY(arena_grow(c->in->a, (void **)&c->pairs, &c->pair_capacity, c->pair_count + 1,
                   (int64_t)sizeof(wait_pair)));
    c->pairs[c->pair_count++] = (wait_pair){action, on};
    return ST_OK;
}

status collect_wait_next(collector *c, int32_t on)
{
    TRY(arena_grow(c->in->a, (void **)&c->next_waits, &c->next_wait_capacity,
                   c->next_wait_count + 1, (int64_t)sizeof(int32_t)));
    c->next_waits[c->next_wait_count++] = on;
    return ST_OK;
}

status collect_waits_take(collector *c)
{
    for (int64_t i = 0; i < c->next_wait_count; i++) {
        TRY(collect_wait(c, c->last_compute, c->next_waits[i]));
    }
    c->next_wait_count = 0;
    return ST_OK;
}

// Groups the waits by action.
static status waits_store(collector *c)
{
    plan *p = c->in->p;
    for (int64_t i = 0; i < c->pair_count; i++) p->actions[c->pairs[i].action].waits_count++;
    int32_t at = 0;
    for (int64_t i = 0; i < p->action_count; i++) {
        plan_action *a = &p->actions[i];
        a->waits_begin = a->waits_count > 0 ? at : 0;
        at += a->waits_count;
        a->waits_count = 0;
    }
    TRY(arena_new(p->run->a, c->pair_count + 1, &p->waits));
    p->wait_count = c->pair_count;
    for (int64_t i = 0; i < c->pair_count; i++) {
        plan_action *a = &p->actions[c->pairs[i].action];
        p->waits[a->waits_begin + a->waits_count++] = c->pairs[i].on;
    }
    return ST_OK;
}

// ---- communications -----------------------------------------------------------------------------

status collect_item(collector *c, plan_comm *comm, const plan_comm_item *item)
{
    plan *p = c->in->p;
    TRY(arena_grow(p->a, (void **)&p->items, &p->item_capacity, p->item_count + 1,
                   (int64_t)sizeof(*item)));
    if (comm->items_count == 0) comm->items_begin = (int32_t)p->item_count;
    p->items[p->item_count++] = *item;
    comm->items_count++;
    return ST_OK;
}

status collect_comm_again(collector *c, int32_t comm, int32_t after, int32_t *action)
{
    const plan *p = c->in->p;
    const int32_t group = p->comms[comm].group;
    const bool is_inline = p->run->groups[group].use == GROUP_INLINE;
    const plan_action a = {.kind = ACTION_COMMUNICATE,
                           .stream = is_inline ? STREAM_COMPUTE : STREAM_GROUPS + group,
                           .microbatch = c->microbatch,
                           .layer = -1,
                           .binding = -1,
                           .comm = comm};
    TRY(collect_action(c, &a, action));
    return after >= 0 ? collect_wait(c, *action, after) : ST_OK;
}

status collect_comm(collector *c, const plan_comm *comm, const comm_note *note, int32_t after,
                    int32_t *action)
{
    plan *p = c->in->p;
    TRY(arena_grow(p->a, (void **)&p->comms, &p->comm_capacity, p->comm_count + 1,
                   (int64_t)sizeof(*comm)));
    TRY(arena_grow(c->in->a, (void **)&c->out->notes, &c->out->note_capacity, p->comm_count + 1,
                   (int64_t)sizeof(*note)));
    c->out->notes[p->comm_count] = *note;
    p->comms[p->comm_count] = *comm;
    p->comms[p->comm_count++].name = "";
    return collect_comm_again(c, (int32_t)(p->comm_count - 1), after, action);
}

static const char *word(const char *part)
{
    return part != NULL ? part : "";
}

status plan_collect_names(const lower_input *in, const collected *c)
{
    enum { TEXT_BYTES = 60 }; // for the name of a layer or a weight
    for (int64_t i = 0; i < in->p->comm_count; i++) {
        const comm_note *n = &c->notes[i];
        char *name = NULL;
        if (n->from >= 0) {
            TRY(arena_format(in->p->run->a, &name, "%s, stage %d to %d, micro-batch %d",
                             word(n->text), (int)n->from, (int)n->to, (int)n->microbatch));
        } else {
            TRY(arena_format(in->p->run->a, &name, "%s%.*s%s%s", word(n->before), (int)TEXT_BYTES,
                             word(n->text), word(n->between), word(n->second)));
        }
        in->p->comms[i].name = name;
    }
    return ST_OK;
}

// ---- the walk -----------------------------------------------------------------------------------

static status actions_add(collector *c, int32_t begin, int32_t count)
{
    for (int32_t i = begin; i < begin + count; i++) TRY(collect_nodes(c, &c->b->actions[i]));
    return ST_OK;
}

static status visit_add(collector *c, const layer_visit *visit, const bound_visit *made)
{
    TRY(collect_visit_begin(c));
    if (visit->makes_gradients) TRY(collect_unsharded_begin(c, visit->layer));
    if (visit->forward && c->first_forward[visit->layer] < 0) {
        c->first_forward[visit->layer] = (int32_t)c->in->p->action_count;
    }
    TRY(actions_add(c, made->actions_begin, made->actions_count));
    if (visit->makes_gradients) TRY(collect_unsharded_sum(c, visit->layer, made));
    TRY(collect_visit_end(c));
    return visit->completes ? collect_gradients(c, visit->layer) : ST_OK;
}

// Adds a visit of a micro-batch that only other ranks have: this rank takes part in their gathers.
static status remote_visit_add(collector *c, const layer_visit *visit)
{
    const int64_t before = c->in->p->action_count;
    c->microbatch = -1;
    TRY(collect_visit_begin(c));
    if (c->in->p->action_count > before) collect_tick(c); // it takes one time step
    TRY(collect_visit_end(c));
    return visit->completes ? collect_gradients(c, visit->layer) : ST_OK;
}

static status visits_add(collector *c)
{
    const expanded *x = c->x;
    int32_t first = 0; // first action of the chunk's work
    for (int64_t i = 0; i < x->visit_count; i++) {
        const layer_visit *visit = &x->visits[i];
        c->out->visit_action[i] = (int32_t)c->in->p->action_count;
        if (visit->microbatch < 0) {
            TRY(remote_visit_add(c, visit));
            continue;
        }
        c->microbatch = visit->microbatch;
        if (visit->opens) TRY(collect_chunk_begin(c, visit));
        if (visit->opens) first = (int32_t)c->in->p->action_count;
        TRY(visit_add(c, visit, &c->b->visits[i]));
        if (visit->closes) TRY(collect_chunk_end(c, visit, first));
    }
    c->out->visit_action[x->visit_count] = (int32_t)c->in->p->action_count;
    return collect_steps_join(c);
}

static status step_add(collector *c)
{
    const plan_action copy = {
        .kind = ACTION_COPY, .stream = STREAM_COPY, .microbatch = -1, .layer = -1, .binding = -1};
    int32_t copy_at = -1, back_at = -1;
    plan_action back = copy;
    TRY(collect_action(c, &copy, &copy_at));
    c->microbatch = -1;
    const int32_t begin_at = (int32_t)c->in->p->action_count;
    TRY(collect_nodes(c, &c->b->actions[c->b->begin]));
    TRY(visits_add(c));
    c->microbatch = -1;
    int32_t decide_at = -1;
    if (c->in->r->optimizer != NULL) {
        TRY(collect_update(c, &decide_at));
    } else {
        // Plans that generate have no sums, and ranks of dp run them as often as each one needs.
        if (c->in->m->purpose == PURPOSE_EVALUATE) TRY(collect_step_sums(c));
        decide_at = c->last_compute;
    }
    back.kind = ACTION_READBACK;
    TRY(collect_action(c, &back, &back_at));
    TRY(collect_wait(c, copy_at, -1 - c->last_compute)); // the step before has read its batch
    TRY(collect_wait(c, begin_at, copy_at));
    TRY(collect_wait(c, begin_at, -1 - back_at)); // its results have been read
    TRY(collect_wait(c, back_at, decide_at));
    for (int64_t i = 0; i < c->next_wait_count;
         i++) { // without an update no later action takes these waits
        TRY(collect_wait(c, back_at, c->next_waits[i]));
    }
    return waits_store(c);
}

// Marks the first action that reads packed weights: it packs them.
static status fills_set(const lower_input *in)
{
    plan *p = in->p;
    bool *filled = NULL; // [transient tensor]
    if (in->r->packed_bytes == NULL) return ST_OK;
    TRY(arena_new(in->a, p->tensor_count + 1, &filled));
    for (int64_t i = 0; i < p->action_count; i++) {
        plan_action *a = &p->actions[i];
        const int32_t *rows =
            a->kind == ACTION_COMPUTE ? p->bindings[a->binding].packed[a->list] : NULL;
        for (int32_t k = 0; rows != NULL && k < a->ops_count; k++) {
            const int32_t row = rows[a->ops_begin + k];
            if (row < 0 || filled[row]) continue;
            filled[row] = true;
            a->fills = true;
        }
    }
    return ST_OK;
}

status plan_collect(const lower_input *in, const expanded *x, const bound *b, collected *out)
{
    collector c = {.in = in, .x = x, .b = b, .out = out, .microbatch = -1, .last_compute = -1};
    *out = (collected){.ticks = NULL};
    TRY(arena_new(in->a, x->visit_count + 1, &out->visit_action));
    TRY(arena_new(in->a, in->m->layer_count, &c.first_forward));
    memset(c.first_forward, -1, (size_t)in->m->layer_count * sizeof(int32_t));
    memset(c.last_sum, -1, sizeof(c.last_sum));
    TRY(collect_links_begin(&c));
    TRY(collect_zero_begin(&c));
    TRY(collect_codec_begin(&c));
    TRY(collect_shared_begin(&c));
    TRY(step_add(&c));
    return fills_set(in);
}
