// The last uses of tensors. The plan lets tensors share bytes by their live intervals; this file
// derives last uses a second time, from the program alone, so a mistake in either shows as a NaN.
#include "exec/poison.h"

#include "plan/access.h"

#include <string.h>

enum { OPERANDS = OP_MAX_IN + OP_MAX_OUT };

// The tensor that owns the bytes of an operand.
static tensor_id owner_of(const op_program *p, const op_node *node, int k)
{
    return plan_access_operand(p, node, k, false).owner;
}

// Whether it is an activation of the program alone: no declared output and no gradient that the
// layer below reads.
static bool is_private(const op_program *p, tensor_id t)
{
    if (p->tensors[t].role != ROLE_ACTIVATION) return false;
    for (int i = 0; i < OP_MAX_BOUNDARY; i++) {
        if (i < p->output_count && op_owner(p, p->outputs[i]).id == t) return false;
        if (i < p->input_count && p->purpose == PURPOSE_TRAIN &&
            op_owner(p, p->d_inputs[i]).id == t) {
            return false;
        }
    }
    return true;
}

typedef struct last_use {
    int list;
    int64_t node;
    int operand; // -1: it is none of the node's
} last_use;

// Walks lists in the order in which they run, keeping the last use of every tensor.
static void uses_walk(const op_program *p, const int *lists, int count, last_use *last)
{
    for (int l = 0; l < count; l++) {
        for (int64_t n = 0; n < p->lists[lists[l]].count; n++) {
            const op_node *node = &p->lists[lists[l]].nodes[n];
            for (int k = 0; k < OPERANDS; k++) {
                const tensor_id t = owner_of(p, node, k);
                if (t != TENSOR_NONE) last[t] = (last_use){lists[l], n, k};
            }
            // A tensor that counts rows is needed as long as those rows are.
            for (int k = 0; k < OPERANDS; k++) {
                const tensor_id t = op_count_of(p, op_operand(node, k));
                const bool is_operand =
                    t != TENSOR_NONE && last[t].list == lists[l] && last[t].node == n;
                if (t != TENSOR_NONE && !is_operand) last[t] = (last_use){lists[l], n, -1};
            }
        }
    }
}

static bool is_made_again(const op_program *p, tensor_id t)
{
    for (int64_t n = 0; n < p->lists[OP_RECOMPUTE].count; n++) {
        for (int k = ACCESS_OUT; k < OPERANDS; k++) {
            if (owner_of(p, &p->lists[OP_RECOMPUTE].nodes[n], k) == t) return true;
        }
    }
    return false;
}

// Whether a communication reads it, which may still run while later nodes compute.
static bool is_sent(const op_program *p, tensor_id t)
{
    for (int l = 0; l < OP_LIST_COUNT; l++) {
        for (int64_t n = 0; n < p->lists[l].count; n++) {
            const op_node *node = &p->lists[l].nodes[n];
            for (int k = 0; k < OP_MAX_IN && op_communicates(node->code); k++) {
                if (owner_of(p, node, k) == t) return true;
            }
        }
    }
    return false;
}

// Whether ranks exchange the rows of experts. Their gradients of weights are then summed in several
// runs of the weight list, one for each rank that sent rows, so that no node's use is the last one.
static bool exchanges_rows(const op_program *p)
{
    for (int64_t n = 0; n < p->lists[OP_FORWARD].count; n++) {
        const op_kind *kind = op_kind_of(p->lists[OP_FORWARD].nodes[n].code);
        if (kind->communicates && kind->collective == COLLECTIVE_ALL_TO_ALLV) return true;
    }
    return false;
}

static void mark(exec_last_uses *out, const op_program *p, const last_use *last, tensor_id t)
{
    if (last[t].list == OP_BACKWARD_WEIGHT && exchanges_rows(p)) return;
    if (last[t].list >= 0 && last[t].operand >= 0 && is_private(p, t) && !is_sent(p, t)) {
        out->is_last[last[t].list][last[t].node * OPERANDS + last[t].operand] = 1;
    }
}

status exec_last_uses_make(arena *a, const op_program *p, exec_last_uses *out)
{
    const int forward[] = {OP_FORWARD};
    int backward[] = {OP_RECOMPUTE, OP_BACKWARD_INPUT, OP_BACKWARD_WEIGHT};
    if (p->output_count == 0) { // the head: see plan/lower/expand.c
        backward[1] = OP_BACKWARD_WEIGHT;
        backward[2] = OP_BACKWARD_INPUT;
    }
    for (int l = 0; l < OP_LIST_COUNT; l++) {
        TRY(arena_new(a, p->lists[l].count * OPERANDS + 1, &out->is_last[l]));
    }
    last_use *first = NULL, *second = NULL;
    TRY(arena_new(a, p->tensor_count + 1, &first));
    TRY(arena_new(a, p->tensor_count + 1, &second));
    for (int64_t t = 0; t < p->tensor_count; t++) first[t].list = second[t].list = -1;
    uses_walk(p, forward, COUNT_OF(forward), first);
    uses_walk(p, backward, COUNT_OF(backward), second);
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        if (p->tensors[t].view_of != TENSOR_NONE) continue;
        // A tensor that is kept from forward to backward has its last use in backward only.
        if (second[t].list < 0 || is_made_again(p, t)) mark(out, p, first, t);
        mark(out, p, second, t);
    }
    return ST_OK;
}

// The address range of the whole tensor of an operand, all its rows, in the arena.
static void place_of(const plan *p, const plan_action *action, tensor_id t, char *base, char **from,
                     char **to)
{
    const plan_binding *b = &p->bindings[action->binding];
    const int32_t ref = b->tensor[t];
    *from = base + plan_tensor_offset(p, ref);
    *to = *from + plan_tensor_at(p, ref)->bytes;
}

bool exec_poison_after(const exec_last_uses *d, const plan *p, const plan_action *action,
                       int64_t at, int operand, char *base, void **from, int64_t *bytes)
{
    if (d->is_last[action->list] == NULL ||
        d->is_last[action->list][at * OPERANDS + operand] == 0) {
        return false;
    }
    // Only the last of several pieces of a micro-batch is the last use.
    if (action->sequence_begin + action->sequence_count < p->micro_batch) return false;
    const bool zigzag = action->list == OP_BACKWARD_WEIGHT; // there the two in the middle come last
    const int32_t last = action->position_begin + (zigzag ? 0 : action->position_count);
    if (action->position_count > 0 && last != (zigzag ? p->seq / 2 : p->seq)) return false;
    const plan_binding *b = &p->bindings[action->binding];
    const op_node *node = &b->program->lists[action->list].nodes[at];
    const tensor_id t = owner_of(b->program, node, operand);
    char *begin = NULL, *end = NULL;
    place_of(p, action, t, base, &begin, &end);
    for (int k = ACCESS_OUT; k < OPERANDS; k++) {
        char *out_begin = NULL, *out_end = NULL;
        const tensor_id out = owner_of(b->program, node, k);
        if (out == TENSOR_NONE || out == t) continue;
        place_of(p, action, out, base, &out_begin, &out_end);
        if (out_begin < end && begin < out_end) return false; // written in place
    }
    *from = begin;
    *bytes = end - begin;
    return true;
}
