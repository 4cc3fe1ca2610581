// Pass 2 of lowering, slots: the tensors of micro-batches in flight and of transfers between
// stages.
//
// A micro-batch in flight has a *slot* in each chunk that it is in: its own tensors for everything
// between forward and backward. Chunks with consecutive stages on one rank share slots, so nothing
// is copied between them. A transfer between stages has a buffer (boundary.h) that owns its bytes
// through the whole step, because transfers run while other micro-batches are computed. The first
// and the last layer of a chunk have one binding for each set of buffers.
#include "plan/lower/bind_internal.h"

#include <stdio.h>
#include <string.h>

// ---- slots --------------------------------------------------------------------------------------

static status pools_make(const lower_input *in, const expanded *x, bound_slots *out)
{
    const int32_t me = in->r->mesh.at[AXIS_PP], n = in->pipe.shape.microbatches;
    TRY(arena_new(in->a, x->chunk_count, &out->pool));
    TRY(arena_new(in->a, x->chunk_count, &out->slot_of));
    for (int32_t c = 0; c < x->chunk_count; c++) {
        int32_t other = 0, its = 0;
        const bool follows = expand_neighbour(in, me, c, -1, &other, &its) && other == me;
        ASSERT(!follows || its < c); // its pool is known
        out->pool[c] = follows ? out->pool[its] : c;
        TRY(arena_new(in->a, n, &out->slot_of[c]));
        memset(out->slot_of[c], -1, (size_t)n * sizeof(int32_t));
    }
    return ST_OK;
}

// The state of slot assignment.
typedef struct slot_walk {
    const expanded *x;
    bound_slots *out;
    int32_t *open;    // [slot] chunks of its pool that still use it; 0: free
    bool **uses_slot; // [chunk][slot]
} slot_walk;

// A free slot that the chunk has used before; else a new one.
static int32_t slot_free(const slot_walk *w, int32_t chunk)
{
    for (int32_t slot = 0; slot < w->out->slot_count; slot++) {
        if (w->open[slot] == 0 && w->uses_slot[chunk][slot]) return slot;
    }
    return w->out->slot_count;
}

static void slot_take(slot_walk *w, const schedule_action *a)
{
    bound_slots *out = w->out;
    int32_t slot = -1, members = 0;
    for (int32_t k = 0; k < w->x->chunk_count; k++) {
        if (out->pool[k] != out->pool[a->chunk]) continue;
        members++;
        if (out->slot_of[k][a->microbatch] >= 0) slot = out->slot_of[k][a->microbatch];
    }
    if (slot < 0) {
        slot = slot_free(w, a->chunk);
        w->open[slot] = members;
    }
    out->slot_of[a->chunk][a->microbatch] = slot;
    w->uses_slot[a->chunk][slot] = true;
    if (slot + 1 > out->slot_count) out->slot_count = slot + 1;
}

// Each micro-batch holds a free slot from its first forward in a pool to its last action there.
// Each pool numbers its own slots and has as many as micro-batches are in flight.
static status slots_assign(const lower_input *in, const expanded *x, bound_slots *out)
{
    const int64_t most = (int64_t)in->pipe.shape.microbatches * x->chunk_count;
    slot_walk w = {.x = x, .out = out};
    TRY(arena_new(in->a, most, &w.open));
    TRY(arena_new(in->a, x->chunk_count, &w.uses_slot));
    for (int32_t c = 0; c < x->chunk_count; c++) TRY(arena_new(in->a, most, &w.uses_slot[c]));
    for (int64_t i = 0; i < x->list.count; i++) {
        const schedule_action *a = &x->list.actions[i];
        int32_t chunk = -1, microbatch = -1;
        if (expand_has_forward(a)) {
            slot_take(&w, a);
            if (in->r->optimizer == NULL) w.open[out->slot_of[a->chunk][a->microbatch]]--;
        }
        if (!expand_weight_half(a, &chunk, &microbatch)) continue;
        ASSERT(out->slot_of[chunk][microbatch] >= 0);
        w.open[out->slot_of[chunk][microbatch]]--;
    }
    return ST_OK;
}

// ---- what crosses -------------------------------------------------------------------------------

// True if the layer passes a gradient to the one below it; below the first trained weight none
// does.
static bool hands_gradient(const lower_input *in, int32_t layer)
{
    if (in->r->optimizer == NULL) return false;
    return in->m->programs[in->m->layers[layer].program]->d_inputs[0] != TENSOR_NONE;
}

static status crosses_find(const lower_input *in, const expanded *x, bound_slots *out)
{
    const int32_t me = in->r->mesh.at[AXIS_PP];
    TRY(arena_new(in->a, x->chunk_count, &out->crosses));
    for (int32_t c = 0; c < x->chunk_count; c++) {
        const expand_chunk *chunk = &x->chunks[c];
        int32_t other = 0, its = 0;
        if (expand_neighbour(in, me, c, 1, &other, &its) && other != me) {
            out->crosses[c][BOUNDARY_OUT] = true;
            out->crosses[c][BOUNDARY_D_OUT] = hands_gradient(in, chunk->end_layer);
        }
        if (expand_neighbour(in, me, c, -1, &other, &its) && other != me) {
            out->crosses[c][BOUNDARY_IN] = true;
            out->crosses[c][BOUNDARY_D_IN] = hands_gradient(in, chunk->first_layer);
        }
    }
    return ST_OK;
}

// Simulates the lists of all ranks.
static status timelines_simulate(const lower_input *in, arena *a, boundary_timelines *out)
{
    const plan_pipeline *p = &in->pipe;
    schedule_list *lists = NULL;
    TRY(arena_new(a, p->shape.stages, &lists));
    for (int32_t pp = 0; pp < p->shape.stages; pp++) TRY(expand_list(in, pp, a, &lists[pp]));
    return plan_boundary_simulate(a, p->schedule, &p->shape, lists, in->r->optimizer == NULL, out);
}

static bool times_are_of(const lower_input *in, const boundary_timelines *t)
{
    const schedule_request *x = &t->shape, *y = &in->pipe.shape;
    return t->schedule == in->pipe.schedule && t->forward_only == (in->r->optimizer == NULL) &&
           x->stages == y->stages && x->microbatches == y->microbatches && x->chunks == y->chunks;
}

// The cache entry with the timelines of this pipeline; otherwise the entry that was not used last,
// to be filled.
static boundary_cache *cached_timelines(const lower_input *in, plan_scratch *scratch)
{
    int k = 0;
    while (k < PLAN_BOUNDARY_CACHES && !times_are_of(in, &scratch->boundary[k].times)) k++;
    if (k == PLAN_BOUNDARY_CACHES) k = (scratch->boundary_used + 1) % PLAN_BOUNDARY_CACHES;
    scratch->boundary_used = k;
    return &scratch->boundary[k];
}

// Assigns a buffer to each transfer. Only this step needs the lists of all ranks.
static status buffers_assign(const lower_input *in, bound_slots *out)
{
    const plan_pipeline *p = &in->pipe;
    boundary_cache own = {0},
                   *cache = in->r->scratch != NULL ? cached_timelines(in, in->r->scratch) : &own;
    status st = ST_OK;
    if (p->schedule == NULL || p->shape.stages < 2) return ST_OK;
    if (cache == &own) TRY(arena_create("boundary buffers", 0, &own.a));
    if (!times_are_of(in, &cache->times)) {
        arena_reset(cache->a);
        cache->times = (boundary_timelines){0};
        TRY_TO(done, timelines_simulate(in, cache->a, &cache->times));
    }
    TRY_TO(done, plan_boundary_assign(in->a, &cache->times, in->r->mesh.at[AXIS_PP],
                                      out->crosses[0], &out->boundary));
done:
    if (st != ST_OK) cache->times = (boundary_timelines){0};
    arena_destroy(own.a);
    return st;
}

status plan_bind_slots(const lower_input *in, const expanded *x, bound_slots *out)
{
    *out = (bound_slots){.slot_count = 0};
    TRY(pools_make(in, x, out));
    TRY(slots_assign(in, x, out));
    TRY(crosses_find(in, x, out));
    return buffers_assign(in, out);
}

// ---- buffers ------------------------------------------------------------------------------------

int32_t bind_boundary_layer(const expand_chunk *c, boundary_kind kind)
{
    return kind == BOUNDARY_IN || kind == BOUNDARY_D_IN ? c->first_layer : c->end_layer - 1;
}

tensor_id bind_boundary_tensor(const lower_input *in, const expand_chunk *c, boundary_kind kind)
{
    const op_program *p = in->m->programs[in->m->layers[bind_boundary_layer(c, kind)].program];
    const tensor_id *ids = kind == BOUNDARY_IN      ? p->inputs
                           : kind == BOUNDARY_D_IN  ? p->d_inputs
                           : kind == BOUNDARY_D_OUT ? p->d_outputs
                                                    : p->outputs;
    return op_owner(p, ids[0]).id;
}

bool bind_is_boundary(const binder *b, int32_t layer, tensor_id t)
{
    const int32_t chunk = b->x->chunk_of[layer];
    const expand_chunk *c = &b->x->chunks[chunk];
    for (int kind = 0; kind < BOUNDARY_COUNT; kind++) {
        if (!b->out->slots.crosses[chunk][kind]) continue;
        if (bind_boundary_layer(c, (boundary_kind)kind) != layer) continue;
        if (bind_boundary_tensor(b->in, c, (boundary_kind)kind) == t) return true;
    }
    return false;
}

// True if a list after the one that writes tensor t accesses it.
static bool is_touched_later(const op_program *p, boundary_kind kind, tensor_id t)
{
    for (int list = OP_FORWARD + 1; list < OP_LIST_COUNT; list++) {
        const bool is_after =
            kind == BOUNDARY_OUT ||
            (kind == BOUNDARY_D_IN && list == OP_BACKWARD_WEIGHT && p->output_count > 0);
        for (int64_t i = 0; i < p->lists[list].count && is_after; i++) {
            const op_node *node = &p->lists[list].nodes[i];
            for (int k = 0; k < OP_MAX_IN; k++) {
                if (op_owner(p, node->in[k]).id == t) return true;
            }
            for (int k = 0; k < OP_MAX_OUT; k++) {
                if (op_owner(p, node->out[k]).id == t) return true;
            }
        }
    }
    return false;
}

// Checks that one buffer fits every boundary tensor: exactly one tensor crosses each boundary, all
// have the same shape, and a sent tensor is not accessed after the action that writes it.
static status boundary_check(const lower_input *in, const expand_chunk *c, boundary_kind kind,
                             const plan_tensor *expected)
{
    const bool below = kind == BOUNDARY_IN || kind == BOUNDARY_D_IN;
    const op_layer *layer = &in->m->layers[bind_boundary_layer(c, kind)];
    const op_program *p = in->m->programs[layer->program];
    const tensor_id t = bind_boundary_tensor(in, c, kind);
    if ((below ? p->input_count : p->output_count) == 1 && t != TENSOR_NONE) {
        const plan_tensor tensor = lower_tensor_like(&p->tensors[t], &in->bound);
        if (tensor.type == expected->type && tensor.ndim == expected->ndim &&
            memcmp(tensor.dims, expected->dims, sizeof(tensor.dims)) == 0 &&
            !is_touched_later(p, kind, t)) {
            return ST_OK;
        }
    }
    return fail(ST_INTERNAL,
                "the tensor at the stage boundary of layer %s differs from other boundary tensors",
                layer->name);
}

static status boundaries_check(const binder *b, plan_tensor *tensor)
{
    const lower_input *in = b->in;
    for (int32_t c = 0; c < b->x->chunk_count; c++) {
        for (int kind = 0; kind < BOUNDARY_COUNT; kind++) {
            const expand_chunk *chunk = &b->x->chunks[c];
            if (!b->out->slots.crosses[c][kind]) continue;
            const op_layer *layer = &in->m->layers[bind_boundary_layer(chunk, (boundary_kind)kind)];
            const tensor_id t = bind_boundary_tensor(in, chunk, (boundary_kind)kind);
            if (tensor->bytes == 0 && t != TENSOR_NONE) {
                *tensor =
                    lower_tensor_like(&in->m->programs[layer->program]->tensors[t], &in->bound);
            }
            TRY(boundary_check(in, chunk, (boundary_kind)kind, tensor));
        }
    }
    return ST_OK;
}

status bind_buffers(binder *b)
{
    bound_slots *slots = &b->out->slots;
    plan_tensor tensor = {.bytes = 0};
    TRY(boundaries_check(b, &tensor));
    tensor.kind = PLAN_BYTES_ACTIVATIONS;
    tensor.role = ROLE_ACTIVATION;
    TRY(arena_new(b->in->a, slots->boundary.count + 1, &slots->buffer_ref));
    for (int32_t k = 0; k < slots->boundary.count; k++) {
        (void)snprintf(tensor.name, sizeof(tensor.name), "boundary#%d", (int)k);
        TRY(plan_tensor_push(b->in->p, &tensor, &slots->buffer_ref[k]));
    }
    return ST_OK;
}

// ---- bindings of the first and the last layer of a chunk ----------------------------------------

static status binding_make(binder *b, boundary_binding *made)
{
    const lower_input *in = b->in;
    const layer_slot *slot = &b->out->layers[made->layer].slots[made->slot];
    const op_program *program = in->m->programs[in->m->layers[made->layer].program];
    const expand_chunk *c = &b->x->chunks[b->x->chunk_of[made->layer]];
    const int buffers = expand_buffers(b->x, made->layer);
    for (int k = 0; k < buffers; k++) {
        plan_binding binding = in->p->bindings[slot->binding[k]];
        int32_t *map = NULL;
        TRY(arena_new(in->p->run->a, program->tensor_count + 1, &map));
        memcpy(map, binding.tensor, (size_t)program->tensor_count * sizeof(int32_t));
        for (int kind = 0; kind < BOUNDARY_COUNT; kind++) {
            if (made->ref[kind] < 0) continue;
            map[bind_boundary_tensor(in, c, (boundary_kind)kind)] = made->ref[kind];
        }
        binding.tensor = map;
        TRY(bind_add_binding(in, &binding, &made->binding[k]));
    }
    return ST_OK;
}

// Makes the layer's binding in the micro-batch's slot use the micro-batch's boundary buffers.
static status layer_bind(binder *b, int32_t chunk, int32_t layer, int32_t microbatch)
{
    const lower_input *in = b->in;
    const expand_chunk *c = &b->x->chunks[chunk];
    const bound_slots *slots = &b->out->slots;
    layer_slot *slot = &b->out->layers[layer].slots[slots->slot_of[chunk][microbatch]];
    boundary_binding want = {
        .layer = layer, .slot = slots->slot_of[chunk][microbatch], .next = slot->bound - 1};
    int32_t at = slot->bound - 1;
    for (int kind = 0; kind < BOUNDARY_COUNT; kind++) {
        const bool is_mine = bind_boundary_layer(c, (boundary_kind)kind) == layer;
        const int32_t buffer =
            is_mine ? bind_buffer(in, slots, chunk, microbatch, (boundary_kind)kind) : -1;
        want.ref[kind] = buffer >= 0 ? slots->buffer_ref[buffer] : -1;
        if (buffer < 0) continue;
        slot->tensor[bind_boundary_tensor(in, c, (boundary_kind)kind)] = want.ref[kind];
    }
    while (at >= 0 && memcmp(b->boundary_bindings[at].ref, want.ref, sizeof(want.ref)) != 0) {
        at = b->boundary_bindings[at].next;
    }
    if (at < 0) {
        TRY(binding_make(b, &want));
        TRY(arena_grow(in->a, (void **)&b->boundary_bindings, &b->boundary_capacity,
                       b->boundary_count + 1, (int64_t)sizeof(want)));
        at = (int32_t)b->boundary_count;
        b->boundary_bindings[b->boundary_count++] = want;
        slot->bound = at + 1;
    }
    memcpy(slot->binding, b->boundary_bindings[at].binding, sizeof(slot->binding));
    return ST_OK;
}

status bind_boundaries(binder *b, int32_t chunk, int32_t microbatch)
{
    const expand_chunk *c = &b->x->chunks[chunk];
    if (b->out->slots.boundary.count == 0) return ST_OK;
    TRY(layer_bind(b, chunk, c->first_layer, microbatch));
    if (c->end_layer - 1 == c->first_layer) return ST_OK;
    return layer_bind(b, chunk, c->end_layer - 1, microbatch);
}
