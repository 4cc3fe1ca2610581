// Partition of norms over all heads together (OLMo 2), whose columns and weight are cut by heads.
// Each rank adds up its own columns of a row, and the ranks add these numbers:
//
//   forward    dots = sum of h^2                 ROW_DOTS, ALL_REDUCE       (rows, 1)
//              y = h r (w + plus)                RMSNORM with dots
//   backward   dots = sum of dy (w + plus) h     ROW_DOTS, ALL_REDUCE       (rows, 1)
//              dx = r (u - h r^2 dots / C)       RMSNORM_DX with dots
//
// So 4 bytes of a token travel in each direction. The gradient of the weight is cut as the weight
// is. A head that several ranks have is counted once: each of them adds its share of the columns.
// In strict order there is a term for each shard of the columns, on one rank too.
//
// The norm of an only head of keys, which every rank has, is computed whole on each.
#include "op/pass/partition_internal.h"

static bool is_rmsnorm(op_code code)
{
    return code == OP_RMSNORM || code == OP_RMSNORM_DX || code == OP_RMSNORM_DW;
}

static int operand_of(const op_node *node) // h
{
    return node->code == OP_RMSNORM ? 0 : 1;
}

static bool is_cut(const partition *c, tensor_id t, int dim)
{
    const placement cut = {.kind = PLACE_SHARD, .dim = (int8_t)dim};
    return t != TENSOR_NONE && c->state[t].known && placement_equal(c->state[t].at, cut);
}

bool partition_is_wide_norm(const partition *c, const op_node *node)
{
    const bool is_forward = node->code == OP_RMSNORM;
    if (!is_rmsnorm(node->code)) return false;
    if (!is_cut(c, node->in[operand_of(node)], 1)) return false;
    if (node->code == OP_RMSNORM_DW) return is_cut(c, node->out[0], 0);
    return is_cut(c, node->in[is_forward ? 1 : 3], 0) &&
           node->in[is_forward ? 2 : 4] == TENSOR_NONE &&
           c->state[node->in[operand_of(node)]].parts.count == 1;
}

// Returns whether the node is the norm of the only head of keys, which every rank has: with one
// group, no rule cuts it by heads.
static bool is_norm_of_copies(const partition *c, const op_node *node)
{
    if (!is_rmsnorm(node->code) || !is_cut(c, node->in[0], 1)) return false;
    const cut_parts *parts = &c->state[node->in[0]].parts;
    return c->how->ways > 1 && parts->count == 1 && parts->copies[0] == c->how->ways;
}

// Tensors that stay copies are as one rank would compute them. The statistics of a norm over all
// heads are the same on all ranks.
bool partition_norm_rule(const partition *c, const op_node *node, op_rule *out)
{
    const placement rows = {.kind = PLACE_SHARD, .dim = 0};
    const placement columns = {.kind = PLACE_SHARD, .dim = 1};
    const bool is_wide = partition_is_wide_norm(c, node), is_weight = node->code == OP_RMSNORM_DW;
    if (!is_wide && !is_norm_of_copies(c, node)) return false;
    *out = (op_rule){0}; // replicate
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (node->in[i] != TENSOR_NONE) out->in[i] = c->state[node->in[i]].at;
    }
    if (is_wide) {
        out->out[0] = is_weight ? rows : columns;
        return true;
    }
    for (int o = 0; o < OP_MAX_OUT && !is_weight; o++) out->out[o] = columns;
    return true;
}

// Makes *out the sums of all ranks.
static status dots_push(partition *c, op_list list, const op_node *node, tensor_id *out)
{
    const bool is_forward = node->code == OP_RMSNORM;
    const int32_t count = cut_terms(c->how), first = cut_first(c->how);
    const tensor_id h = node->in[operand_of(node)];
    const tensor_id r = is_forward ? node->out[1] : node->in[2];
    const op_tensor like = *op_at(c->p, r);
    tensor_id terms[OP_CUT_MAX_TERMS];
    op_node dots = op_node_of(OP_ROW_DOTS);
    dots.in[0] = h;
    if (!is_forward) {
        dots.in[1] = node->in[0];
        dots.in[2] = node->in[3];
    }
    dots.attrs.plus = node->attrs.plus;
    dots.piece.whole_columns = op_at(c->whole, h)->dims[1].scale;
    dots.piece.first_column = part_begin(c->how, &c->state[h].parts, 0);
    dots.piece.shards = cut_shards(c->how);
    dots.piece.shard_count = 1;
    for (int32_t k = 0; k < count; k++) {
        op_node term = dots;
        term.piece.first_shard = first + k;
        TRY(partition_make(c, r, "dots", like.type, like.dims[0], like.dims[1], &term.out[0]));
        TRY(op_append(c->p, list, &term, 0));
        terms[k] = term.out[0];
    }
    *out = terms[0];
    if (c->how->ways == 1 && count == 1) return ST_OK;
    TRY(partition_make(c, r, "dots", like.type, like.dims[0], like.dims[1], out));
    op_node sum = partition_sum_of(c, OP_ALL_REDUCE, terms, count, *out);
    return op_append(c->p, list, &sum, 0);
}

status partition_norm(partition *c, op_list list, const op_node *node, op_node *local)
{
    if (node->code == OP_RMSNORM_DW) return op_append(c->p, list, local, 0);
    const bool is_forward = node->code == OP_RMSNORM;
    local->piece.whole_columns = op_at(c->whole, node->in[operand_of(node)])->dims[1].scale;
    TRY(dots_push(c, list, node, &local->in[is_forward ? 3 : 5]));
    return op_append(c->p, list, local, 0);
}
