// Finds the operations that write a rank's own gradients last, and hashes the gradients there.
//
// A gradient is a rank's own until a communication has added those of others. An accumulator is
// hashed when a micro-batch has added its last term, so each hash covers all micro-batches, also
// where ZeRO sums after each of them.
#include "train/gradients.h"

#include "base/fault.h"
#include "base/hash.h"
#include "plan/access.h"

#include <stdio.h>
#include <string.h>

typedef struct local_watch {
    const char *bytes; // in the device's memory, or in the copy
    char *writable;    // the same, for the fault point; NULL: it cannot be changed
    int64_t count;
    uint64_t *hash;
    const char *fault;
} local_watch;

static status local_hash(void *context)
{
    local_watch *w = context;
    if (w->writable != NULL) fault_flip(w->fault, &w->writable[w->count / 2]);
    *w->hash = hash64(w->bytes, w->count, *w->hash);
    return ST_OK;
}

// One write of a gradient.
typedef struct local_write {
    exec_probe probe;
    int32_t row, microbatch; // row: of `of`
} local_write;

typedef struct local_finder {
    const plan *p;
    bool *is_summed;   // [row] others' terms are in it
    int32_t *last;     // [row] its last write, when the list is read from its end; -1: none
    local_write *list; // in the order of the actions
    int64_t count, capacity;
    arena *a;
} local_finder;

// Transient tensors, then those of the run; a part is where its whole is.
static int64_t row_of(const plan *p, int32_t ref)
{
    int64_t begin = 0;
    const int32_t owner = plan_access_owner(p, ref, &begin);
    return plan_ref_is_run(owner) ? p->tensor_count + plan_ref_row(owner) : owner;
}

// The gradient that a tensor of a program is, or a view of; -1: it is none.
static int32_t gradient_of(const plan_binding *b, tensor_id t)
{
    while (t != TENSOR_NONE && b->program->tensors[t].view_of != TENSOR_NONE) {
        t = b->program->tensors[t].view_of;
    }
    if (t == TENSOR_NONE || b->program->tensors[t].role != ROLE_WEIGHT_GRAD) return -1;
    return b->tensor[t];
}

static void communication_see(local_finder *f, const plan_action *at)
{
    const plan_comm *c = &f->p->comms[at->comm];
    for (int32_t i = 0; i < c->items_count; i++) {
        const plan_comm_item *item = &f->p->items[c->items_begin + i];
        if (item->in != -1) f->is_summed[row_of(f->p, item->in)] = true;
        if (item->out != -1) f->is_summed[row_of(f->p, item->out)] = true;
    }
}

static status node_see(local_finder *f, int32_t action, int32_t node)
{
    const plan_action *at = &f->p->actions[action];
    const plan_binding *b = &f->p->bindings[at->binding];
    const op_node *n = &b->program->lists[at->list].nodes[at->ops_begin + node];
    bool has_summed = false;
    for (int k = 0; k < OP_MAX_IN; k++) {
        const int32_t ref = gradient_of(b, n->in[k]);
        if (ref != -1) has_summed = has_summed || f->is_summed[row_of(f->p, ref)];
    }
    for (int k = 0; k < OP_MAX_OUT; k++) {
        const int32_t ref = gradient_of(b, n->out[k]);
        if (ref == -1) continue;
        const int64_t row = row_of(f->p, ref);
        if (!at->accumulate) f->is_summed[row] = false;
        if (has_summed) f->is_summed[row] = true;
        if (f->is_summed[row] || plan_tensor_at(f->p, ref)->weight < 0) continue;
        TRY(arena_grow(f->a, (void **)&f->list, &f->capacity, f->count + 1,
                       (int64_t)sizeof(*f->list)));
        f->list[f->count++] = (local_write){.probe = {.action = action, .node = node, .ref = ref},
                                            .row = (int32_t)row,
                                            .microbatch = at->microbatch};
    }
    return ST_OK;
}

// Keeps the last write of each micro-batch to each accumulator. Returns how many they are.
static int64_t last_keep(local_finder *f)
{
    int64_t kept = f->count;
    for (int64_t i = f->count - 1; i >= 0; i--) {
        const local_write *w = &f->list[i];
        if (f->last[w->row] == w->microbatch) continue;
        f->last[w->row] = w->microbatch;
        f->list[--kept] = *w; // it overwrites none that is still to be read
    }
    memmove(f->list, f->list + kept, (size_t)(f->count - kept) * sizeof(*f->list));
    return f->count - kept;
}

static status watch_make(arena *a, const train_gradients *g, const plan *p, local_write *write,
                         char **fault, int64_t *most)
{
    local_watch *w = NULL;
    const plan_tensor *t = plan_tensor_at(p, write->probe.ref);
    TRY(arena_new(a, 1, &w));
    if (*fault == NULL) TRY(arena_format(a, fault, "train.local.%d", g->rank));
    w->count = plan_tensor_held_bytes(t);
    w->hash = &g->hashes[t->weight];
    w->fault = *fault;
    if (g->base != NULL) w->writable = g->base + plan_tensor_offset(p, write->probe.ref);
    w->bytes = w->writable;
    write->probe.call = local_hash;
    write->probe.context = w;
    if (w->bytes == NULL) write->probe.bytes = w->count;
    *most = max_i64(*most, write->probe.bytes);
    return ST_OK;
}

status train_gradients_local(arena *a, const train_gradients *g, const plan *p,
                             const exec_probe **out, int64_t *count)
{
    const int64_t rows = p->tensor_count + p->run->count;
    local_finder f = {.p = p, .a = a};
    exec_probe *probes = NULL;
    char *copy = NULL, *fault = NULL;
    int64_t most = 0;
    TRY(arena_new(a, rows + 1, &f.is_summed));
    TRY(arena_new(a, rows + 1, &f.last));
    for (int64_t i = 0; i < rows; i++) f.last[i] = INT32_MIN;
    for (int32_t i = 0; i < p->action_count; i++) {
        const plan_action *at = &p->actions[i];
        if (at->kind == ACTION_COMMUNICATE) communication_see(&f, at);
        if (at->kind != ACTION_COMPUTE || at->binding < 0) continue;
        for (int32_t k = 0; k < at->ops_count; k++) TRY(node_see(&f, i, k));
    }
    f.count = last_keep(&f);
    TRY(arena_new(a, f.count + 1, &probes));
    for (int64_t i = 0; i < f.count; i++) {
        TRY(watch_make(a, g, p, &f.list[i], &fault, &most));
        probes[i] = f.list[i].probe;
    }
    if (most > 0) TRY(arena_new(a, most, &copy));
    // One copy after the other, in the order of the stream.
    for (int64_t i = 0; i < f.count && most > 0; i++) {
        local_watch *w = probes[i].context;
        probes[i].to = copy;
        w->bytes = copy;
    }
    *out = probes;
    *count = f.count;
    return ST_OK;
}
