// Lowering, pipelines: from a schedule's coarse actions to forward and backward of layers, with what
// travels between stages.
//
// A micro-batch in flight has a *slot* of each chunk that it is in: tensors of its own for everything
// between forward and backward. Chunks whose stages follow each other on one rank share their slots, so
// that nothing needs to be handed over. What a link reads or writes has a buffer (borders.h), whose bytes are its
// own through the whole step, for links go on beside the products: a receive waits until who had the buffer before has
// read it, or has sent it; what is made in one waits for the send.
//
// Links are in order: a stage receives in the order in which its neighbour sends, which follows from the
// neighbour's list. Each receive stands in the list before the first action that needs it, or one that
// comes after it on its link; so the list, done one action after the other, is legal too.
#include "plan/lower/lower.h"

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
static status forward_list(const lowering *l, arena *a, schedule_list *out)
{
    const schedule_request *r = &l->pipe.shape;
    const bool two = l->pipe.schedule->shape == SHAPE_TWO;
    for (int32_t first = 0; first < r->microbatches; first += r->stages) {
        const int32_t end =
            first + r->stages < r->microbatches ? first + r->stages : r->microbatches;
        for (int32_t c = 0; c < (two ? 1 : r->chunks); c++) {
            for (int32_t m = first; m < end; m++) {
                TRY(action_add(a, out, SCHEDULE_FORWARD, c, m));
            }
        }
    }
    return ST_OK;
}

static status list_of(const lowering *l, int32_t pp, arena *a, schedule_list *out)
{
    const plan_pipeline *p = &l->pipe;
    if (p->schedule != NULL && l->r->optimizer == NULL) return forward_list(l, a, out);
    if (p->schedule != NULL) return plan_schedule_emit(p->schedule, &p->shape, pp, a, out);
    for (int32_t m = 0; m < p->shape.microbatches; m++) {
        TRY(action_add(a, out, SCHEDULE_FORWARD, 0, m));
        if (l->r->optimizer != NULL) TRY(action_add(a, out, SCHEDULE_BACKWARD, 0, m));
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

// Does the layer hand a gradient to the one below it? Below the first trained weight none does.
static bool hands_gradient(const lowering *l, int32_t layer_row)
{
    if (l->r->optimizer == NULL) return false;
    return l->m->programs[l->m->layers[layer_row].program]->d_inputs[0] != TENSOR_NONE;
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
        if (hands_gradient(l, chunk->end_layer)) {
            TRY(link_group(l, other, me, GROUP_LINK_BACKWARD, &chunk->group[BORDER_D_OUT]));
        }
    }
    if (neighbour(l, me, c, -1, &other, &its) && other != me) {
        TRY(link_group(l, other, me, GROUP_LINK_FORWARD, &chunk->group[BORDER_IN]));
        if (hands_gradient(l, chunk->first_layer)) {
            TRY(link_group(l, me, other, GROUP_LINK_BACKWARD, &chunk->group[BORDER_D_IN]));
        }
    } else if (neighbour(l, me, c, -1, &other, &its)) {
        ASSERT(its < c); // its pool is known
        chunk->pool = l->chunks[its].pool;
    }
    TRY(arena_new(l->a, l->pipe.shape.microbatches, &chunk->slot_of));
    memset(chunk->slot_of, -1, (size_t)l->pipe.shape.microbatches * sizeof(int32_t));
    for (int kind = 0; kind < BORDER_COUNT; kind++) {
        TRY(arena_new(l->a, l->pipe.shape.microbatches, &chunk->received[kind]));
        memset(chunk->received[kind], -1, (size_t)l->pipe.shape.microbatches * sizeof(int32_t));
    }
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
// numbers of its own, as many as it has in flight. What they have lies where it has room while it lives.
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
            *slot = (chunk_slot){.microbatch = -1};
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
    TRY(list_of(l, from, l->a, &list));
    for (int64_t i = 0; i < list.count; i++) {
        const schedule_action *a = &list.actions[i];
        int32_t chunk = -1, microbatch = -1, to = -1, its = -1;
        if (has_forward(a) && neighbour(l, from, a->chunk, 1, &to, &its) && to == me) {
            link_state *link = link_of(l, l->chunks[its].group[BORDER_IN], BORDER_IN);
            TRY(message_add(l, link, its, a->microbatch));
        }
        if (input_half(a, &chunk, &microbatch) && neighbour(l, from, chunk, -1, &to, &its) &&
            to == me && l->chunks[its].group[BORDER_D_OUT] >= 0) {
            link_state *link = link_of(l, l->chunks[its].group[BORDER_D_OUT], BORDER_D_OUT);
            TRY(message_add(l, link, its, microbatch));
        }
    }
    return ST_OK;
}

// The lists of all ranks, played.
static status times_play(const lowering *l, arena *a, border_times *out)
{
    const plan_pipeline *p = &l->pipe;
    schedule_list *lists = NULL;
    TRY(arena_new(a, p->shape.stages, &lists));
    for (int32_t pp = 0; pp < p->shape.stages; pp++) TRY(list_of(l, pp, a, &lists[pp]));
    return plan_borders_play(a, p->schedule, &p->shape, lists, l->r->optimizer == NULL, out);
}

static bool times_are_of(const lowering *l, const border_times *t)
{
    const schedule_request *x = &t->shape, *y = &l->pipe.shape;
    return t->schedule == l->pipe.schedule && t->forward_only == (l->r->optimizer == NULL) &&
           x->stages == y->stages && x->microbatches == y->microbatches && x->chunks == y->chunks;
}

// Which buffer each message has; the lists of all ranks are needed for that alone.
static status buffers_deal(lowering *l)
{
    const plan_pipeline *p = &l->pipe;
    const int which = l->repeat.slot_of != NULL ? 1 : 0; // of few micro-batches, or of all
    border_room own = {0}, *room = l->r->rooms != NULL ? &l->r->rooms->borders[which] : &own;
    bool crosses[SCHEDULE_MAX_CHUNKS * BORDER_COUNT];
    status st = ST_OK;
    if (p->schedule == NULL || p->shape.stages < 2) return ST_OK;
    if (room == &own) TRY(arena_create("borders", 0, &own.a));
    if (!times_are_of(l, &room->times)) {
        arena_reset(room->a);
        room->times = (border_times){0};
        TRY_TO(done, times_play(l, room->a, &room->times));
    }
    for (int32_t c = 0; c < l->chunk_count; c++) {
        for (int kind = 0; kind < BORDER_COUNT; kind++) {
            crosses[c * BORDER_COUNT + kind] = l->chunks[c].group[kind] >= 0;
        }
    }
    TRY_TO(done,
           plan_borders_make(l->a, &room->times, l->r->mesh.at[AXIS_PP], crosses, &l->borders));
done:
    if (st != ST_OK) room->times = (border_times){0};
    arena_destroy(own.a);
    return st;
}

// Of so many micro-batches as the pipeline has.
static status chunks_make(lowering *l)
{
    l->chunk_count = l->pipe.shape.chunks;
    l->slot_count = 0;
    l->list = (schedule_list){0};
    TRY(list_of(l, l->r->mesh.at[AXIS_PP], l->a, &l->list));
    TRY(arena_new(l->a, l->chunk_count, &l->chunks));
    for (int32_t c = 0; c < l->chunk_count; c++) TRY(chunk_make(l, c));
    TRY(slots_assign(l));
    return buffers_deal(l);
}

status lower_chunks(lowering *l)
{
    const int32_t me = l->r->mesh.at[AXIS_PP];
    lower_repeat *repeat = &l->repeat;
    TRY(chunks_make(l));
    TRY(lower_repeat_find(l));
    if (repeat->rounds > 0) {
        TRY(lower_repeat_begin(l));
        TRY(chunks_make(l));
        repeat->is_broken =
            l->slot_count != repeat->slot_count || l->borders.count != repeat->buffer_count;
        if (repeat->is_broken) return ST_OK;
    }
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

static tensor_id owner_of(const op_program *p, tensor_id t)
{
    while (t != TENSOR_NONE && p->tensors[t].view_of != TENSOR_NONE) t = p->tensors[t].view_of;
    return t;
}

static int32_t border_layer(const chunk_state *c, border_kind kind)
{
    return kind == BORDER_IN || kind == BORDER_D_IN ? c->first_layer : c->end_layer - 1;
}

// The tensor of its layer's program that crosses a chunk's border.
static tensor_id border_tensor(const lowering *l, const chunk_state *c, border_kind kind)
{
    const op_program *p = l->m->programs[l->m->layers[border_layer(c, kind)].program];
    const tensor_id *ids = kind == BORDER_IN      ? p->inputs
                           : kind == BORDER_D_IN  ? p->d_inputs
                           : kind == BORDER_D_OUT ? p->d_outputs
                                                  : p->outputs;
    return owner_of(p, ids[0]);
}

bool lower_is_border(const lowering *l, int32_t layer_row, tensor_id t)
{
    const chunk_state *c = &l->chunks[l->layers[layer_row].chunk];
    for (int kind = 0; kind < BORDER_COUNT; kind++) {
        if (c->group[kind] < 0 || border_layer(c, (border_kind)kind) != layer_row) continue;
        if (border_tensor(l, c, (border_kind)kind) == t) return true;
    }
    return false;
}

// A buffer may be for anything that crosses a border: one tensor, and all are alike. What is sent is not touched
// after the action that makes it.
static status border_check(const lowering *l, const chunk_state *c, border_kind kind,
                           const plan_tensor *like)
{
    const bool below = kind == BORDER_IN || kind == BORDER_D_IN;
    const op_layer *layer = &l->m->layers[border_layer(c, kind)];
    const op_program *p = l->m->programs[layer->program];
    const tensor_id t = border_tensor(l, c, kind);
    bool alike = (below ? p->input_count : p->output_count) == 1 && t != TENSOR_NONE;
    const plan_tensor tensor = lower_tensor_like(&p->tensors[alike ? t : 0], &l->bound);
    alike = alike && tensor.type == like->type && tensor.ndim == like->ndim &&
            memcmp(tensor.dims, like->dims, sizeof(tensor.dims)) == 0;
    for (int list = OP_FORWARD + 1; list < OP_LIST_COUNT && alike; list++) {
        const bool is_after =
            kind == BORDER_OUT ||
            (kind == BORDER_D_IN && list == OP_BACKWARD_WEIGHT && p->output_count > 0);
        for (int64_t i = 0; i < p->lists[list].count && is_after; i++) {
            const op_node *node = &p->lists[list].nodes[i];
            for (int k = 0; k < OP_MAX_IN; k++) alike = alike && owner_of(p, node->in[k]) != t;
            for (int k = 0; k < OP_MAX_OUT; k++) alike = alike && owner_of(p, node->out[k]) != t;
        }
    }
    if (alike) return ST_OK;
    return fail(ST_INTERNAL, "what crosses the border of layer %s is not as others are",
                layer->name);
}

status lower_borders(lowering *l)
{
    plan_tensor tensor = {.bytes = 0};
    for (int32_t c = 0; c < l->chunk_count; c++) {
        for (int kind = 0; kind < BORDER_COUNT; kind++) {
            const chunk_state *chunk = &l->chunks[c];
            if (chunk->group[kind] < 0) continue;
            const op_layer *layer = &l->m->layers[border_layer(chunk, (border_kind)kind)];
            const tensor_id t = border_tensor(l, chunk, (border_kind)kind);
            if (tensor.bytes == 0 && t != TENSOR_NONE) {
                tensor = lower_tensor_like(&l->m->programs[layer->program]->tensors[t], &l->bound);
            }
            TRY(border_check(l, chunk, (border_kind)kind, &tensor));
        }
    }
    tensor.kind = BYTES_ACTIVATIONS;
    tensor.role = ROLE_ACTIVATION;
    TRY(arena_new(l->a, l->borders.count + 1, &l->buffers));
    TRY(arena_new(l->a, l->p->tensor_count + l->borders.count + 1, &l->is_border));
    l->is_border_capacity = l->p->tensor_count + l->borders.count;
    for (int32_t b = 0; b < l->borders.count; b++) {
        border_buffer *buffer = &l->buffers[b];
        *buffer = (border_buffer){.first = -1, .compute = -1, .sent = -1};
        (void)snprintf(tensor.name, sizeof(tensor.name), "border#%d", (int)b);
        TRY(plan_tensor_push(l->p, &tensor, &buffer->ref));
        l->is_border[buffer->ref] = true;
    }
    return ST_OK;
}

// NULL: nothing of it crosses that border.
static border_buffer *buffer_of(const lowering *l, int32_t chunk, int32_t microbatch,
                                border_kind kind)
{
    if (l->chunks[chunk].group[kind] < 0) return NULL;
    const int64_t at = (int64_t)chunk * l->pipe.shape.microbatches + microbatch;
    ASSERT(l->borders.buffer[kind][at] >= 0);
    return &l->buffers[l->borders.buffer[kind][at]];
}

static void buffer_take(border_buffer *b)
{
    ASSERT(!b->is_held); // the play says so: who had it is done by now
    b->is_held = true;
}

// It is free when this action is done.
static void buffer_leave(border_buffer *b, int32_t compute, int32_t sent)
{
    if (b == NULL) return;
    b->is_held = false;
    b->compute = compute;
    b->sent = sent;
}

// ---- bindings of layers at borders --------------------------------------------------------------

struct border_binding {
    int32_t layer, slot;
    int32_t ref[BORDER_COUNT]; // what its micro-batch has at borders; -1: the layer stands at none
    int32_t binding[TREE_MAX_BUFFERS];
    int32_t next; // of the same layer and slot; -1
};

static status binding_make(lowering *l, border_binding *made)
{
    const layer_slot *slot = &l->layers[made->layer].slots[made->slot];
    const op_program *program = l->m->programs[l->m->layers[made->layer].program];
    const chunk_state *c = &l->chunks[l->layers[made->layer].chunk];
    const int buffers = (int)max_i64(lower_tree(l, made->layer)->buffer_count, 1);
    for (int k = 0; k < buffers; k++) {
        plan_binding b = l->p->bindings[slot->binding[k]];
        int32_t *map = NULL;
        TRY(arena_new(l->p->run->a, program->tensor_count + 1, &map));
        memcpy(map, b.tensor, (size_t)program->tensor_count * sizeof(int32_t));
        for (int kind = 0; kind < BORDER_COUNT; kind++) {
            if (made->ref[kind] >= 0) map[border_tensor(l, c, (border_kind)kind)] = made->ref[kind];
        }
        b.tensor = map;
        TRY(lower_binding(l, &b, &made->binding[k]));
    }
    return ST_OK;
}

// The layer's binding in its slot becomes that of the micro-batch's buffers.
static status layer_bind(lowering *l, int32_t chunk, int32_t layer_row, int32_t microbatch)
{
    const chunk_state *c = &l->chunks[chunk];
    layer_slot *slot = &l->layers[layer_row].slots[l->slot];
    border_binding want = {.layer = layer_row, .slot = l->slot, .next = slot->bound - 1};
    int32_t at = slot->bound - 1;
    for (int kind = 0; kind < BORDER_COUNT; kind++) {
        const border_buffer *b = border_layer(c, (border_kind)kind) == layer_row
                                     ? buffer_of(l, chunk, microbatch, (border_kind)kind)
                                     : NULL;
        want.ref[kind] = b != NULL ? b->ref : -1;
        if (b != NULL) slot->tensor[border_tensor(l, c, (border_kind)kind)] = b->ref;
    }
    while (at >= 0 && memcmp(l->border_bindings[at].ref, want.ref, sizeof(want.ref)) != 0) {
        at = l->border_bindings[at].next;
    }
    if (at < 0) {
        TRY(binding_make(l, &want));
        TRY(arena_grow(l->a, (void **)&l->border_bindings, &l->border_binding_capacity,
                       l->border_binding_count + 1, (int64_t)sizeof(want)));
        at = (int32_t)l->border_binding_count;
        l->border_bindings[l->border_binding_count++] = want;
        slot->bound = at + 1;
    }
    memcpy(slot->binding, l->border_bindings[at].binding, sizeof(slot->binding));
    return ST_OK;
}

static status borders_bind(lowering *l, int32_t chunk, int32_t microbatch)
{
    const chunk_state *c = &l->chunks[chunk];
    if (l->borders.count == 0) return ST_OK;
    TRY(layer_bind(l, chunk, c->first_layer, microbatch));
    if (c->end_layer - 1 == c->first_layer) return ST_OK;
    return layer_bind(l, chunk, c->end_layer - 1, microbatch);
}

// ---- messages -----------------------------------------------------------------------------------

static status message_push(lowering *l, int32_t chunk, int32_t microbatch, border_kind kind,
                           int32_t after, int32_t *action)
{
    const int32_t ref = buffer_of(l, chunk, microbatch, kind)->ref;
    const chunk_state *c = &l->chunks[chunk];
    const bool sends = kind == BORDER_OUT || kind == BORDER_D_IN;
    const bool ahead = kind == BORDER_IN || kind == BORDER_OUT;
    const plan_group *g = &l->p->run->groups[c->group[kind]];
    plan_comm comm = {.op = sends ? COLLECTIVE_SEND : COLLECTIVE_RECEIVE,
                      .group = c->group[kind],
                      .peer = 1 - plan_group_place(&l->r->mesh, g)};
    // Both ends have one name for it.
    const int32_t below = kind == BORDER_IN || kind == BORDER_D_IN ? c->stage - 1 : c->stage;
    TRY(lower_comm_name(l, &comm, "%s, stage %d to %d, micro-batch %d",
                        ahead ? "activations" : "gradients", (int)(ahead ? below : below + 1),
                        (int)(ahead ? below + 1 : below), (int)microbatch));
    const plan_tensor *t = plan_tensor_at(l->p, ref);
    plan_comm_item item = {.in = sends ? ref : -1, .out = sends ? -1 : ref, .count = 1};
    for (int d = 0; d < t->ndim; d++) item.count *= t->dims[d];
    comm.type = t->type;
    TRY(lower_item_push(l, &comm, &item));
    TRY(lower_comm_push(l, &comm, after, action));
    l->p->actions[*action].microbatch = microbatch; // it may be pushed before its turn
    return ST_OK;
}

// Everything on the link up to the message that is needed now.
static status receive(lowering *l, int32_t chunk, int32_t microbatch, border_kind kind)
{
    const chunk_state *c = &l->chunks[chunk];
    if (c->group[kind] < 0) return ST_OK;
    link_state *link = link_of(l, c->group[kind], kind);
    while (c->received[kind][microbatch] < 0) {
        if (link->taken == link->count) {
            return fail(ST_INTERNAL, "stage %d never gets micro-batch %d", (int)c->stage,
                        (int)microbatch);
        }
        const link_message *m = &link->messages[link->taken++];
        border_buffer *b = buffer_of(l, m->chunk, m->microbatch, kind);
        int32_t action = -1;
        buffer_take(b);
        TRY(message_push(l, m->chunk, m->microbatch, kind, b->compute, &action));
        if (b->sent >= 0) TRY(lower_wait(l, action, b->sent));
        if (b->first < 0) b->first = action;
        l->chunks[m->chunk].received[kind][m->microbatch] = action;
    }
    return lower_wait_next(l, c->received[kind][microbatch]);
}

// Before what it sends is made.
static status send_begin(lowering *l, int32_t chunk, int32_t microbatch, border_kind kind)
{
    border_buffer *b = buffer_of(l, chunk, microbatch, kind);
    if (b == NULL) return ST_OK;
    buffer_take(b);
    return b->sent >= 0 ? lower_wait_next(l, b->sent) : ST_OK;
}

// `first`: the first action on the compute lane of what makes it.
static status send(lowering *l, int32_t chunk, int32_t microbatch, border_kind kind, int32_t first)
{
    border_buffer *b = buffer_of(l, chunk, microbatch, kind);
    int32_t action = -1;
    if (b == NULL) return ST_OK;
    TRY(message_push(l, chunk, microbatch, kind, l->last_compute, &action));
    if (b->first < 0) b->first = first;
    buffer_leave(b, -1, action);
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

// The first action on the compute lane from `at` on; messages and weights may come before.
static int32_t compute_from(const lowering *l, int32_t at)
{
    while (at < l->p->action_count && l->p->actions[at].lane != LANE_COMPUTE) at++;
    return at;
}

static status forward(lowering *l, int32_t chunk, int32_t microbatch)
{
    const chunk_state *c = &l->chunks[chunk];
    l->microbatch = microbatch;
    l->slot = c->slot_of[microbatch];
    chunk_slot *slot = &c->slots[l->slot];
    TRY(borders_bind(l, chunk, microbatch));
    TRY(receive(l, chunk, microbatch, BORDER_IN));
    TRY(send_begin(l, chunk, microbatch, BORDER_OUT));
    slot->microbatch = microbatch;
    const int32_t begin = (int32_t)l->p->action_count;
    for (int32_t i = c->first_layer; i < c->end_layer; i++) TRY(lower_forward(l, i));
    TRY(send(l, chunk, microbatch, BORDER_OUT, compute_from(l, begin)));
    if (l->r->optimizer == NULL) {
        buffer_leave(buffer_of(l, chunk, microbatch, BORDER_IN), l->last_compute, -1);
    }
    return ST_OK;
}

static status backward(lowering *l, int32_t chunk, int32_t microbatch, bool input, bool weight)
{
    const chunk_state *c = &l->chunks[chunk];
    l->microbatch = microbatch;
    l->slot = c->slot_of[microbatch];
    chunk_slot *slot = &c->slots[l->slot];
    ASSERT(slot->microbatch == microbatch);
    if (input) {
        TRY(receive(l, chunk, microbatch, BORDER_D_OUT));
        TRY(send_begin(l, chunk, microbatch, BORDER_D_IN));
    }
    const int32_t begin = (int32_t)l->p->action_count;
    for (int32_t i = c->end_layer - 1; i >= c->first_layer; i--) {
        TRY(lower_backward(l, i, input, weight));
    }
    if (input) TRY(send(l, chunk, microbatch, BORDER_D_IN, compute_from(l, begin)));
    if (!weight) return ST_OK;
    buffer_leave(buffer_of(l, chunk, microbatch, BORDER_IN), l->last_compute, -1);
    buffer_leave(buffer_of(l, chunk, microbatch, BORDER_D_OUT), l->last_compute, -1);
    return ST_OK;
}

// What the first use of a buffer in a step must wait for is of the step before.
static status steps_join(lowering *l)
{
    for (int32_t b = 0; b < l->borders.count; b++) {
        const border_buffer *x = &l->buffers[b];
        ASSERT(x->first >= 0 && !x->is_held);
        if (x->compute >= 0) TRY(lower_wait(l, x->first, -1 - x->compute));
        if (x->sent >= 0) TRY(lower_wait(l, x->first, -1 - x->sent));
    }
    return ST_OK;
}

status lower_microbatches(lowering *l)
{
    for (int64_t i = 0; i < l->list.count; i++) {
        const schedule_action a = l->list.actions[i];
        int32_t chunk = -1, microbatch = -1;
        lower_repeat_note(l, i);
        if (has_forward(&a)) TRY(forward(l, a.chunk, a.microbatch));
        const bool input = input_half(&a, &chunk, &microbatch);
        const bool weight = weight_half(&a, &chunk, &microbatch);
        if (input || weight) TRY(backward(l, chunk, microbatch, input, weight));
    }
    lower_repeat_note(l, l->list.count);
    TRY(lower_visits_end(l));
    return steps_join(l);
}
