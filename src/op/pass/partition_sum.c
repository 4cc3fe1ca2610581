// Partition of nodes whose result is a sum over ranks: their terms, and the operations that add
// them.
//
//   ways   order      terms of a rank    added by
//   1      shards S   S                  SUM
//   n      shards S   S / n              ALL_REDUCE (REDUCE_SCATTER) of the terms, by the tree
//   n      none       1                  ALL_REDUCE (REDUCE_SCATTER)
#include "op/pass/partition_internal.h"

#include <string.h>

// Makes a tensor for a term like y; y itself if it is the only term.
static status term_make(partition *c, tensor_id y, int32_t terms, tensor_id *out)
{
    const op_tensor like = *op_at(c->whole, y);
    *out = y;
    if (terms == 1 && c->how->ways == 1) return ST_OK;
    return partition_make(c, y, "term", like.type, like.dims[0], like.dims[1], out);
}

op_node partition_sum_of(const partition *c, op_code over_ranks, const tensor_id *terms,
                         int32_t count, tensor_id y)
{
    const bool alone = c->how->ways == 1;
    op_node sum = op_node_of(alone ? OP_SUM : over_ranks);
    for (int32_t i = 0; i < count; i++) sum.in[i] = terms[i];
    sum.out[0] = y;
    if (!alone) sum.attrs.axis = AXIS_TP;
    if (!alone && c->how->ordered) {
        sum.piece.shards = count * c->how->ways;
        sum.piece.first_shard = count * c->how->at;
    }
    return sum;
}

status partition_terms_add(partition *c, op_list list, const tensor_id *terms, int32_t count,
                           tensor_id y)
{
    if (count == 1 && terms[0] == y) return ST_OK;
    const bool scatters = c->how->rows && op_at(c->p, y)->dims[0].symbol != EXTENT_ONE;
    op_node sum =
        partition_sum_of(c, scatters ? OP_REDUCE_SCATTER : OP_ALL_REDUCE, terms, count, y);
    const op_tensor like = *op_at(c->p, y);
    // A received tensor is contiguous.
    const bool is_view = c->how->ways > 1 && like.view_of != TENSOR_NONE;
    if (is_view) {
        TRY(partition_make(c, y, "sum", like.type, like.dims[0], like.dims[1], &sum.out[0]));
    }
    TRY(op_append(c->p, list, &sum, 0));
    if (!is_view) return ST_OK;
    op_node copy = op_node_of(OP_CAST);
    copy.in[0] = sum.out[0];
    copy.out[0] = y;
    return op_append(c->p, list, &copy, 0);
}

// If other ranks have the part too, each rank adds its own shards only.
int64_t partition_shard_begin(const partition *c, const cut_parts *parts, int i, int32_t s)
{
    return op_piece_begin(parts->size[i], cut_shards(c->how), s) - part_begin(c->how, parts, i);
}

// ---- y = x w^T over cut columns -----------------------------------------------------------------

status partition_columns(partition *c, tensor_id of, int64_t begin, int64_t end, tensor_id *out)
{
    char name[OP_NAME_BYTES];
    op_name_unique(c->p, "", op_at(c->p, of)->name, name);
    return op_view(c->p, of, name, begin, end - begin, out);
}

static status product_terms(partition *c, op_list list, const op_node *node, tensor_id *terms)
{
    const int32_t count = cut_terms(c->how), first = cut_first(c->how);
    const cut_parts *parts = &c->state[node->in[1]].parts;
    ASSERT(parts->count == 1);
    for (int32_t k = 0; k < count; k++) {
        op_node term = *node;
        term.in[2] = TENSOR_NONE;
        term.out[0] = terms[k];
        if (count > 1) {
            const int64_t begin = partition_shard_begin(c, parts, 0, first + k);
            const int64_t end = partition_shard_begin(c, parts, 0, first + k + 1);
            TRY(partition_columns(c, node->in[0], begin, end, &term.in[0]));
            TRY(partition_columns(c, node->in[1], begin, end, &term.in[1]));
        }
        TRY(op_append(c->p, list, &term, 0));
    }
    return ST_OK;
}

// The bias is added once, after the sum.
static status product_push(partition *c, op_list list, const op_node *node)
{
    const int32_t count = cut_terms(c->how);
    const tensor_id y = node->out[0];
    tensor_id terms[OP_CUT_MAX_TERMS], sum = y;
    for (int32_t k = 0; k < count; k++) TRY(term_make(c, y, count, &terms[k]));
    TRY(product_terms(c, list, node, terms));
    if (node->in[2] == TENSOR_NONE) return partition_terms_add(c, list, terms, count, y);
    const op_tensor like = *op_at(c->p, y);
    TRY(partition_make(c, y, "sum", like.type, like.dims[0], like.dims[1], &sum));
    TRY(partition_terms_add(c, list, terms, count, sum));
    op_node bias = op_node_of(OP_ADD_BIAS);
    bias.in[0] = sum;
    bias.in[1] = node->in[2];
    bias.out[0] = y;
    return op_append(c->p, list, &bias, 0);
}

// ---- squares of rows over cut columns -----------------------------------------------------------

static status squares_push(partition *c, op_list list, const op_node *node)
{
    const int32_t count = cut_terms(c->how), first = cut_first(c->how);
    const cut_parts *parts = &c->state[node->in[0]].parts;
    tensor_id terms[OP_CUT_MAX_TERMS];
    ASSERT(parts->count == 1);
    for (int32_t k = 0; k < count; k++) {
        op_node term = *node;
        TRY(term_make(c, node->out[0], count, &term.out[0]));
        terms[k] = term.out[0];
        for (int i = 0; i < 2 && count > 1; i++) {
            const int64_t begin = partition_shard_begin(c, parts, 0, first + k);
            const int64_t end = partition_shard_begin(c, parts, 0, first + k + 1);
            TRY(partition_columns(c, node->in[i], begin, end, &term.in[i]));
        }
        TRY(op_append(c->p, list, &term, 0));
    }
    return partition_terms_add(c, list, terms, count, node->out[0]);
}

// ---- dx = dy w over cut rows of w ---------------------------------------------------------------

// Appends one term: the parts of a fused weight one after the other.
static status dx_term(partition *c, op_list list, const op_node *node, int32_t shard, tensor_id dx)
{
    const cut_parts *parts = &c->state[node->in[1]].parts;
    int64_t at = 0; // where the part begins in the rank's piece
    tensor_id before = TENSOR_NONE;
    for (int i = 0; i < parts->count; i++) {
        const int64_t begin = at + partition_shard_begin(c, parts, i, shard);
        const int64_t end = at + partition_shard_begin(c, parts, i, shard + 1);
        at += part_size(c->how, parts, i);
        if (end == begin) continue;
        op_node part = *node;
        char name[OP_NAME_BYTES];
        TRY(partition_columns(c, node->in[0], begin, end, &part.in[0]));
        op_name_unique(c->p, "", op_at(c->p, node->in[1])->name, name);
        TRY(op_view_rows(c->p, node->in[1], name, begin, end - begin, &part.in[1]));
        part.in[2] = before;
        part.out[0] = before = dx;
        TRY(op_append(c->p, list, &part, 0));
    }
    return ST_OK;
}

static status dx_push(partition *c, op_list list, const op_node *node)
{
    const int32_t count = cut_terms(c->how), first = cut_first(c->how);
    tensor_id terms[OP_CUT_MAX_TERMS];
    const cut_parts *parts = &c->state[node->in[1]].parts;
    const bool in_order = c->how->ordered && (count > 1 || parts->count > 1);
    const bool whole = !in_order && !parts_have_copies(parts);
    for (int32_t k = 0; k < count; k++) {
        TRY(term_make(c, node->out[0], count, &terms[k]));
        if (!whole) {
            TRY(dx_term(c, list, node, first + k, terms[k]));
            continue;
        }
        op_node term = *node;
        term.out[0] = terms[k];
        TRY(op_append(c->p, list, &term, 0));
    }
    return partition_terms_add(c, list, terms, count, node->out[0]);
}

// ---- the rotated part of latent keys ------------------------------------------------------------

// Each term is the sum over some heads. All ranks have as many terms as shards and heads allow.
static status rotated_push(partition *c, op_list list, const op_node *node)
{
    const int32_t ways = c->how->ways, heads = node->attrs.heads * ways;
    const int32_t all = c->how->ordered ? cut_common_divisor(c->how->shards, heads) : ways;
    const int32_t count = all / ways, each = heads / all;
    tensor_id terms[OP_CUT_MAX_TERMS];
    ASSERT(count >= 1 && count <= OP_CUT_MAX_TERMS && count * ways == all);
    for (int32_t k = 0; k < count; k++) {
        op_node term = *node;
        TRY(term_make(c, node->out[0], count, &term.out[0]));
        terms[k] = term.out[0];
        if (count > 1) {
            const int64_t columns = (int64_t)each * node->attrs.head_dim;
            term.attrs.heads = term.attrs.kv_heads = each;
            TRY(partition_columns(c, node->in[0], k * columns, (k + 1) * columns, &term.in[0]));
        }
        TRY(op_append(c->p, list, &term, 0));
    }
    return partition_terms_add(c, list, terms, count, node->out[0]);
}

// Appends one term per rank. exact: an id is in one piece of the table, so the terms of other ranks
// change no bit; otherwise the sum has no order.
static status term_push(partition *c, op_list list, const op_node *node, bool exact)
{
    op_node term = *node;
    if (c->how->ordered && !exact) {
        return fail(ST_UNSUPPORTED, "determinism.tp_shards: %s has no order yet",
                    op_kind_of(node->code)->name);
    }
    TRY(term_make(c, node->out[0], 1, &term.out[0]));
    TRY(op_append(c->p, list, &term, 0));
    return partition_terms_add(c, list, &term.out[0], 1, node->out[0]);
}

status partition_sum(partition *c, op_list list, const op_node *node)
{
    switch ((int)node->code) {
    case OP_MATMUL:
        return product_push(c, list, node);
    case OP_MATMUL_DX:
        return dx_push(c, list, node);
    case OP_ROW_SQUARES:
        return squares_push(c, list, node);
    case OP_EMBEDDING:
        return term_push(c, list, node, true);
    case OP_GROUPED_MATMUL:
    case OP_GROUPED_MATMUL_DX:
    case OP_SCALE_ROWS_DS:
        if (cut_in_terms(c->how)) return partition_expert_terms(c, list, node);
        return term_push(c, list, node, false);
    case OP_LATENT_DR:
        return rotated_push(c, list, node);
    default:
        return fail(ST_INTERNAL, "%s makes a sum over ranks, but no rule adds the terms",
                    op_kind_of(node->code)->name);
    }
}

// ---- the head -----------------------------------------------------------------------------------

static void head_attrs(const partition *c, int64_t vocab, op_node *head)
{
    head->piece.shards = cut_shards(c->how);
    head->piece.shard_count = cut_terms(c->how);
    head->piece.first_shard = cut_first(c->how);
    head->piece.whole_rows = vocab;
    head->piece.first_row = cut_begin(c->how, vocab);
    head->attrs.kept = c->whole->purpose == PURPOSE_TRAIN;
}

// Computes the statistics of this rank's shards.
static status stats_push(partition *c, op_list list, const op_node *head, tensor_id *own)
{
    op_node stats = op_node_of(OP_HEAD_STATS);
    memcpy(stats.in, head->in, 3 * sizeof(stats.in[0]));
    stats.attrs = head->attrs;
    stats.piece = head->piece;
    const extent rows = op_at(c->whole, head->out[0])->dims[0];
    const extent columns = extent_of(3 * (int64_t)head->piece.shard_count);
    TRY(partition_make(c, head->out[0], "stats", DTYPE_F64, rows, columns, &stats.out[0]));
    TRY(op_append(c->p, list, &stats, 0));
    *own = stats.out[0];
    return ST_OK;
}

// Gathers the statistics of all shards. A list that runs on some of the rows at a time gathers
// them itself, because the tiles of the ranks follow each other.
static status stats_gather(partition *c, op_list list, const op_node *head, tensor_id *all)
{
    *all = c->stats;
    if (c->how->ways == 1) return ST_OK;
    op_node gather = op_node_of(OP_ALL_GATHER);
    const extent rows = op_at(c->whole, head->out[0])->dims[0];
    const extent columns = extent_of(3 * (int64_t)head->piece.shard_count);
    gather.attrs.axis = AXIS_TP;
    gather.attrs.stacked = true;
    gather.in[0] = c->stats;
    extent stacked = rows;
    stacked.scale *= c->how->ways;
    TRY(partition_make(c, head->out[0], "all_stats", DTYPE_F64, stacked, columns, &gather.out[0]));
    TRY(op_append(c->p, list, &gather, 0));
    *all = gather.out[0];
    return ST_OK;
}

// All ranks read all rows of the head of a reward model, so one of them gives the gradient of these
// rows, and the terms of the others (-0) change no bit of their sum.
status partition_score(partition *c, op_list list, const op_node *node)
{
    const placement all = {.kind = PLACE_REPLICATE}, rows = {.kind = PLACE_SHARD, .dim = 0};
    const op_tensor like = *op_at(c->whole, node->out[1]);
    op_node score = *node;
    score.piece.first_shard = c->how->at;
    TRY(partition_all_rows(c, list, node->in[0], &score.in[0]));
    TRY(partition_set(c, node->out[0], all, NULL));
    TRY(partition_set(c, node->out[1], rows, NULL));
    TRY(partition_make(c, node->out[1], "term", like.type, like.dims[0], like.dims[1],
                       &score.out[1]));
    TRY(op_append(c->p, list, &score, 0));
    return partition_terms_add(c, list, &score.out[1], 1, node->out[1]);
}

status partition_head(partition *c, op_list list, const op_node *node)
{
    const int32_t count = cut_terms(c->how);
    const tensor_id dx = node->out[1];
    const placement all = {.kind = PLACE_REPLICATE}, rows = {.kind = PLACE_SHARD, .dim = 0};
    op_node head = *node;
    tensor_id terms[OP_CUT_MAX_TERMS];
    head_attrs(c, op_at(c->whole, node->in[1])->dims[0].scale, &head);
    TRY(partition_all_rows(c, list, node->in[0], &head.in[0]));
    TRY(partition_set(c, node->out[0], all, NULL));
    // A first pass without gradients has statistics, which the second pass takes again.
    const bool is_second = node->in[4] != TENSOR_NONE;
    const bool is_first = node->out[1] == TENSOR_NONE && node->out[2] == TENSOR_NONE;
    if (is_second || is_first) head.attrs.kept = false;
    if (!is_second) TRY(stats_push(c, list, &head, &c->stats));
    TRY(stats_gather(c, list, &head, &head.in[3]));
    if (dx == TENSOR_NONE) return op_append(c->p, list, &head, 0);
    TRY(partition_set(c, dx, c->how->rows ? rows : all, NULL));
    const op_tensor like = *op_at(c->whole, dx);
    const int64_t dim = like.dims[1].scale;
    if (count > 1 || c->how->ways > 1) {
        TRY(partition_make(c, dx, "terms", like.type, like.dims[0], extent_of(count * dim),
                           &head.out[1]));
    }
    terms[0] = head.out[1];
    TRY(op_append(c->p, list, &head, 0));
    for (int32_t k = 0; k < count && count > 1; k++) {
        TRY(partition_columns(c, head.out[1], k * dim, (k + 1) * dim, &terms[k]));
        if (c->how->ways == 1) continue;
        op_node apart = op_node_of(OP_CAST); // the sent tensor must be contiguous
        apart.in[0] = terms[k];
        TRY(partition_make(c, dx, "term", like.type, like.dims[0], like.dims[1], &apart.out[0]));
        TRY(op_append(c->p, list, &apart, 0));
        terms[k] = apart.out[0];
    }
    return partition_terms_add(c, list, terms, count, dx);
}
