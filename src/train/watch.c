// Finds the operations to watch in a plan.
#include "train/watch.h"

static int32_t node_of(const plan *p, const plan_action *a, op_code code)
{
    if (a->kind != ACTION_COMPUTE || a->binding < 0) return -1;
    const op_node *nodes = p->bindings[a->binding].program->lists[a->list].nodes;
    for (int32_t i = 0; i < a->ops_count; i++) {
        if (nodes[a->ops_begin + i].code == code) return i;
    }
    return -1;
}

static status probe_make(arena *a, int32_t action, int32_t node, int operand, train_watch *w)
{
    const plan *p = w->p;
    const plan_action *at = &p->actions[action];
    const plan_binding *b = &p->bindings[at->binding];
    const op_node *n = &b->program->lists[at->list].nodes[at->ops_begin + node];
    const int32_t ref = b->tensor[op_operand(n, operand)];
    const plan_tensor *t = plan_tensor_at(p, ref);
    const int64_t batches = p->own_sequences / p->micro_batch;
    if (t->type != DTYPE_F32) return fail(ST_INTERNAL, "%s is not fp32", t->name);
    if (w->data == NULL) {
        w->values = t->dims[0] * (t->ndim == 1 ? 1 : t->dims[1]);
        TRY(arena_new(a, batches, &w->probes));
        TRY(arena_new(a, batches * w->values, &w->data));
    }
    if (at->microbatch < 0 || at->microbatch >= batches || w->count == batches) {
        return fail(ST_INTERNAL, "%s is not there once in each micro-batch", t->name);
    }
    w->probes[w->count++] = (exec_probe){.action = action,
                                         .node = node,
                                         .ref = ref,
                                         .bytes = w->values * (int64_t)sizeof(float),
                                         .to = w->data + at->microbatch * w->values};
    return ST_OK;
}

status train_watch_make(arena *a, const plan *p, op_code code, int operand, train_watch *w)
{
    *w = (train_watch){.p = p};
    for (int32_t i = 0; i < p->action_count; i++) {
        const int32_t node = node_of(p, &p->actions[i], code);
        if (node >= 0) TRY(probe_make(a, i, node, operand, w));
    }
    return ST_OK;
}

void train_watch_set(exec *e, const train_watch *w)
{
    exec_probes_set(e, w->p, w->count > 0 ? w->probes : NULL, w->count);
}
