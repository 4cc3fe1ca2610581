// The operands of each operation, and the checks of arguments that need no peer.
#include "comm/args.h"

#include "comm/reduce.h"

const comm_op_row comm_op_rows[COLLECTIVE_COUNT] = {
    [COLLECTIVE_ALL_REDUCE] = {1, 1, 1, 1, true, false},
    [COLLECTIVE_REDUCE_SCATTER] = {2, 1, 2, 1, true, false},
    [COLLECTIVE_ALL_GATHER] = {1, 2, 1, 2, false, false},
    [COLLECTIVE_BROADCAST] = {1, 1, 0, 1, false, true},
    [COLLECTIVE_REDUCE] = {1, 1, 1, 0, true, true},
    [COLLECTIVE_GATHER] = {1, 2, 1, 0, false, true},
    [COLLECTIVE_SCATTER] = {2, 1, 0, 1, false, true},
    [COLLECTIVE_ALL_TO_ALL] = {2, 2, 2, 2, false, false},
    [COLLECTIVE_ALL_TO_ALLV] = {1, 1, 1, 1, false, false},
    [COLLECTIVE_SEND] = {1, 0, 1, 0, false, true},
    [COLLECTIVE_RECEIVE] = {0, 1, 0, 1, false, true},
    [COLLECTIVE_BARRIER] = {0, 0, 0, 0, false, false},
};
static const char *const orders[COMM_ORDER_COUNT] = {"any", "rank", "shard"};

const char *comm_order_name(comm_order o)
{
    return (unsigned)o < COMM_ORDER_COUNT ? orders[o] : "?";
}

int64_t comm_args_count(const comm_args *args)
{
    int64_t count = 0;
    const int terms = comm_args_terms(args);
    for (int i = 0; i < args->item_count; i++) count += args->items[(int64_t)i * terms].count;
    return count;
}

bool comm_args_end(const comm_args *args)
{
    for (int i = 0; i < args->item_count; i++) {
        if (args->items[(int64_t)i * comm_args_terms(args)].total != 0) return true;
    }
    return false;
}

// ---- checks -------------------------------------------------------------------------------------
static status total_check(const comm_args *args, const comm_item *item, const comm_item *first,
                          int size)
{
    const bool pieces = args->op == COLLECTIVE_REDUCE_SCATTER || args->op == COLLECTIVE_ALL_GATHER;
    const int64_t most = (int64_t)size * item->count;
    if (pieces && item->total == first->total && item->total > 0 && item->total <= most)
        return ST_OK;
    return fail(ST_INTERNAL, "%s of %d pieces of %lld elements that end at %lld",
                op_collective_name(args->op), size, (long long)item->count, (long long)item->total);
}

static status buffers_check(const comm_args *args, bool is_root, int size)
{
    const int64_t width = dtype_bytes(args->type);
    const comm_op_row *row = &comm_op_rows[args->op];
    const bool has_in = (is_root ? row->root_in : row->in) > 0;
    const bool has_out = (is_root ? row->root_out : row->out) > 0;
    const int terms = comm_args_terms(args);
    for (int64_t i = 0; i < (int64_t)args->item_count * terms; i++) {
        const comm_item *item = &args->items[i];
        if (item->count < 0 || item->count > (INT64_C(1) << 46) / width) {
            return fail(ST_INTERNAL, "%s of %lld elements", op_collective_name(args->op),
                        (long long)item->count);
        }
        if (item->count != args->items[i / terms * terms].count) {
            return fail(ST_INTERNAL, "%s: the terms of a tensor have %lld and %lld elements",
                        op_collective_name(args->op),
                        (long long)args->items[i / terms * terms].count, (long long)item->count);
        }
        const comm_item *first = &args->items[i / terms * terms];
        if (item->total != 0 || first->total != 0) TRY(total_check(args, item, first, size));
        if (item->count == 0) continue;
        const bool wants_out = has_out && i % terms == 0;
        const bool root_keeps = args->op == COLLECTIVE_BROADCAST && has_in;
        if ((has_in && item->in == NULL) || (wants_out && item->out == NULL && !root_keeps)) {
            return fail(ST_INTERNAL, "%s of %lld elements without a buffer",
                        op_collective_name(args->op), (long long)item->count);
        }
    }
    return ST_OK;
}

static status v_counts_check(const comm_args *args, int size)
{
    if (args->send_offsets != NULL && args->receive_offsets != NULL && args->item_count == 1) {
        return ST_OK; // the counts are there when it runs
    }
    if (args->item_count != 1 || args->send_counts == NULL || args->receive_counts == NULL) {
        return fail(ST_INTERNAL, "all_to_allv takes one item and the counts of each rank");
    }
    for (int i = 0; i < size; i++) {
        const int64_t sends = args->send_counts[i], receives = args->receive_counts[i];
        if (sends < 0 || receives < 0 || sends > INT64_C(1) << 40 || receives > INT64_C(1) << 40) {
            return fail(ST_INTERNAL, "all_to_allv: %lld elements to and %lld from rank %d",
                        (long long)sends, (long long)receives, i);
        }
    }
    return ST_OK;
}

static status terms_check(const comm_args *args)
{
    if (args->terms == NULL || args->term_count == 0) return ST_OK;
    if (args->term_count < 0 || args->term_count > COMM_MAX_TERMS) {
        return fail(ST_INTERNAL, "%d tree nodes of one rank; there may be %d", args->term_count,
                    (int)COMM_MAX_TERMS);
    }
    if (args->order != COMM_ORDER_SHARD || args->shards < 1) {
        return fail(ST_INTERNAL, "tree nodes are for order shard, with the number of shards");
    }
    return ST_OK;
}

static status reduction_check(const comm_args *args)
{
    if ((unsigned)args->reduction >= REDUCTION_COUNT) {
        return fail(ST_INTERNAL, "%s with reduction %d", op_collective_name(args->op),
                    args->reduction);
    }
    if (comm_reduce_can(args->type, args->reduction)) return ST_OK;
    return fail(ST_UNSUPPORTED, "%s: there is no %s of %s", op_collective_name(args->op),
                op_reduction_name(args->reduction), dtype_name(args->type));
}

// compressed.c checks the rest against the cut.
static status compressed_check(const comm_args *args)
{
    const bool sums = args->op == COLLECTIVE_ALL_REDUCE || args->op == COLLECTIVE_REDUCE_SCATTER;
    if (sums && args->reduction == REDUCTION_SUM && args->terms == NULL) return ST_OK;
    return fail(ST_INTERNAL, "%s travels compressed, which only sums in any order can",
                op_collective_name(args->op));
}

status comm_args_check(const comm_args *args, int rank, int size)
{
    if ((unsigned)args->op >= COLLECTIVE_COUNT || (unsigned)args->type >= DTYPE_COUNT ||
        (unsigned)args->order >= COMM_ORDER_COUNT) {
        return fail(ST_INTERNAL, "operation %d of type %d in order %d", args->op, args->type,
                    args->order);
    }
    const comm_op_row *row = &comm_op_rows[args->op];
    if (row->rooted && (args->root < 0 || args->root >= size)) {
        return fail(ST_INTERNAL, "%s with root %d in a group of %d", op_collective_name(args->op),
                    args->root, size);
    }
    if ((args->op == COLLECTIVE_SEND || args->op == COLLECTIVE_RECEIVE) && args->root == rank) {
        return fail(ST_INTERNAL, "rank %d sends to itself", rank);
    }
    if (args->item_count < 0 || args->item_count > COMM_MAX_ITEMS) {
        return fail(ST_INTERNAL, "%s of %d tensors; there may be %d", op_collective_name(args->op),
                    args->item_count, (int)COMM_MAX_ITEMS);
    }
    TRY(terms_check(args));
    if (args->compressed != NULL) return compressed_check(args);
    if (args->op == COLLECTIVE_ALL_TO_ALLV) return v_counts_check(args, size);
    if (row->adds) TRY(reduction_check(args));
    return buffers_check(args, rank == args->root, size);
}
