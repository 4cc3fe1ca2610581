// Finds the first operation of each weight's optimizer that reads the gradient, and hashes the
// gradient in the order of that stream.
#include "train/gradients.h"

#include "base/fault.h"
#include "base/hash.h"
#include "op/op_kind.h"

#include <stdio.h>

typedef struct gradient_watch {
    const char *bytes; // in the device's memory, or in the copy
    char *writable;    // the same, for the fault point; NULL: it cannot be changed
    int64_t count;
    uint64_t *hash;
    char fault[32];
} gradient_watch;

static status gradient_hash(void *context)
{
    gradient_watch *w = context;
    if (w->writable != NULL && fault_point(w->fault) != ST_OK) {
        error_clear();
        w->writable[w->count / 2] ^= 0x10;
    }
    *w->hash = hash64(w->bytes, w->count, *w->hash);
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

static int64_t gradient_bytes(const plan_tensor *t)
{
    int64_t count = 1;
    for (int i = 0; i < t->ndim; i++) count *= t->dims[i];
    return count * dtype_bytes(t->type);
}

// Adds the probes to those that the plan has already, which are of earlier actions.
static status plan_watch(arena *a, const train_gradients *g, const train_watch *before)
{
    const plan *p = before->p;
    const int64_t weights = p->model->weight_count;
    exec_probe *probes = NULL, probe;
    bool *has = NULL;
    char *copy = NULL;
    int64_t count = before->count, most = 0;
    int32_t weight = -1;
    TRY(arena_new(a, weights + count + 1, &probes));
    TRY(arena_new(a, weights + 1, &has));
    for (int64_t i = 0; i < count; i++) probes[i] = before->probes[i];
    for (int32_t i = 0; i < p->action_count; i++) {
        if (!probe_find(p, i, &probe, &weight) || has[weight]) continue;
        gradient_watch *w = NULL;
        has[weight] = true;
        TRY(arena_new(a, 1, &w));
        w->count = gradient_bytes(plan_tensor_at(p, probe.ref));
        w->hash = &g->hashes[weight];
        if (g->base != NULL) w->writable = g->base + plan_tensor_offset(p, probe.ref);
        w->bytes = w->writable;
        (void)snprintf(w->fault, sizeof(w->fault), "train.gradient.%d", g->rank);
        probe.call = gradient_hash;
        probe.context = w;
        if (w->bytes == NULL) probe.bytes = w->count;
        most = max_i64(most, probe.bytes);
        probes[count++] = probe;
    }
    if (most > 0) TRY(arena_new(a, most, &copy));
    // One copy after the other, in the order of the stream.
    for (int64_t i = before->count; i < count && most > 0; i++) {
        gradient_watch *w = probes[i].context;
        if (probes[i].bytes == 0) continue;
        probes[i].to = copy;
        w->bytes = copy;
    }
    if (g->rest != NULL) TRY(train_rest_add(g->rest, a, p, &probes, &count));
    exec_probes_set(g->e, p, probes, count);
    return ST_OK;
}

status train_gradients_watch(arena *a, const train_gradients *g, const train_watch *plans,
                             int64_t count)
{
    for (int64_t i = 0; i < count; i++) TRY(plan_watch(a, g, &plans[i]));
    return ST_OK;
}
