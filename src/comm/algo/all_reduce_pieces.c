// All-reduce in order `shard`: rank k gets the terms of part k and makes their tree sum (pieces.c),
// then a ring gathers. For small buffers ("gather") all ranks get all terms and make the same sum,
// with half the latencies.
#include "comm/algo/algo_messages.h"
#include "comm/algo/pieces.h"
#include "comm/args.h"

static status run_pieces(comm_call *call)
{
    const comm_args *a = call->args;
    TRY(pieces_run(call, PIECES_PARTS, NULL));
    const int64_t terms = comm_args_terms(a);
    for (int i = 0; i < a->item_count; i++) {
        const comm_item *item = &a->items[i * terms];
        const message_cut cut = {.total = item->count, .parts = call->size};
        TRY(ring_gather(call, item->out, cut, dtype_bytes(a->type)));
    }
    return ST_OK;
}

static status run_gather(comm_call *call)
{
    return pieces_run(call, PIECES_ALL, NULL);
}

const comm_algorithm comm_algorithm_all_reduce_pieces = {
    .name = "pieces",
    .op = COLLECTIVE_ALL_REDUCE,
    .order = COMM_ORDER_SHARD,
    .terms = true,
    .max_ranks = COMM_REDUCE_MAX_TERMS,
    .items = true,
    .run = run_pieces,
    .scratch = pieces_scratch,
};

const comm_algorithm comm_algorithm_all_reduce_gather = {
    .name = "gather",
    .op = COLLECTIVE_ALL_REDUCE,
    .order = COMM_ORDER_SHARD,
    .terms = true,
    .max_ranks = COMM_REDUCE_MAX_TERMS,
    .max_bytes = 32 << 10,
    .items = true,
    .run = run_gather,
    .scratch = pieces_scratch,
};
