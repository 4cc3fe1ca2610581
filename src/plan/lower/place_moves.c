// Pass 5 of lowering, slots: gives each micro-batch the tensors that its live intervals were
// assigned to.
//
// A slot has a tensor of each name for its micro-batch, from the forward to the last half of the
// backward. Most tensors are live only for a part of that, and fewer of them are live at a time
// than there are slots. So after all lifetimes are known, memory assignment distributes the
// intervals again (plan_internal.h, slot_copies), and this file updates the actions: each gets a
// binding with the tensors of its time. Tensors that a transfer between stages reads or writes stay
// with their slots, because transfers overlap with computation.
#include "base/hash.h"
#include "plan/lower/place_internal.h"

#include <string.h>

// A binding that was made from another one.
typedef struct variant {
    int32_t from, binding;
    int32_t next; // in the same hash slot; -1
} variant;

// A part of a tensor whose bytes moved to another tensor.
typedef struct moved_part {
    int32_t from, whole, to;
} moved_part;

typedef struct renaming {
    const lower_input *in;
    const lifetime_table *lifetimes;
    int32_t *map;   // [tensor of the program] for the current action
    int32_t *slots; // [hash of a map, & mask] its first variant; -1
    uint64_t mask;
    variant *variants;
    int64_t count, capacity;
    moved_part *parts;
    int64_t part_count, part_capacity;
} renaming;

static bool has_copies(const lower_input *in, const expanded *x, const bound *b, int32_t layer,
                       tensor_id t)
{
    const op_program *program = in->m->programs[in->m->layers[layer].program];
    const expand_chunk *c = &x->chunks[x->chunk_of[layer]];
    const bool *crosses = b->slots.crosses[x->chunk_of[layer]];
    if (program->tensors[t].role != ROLE_ACTIVATION || program->tensors[t].view_of != TENSOR_NONE) {
        return false;
    }
    for (int kind = 0; kind < BOUNDARY_COUNT; kind++) { // boundary buffers belong to no slot
        if (!crosses[kind] || bind_boundary_layer(c, (boundary_kind)kind) != layer) continue;
        if (bind_boundary_tensor(in, c, (boundary_kind)kind) == t) return false;
    }
    for (int32_t s = 0; s < b->slots.slot_count; s++) {
        if (b->layers[layer].slots[s].tensor[t] < 0) return false;
    }
    return true;
}

status place_find_copies(const lower_input *in, const expanded *x, const bound *b, slot_copies *out)
{
    int64_t capacity = 0;
    *out = (slot_copies){.slots = b->slots.slot_count, .tensors = in->p->tensor_count};
    if (out->slots < 2 || in->r->optimizer == NULL) return ST_OK;
    TRY(arena_new(in->a, out->tensors + 1, &out->class_of));
    memset(out->class_of, -1, (size_t)out->tensors * sizeof(*out->class_of));
    for (int32_t i = 0; i < in->m->layer_count; i++) {
        const op_program *program = in->m->programs[in->m->layers[i].program];
        for (tensor_id t = 0; t < program->tensor_count && x->chunk_of[i] >= 0; t++) {
            if (!has_copies(in, x, b, i, t)) continue;
            TRY(arena_grow(in->a, (void **)&out->rows, &capacity, (out->count + 1) * out->slots,
                           (int64_t)sizeof(*out->rows)));
            for (int32_t s = 0; s < out->slots; s++) {
                const int32_t ref = b->layers[i].slots[s].tensor[t];
                out->rows[out->count * out->slots + s] = ref;
                out->class_of[ref] = (int32_t)out->count;
            }
            out->count++;
        }
    }
    return ST_OK;
}

static status binding_push(plan *p, const plan_binding *binding, int32_t *out)
{
    TRY(arena_grow(p->a, (void **)&p->bindings, &p->binding_capacity, p->binding_count + 1,
                   (int64_t)sizeof(plan_binding)));
    *out = (int32_t)p->binding_count;
    p->bindings[p->binding_count++] = *binding;
    return ST_OK;
}

// The reference that replaces `ref` between two times.
static status ref_move(renaming *r, int32_t ref, int64_t begin, int64_t end, int32_t *out)
{
    plan *p = r->in->p;
    *out = ref;
    if (ref < 0) return ST_OK;
    const plan_tensor *t = &p->tensors[ref];
    const bool is_part = t->is_part;
    const int32_t whole = is_part ? t->whole : ref;
    const int32_t to = lifetime_row_at(r->lifetimes, whole, begin, end);
    if (!is_part) *out = to;
    if (!is_part || to == whole) return ST_OK;
    for (int64_t i = 0; i < r->part_count; i++) {
        if (r->parts[i].from == ref && r->parts[i].whole == to) {
            *out = r->parts[i].to;
            return ST_OK;
        }
    }
    plan_tensor part = *t;
    part.whole = to;
    TRY(plan_tensor_push(p, &part, out));
    TRY(arena_grow(r->in->a, (void **)&r->parts, &r->part_capacity, r->part_count + 1,
                   (int64_t)sizeof(*r->parts)));
    r->parts[r->part_count++] = (moved_part){ref, to, *out};
    return ST_OK;
}

// Gives an action a binding with the tensors of its time.
static status binding_move(renaming *r, plan_action *action, int64_t begin, int64_t end)
{
    plan_binding b = r->in->p->bindings[action->binding];
    const int64_t n = b.program->tensor_count;
    bool moves = false;
    for (int64_t t = 0; t < n; t++) {
        TRY(ref_move(r, b.tensor[t], begin, end, &r->map[t]));
        moves = moves || r->map[t] != b.tensor[t];
    }
    if (!moves) return ST_OK;
    int32_t *slot =
        &r->slots[hash64(r->map, n * (int64_t)sizeof(*r->map), (uint64_t)action->binding) &
                  r->mask];
    for (int32_t k = *slot; k >= 0; k = r->variants[k].next) {
        const plan_binding *other = &r->in->p->bindings[r->variants[k].binding];
        if (r->variants[k].from != action->binding) continue;
        if (memcmp(other->tensor, r->map, (size_t)n * sizeof(*r->map)) != 0) continue;
        action->binding = r->variants[k].binding;
        return ST_OK;
    }
    int32_t *map = NULL, made = -1;
    TRY(arena_new(r->in->p->run->a, n, &map));
    memcpy(map, r->map, (size_t)n * sizeof(*map));
    b.tensor = map;
    TRY(binding_push(r->in->p, &b, &made));
    TRY(arena_grow(r->in->a, (void **)&r->variants, &r->capacity, r->count + 1,
                   (int64_t)sizeof(*r->variants)));
    r->variants[r->count] = (variant){action->binding, made, *slot};
    *slot = (int32_t)r->count++;
    action->binding = made;
    return ST_OK;
}

// The item of a communication at a time. A layer's own communications, between its nodes or
// overlapped with them, use moved tensors everywhere; others only for unsharded tensors, which are
// read when the node before is done and written from now on.
static plan_comm_item item_moved(const renaming *r, const plan_action *a,
                                 const plan_comm_item *item, int64_t time)
{
    const plan_tensor *tensors = r->in->p->tensors;
    const bool of_layer = a->layer >= 0;
    const bool reads = item->in >= 0 && (of_layer || tensors[item->in].is_unsharded);
    const bool writes = item->out >= 0 && (of_layer || tensors[item->out].is_unsharded);
    const int64_t read = of_layer ? time : time - 1;
    plan_comm_item out = *item;
    if (reads) out.in = lifetime_row_at(r->lifetimes, item->in, read, read);
    if (writes) out.out = lifetime_row_at(r->lifetimes, item->out, time, time);
    return out;
}

// Gives an action its own communication record if its items move differently from those of the
// other actions with the same record.
static status comm_own(plan *p, plan_action *a)
{
    plan_comm made = p->comms[a->comm];
    TRY(arena_grow(p->a, (void **)&p->items, &p->item_capacity, p->item_count + made.items_count,
                   (int64_t)sizeof(*p->items)));
    memcpy(&p->items[p->item_count], &p->items[made.items_begin],
           (size_t)made.items_count * sizeof(*p->items));
    made.items_begin = (int32_t)p->item_count;
    p->item_count += made.items_count;
    TRY(arena_grow(p->a, (void **)&p->comms, &p->comm_capacity, p->comm_count + 1,
                   (int64_t)sizeof(made)));
    a->comm = (int32_t)p->comm_count;
    p->comms[p->comm_count++] = made;
    return ST_OK;
}

static bool is_same_item(const plan_comm_item *a, const plan_comm_item *b)
{
    return a->in == b->in && a->out == b->out;
}

// `users`: [communication] number of actions with this record.
static status items_move(const renaming *r, plan_action *a, int64_t time, const int32_t *users)
{
    plan *p = r->in->p;
    const plan_comm *c = &p->comms[a->comm];
    const int32_t begin = c->items_begin, count = c->items_count;
    bool moves = false;
    for (int32_t i = begin; i < begin + count && !moves; i++) {
        const plan_comm_item moved = item_moved(r, a, &p->items[i], time);
        moves = !is_same_item(&moved, &p->items[i]);
    }
    if (!moves) return ST_OK;
    if (users[a->comm] > 1) TRY(comm_own(p, a));
    const int32_t to = p->comms[a->comm].items_begin;
    for (int32_t i = 0; i < count; i++) {
        p->items[to + i] = item_moved(r, a, &p->items[begin + i], time);
    }
    return ST_OK;
}

status place_moves(const lower_input *in, const lifetime_table *lifetimes, const int64_t *begins)
{
    plan *p = in->p;
    renaming r = {.in = in, .lifetimes = lifetimes};
    int32_t *users = NULL;
    int64_t most = 2; // for a sum of two
    for (int32_t i = 0; i < in->m->program_count; i++) {
        most = max_i64(most, in->m->programs[i]->tensor_count);
    }
    TRY(arena_new(in->a, most + 1, &r.map));
    for (r.mask = 63; (int64_t)r.mask < p->action_count;) r.mask = 2 * r.mask + 1;
    TRY(arena_new(in->a, r.mask + 1, &r.slots));
    memset(r.slots, -1, (size_t)(r.mask + 1) * sizeof(*r.slots));
    TRY(arena_new(in->a, p->comm_count + 1, &users));
    for (int64_t i = 0; i < p->action_count; i++) {
        if (p->actions[i].kind == ACTION_COMMUNICATE) users[p->actions[i].comm]++;
    }
    for (int64_t i = 0; i < p->action_count; i++) {
        plan_action *a = &p->actions[i];
        const int64_t begin = begins[i];
        if (a->kind == ACTION_COMMUNICATE) TRY(items_move(&r, a, begin, users));
        if (a->kind == ACTION_COMPUTE) TRY(binding_move(&r, a, begin, begin + a->ops_count - 1));
    }
    return ST_OK;
}
