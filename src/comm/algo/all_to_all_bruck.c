// All-to-all in ceil(log2 n) rounds for any n: a piece travels by the bits of the distance it has
// to go. Each is sent up to log2 n times. Source: Bruck et al. 1997, doi:10.1109/71.642949. For
// small pieces.
#include "comm/algo/algo_messages.h"
#include "comm/algo/message.h"

#include <string.h>

// Returns how many of 0..n-1 have the bit.
static int64_t pieces_with(int n, int bit)
{
    return n / (2 * bit) * bit + max_i64(n % (2 * bit) - bit, 0);
}

static status run_one(comm_call *call, const comm_item *item)
{
    const int n = call->size, rank = call->rank;
    const int64_t bytes = item->count * dtype_bytes(call->args->type);
    unsigned char *held = call->scratch; // piece i still has to go i ranks on
    unsigned char *sent = held + n * bytes, *arrived = sent + n * bytes;
    if (bytes > 0) {
        memcpy(held, message_at(item->in, rank, bytes), (size_t)((n - rank) * bytes));
        memcpy(held + (n - rank) * bytes, item->in, (size_t)(rank * bytes));
    }
    for (int bit = 1; bit < n; bit *= 2) {
        const int64_t count = pieces_with(n, bit);
        int64_t k = 0;
        for (int i = bit; bytes > 0 && i < n; i++) {
            if ((i & bit) == 0) continue;
            memcpy(sent + k++ * bytes, held + i * bytes, (size_t)bytes);
        }
        TRY(message_trade(call, (rank + bit) % n, sent, count * bytes, (rank + n - bit) % n,
                          arrived, count * bytes));
        k = 0;
        for (int i = bit; bytes > 0 && i < n; i++) {
            if ((i & bit) == 0) continue;
            memcpy(held + i * bytes, arrived + k++ * bytes, (size_t)bytes);
        }
    }
    for (int i = 0; bytes > 0 && i < n; i++) { // block i is from the rank i places before
        memcpy(message_at(item->out, (rank + n - i) % n, bytes), held + i * bytes, (size_t)bytes);
    }
    return ST_OK;
}

static status run(comm_call *call)
{
    return message_each(call, run_one);
}

static int64_t scratch(const comm_args *args, int size)
{
    return 3 * message_largest(args) * size * dtype_bytes(args->type);
}

const comm_algorithm comm_algorithm_all_to_all_bruck = {
    .name = "bruck",
    .op = COLLECTIVE_ALL_TO_ALL,
    .order = COMM_ORDER_SHARD,
    .max_bytes = 16 << 10,
    .items = true,
    .run = run,
    .scratch = scratch,
};
