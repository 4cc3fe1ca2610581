// Recomputation: which forward nodes run again before the backward lists, so that what they made
// need not be kept in between.
//
// Kept is what the policy says: with FULL nothing that the block made, with SELECTIVE what products
// and attention made (their log-sum-exp too). Whatever else the backward lists read is made again by
// the nodes that made it, and so on down to what is kept: the closure is the least set, and its
// forward order is a legal one. Random operations draw by counter, so they repeat themselves; every
// kernel gives the same bits for the same inputs, so recomputation changes no bit.
#include "op/op_internal.h"

#include <string.h>

typedef struct closure {
    const op_program *p;
    bool *needed; // [tensor] its whole must exist when the backward lists run
    bool *again;  // [forward node]
} closure;

static void need_inputs(closure *c, const op_node *node)
{
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (node->in[i] != TENSOR_NONE) c->needed[op_whole(c->p, node->in[i])] = true;
    }
}

static bool node_is_kept(const op_node *node, op_recompute policy)
{
    return policy == RECOMPUTE_NONE ||
           (policy == RECOMPUTE_SELECTIVE && op_kind_of(node->code)->is_product);
}

static bool node_is_needed(const closure *c, const op_node *node)
{
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (node->out[o] != TENSOR_NONE && c->needed[op_whole(c->p, node->out[o])]) return true;
    }
    return false;
}

status op_program_recompute(op_program *p, op_recompute policy)
{
    closure c = {.p = p};
    TRY(arena_new(p->a, p->tensor_count + 1, &c.needed));
    TRY(arena_new(p->a, p->lists[OP_FORWARD].count + 1, &c.again));
    for (int list = OP_BACKWARD_INPUT; list <= OP_BACKWARD_WEIGHT; list++) {
        for (int64_t i = 0; i < p->lists[list].count; i++) {
            need_inputs(&c, &p->lists[list].nodes[i]);
        }
    }
    // Backwards, so that a node's readers are known before it is asked.
    for (int64_t i = p->lists[OP_FORWARD].count - 1; i >= 0; i--) {
        const op_node *node = &p->lists[OP_FORWARD].nodes[i];
        c.again[i] = node_is_needed(&c, node) && !node_is_kept(node, policy);
        if (c.again[i]) need_inputs(&c, node);
    }
    p->lists[OP_RECOMPUTE].count = 0;
    for (int64_t i = 0; i < p->lists[OP_FORWARD].count; i++) {
        if (!c.again[i]) continue;
        TRY(arena_grow(p->a, (void **)&p->lists[OP_RECOMPUTE].nodes,
                       &p->lists[OP_RECOMPUTE].capacity, p->lists[OP_RECOMPUTE].count + 1,
                       (int64_t)sizeof(op_node)));
        p->lists[OP_RECOMPUTE].nodes[p->lists[OP_RECOMPUTE].count++] =
            p->lists[OP_FORWARD].nodes[i];
    }
    return ST_OK;
}
