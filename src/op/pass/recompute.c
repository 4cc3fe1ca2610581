// Recomputation: chooses the forward nodes that run again before the backward lists, so that their
// results need not be kept.
//
// The policy says which tensors are kept: with FULL no result of the block, with SELECTIVE the
// results of GEMMs and attention (their log-sum-exp too); the losses of answers are kept with both.
// All other tensors that the backward lists read are recomputed by the nodes that made them, and so
// on down to kept tensors: the closure is the least set, and its forward order is valid. Random
// operations draw by counter, so they repeat their results; every kernel gives the same bits for
// the same inputs, so recomputation changes no bit.
#include "op/op_internal.h"

#include <string.h>

typedef struct closure {
    const op_program *p;
    bool *needed; // [tensor] its whole must exist when the backward lists run
    bool *again;  // [forward node]
} closure;

// Bounded rows need their count too.
static void need_inputs(closure *c, const op_node *node)
{
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (node->in[i] == TENSOR_NONE) continue;
        c->needed[op_owner(c->p, node->in[i]).id] = true;
        const tensor_id count = op_count_of(c->p, node->in[i]);
        if (count != TENSOR_NONE) c->needed[count] = true;
    }
}

static bool node_is_kept(const op_node *node, op_recompute policy)
{
    return policy == RECOMPUTE_NONE || op_kind_of(node->code)->kept_always ||
           (policy == RECOMPUTE_SELECTIVE && op_kind_of(node->code)->kept_by_selective);
}

static bool node_is_needed(const closure *c, const op_node *node)
{
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (node->out[o] != TENSOR_NONE && c->needed[op_owner(c->p, node->out[o]).id]) return true;
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
    // Backwards, so that the readers of a node are known before the node is decided.
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

// ---- as other software does it ------------------------------------------------------------------

bool op_list_makes(const op_program *p, op_list list, tensor_id t)
{
    for (int64_t i = 0; i < p->lists[list].count; i++) {
        for (int o = 0; o < OP_MAX_OUT; o++) {
            const tensor_id out = p->lists[list].nodes[i].out[o];
            if (out != TENSOR_NONE && op_owner(p, out).id == t) return true;
        }
    }
    return false;
}

static status tensor_repeat(op_program *p, tensor_id t, tensor_id *out)
{
    op_tensor again = p->tensors[t];
    op_name_unique(p, "again", p->tensors[t].name, again.name);
    again.role = ROLE_ACTIVATION;
    again.view_of = TENSOR_NONE;
    again.view_begin = 0;
    return op_tensor_add(p, &again, out);
}

status op_program_recompute_rest(op_program *p)
{
    tensor_id *repeated = NULL; // [tensor] itself, or its recomputed version
    if (p->lists[OP_RECOMPUTE].count == 0 || p->input_count == 0 || p->output_count == 0) {
        return ST_OK;
    }
    TRY(arena_new(p->a, p->tensor_count, &repeated));
    for (tensor_id t = 0; t < p->tensor_count; t++) repeated[t] = t;
    for (int64_t i = 0; i < p->lists[OP_FORWARD].count; i++) {
        op_node node = p->lists[OP_FORWARD].nodes[i];
        if (op_list_makes(p, OP_RECOMPUTE, op_owner(p, node.out[0]).id)) continue;
        for (int k = 0; k < OP_MAX_IN; k++) {
            if (node.in[k] != TENSOR_NONE) node.in[k] = repeated[node.in[k]];
        }
        for (int o = 0; o < OP_MAX_OUT; o++) {
            if (node.out[o] == TENSOR_NONE) continue;
            TRY(tensor_repeat(p, node.out[o], &repeated[node.out[o]]));
            node.out[o] = repeated[node.out[o]];
        }
        for (int o = 0; o < OP_MAX_OUT; o++) { // the count of rows is the recomputed one
            if (op_count_of(p, node.out[o]) == TENSOR_NONE) continue;
            extent *rows = &p->tensors[node.out[o]].dims[0];
            rows->count = repeated[rows->count];
        }
        TRY(op_append(p, OP_RECOMPUTE, &node, 0));
    }
    return ST_OK;
}
