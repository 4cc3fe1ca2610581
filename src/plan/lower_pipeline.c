// Lowering, pipelines: from a schedule's coarse actions to forward and backward of layers, with what
// travels between stages.
//
// A micro-batch in flight has a *slot* of each chunk that it is in: tensors of its own for everything
// between forward and backward. Chunks whose stages follow each other on one rank share their slots, so
// that nothing needs to be handed over. What a link reads or writes has bytes of its own through the whole
// step, for links go on beside the products: a receive waits until the slot's last micro-batch is done,
// what overwrites a tensor that is sent waits for the send.
//
// Links are in order: a stage receives in the order in which its neighbour sends, which follows from the
// neighbour's list. Each receive stands in the list before the first action that needs it, or one that
// comes after it on its link; so the list, done one action after the other, is legal too.
#include "plan/lower.h"

#include <stdio.h>
#include <string.h>

// ---- lists --------------------------------------------------------------------------------------

static status action_add(arena *a, schedule_list *list, schedule_kind kind, int32_t chunk,
                         int32_t microbatch)
{
    TRY(arena_grow(a, (void **)&list->actions, &list->capacity, list->count + 1,
                   (int64_t)sizeof(schedule_action)));
    list->actions[list->count++] = (schedule_action){
        .kind = kind, .chunk = chunk, .microbatch = microbatch, .chunk_b = -1, .microbatch_b = -1};
    return ST_OK;
}

// Without backward: as many micro-batches as there are ranks through one chunk, then through the next. Of
// two directions the first will do.
static status forward_list(const lowering *l, schedule_list *out)
{
    const schedule_request *r = &l->pipe.shape;
    const bool two = l->pipe.schedule->shape == SHAPE_TWO;
    for (int32_t first = 0; first < r->microbatches; first += r->stages) {
        const int32_t end =
            first + r->stages < r->microbatches ? first + r->stages : r->microbatches;
        for (int32_t c = 0; c < (two ? 1 : r->chunks); c++) {
            for (int32_t m = first; m < end; m++) {
                TRY(action_add(l->a, out, SCHEDULE_FORWARD, c, m));
            }
        }
    }
    return ST_OK;
}

static status list_of(const lowering *l, int32_t pp, schedule_list *out)
{
    const plan_pipeline *p = &l->pipe;
    if (p->schedule != NULL && l->r->optimizer == NULL) return forward_list(l, out);
    if (p->schedule != NULL) return plan_schedule_emit(p->schedule, &p->shape, pp, l->a, out);
    for (int32_t m = 0; m < p->shape.microbatches; m++) {
        TRY(action_add(l->a, out, SCHEDULE_FORWARD, 0, m));
        if (l->r->optimizer != NULL) TRY(action_add(l->a, out, SCHEDULE_BACKWARD, 0, m));
    }
    return ST_OK;
}

static bool has_forward(const schedule_action *a)
{
    return a->kind == SCHEDULE_FORWARD || a->kind == SCHEDULE_BOTH;
}

// The micro-batch whose gradient of the input it makes: chunk and number. False: it makes none.
static bool input_half(const schedule_action *a, int32_t *chunk, int32_t *microbatch)
{
    if (a->kind == SCHEDULE_FORWARD || a->kind == SCHEDULE_BACKWARD_WEIGHT) return false;
    *chunk = a->kind == SCHEDULE_BOTH ? a->chunk_b : a->chunk;
    *microbatch = a->kind == SCHEDULE_BOTH ? a->microbatch_b : a->microbatch;
    return true;
}

static bool weight_half(const schedule_action *a, int32_t *chunk, int32_t *microbatch)
{
    if (a->kind == SCHEDULE_FORWARD || a->kind == SCHEDULE_BACKWARD_INPUT) return false;
    *chunk = a->kind == SCHEDULE_BOTH ? a->chunk_b : a->chunk;
    *microbatch = a->kind == SCHEDULE_BOTH ? a->microbatch_b : a->microbatch;
    return true;
}

// ---- chunks, slots, links -----------------------------------------------------------------------

static int32_t stage_at(const lowering *l, int32_t pp, int32_t chunk)
{
    if (l->pipe.schedule == NULL) return 0;
    return plan_schedule_stage(l->pipe.schedule, &l->pipe.shape, pp, chunk);
}

// Who has the stage after (step 1) or before (-1) a chunk of rank pp; false: there is none.
static bool neighbour(const lowering *l, int32_t pp, int32_t chunk, int32_t step, int32_t *rank,
                      int32_t *its_chunk)
{
    const plan_pipeline *p = &l->pipe;
    const int32_t stage = stage_at(l, pp, chunk) + step;
    if (p->schedule == NULL || stage < 0 || stage >= p->depth) return false;
    plan_schedule_holder(p->schedule, &p->shape, stage, plan_schedule_direction(p->schedule, chunk),
                         rank, its_chunk);
    return true;
}

static status link_group(lowering *l, int32_t from, int32_t to, group_use use, int32_t *row)
{
    const plan_group g = plan_group_stages(from, to, use);
    return plan_table_group(l->p->run, &g, row);
}

static status chunk_make(lowering *l, int32_t c)
{
    chunk_state *chunk = &l->chunks[c];
    const int32_t me = l->r->mesh.at[AXIS_PP];
    int32_t other = 0, its = 0;
    *chunk = (chunk_state){.stage = stage_at(l, me, c), .pool = c, .group = {-1, -1, -1, -1}};
    chunk->first_layer = l->pipe.first_layer[chunk->stage];
    chunk->end_layer = l->pipe.first_layer[chunk->stage + 1];
    if (neighbour(l, me, c, 1, &other, &its) && other != me) {
        TRY(link_group(l, me, other, GROUP_LINK_FORWARD, &chunk->group[BORDER_OUT]));
        if (l->r->optimizer != NULL) {
            TRY(link_group(l, other, me, GROUP_LINK_BACKWARD, &chunk->group[BORDER_D_OUT]));
        }
    }
    if (neighbour(l, me, c, -1, &other, &its) && other != me) {
        TRY(link_group(l, other, me, GROUP_LINK_FORWARD, &chunk->group[BORDER_IN]));
        if (l->r->optimizer != NULL) {
            TRY(link_group(l, me, other, GROUP_LINK_BACKWARD, &chunk->group[BORDER_D_IN]));
        }
    } else if (neighbour(l, me, c, -1, &other, &its)) {
        ASSERT(its < c); // its pool is known
        chunk->pool = l->chunks[its].pool;
    }
    TRY(arena_new(l->a, l->pipe.shape.microbatches, &chunk->slot_of));
    memset(chunk->slot_of, -1, (size_t)l->pipe.shape.microbatches * sizeof(int32_t));
    const int64_t most = (int64_t)l->pipe.shape.microbatches * l->pipe.shape.chunks;
    TRY(arena_new(l->a, most, &chunk->uses_slot));
    return ST_OK;
}

// A free slot that the chunk has used before; else a new one.
static int32_t slot_free(const chunk_state *c, const int32_t *open, int32_t count)
{
    for (int32_t slot = 0; slot < count; slot++) {
        if (open[slot] == 0 && c->uses_slot[slot]) return slot;
    }
    return count;
}

// Each micro-batch takes a slot that is free, from its first forward in a pool to its last action there. A pool has
// numbers of its own, as many as it has in flight: what links read and write keeps its bytes through the step for
// each number that a chunk uses, so a number that goes from pool to pool would be kept for each of them. (With numbers
// for all pools together 8 stages in 5 chunks kept 196 of a rank's borders, with their own 61.) All else lies where it
// has room while it lives.
static status slots_assign(lowering *l)
{
    const int32_t n = l->pipe.shape.microbatches;
    int32_t *open = NULL; // [slot] chunks of its pool that have still to finish with it; 0: free
    TRY(arena_new(l->a, (int64_t)l->chunk_count * n, &open));
    for (int64_t i = 0; i < l->list.count; i++) {
        const schedule_action *a = &l->list.actions[i];
        int32_t chunk = -1, microbatch = -1;
        if (has_forward(a)) {
            chunk_state *c = &l->chunks[a->chunk];
            int32_t slot = -1, members = 0;
            for (int32_t k = 0; k < l->chunk_count; k++) {
                if (l->chunks[k].pool != c->pool) continue;
                members++;
                if (l->chunks[k].slot_of[a->microbatch] >= 0) {
                    slot = l->chunks[k].slot_of[a->microbatch];
                }
            }
            if (slot < 0) {
                slot = slot_free(c, open, l->slot_count);
                ASSERT(slot <
                       n * l->chunk_count); // as many as there are micro-batches in all chunks
                open[slot] = members;
            }
            c->slot_of[a->microbatch] = slot;
            c->uses_slot[slot] = true;
            if (slot + 1 > l->slot_count) l->slot_count = slot + 1;
            if (l->r->optimizer == NULL) open[slot]--;
        }
        if (!weight_half(a, &chunk, &microbatch)) continue;
        const chunk_state *c = &l->chunks[chunk];
        ASSERT(c->slot_of[microbatch] >= 0);
        open[c->slot_of[microbatch]]--;
    }
    for (int32_t c = 0; c < l->chunk_count; c++) {
        TRY(arena_new(l->a, l->slot_count, &l->chunks[c].slots));
        for (int32_t s = 0; s < l->slot_count; s++) {
            chunk_slot *slot = &l->chunks[c].slots[s];
            memset(slot, -1, sizeof(*slot));
            slot->is_busy = slot->was_done = false;
        }
    }
    return ST_OK;
}

static link_state *link_of(lowering *l, int32_t group, border_kind kind)
{
    for (int32_t i = 0; i < l->link_count; i++) {
        if (l->links[i].group == group) return &l->links[i];
    }
    ASSERT(l->link_count < LOWER_MAX_LINKS);
    link_state *link = &l->links[l->link_count++];
    *link = (link_state){.group = group, .kind = kind};
    return link;
}

static status message_add(lowering *l, link_state *link, int32_t chunk, int32_t microbatch)
{
    TRY(arena_grow(l->a, (void **)&link->messages, &link->capacity, link->count + 1,
                   (int64_t)sizeof(link_message)));
    link->messages[link->count++] = (link_message){chunk, microbatch};
    return ST_OK;
}

// What rank `from` sends to this one, in its order.
static status messages_from(lowering *l, int32_t from)
{
    const int32_t me = l->r->mesh.at[AXIS_PP];
    schedule_list list = {0};
    TRY(list_of(l, from, &list));
    for (int64_t i = 0; i < list.count; i++) {
        const schedule_action *a = &list.actions[i];
        int32_t chunk = -1, microbatch = -1, to = -1, its = -1;
        if (has_forward(a) && neighbour(l, from, a->chunk, 1, &to, &its) && to == me) {
            link_state *link = link_of(l, l->chunks[its].group[BORDER_IN], BORDER_IN);
            TRY(message_add(l, link, its, a->microbatch));
        }
        if (input_half(a, &chunk, &microbatch) && neighbour(l, from, chunk, -1, &to, &its) &&
            to == me) {
            link_state *link = link_of(l, l->chunks[its].group[BORDER_D_OUT], BORDER_D_OUT);
            TRY(message_add(l, link, its, microbatch));
        }
    }
    return ST_OK;
}

status lower_chunks(lowering *l)
{
    const int32_t me = l->r->mesh.at[AXIS_PP];
    l->chunk_count = l->pipe.shape.chunks;
    TRY(list_of(l, me, &l->list));
    TRY(arena_new(l->a, l->chunk_count, &l->chunks));
    for (int32_t c = 0; c < l->chunk_count; c++) TRY(chunk_make(l, c));
    TRY(slots_assign(l));
    for (int32_t pp = 0; pp < l->pipe.shape.stages; pp++) {
        bool sends = false;
        for (int32_t c = 0; c < l->chunk_count && pp != me; c++) {
            int32_t rank = -1, its = -1;
            sends = sends || (neighbour(l, me, c, 1, &rank, &its) && rank == pp);
            sends = sends || (neighbour(l, me, c, -1, &rank, &its) && rank == pp);
        }
        if (sends) TRY(messages_from(l, pp));
    }
    return ST_OK;
}

// ---- what links read and write ------------------------------------------------------------------

// The plan's tensors that cross a chunk's border in a slot: as many as the layer's program has there.
static int border_refs(const lowering *l, const chunk_state *c, int32_t slot, border_kind kind,
                       int32_t refs[OP_MAX_BOUNDARY])
{
    const bool below = kind == BORDER_IN || kind == BORDER_D_IN;
    const int32_t row = below ? c->first_layer : c->end_layer - 1;
    const op_program *program = l->m->programs[l->m->layers[row].program];
    const tensor_id *ids = kind == BORDER_IN      ? program->inputs
                           : kind == BORDER_D_IN  ? program->d_inputs
                           : kind == BORDER_D_OUT ? program->d_outputs
                                                  : program->outputs;
    const int count = below ? program->input_count : program->output_count;
    int found = 0;
    for (int k = 0; k < count; k++) {
        if (ids[k] == TENSOR_NONE) continue;
        tensor_id owner = ids[k];
        while (program->tensors[owner].view_of != TENSOR_NONE) {
            owner = program->tensors[owner].view_of;
        }
        refs[found++] = l->layers[row].slots[slot].tensor[owner];
    }
    return found;
}

static status border_open(lowering *l, const chunk_state *c, int32_t slot, border_kind kind)
{
    int32_t refs[OP_MAX_BOUNDARY];
    const int n = border_refs(l, c, slot, kind, refs);
    for (int k = 0; k < n; k++) {
        l->is_border[refs[k]] = true;
        TRY(lower_touch(l, refs[k]));
    }
    return ST_OK;
}

status lower_borders(lowering *l)
{
    TRY(arena_new(l->a, l->p->tensor_count + 1, &l->is_border));
    l->is_border_capacity = l->p->tensor_count;
    for (int32_t c = 0; c < l->chunk_count; c++) {
        const chunk_state *chunk = &l->chunks[c];
        for (int kind = 0; kind < BORDER_COUNT; kind++) {
            for (int32_t s = 0; s < l->slot_count && chunk->group[kind] >= 0; s++) {
                if (chunk->uses_slot[s]) TRY(border_open(l, chunk, s, (border_kind)kind));
            }
        }
    }
    return ST_OK;
}

status lower_borders_end(lowering *l)
{
    l->microbatch = -1;
    for (int64_t i = 0; i < l->is_border_capacity; i++) {
        if (l->is_border[i]) TRY(lower_touch(l, (int32_t)i));
    }
    return ST_OK;
}

// ---- messages -----------------------------------------------------------------------------------

static status message_push(lowering *l, int32_t chunk, int32_t microbatch, border_kind kind,
                           int32_t after, int32_t *action)
{
    const chunk_state *c = &l->chunks[chunk];
    const bool sends = kind == BORDER_OUT || kind == BORDER_D_IN;
    const bool ahead = kind == BORDER_IN || kind == BORDER_OUT;
    const plan_group *g = &l->p->run->groups[c->group[kind]];
    int32_t refs[OP_MAX_BOUNDARY];
    const int n = border_refs(l, c, c->slot_of[microbatch], kind, refs);
    plan_comm comm = {.op = sends ? PLAN_SEND : PLAN_RECEIVE,
                      .group = c->group[kind],
                      .peer = 1 - plan_group_place(&l->r->mesh, g)};
    // Both ends have one name for it.
    const int32_t below = kind == BORDER_IN || kind == BORDER_D_IN ? c->stage - 1 : c->stage;
    TRY(lower_comm_name(l, &comm, "%s, stage %d to %d, micro-batch %d",
                        ahead ? "activations" : "gradients", (int)(ahead ? below : below + 1),
                        (int)(ahead ? below + 1 : below), (int)microbatch));
    for (int k = 0; k < n; k++) {
        const plan_tensor *t = plan_tensor_at(l->p, refs[k]);
        plan_comm_item item = {.in = -1, .out = -1, .count = 1};
        for (int d = 0; d < t->ndim; d++) item.count *= t->dims[d];
        if (sends) item.in = refs[k];
        if (!sends) item.out = refs[k];
        comm.type = t->type;
        TRY(lower_item_push(l, &comm, &item));
    }
    TRY(lower_comm_push(l, &comm, after, action));
    l->p->actions[*action].microbatch = microbatch; // it may be pushed before its turn
    return ST_OK;
}

// Everything on the link up to the message that is needed now.
static status receive(lowering *l, int32_t chunk, int32_t microbatch, border_kind kind)
{
    const chunk_state *c = &l->chunks[chunk];
    if (c->group[kind] < 0) return ST_OK;
    chunk_slot *mine = &c->slots[c->slot_of[microbatch]];
    link_state *link = link_of(l, c->group[kind], kind);
    while (mine->ready[kind] < 0) {
        if (link->taken == link->count) {
            return fail(ST_INTERNAL, "stage %d never gets micro-batch %d", (int)c->stage,
                        (int)microbatch);
        }
        const link_message *m = &link->messages[link->taken++];
        chunk_state *to = &l->chunks[m->chunk];
        chunk_slot *slot = &to->slots[to->slot_of[m->microbatch]];
        // An input comes into a slot that is free, a gradient to the micro-batch that is in it.
        const bool fits = kind == BORDER_IN ? !slot->is_busy && slot->ready[kind] < 0
                                            : slot->microbatch == m->microbatch;
        if (!fits) {
            return fail(ST_CONFIG_CONFLICT,
                        "layout.schedule: stage %d is sent micro-batch %d while it still works on "
                        "%d; it must take them in the order in which they are sent",
                        (int)to->stage, (int)m->microbatch, (int)slot->microbatch);
        }
        int32_t action = -1;
        TRY(message_push(l, m->chunk, m->microbatch, kind, slot->last_compute, &action));
        if (slot->first_comm[kind] < 0) slot->first_comm[kind] = action;
        slot->last_comm[kind] = slot->ready[kind] = action;
    }
    return lower_wait_next(l, mine->ready[kind]);
}

static status send(lowering *l, int32_t chunk, int32_t microbatch, border_kind kind)
{
    const chunk_state *c = &l->chunks[chunk];
    if (c->group[kind] < 0) return ST_OK;
    chunk_slot *slot = &c->slots[c->slot_of[microbatch]];
    int32_t action = -1;
    TRY(message_push(l, chunk, microbatch, kind, l->last_compute, &action));
    if (slot->first_comm[kind] < 0) slot->first_comm[kind] = action;
    slot->last_comm[kind] = action;
    return ST_OK;
}

// ---- one action of the schedule -----------------------------------------------------------------

static status visit_add(lowering *l, layer_visit visit)
{
    TRY(arena_grow(l->a, (void **)&l->visits, &l->visit_capacity, l->visit_count + 1,
                   (int64_t)sizeof(visit)));
    l->visits[l->visit_count++] = visit;
    return ST_OK;
}

status lower_visits(lowering *l)
{
    for (int64_t i = 0; i < l->list.count; i++) {
        const schedule_action a = l->list.actions[i];
        int32_t chunk = -1, microbatch = -1;
        const chunk_state *c = &l->chunks[a.chunk];
        for (int32_t k = c->first_layer; k < c->end_layer && has_forward(&a); k++) {
            TRY(visit_add(l, (layer_visit){.layer = k, .forward = true}));
        }
        const bool input = input_half(&a, &chunk, &microbatch);
        const bool weight = weight_half(&a, &chunk, &microbatch);
        if (!input && !weight) continue;
        c = &l->chunks[chunk];
        for (int32_t k = c->end_layer - 1; k >= c->first_layer; k--) {
            TRY(visit_add(l, (layer_visit){.layer = k, .input = input, .weight = weight}));
        }
    }
    return ST_OK;
}

// What the slot held before is of no use any more.
static void slot_clear(lowering *l, const chunk_state *c)
{
    for (int32_t i = c->first_layer; i < c->end_layer; i++) {
        const op_program *program = l->m->programs[l->m->layers[i].program];
        for (int64_t t = 0; t < program->tensor_count; t++) {
            const int32_t ref = l->layers[i].slots[l->slot].tensor[t];
            const bool from_below =
                program->tensors[t].role == ROLE_INPUT; // another layer's output
            if (ref >= 0 && !from_below) lower_close(l, ref);
        }
    }
}

static status forward(lowering *l, int32_t chunk, int32_t microbatch)
{
    const chunk_state *c = &l->chunks[chunk];
    l->microbatch = microbatch;
    l->slot = c->slot_of[microbatch];
    chunk_slot *slot = &c->slots[l->slot];
    if (microbatch == 1) l->second_begins = l->lives.now;
    slot_clear(l, c);
    l->slot_is_fresh = !slot->was_done;
    TRY(receive(l, chunk, microbatch, BORDER_IN));
    if (slot->last_comm[BORDER_OUT] >= 0) TRY(lower_wait_next(l, slot->last_comm[BORDER_OUT]));
    slot->microbatch = microbatch;
    slot->is_busy = true;
    int32_t first = (int32_t)l->p->action_count; // no link comes in between from here on
    for (int32_t i = c->first_layer; i < c->end_layer; i++) TRY(lower_forward(l, i));
    while (l->p->actions[first].lane != LANE_COMPUTE) first++; // but weights may
    if (slot->first_compute < 0) slot->first_compute = first;
    slot->last_compute = l->last_compute;
    TRY(send(l, chunk, microbatch, BORDER_OUT));
    slot->ready[BORDER_IN] = -1;
    if (l->r->optimizer == NULL) slot->is_busy = false;
    return ST_OK;
}

static status backward(lowering *l, int32_t chunk, int32_t microbatch, bool input, bool weight)
{
    const chunk_state *c = &l->chunks[chunk];
    l->microbatch = microbatch;
    l->slot = c->slot_of[microbatch];
    chunk_slot *slot = &c->slots[l->slot];
    ASSERT(slot->microbatch == microbatch);
    l->slot_is_fresh = !slot->was_done;
    if (input) {
        TRY(receive(l, chunk, microbatch, BORDER_D_OUT));
        if (slot->last_comm[BORDER_D_IN] >= 0) {
            TRY(lower_wait_next(l, slot->last_comm[BORDER_D_IN]));
        }
    }
    for (int32_t i = c->end_layer - 1; i >= c->first_layer; i--) {
        TRY(lower_backward(l, i, input, weight));
    }
    slot->last_compute = l->last_compute;
    if (input) {
        TRY(send(l, chunk, microbatch, BORDER_D_IN));
        slot->ready[BORDER_D_OUT] = -1;
    }
    if (!weight) return ST_OK;
    slot->is_busy = false;
    slot->was_done = true;
    return ST_OK;
}

// What the first use of a slot in a step must wait for is of the step before.
static status steps_join(lowering *l)
{
    for (int32_t c = 0; c < l->chunk_count; c++) {
        for (int32_t s = 0; s < l->slot_count; s++) {
            const chunk_slot *slot = &l->chunks[c].slots[s];
            for (int kind = 0; kind < BORDER_COUNT; kind++) {
                const bool sends = kind == BORDER_OUT || kind == BORDER_D_IN;
                if (slot->first_comm[kind] < 0 || kind == BORDER_D_OUT)
                    continue; // after its forward
                const int32_t first = sends ? slot->first_compute : slot->first_comm[kind];
                const int32_t last = sends ? slot->last_comm[kind] : slot->last_compute;
                TRY(lower_wait(l, first, -1 - last));
            }
        }
    }
    return ST_OK;
}

status lower_microbatches(lowering *l)
{
    for (int64_t i = 0; i < l->list.count; i++) {
        const schedule_action a = l->list.actions[i];
        int32_t chunk = -1, microbatch = -1;
        if (has_forward(&a)) TRY(forward(l, a.chunk, a.microbatch));
        const bool input = input_half(&a, &chunk, &microbatch);
        const bool weight = weight_half(&a, &chunk, &microbatch);
        if (input || weight) TRY(backward(l, chunk, microbatch, input, weight));
    }
    TRY(lower_visits_end(l));
    return steps_join(l);
}
