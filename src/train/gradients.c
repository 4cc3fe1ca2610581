// Finds the first operation of each weight's optimizer that reads the gradient, and hashes the
// gradient in the order of that stream. A sum that one rank alone has is also hashed right after
// its last write, where the plan says which one that is.
#include "train/gradients.h"

#include "base/fault.h"
#include "checkpoint/checkpoint.h"
#include "op/op_kind.h"
#include "plan/access.h"

#include <stdio.h>

typedef struct gradient_watch {
    const kern_context *kernels;
    const char *bytes; // in the device's memory, or in the copy
    char *writable;    // the same, for the fault point; NULL: it cannot be changed
    int64_t count;
    dtype type;
    kern_tile *tiles; // [kern_seal_tiles] of the gradient since its last write
    bool is_in_pass;  // the update hashes it, and compares it if it is sealed
    bool is_sealed;   // it has hashes from after its last write
    uint64_t *hash;
    const char *weight;
    train_rest *rest; // hears of a sum that has changed
    char fault[32];
} gradient_watch;

static int64_t tiles_of(const gradient_watch *w)
{
    return kern_seal_tiles(w->count / dtype_bytes(w->type));
}

static void gradient_flip(const gradient_watch *w)
{
    if (w->writable != NULL) fault_flip(w->fault, &w->writable[w->count / 2]);
}

// Before the update, if that hashes the gradient.
static status gradient_flip_perhaps(void *context)
{
    gradient_flip(context);
    return ST_OK;
}

static status gradient_hash(void *context)
{
    gradient_watch *w = context;
    bool has_changed = false;
    if (!w->is_in_pass) gradient_flip(w);
    for (int64_t k = 0; k < tiles_of(w); k++) {
        kern_tile *t = &w->tiles[k];
        const uint64_t hash =
            w->is_in_pass ? t->hash : kern_seal_hash(w->kernels, w->bytes, w->count, w->type, k);
        has_changed = has_changed || t->has_changed || (w->is_sealed && hash != t->hash);
        *w->hash = ckpt_tile_add(*w->hash, hash);
    }
    if (has_changed) train_rest_tell(w->rest, "gradient/", w->weight);
    w->is_sealed = false;
    return ST_OK;
}

// After the last write.
static status gradient_seal(void *context)
{
    gradient_watch *w = context;
    for (int64_t k = 0; k < tiles_of(w); k++) {
        w->tiles[k].hash = kern_seal_hash(w->kernels, w->bytes, w->count, w->type, k);
    }
    w->is_sealed = true;
    return ST_OK;
}

// The probe of an action that reads a weight's gradient for its update. False: it reads none.
static bool probe_find(const plan *p, int32_t action, exec_probe *out, int32_t *weight)
{
    const plan_action *at = &p->actions[action];
    if (at->kind != ACTION_OPTIMIZER || at->binding < 0) return false;
    const plan_binding *b = &p->bindings[at->binding];
    for (int32_t i = 0; i < at->ops_count; i++) {
        const op_node *node = &b->program->lists[at->list].nodes[at->ops_begin + i];
        if (!op_kind_of(node->code)->takes_grad || op_adds_norm(node->code)) continue;
        *out = (exec_probe){.action = action, .node = i, .ref = b->tensor[node->in[0]]};
        *weight = node->attrs.tensor_index;
        return true;
    }
    return false;
}

// ---- writes -------------------------------------------------------------------------------------

typedef struct gradient_writes {
    exec_probe last; // after the last write; action -1: the plan does not order it after all others
    int32_t stream;  // of the sums over ranks; -1: there was none
} gradient_writes;

// Whether one is the other, or both are parts of a tensor.
static bool is_together(const plan *p, int32_t ref, int32_t other)
{
    int64_t begin = 0;
    return plan_access_owner(p, ref, &begin) == plan_access_owner(p, other, &begin);
}

// A sum works in place, so it follows the nodes before it, and other sums of its stream.
static void sum_add(const plan *p, int32_t action, int32_t ref, gradient_writes *w)
{
    const plan_action *a = &p->actions[action];
    const plan_comm *c = &p->comms[a->comm];
    for (int32_t i = 0; i < c->items_count; i++) {
        const plan_comm_item *item = &p->items[c->items_begin + i];
        if (item->out == -1 || !is_together(p, item->out, ref)) continue;
        const bool is_ordered = item->in == item->out && (w->stream < 0 || w->stream == a->stream);
        w->last.action = is_ordered ? action : -1;
        w->last.node = 0;
        w->stream = a->stream;
    }
}

// A node that writes all that the update reads follows every other write of it.
static void nodes_add(const plan *p, int32_t action, int32_t ref, gradient_writes *w)
{
    const plan_action *a = &p->actions[action];
    const plan_binding *b = &p->bindings[a->binding];
    for (int32_t k = 0; k < a->ops_count; k++) {
        const op_node *node = &b->program->lists[a->list].nodes[a->ops_begin + k];
        for (int i = 0; i < COUNT_OF(node->out); i++) {
            const int32_t out = node->out[i] != TENSOR_NONE ? b->tensor[node->out[i]] : -1;
            if (out == -1 || !is_together(p, out, ref)) continue;
            const bool is_first = w->stream < 0 && a->stream == STREAM_COMPUTE;
            w->last.action = out == ref || is_first ? action : -1;
            w->last.node = k;
        }
    }
}

static void writes_find(const plan *p, const exec_probe *update, gradient_writes *w)
{
    *w = (gradient_writes){.last = {.action = -1, .ref = update->ref}, .stream = -1};
    for (int32_t i = 0; i < update->action; i++) {
        const plan_action *a = &p->actions[i];
        if (a->kind == ACTION_COMMUNICATE) {
            sum_add(p, i, update->ref, w);
        } else if (a->kind == ACTION_COMPUTE && a->binding >= 0) {
            nodes_add(p, i, update->ref, w);
        }
    }
    if (w->stream < 0) w->last.action = -1; // one rank's own
}

// ---- probes -------------------------------------------------------------------------------------

static void probe_push(train_marks *list, const exec_probe *at, device_host_fn call,
                       gradient_watch *w)
{
    if (at->action < 0) return;
    list->probes[list->probe_count] = *at;
    list->probes[list->probe_count].call = call;
    list->probes[list->probe_count++].context = w;
}

// The update hashes the gradient. before: the node of the stream before it.
static void seal_push(train_marks *list, const exec_probe *update, const exec_probe *before,
                      bool compares, gradient_watch *w)
{
    if (!w->is_in_pass) return;
    list->seals[list->seal_count++] =
        (exec_seal){.action = update->action,
                    .node = update->node,
                    .seal = {.grad = w->tiles, .compares_grad = compares}};
    probe_push(list, before, gradient_flip_perhaps, w);
}

static const op_node *node_of(const plan *p, const exec_probe *probe)
{
    const plan_action *at = &p->actions[probe->action];
    const op_program *program = p->bindings[at->binding].program;
    return &program->lists[at->list].nodes[at->ops_begin + probe->node];
}

static status watch_make(arena *a, const train_gradients *g, const plan *p, const exec_probe *probe,
                         int32_t weight, gradient_watch **out)
{
    gradient_watch *w = NULL;
    const plan_action *at = &p->actions[probe->action];
    const op_node *node = node_of(p, probe);
    TRY(arena_new(a, 1, &w));
    w->kernels = g->kernels;
    w->count = plan_tensor_held_bytes(plan_tensor_at(p, probe->ref));
    w->type = plan_tensor_at(p, probe->ref)->type;
    TRY(arena_new(a, tiles_of(w) + 1, &w->tiles));
    w->hash = &g->hashes[weight];
    w->rest = g->rest;
    w->weight = p->model->weights[weight].name;
    if (g->base != NULL) w->writable = g->base + plan_tensor_offset(p, probe->ref);
    w->bytes = w->writable;
    w->is_in_pass = at->stream == STREAM_COMPUTE &&
                    train_rest_seals(g->rest, p, at, node, node->in[0], w->bytes, w->count);
    (void)snprintf(w->fault, sizeof(w->fault), "train.gradient.%d", g->rank);
    *out = w;
    return ST_OK;
}

// A sum that no other rank has is hashed twice, where the host touches the memory. Returns whether
// it is.
static bool sum_watch(const train_gradients *g, const plan *p, const exec_probe *update,
                      gradient_watch *w, train_marks *list)
{
    gradient_writes writes;
    if (g->base == NULL || g->is_compared[w->hash - g->hashes]) return false;
    writes_find(p, update, &writes);
    probe_push(list, &writes.last, gradient_seal, w);
    return writes.last.action >= 0;
}

// The last node of the compute stream before the one of the probe; action -1: there is none.
static exec_probe node_before(const plan *p, const exec_probe *probe)
{
    exec_probe before = *probe;
    before.node--;
    while (before.node < 0 && --before.action >= 0) {
        const plan_action *at = &p->actions[before.action];
        const bool has_nodes = at->kind == ACTION_COMPUTE || at->kind == ACTION_OPTIMIZER;
        if (has_nodes && at->stream == STREAM_COMPUTE) before.node = at->ops_count - 1;
    }
    return before;
}

static status update_watch(arena *a, const train_gradients *g, const plan *p, exec_probe *probe,
                           int32_t weight, train_marks *list)
{
    gradient_watch *w = NULL;
    const exec_probe before = node_before(p, probe);
    TRY(watch_make(a, g, p, probe, weight, &w));
    const bool compares = sum_watch(g, p, probe, w, list);
    seal_push(list, probe, &before, compares, w);
    if (w->bytes == NULL) probe->bytes = w->count;
    probe_push(list, probe, gradient_hash, w);
    return ST_OK;
}

// Adds the probes to those that the plan has already, which are sorted like all of them.
static status plan_watch(arena *a, const train_gradients *g, const train_watch *before)
{
    const plan *p = before->p;
    const int64_t weights = p->model->weight_count;
    train_marks list = {.probe_count = before->count};
    exec_probe probe;
    bool *has = NULL;
    char *copy = NULL;
    int64_t most = 0;
    int32_t weight = -1;
    TRY(arena_new(a, 3 * weights + before->count + 1, &list.probes));
    TRY(arena_new(a, weights + 1, &list.seals));
    TRY(arena_new(a, weights + 1, &has));
    for (int64_t i = 0; i < before->count; i++) list.probes[i] = before->probes[i];
    for (int32_t i = 0; i < p->action_count; i++) {
        if (!probe_find(p, i, &probe, &weight) || has[weight]) continue;
        has[weight] = true;
        TRY(update_watch(a, g, p, &probe, weight, &list));
        most = max_i64(most, probe.bytes);
    }
    if (most > 0) TRY(arena_new(a, most, &copy));
    // One copy after the other, in the order of the stream.
    for (int64_t i = before->count; i < list.probe_count && most > 0; i++) {
        gradient_watch *w = list.probes[i].context;
        if (list.probes[i].bytes == 0) continue;
        list.probes[i].to = copy;
        w->bytes = copy;
    }
    TRY(train_rest_add(g->rest, a, p, &list));
    exec_probes_set(g->e, p, list.probes, list.probe_count);
    exec_seals_set(g->e, p, list.seals, list.seal_count);
    return ST_OK;
}

status train_gradients_watch(arena *a, const train_gradients *g, const train_watch *plans,
                             int64_t count)
{
    for (int64_t i = 0; i < count; i++) TRY(plan_watch(a, g, &plans[i]));
    return ST_OK;
}
