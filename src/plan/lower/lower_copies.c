// Lowering, slots: which of the tensors that are alike a micro-batch uses.
//
// A slot has a tensor of each name for its micro-batch, from the forward to the last half of the backward; most
// live for a part of that only, and fewer of them are in use at a time than there are slots. So when all lives
// are known, memory assignment finds each a place anew (plan_internal.h, life_copies), and here the actions are
// told: each gets a binding with the tensors that are its own at its time. What a link reads or writes stays
// with its slot, for links go on beside the products.
#include "base/hash.h"
#include "plan/lower/lower.h"

#include <string.h>

// A binding made from another one.
typedef struct variant {
    int32_t from, binding;
    int32_t next; // in the same slot; -1
} variant;

// A part of a tensor that has come to another one.
typedef struct moved_part {
    int32_t from, whole, to;
} moved_part;

typedef struct renaming {
    lowering *l;
    int32_t *map;   // [tensor of the program] of the action that is looked at
    int32_t *slots; // [hash of a map, & mask] its first variant; -1
    uint64_t mask;
    variant *variants;
    int64_t count, capacity;
    moved_part *parts;
    int64_t part_count, part_capacity;
} renaming;

static bool is_alike(const lowering *l, int32_t layer_row, tensor_id t)
{
    const layer_state *state = &l->layers[layer_row];
    const op_program *program = l->m->programs[l->m->layers[layer_row].program];
    const op_tensor *local = &program->tensors[t];
    if (local->role != ROLE_ACTIVATION || local->view_of != TENSOR_NONE) return false;
    for (int32_t s = 0; s < l->slot_count; s++) {
        const int32_t ref = state->slots[s].tensor[t];
        if (ref < 0 || (ref < l->is_border_capacity && l->is_border[ref])) return false;
    }
    return true;
}

status lower_copies_find(lowering *l)
{
    life_copies *c = &l->lives.copies;
    int64_t capacity = 0;
    if (l->slot_count < 2 || l->r->optimizer == NULL) return ST_OK;
    c->slots = l->slot_count;
    c->tensors = l->p->tensor_count;
    TRY(arena_new(l->a, c->tensors + 1, &c->class_of));
    memset(c->class_of, -1, (size_t)c->tensors * sizeof(*c->class_of));
    for (int32_t i = 0; i < l->m->layer_count; i++) {
        const op_program *program = l->m->programs[l->m->layers[i].program];
        for (tensor_id t = 0; t < program->tensor_count && l->layers[i].is_here; t++) {
            if (!is_alike(l, i, t)) continue;
            TRY(arena_grow(l->a, (void **)&c->rows, &capacity, (c->count + 1) * c->slots,
                           (int64_t)sizeof(*c->rows)));
            for (int32_t s = 0; s < c->slots; s++) {
                const int32_t ref = l->layers[i].slots[s].tensor[t];
                c->rows[c->count * c->slots + s] = ref;
                c->class_of[ref] = (int32_t)c->count;
            }
            c->count++;
        }
    }
    return ST_OK;
}

// What a reference is to be between two times.
static status ref_move(renaming *r, int32_t ref, int64_t begin, int64_t end, int32_t *out)
{
    plan *p = r->l->p;
    *out = ref;
    if (ref < 0) return ST_OK;
    const plan_tensor *t = &p->tensors[ref];
    const bool is_part = t->is_part;
    const int32_t whole = is_part ? t->whole : ref;
    const int32_t to = life_moved(&r->l->lives, whole, begin, end);
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
    TRY(arena_grow(r->l->a, (void **)&r->parts, &r->part_capacity, r->part_count + 1,
                   (int64_t)sizeof(*r->parts)));
    r->parts[r->part_count++] = (moved_part){ref, to, *out};
    return ST_OK;
}

// The binding of an action, with the tensors that are its own at its time.
static status binding_move(renaming *r, plan_action *action, int64_t begin, int64_t end)
{
    lowering *l = r->l;
    plan_binding b = l->p->bindings[action->binding];
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
        const plan_binding *other = &l->p->bindings[r->variants[k].binding];
        if (r->variants[k].from != action->binding) continue;
        if (memcmp(other->tensor, r->map, (size_t)n * sizeof(*r->map)) != 0) continue;
        action->binding = r->variants[k].binding;
        return ST_OK;
    }
    int32_t *map = NULL, made = -1;
    TRY(arena_new(l->p->run->a, n, &map));
    memcpy(map, r->map, (size_t)n * sizeof(*map));
    b.tensor = map;
    TRY(lower_binding(l, &b, &made));
    TRY(arena_grow(l->a, (void **)&r->variants, &r->capacity, r->count + 1,
                   (int64_t)sizeof(*r->variants)));
    r->variants[r->count] = (variant){action->binding, made, *slot};
    *slot = (int32_t)r->count++;
    action->binding = made;
    return ST_OK;
}

// Of a layer's own communications, between its nodes or beside them, all has changed its place; of others only
// what passes: it is read when the node before is done, and written from now on.
static void items_move(const lowering *l, const plan_action *a, int64_t time)
{
    const plan_comm *c = &l->p->comms[a->comm];
    const bool of_layer = a->layer >= 0;
    for (int32_t i = c->items_begin; i < c->items_begin + c->items_count; i++) {
        plan_comm_item *item = &l->p->items[i];
        const bool reads = item->in >= 0 && (of_layer || l->p->tensors[item->in].passes);
        const bool writes = item->out >= 0 && (of_layer || l->p->tensors[item->out].passes);
        const int64_t read = of_layer ? time : time - 1;
        if (reads) item->in = life_moved(&l->lives, item->in, read, read);
        if (writes) item->out = life_moved(&l->lives, item->out, time, time);
    }
}

status lower_copies_move(lowering *l)
{
    const plan *p = l->p;
    renaming r = {.l = l};
    int64_t most = 2; // of a sum of two
    if (l->lives.copies.count == 0 && !l->lives.is_complete) return ST_OK;
    for (int32_t i = 0; i < l->m->program_count; i++) {
        most = max_i64(most, l->m->programs[i]->tensor_count);
    }
    TRY(arena_new(l->a, most + 1, &r.map));
    for (r.mask = 63; (int64_t)r.mask < p->action_count;) r.mask = 2 * r.mask + 1;
    TRY(arena_new(l->a, r.mask + 1, &r.slots));
    memset(r.slots, -1, (size_t)(r.mask + 1) * sizeof(*r.slots));
    for (int64_t i = 0; i < p->action_count; i++) {
        plan_action *a = &p->actions[i];
        const int64_t begin = l->begins[i];
        if (a->kind == ACTION_COMMUNICATE) items_move(l, a, begin);
        if (a->kind == ACTION_COMPUTE) TRY(binding_move(&r, a, begin, begin + a->ops_count - 1));
    }
    return ST_OK;
}
