// Reduce-scatter in order `shard`: terms of part k to rank k, which makes the tree sum (pieces.c).
#include "comm/algo/algo_messages.h"
#include "comm/algo/pieces.h"

static status run(comm_call *call)
{
    return pieces_run(call, PIECES_PARTS, NULL);
}

const comm_algorithm comm_algorithm_reduce_scatter_pieces = {
    .name = "pieces",
    .op = COLLECTIVE_REDUCE_SCATTER,
    .order = COMM_ORDER_SHARD,
    .terms = true,
    .ends = true,
    .max_ranks = COMM_REDUCE_MAX_TERMS,
    .items = true,
    .run = run,
    .scratch = pieces_scratch,
};
