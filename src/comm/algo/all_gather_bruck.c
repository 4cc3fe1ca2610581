// All-gather in ceil(log2 n) rounds for any n: in round k each rank sends all it has, up to 2^k
// pieces, to the one 2^k before. Source: Bruck et al. 1997, doi:10.1109/71.642949. For small
// pieces.
#include "comm/algo/algo_messages.h"
#include "comm/algo/message.h"

#include <string.h>

static status run_one(comm_call *call, const comm_item *item)
{
    const int n = call->size, rank = call->rank;
    const int64_t bytes = item->count * dtype_bytes(call->args->type);
    unsigned char *held = call->scratch; // piece i is of rank + i
    if (bytes > 0) memcpy(held, item->in, (size_t)bytes);
    for (int has = 1; has < n; has *= 2) {
        const int64_t sent = min_i64(has, n - has) * bytes;
        TRY(message_trade(call, (rank + n - has) % n, held, sent, (rank + has) % n,
                          held + has * bytes, sent));
    }
    if (bytes == 0) return ST_OK;
    memcpy(message_at(item->out, rank, bytes), held, (size_t)((n - rank) * bytes));
    memcpy(item->out, held + (n - rank) * bytes, (size_t)(rank * bytes));
    return ST_OK;
}

static status run(comm_call *call)
{
    return message_each(call, run_one);
}

static int64_t scratch(const comm_args *args, int size)
{
    return message_largest(args) * size * dtype_bytes(args->type);
}

const comm_algorithm comm_algorithm_all_gather_bruck = {
    .name = "bruck",
    .op = COLLECTIVE_ALL_GATHER,
    .order = COMM_ORDER_SHARD,
    .max_bytes = 64 << 10,
    .items = true,
    .run = run,
    .scratch = scratch,
};
