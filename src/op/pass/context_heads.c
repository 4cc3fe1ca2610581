// Context parallelism over heads (context.h): ranks that have neighbouring pieces of a sequence
// exchange them, so that each rank has all positions of some heads.
//
//   PACK columns into a tile for each rank -> ALL_TO_ALL -> ZIGZAG rows by position -> attention
//   attention -> ZIGZAG back -> ALL_TO_ALL -> UNPACK
//
// If there are fewer heads of keys than ranks, several ranks receive the same head, and their
// gradients of it are added.
#include "op/pass/context_internal.h"

#include <stdio.h>

enum { PARTS_MAX = 5 };

// Tensors that are exchanged together, and the number of ranks that get the same columns of each.
typedef struct exchange {
    tensor_id of[PARTS_MAX];
    int32_t repeat[PARTS_MAX];
    int count;
} exchange;

static void part_add(exchange *x, tensor_id t, int32_t repeat)
{
    x->of[x->count] = t;
    x->repeat[x->count++] = repeat;
}

// One tensor with tiles of rows, one tile for each rank. Its columns are those that one rank gets
// of each exchanged tensor, one after the other; part[i] is the view of tensor i.
typedef struct tile_set {
    tensor_id all, part[PARTS_MAX];
} tile_set;

static status tile_set_make(context_pass *c, const exchange *x, const char *name, tile_set *out)
{
    int64_t width[PARTS_MAX], columns = 0;
    for (int i = 0; i < x->count; i++) {
        width[i] = op_at(c->p, x->of[i])->dims[1].scale * x->repeat[i] / c->heads;
        columns += width[i];
    }
    const op_tensor first = *op_at(c->p, x->of[0]);
    TRY(context_tensor(c, name, first.type, c->heads * first.dims[0].scale, columns, &out->all));
    columns = 0;
    for (int i = 0; i < x->count; i++) {
        char view[OP_NAME_BYTES];
        (void)snprintf(view, sizeof(view), "%.40s.%d", op_at(c->p, out->all)->name, i);
        TRY(op_view(c->p, out->all, view, columns, width[i], &out->part[i]));
        columns += width[i];
    }
    return ST_OK;
}

static status node_push(context_pass *c, op_list list, op_code code, tensor_id from, tensor_id to,
                        int32_t repeat)
{
    op_node node = op_node_of(code);
    node.piece.shard_count = c->heads;
    node.attrs.repeat = repeat > 1 ? repeat : 0;
    node.attrs.axis = AXIS_CP;
    node.in[0] = from;
    node.out[0] = to;
    return op_append(c->p, list, &node, 0);
}

static status zigzag_push(context_pass *c, op_list list, tensor_id from, tensor_id to, bool inverse)
{
    op_node node = op_node_of(OP_ZIGZAG);
    node.piece.shard_count = c->heads;
    node.piece.cp_turns = c->how->turns;
    node.attrs.inverse = inverse;
    node.in[0] = from;
    node.out[0] = to;
    return op_append(c->p, list, &node, 0);
}

// Appends the exchange that gives each rank all positions of its heads.
static status distribute_push(context_pass *c, op_list list, const exchange *x, const char *name,
                              tile_set *out)
{
    tile_set sent, received;
    TRY(tile_set_make(c, x, "sent_heads", &sent));
    TRY(tile_set_make(c, x, "received_heads", &received));
    TRY(tile_set_make(c, x, name, out));
    for (int i = 0; i < x->count; i++) {
        TRY(node_push(c, list, OP_PACK, x->of[i], sent.part[i], x->repeat[i]));
    }
    TRY(node_push(c, list, OP_ALL_TO_ALL, sent.all, received.all, 0));
    return zigzag_push(c, list, received.all, out->all, false);
}

// Appends the inverse exchange: the results of this rank's heads go to the ranks that have the
// positions.
static status collect_push(context_pass *c, op_list list, const exchange *x, const tile_set *from)
{
    tile_set sent, received;
    TRY(tile_set_make(c, x, "sent_heads", &sent));
    TRY(tile_set_make(c, x, "received_heads", &received));
    TRY(zigzag_push(c, list, from->all, sent.all, true));
    TRY(node_push(c, list, OP_ALL_TO_ALL, sent.all, received.all, 0));
    for (int i = 0; i < x->count; i++) {
        TRY(node_push(c, list, OP_UNPACK, received.part[i], x->of[i], x->repeat[i]));
    }
    return ST_OK;
}

// Returns the number of ranks that get the same head of keys; above 1 if there are fewer heads of
// keys than ranks.
static status repeat_find(const context_pass *c, const op_attrs *a, int32_t *repeat)
{
    *repeat = 1;
    const bool whole = a->heads % c->heads == 0;
    if (whole && a->kv_heads % c->heads == 0) return ST_OK;
    *repeat = c->heads / a->kv_heads;
    if (whole && c->heads % a->kv_heads == 0 && !c->how->ordered) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "layout.cp_heads = %d cannot distribute %d heads with %d heads of keys%s", c->heads,
                a->heads, a->kv_heads, c->how->ordered ? " in strict order" : "");
}

static void heads_set(const context_pass *c, int32_t repeat, op_node *inner)
{
    inner->attrs.heads /= c->heads;
    inner->attrs.kv_heads = inner->attrs.kv_heads * repeat / c->heads;
    inner->piece.first_head += c->head_at * inner->attrs.heads;
    inner->piece.seq_ways = c->heads;
}

// The log-sum-exp of this rank's heads, which is kept until the backward pass.
static status lse_find(context_pass *c, tensor_id whole, tensor_id *out)
{
    const op_tensor lse = *op_at(c->p, whole);
    *out = c->lse_of[whole];
    if (*out != TENSOR_NONE) return ST_OK;
    TRY(context_tensor(c, "lse_heads", lse.type, c->heads * lse.dims[0].scale,
                       lse.dims[1].scale / c->heads, out));
    c->lse_of[whole] = *out;
    return ST_OK;
}

status context_heads_forward(context_pass *c, op_list list, const op_node *node)
{
    op_node inner = *node;
    exchange in = {.count = 0}, out = {.count = 0};
    tile_set operands, y;
    int32_t repeat = 1;
    TRY(repeat_find(c, &node->attrs, &repeat));
    part_add(&in, node->in[0], 1);
    part_add(&in, node->in[1], repeat);
    part_add(&in, node->in[2], repeat);
    part_add(&out, node->out[0], 1);
    TRY(distribute_push(c, list, &in, "qkv_heads", &operands));
    TRY(tile_set_make(c, &out, "y_heads", &y));
    heads_set(c, repeat, &inner);
    for (int i = 0; i < 3; i++) inner.in[i] = operands.part[i];
    inner.out[0] = y.all;
    TRY(lse_find(c, node->out[1], &inner.out[1]));
    TRY(context_attend(c, list, &inner));
    return collect_push(c, list, &out, &y);
}

status context_heads_backward(context_pass *c, const op_node *node)
{
    const op_list list = OP_BACKWARD_INPUT;
    op_node inner = *node;
    exchange in = {.count = 0}, out = {.count = 0};
    tile_set operands, grads;
    int32_t repeat = 1;
    TRY(repeat_find(c, &node->attrs, &repeat));
    for (int i = 0; i < PARTS_MAX; i++) { // dy, q, k, v, y
        part_add(&in, node->in[i], i == 2 || i == 3 ? repeat : 1);
    }
    for (int i = 0; i < 3; i++) part_add(&out, node->out[i], i > 0 ? repeat : 1);
    TRY(distribute_push(c, list, &in, "dy_qkv_y_heads", &operands));
    TRY(tile_set_make(c, &out, "d_qkv_heads", &grads));
    heads_set(c, repeat, &inner);
    for (int i = 0; i < PARTS_MAX; i++) inner.in[i] = operands.part[i];
    TRY(lse_find(c, node->in[5], &inner.in[5]));
    for (int i = 0; i < 3; i++) inner.out[i] = grads.part[i];
    TRY(context_attend_bwd(c, &inner));
    return collect_push(c, list, &out, &grads);
}
