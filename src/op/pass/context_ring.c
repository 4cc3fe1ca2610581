// Attention in a ring (context.h): keys and values travel, so that no rank ever has all of them.
//
//   step i of n   rank r has the keys of rank r - i; SHIFT sends them on while they are used
//   forward       the result of each step, with its log-sum-exp, is merged with the result so far
//   backward      dq is a sum over the steps; dk and dv travel one step behind their keys, each
//                 rank adds the terms of its queries, and after n shifts they are back at their
//                 rank. They are sent together with the next keys, before the attention of the
//                 present keys, so the plan can overlap the communication with that attention
//
// Sums over the steps are kept in fp32. Their order depends on the rank, so the bits depend on the
// layout; strict order gathers the keys instead.
#include "op/pass/context_internal.h"

#include <stdio.h>

static dtype sum_type(const context_pass *c)
{
    return c->p->compute == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
}

static status shift_push(context_pass *c, op_list list, tensor_id from, tensor_id to)
{
    op_node shift = op_node_of(OP_SHIFT);
    shift.attrs.axis = AXIS_CP;
    shift.in[0] = from;
    shift.out[0] = to;
    return op_append(c->p, list, &shift, 0);
}

// Copies the keys and values that are operands first, first + 1 of the node into one tensor, which
// is sent first.
static status ring_begin(context_pass *c, op_list list, const op_node *node, int first,
                         key_values *out)
{
    const tensor_id k = node->in[first], v = node->in[first + 1];
    TRY(context_pair(c, k, v, "kv_ring", 1, op_at(c->p, k)->type, out));
    TRY(context_copy(c, list, k, out->k));
    return context_copy(c, list, v, out->v);
}

// Sends them to the next rank; the last step sends nothing. *next is the tensor that arrives.
static status ring_go(context_pass *c, op_list list, int step, const key_values *have,
                      key_values *next)
{
    if (step + 1 == c->ways) return ST_OK;
    const dtype type = op_at(c->p, have->k)->type;
    TRY(context_pair(c, have->k, have->v, "kv_ring", 1, type, next));
    return shift_push(c, list, have->both, next->both);
}

static void ring_set(const context_pass *c, int step, op_piece *piece)
{
    piece->ring = true;
    piece->cp_ways = c->ways;
    piece->cp_at = c->at;
    piece->cp_turns = c->how->turns;
    piece->key_at = (c->at - step + c->ways) % c->ways;
}

// ---- forward ------------------------------------------------------------------------------------

// An output of attention and its log-sum-exp.
typedef struct attended {
    tensor_id y, lse;
} attended;

static status attended_make(context_pass *c, const op_node *node, const char *name, attended *out)
{
    const op_tensor y = *op_at(c->p, node->out[0]), lse = *op_at(c->p, node->out[1]);
    char full[OP_NAME_BYTES];
    (void)snprintf(full, sizeof(full), "%.40s_lse", name);
    TRY(context_tensor(c, name, sum_type(c), y.dims[0].scale, y.dims[1].scale, &out->y));
    return context_tensor(c, full, lse.type, lse.dims[0].scale, lse.dims[1].scale, &out->lse);
}

static status step_forward(context_pass *c, op_list list, const op_node *node, int step,
                           const key_values *keys, attended *out)
{
    op_node part = *node;
    TRY(attended_make(c, node, "ring_part", out));
    ring_set(c, step, &part.piece);
    part.in[1] = keys->k;
    part.in[2] = keys->v;
    part.out[0] = out->y;
    part.out[1] = out->lse;
    return op_append(c->p, list, &part, 0);
}

static status merge_push(context_pass *c, op_list list, const attended *a, const attended *b,
                         const attended *to)
{
    op_node merge = op_node_of(OP_ATTENTION_MERGE);
    merge.in[0] = a->y;
    merge.in[1] = a->lse;
    merge.in[2] = b->y;
    merge.in[3] = b->lse;
    merge.out[0] = to->y;
    merge.out[1] = to->lse;
    return op_append(c->p, list, &merge, 0);
}

status context_ring_forward(context_pass *c, op_list list, const op_node *node)
{
    key_values keys, next = {TENSOR_NONE, TENSOR_NONE, TENSOR_NONE};
    attended all = {TENSOR_NONE, TENSOR_NONE};
    TRY(ring_begin(c, list, node, 1, &keys));
    for (int step = 0; step < c->ways; step++) {
        attended part, sum = {node->out[0], node->out[1]};
        TRY(ring_go(c, list, step, &keys, &next));
        TRY(step_forward(c, list, node, step, &keys, &part));
        keys = next;
        if (step == 0) {
            all = part;
            continue;
        }
        if (step + 1 < c->ways) TRY(attended_make(c, node, "ring_sum", &sum));
        TRY(merge_push(c, list, &all, &part, &sum));
        all = sum;
    }
    return ST_OK;
}

// ---- backward -----------------------------------------------------------------------------------

typedef struct ring_sums {
    tensor_id dq;
    key_values d_kv; // of the keys that are here
} ring_sums;

static status step_backward(context_pass *c, const op_node *node, int step, const key_values *keys,
                            ring_sums *out)
{
    op_node part = *node;
    const op_tensor q = *op_at(c->p, node->in[1]);
    TRY(context_tensor(c, "ring_dq", sum_type(c), q.dims[0].scale, q.dims[1].scale, &out->dq));
    TRY(context_pair(c, keys->k, keys->v, "ring_d_kv", 1, sum_type(c), &out->d_kv));
    ring_set(c, step, &part.piece);
    part.in[2] = keys->k;
    part.in[3] = keys->v;
    part.out[0] = out->dq;
    part.out[1] = out->d_kv.k;
    part.out[2] = out->d_kv.v;
    return op_append(c->p, OP_BACKWARD_INPUT, &part, 0);
}

// Adds the result of a step to the sums so far; the gradients of keys are added to those that
// arrived with the keys, `come`.
static status sums_add(context_pass *c, const op_node *node, int step, const ring_sums *part,
                       const key_values *come, ring_sums *all)
{
    const op_list list = OP_BACKWARD_INPUT;
    const op_tensor q = *op_at(c->p, part->dq);
    key_values sum;
    tensor_id dq = node->out[0];
    TRY(context_pair(c, come->k, come->v, "ring_d_kv", 1, sum_type(c), &sum));
    TRY(context_sum(c, list, come->both, part->d_kv.both, sum.both));
    if (step + 1 < c->ways) {
        TRY(context_tensor(c, "ring_dq", q.type, q.dims[0].scale, q.dims[1].scale, &dq));
    }
    TRY(context_sum(c, list, all->dq, part->dq, dq));
    *all = (ring_sums){dq, sum};
    return ST_OK;
}

status context_ring_backward(context_pass *c, const op_node *node)
{
    const op_list list = OP_BACKWARD_INPUT;
    key_values keys, next = {TENSOR_NONE, TENSOR_NONE, TENSOR_NONE}, home;
    ring_sums all = {0};
    TRY(ring_begin(c, list, node, 2, &keys));
    for (int step = 0; step < c->ways; step++) {
        ring_sums part;
        key_values come = {TENSOR_NONE, TENSOR_NONE, TENSOR_NONE};
        TRY(ring_go(c, list, step, &keys, &next));
        if (step > 0) {
            TRY(context_pair(c, all.d_kv.k, all.d_kv.v, "ring_d_kv", 1, sum_type(c), &come));
            TRY(shift_push(c, list, all.d_kv.both, come.both));
        }
        TRY(step_backward(c, node, step, &keys, &part));
        if (step == 0) {
            all = part;
        } else {
            TRY(sums_add(c, node, step, &part, &come, &all));
        }
        keys = next;
    }
    TRY(context_pair(c, all.d_kv.k, all.d_kv.v, "ring_d_kv", 1, sum_type(c), &home));
    TRY(shift_push(c, list, all.d_kv.both, home.both));
    TRY(context_copy(c, list, home.k, node->out[1]));
    return context_copy(c, list, home.v, node->out[2]);
}
