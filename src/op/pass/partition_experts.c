// Partition of experts that tensor parallelism cuts (partition.h): each rank has its columns of the
// gates of every expert and a term of every result.
//
//   PERMUTE of all rows -> gate, up: columns -> down: terms -> UNPERMUTE of each term -> their sum
//                 backward: gate, up: terms of dx -> PERMUTE_BWD of each term -> their sum
//
// Between the two, other passes may send each term's rows to another rank and back.
#include "op/pass/partition_internal.h"

#include <stdio.h>
#include <string.h>

// Makes a term of rows y, which has its count; y itself if it is the only term.
static status rows_make(partition *c, tensor_id y, int32_t terms, tensor_id *out)
{
    op_tensor term = *op_at(c->p, y);
    char wanted[OP_NAME_BYTES];
    *out = y;
    if (terms == 1) return ST_OK;
    (void)snprintf(wanted, sizeof(wanted), "%.36s.term", term.name);
    op_name_unique(c->p, "", wanted, term.name);
    term.role = ROLE_ACTIVATION;
    term.of = TENSOR_NONE;
    return op_tensor_add(c->p, &term, out);
}

// dx = dy w of one shard: the parts of each expert's matrix one after the other.
static status dx_term(partition *c, op_list list, const op_node *node, int32_t shard, tensor_id dx)
{
    cut_parts parts = c->state[node->in[1]].parts;
    int64_t at = 0, rows = 0; // where the part begins in the rank's piece of an expert
    tensor_id before = TENSOR_NONE;
    for (int i = 0; i < parts.count; i++) parts.size[i] /= node->attrs.experts;
    for (int i = 0; i < parts.count; i++) rows += part_size(c->how, &parts, i);
    for (int i = 0; i < parts.count; i++) {
        const int64_t begin = at + partition_shard_begin(c, &parts, i, shard);
        const int64_t end = at + partition_shard_begin(c, &parts, i, shard + 1);
        at += part_size(c->how, &parts, i);
        if (end == begin) continue;
        op_node part = *node;
        TRY(partition_columns(c, node->in[0], begin, end, &part.in[0]));
        part.in[3] = before;
        part.out[0] = before = dx;
        part.piece.first_row = begin;
        part.piece.whole_rows = rows;
        TRY(op_append(c->p, list, &part, 0));
    }
    return ST_OK;
}

// y = x w^T, or the products of two rows, over the columns of one shard.
static status columns_term(partition *c, op_list list, const op_node *node, int32_t shard,
                           tensor_id y)
{
    const cut_parts *parts = &c->state[node->in[1]].parts;
    op_node term = *node;
    term.out[0] = y;
    ASSERT(parts->count == 1);
    const int64_t begin = partition_shard_begin(c, parts, 0, shard);
    const int64_t end = partition_shard_begin(c, parts, 0, shard + 1);
    for (int i = 0; i < 2; i++) TRY(partition_columns(c, node->in[i], begin, end, &term.in[i]));
    return op_append(c->p, list, &term, 0);
}

status partition_expert_terms(partition *c, op_list list, const op_node *node)
{
    const op_cut *how = c->how;
    tensor_state *s = &c->state[node->out[0]];
    c->of_experts = *how;
    c->of_experts.shards = how->expert_shards;
    const int32_t count = cut_terms(&c->of_experts), first = cut_first(&c->of_experts);
    const bool in_order = how->ordered;
    if (in_order && (count < 1 || how->expert_shards % how->ways != 0)) {
        return fail(ST_CONFIG_CONFLICT,
                    "determinism.etp_shards = %d: layout.tp = %d cuts the sums inside experts, so "
                    "it must divide it",
                    (int)how->expert_shards, (int)how->ways);
    }
    status st = arena_new(c->a, count, &s->terms);
    s->term_count = count;
    c->how = &c->of_experts;
    for (int32_t k = 0; k < count && st == ST_OK; k++) {
        TRY_TO(restore, rows_make(c, node->out[0], count, &s->terms[k]));
        if (!in_order) { // all of the rank's columns at once
            op_node term = *node;
            st = op_append(c->p, list, &term, 0);
        } else if (node->code == OP_GROUPED_MATMUL_DX) {
            st = dx_term(c, list, node, first + k, s->terms[k]);
        } else {
            st = columns_term(c, list, node, first + k, s->terms[k]);
        }
    }
restore:
    c->how = how;
    return st;
}

// UNPERMUTE and PERMUTE_BWD add up the rows of each token: of each term, and then the terms of all
// ranks.
status partition_tokens(partition *c, op_list list, const op_node *node)
{
    const op_cut *how = c->how;
    const tensor_state *rows = &c->state[node->in[0]];
    const bool is_gradient = node->code == OP_PERMUTE_BWD;
    tensor_id terms[2][OP_CUT_MAX_TERMS];
    status st = ST_OK;
    if (!is_gradient && node->in[2] != TENSOR_NONE) {
        return fail(ST_UNSUPPORTED, "layout.tp: weights of tokens are applied to rows of experts");
    }
    c->of_experts = *how;
    c->of_experts.shards = how->expert_shards;
    for (int32_t k = 0; k < rows->term_count; k++) {
        op_node term = *node;
        term.in[0] = rows->terms[k];
        if (node->in[2] != TENSOR_NONE) {
            ASSERT(c->state[node->in[2]].term_count == rows->term_count);
            term.in[2] = c->state[node->in[2]].terms[k];
        }
        for (int o = 0; o < 2; o++) {
            if (node->out[o] == TENSOR_NONE) continue;
            const op_tensor like = *op_at(c->whole, node->out[o]);
            terms[o][k] = node->out[o];
            if (rows->term_count > 1 || how->ways > 1) {
                TRY(partition_make(c, node->out[o], "term", like.type, like.dims[0], like.dims[1],
                                   &terms[o][k]));
            }
            term.out[o] = terms[o][k];
        }
        TRY(op_append(c->p, list, &term, 0));
    }
    c->how = &c->of_experts;
    for (int o = 0; o < 2; o++) {
        if (node->out[o] == TENSOR_NONE) continue;
        const placement at = {.kind = how->rows ? PLACE_SHARD : PLACE_REPLICATE};
        TRY_TO(restore, partition_set(c, node->out[o], at, NULL));
        TRY_TO(restore, partition_terms_add(c, list, terms[o], rows->term_count, node->out[o]));
    }
restore:
    c->how = how;
    return st;
}

// A loss that is even over whole sequences counts the choices of all of a sequence's rows.
status partition_choices(partition *c, op_list list, tensor_id ids, int operand, op_node *local)
{
    const placement rows = {.kind = PLACE_SHARD, .dim = 0};
    if (!op_balances_sequences(&local->attrs)) return ST_OK;
    if (!placement_equal(c->state[ids].at, rows) || c->how->ways == 1) return ST_OK;
    local->piece.row_ways = c->how->ways;
    local->piece.row_at = c->how->at;
    return partition_all_rows(c, list, ids, &local->in[operand]);
}
