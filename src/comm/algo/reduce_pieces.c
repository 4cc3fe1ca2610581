// Reduce in order `shard`. "gather": all terms to the root, which makes the tree sum (pieces.c).
// "pieces": terms of part k to rank k, which sums it into scratch and sends it to the root: no rank
// is the bottleneck of the sums, and the root receives its result once instead of n - 1 terms.
#include "comm/algo/algo_messages.h"
#include "comm/algo/pieces.h"
#include "comm/args.h"

static status run_gather(comm_call *call)
{
    return pieces_run(call, PIECES_ROOT, NULL);
}

// The parts that other ranks summed, to the root.
static status collect(comm_call *call, const comm_item *item, const void *own)
{
    const int64_t width = dtype_bytes(call->args->type);
    const int root = call->args->root, n = call->size;
    if (call->rank != root) {
        const int64_t count = message_part_of(item->count, n, call->rank).count;
        return message_send(call, root, own, count * width);
    }
    for (int step = 1; step < n; step++) {
        const message_part part = message_part_of(item->count, n, (root + step) % n);
        TRY(message_receive(call, (root + step) % n, message_at(item->out, part.begin, width),
                            part.count * width));
    }
    return ST_OK;
}

// Tensor by tensor: ranks other than the root have no output, and sum their part in scratch.
static status run_pieces(comm_call *call)
{
    const comm_args *whole = call->args;
    const int64_t width = dtype_bytes(whole->type);
    for (int64_t i = 0; i < whole->item_count; i++) {
        comm_args args = *whole;
        args.items = whole->items + i * comm_args_terms(whole);
        args.item_count = 1;
        const int64_t part = message_part_of(args.items->count, call->size, 0).count * width;
        int64_t used = 0;
        void *own = message_scratch(call, &used, part);
        comm_call one = *call;
        one.args = &args;
        one.scratch = comm_scratch_at(call, used);
        one.scratch_bytes = call->scratch_bytes - used;
        TRY(pieces_run(&one, PIECES_PARTS, call->rank == whole->root ? NULL : own));
        TRY(collect(&one, args.items, own));
    }
    return ST_OK;
}

static int64_t scratch_pieces(const comm_args *args, int size)
{
    return pieces_scratch(args, size) +
           align_up((message_largest(args) / size + 1) * dtype_bytes(args->type), ALIGN_TENSOR);
}

const comm_algorithm comm_algorithm_reduce_gather = {
    .name = "gather",
    .op = COLLECTIVE_REDUCE,
    .order = COMM_ORDER_SHARD,
    .terms = true,
    .max_ranks = COMM_REDUCE_MAX_TERMS,
    .max_bytes = 32 << 10,
    .items = true,
    .run = run_gather,
    .scratch = pieces_scratch,
};

const comm_algorithm comm_algorithm_reduce_pieces = {
    .name = "pieces",
    .op = COLLECTIVE_REDUCE,
    .order = COMM_ORDER_SHARD,
    .terms = true,
    .max_ranks = COMM_REDUCE_MAX_TERMS,
    .items = true,
    .run = run_pieces,
    .scratch = scratch_pieces,
};
