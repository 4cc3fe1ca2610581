// Gather up, scatter down a binomial tree, pieces in order from the root on: log2 n latencies, and
// n / 2 log2 n pieces travel instead of n - 1. For small pieces.
#include "comm/algo/algo_messages.h"
#include "comm/algo/message.h"

#include <string.h>

// Pieces that the subtree below `place` holds, where its parent is `bit` before it.
static int subtree(int place, int bit, int n)
{
    return (int)min_i64(bit, n - place);
}

// Between the order of ranks and the order from the root on.
static void rotate(void *target, const void *source, int first, int n, int64_t bytes)
{
    if (bytes == 0) return;
    memcpy(target, message_at(source, first, bytes), (size_t)((n - first) * bytes));
    memcpy(message_at(target, n - first, bytes), source, (size_t)(first * bytes));
}

static status gather_one(comm_call *call, const comm_item *item)
{
    const int n = call->size, root = call->args->root, place = (call->rank + n - root) % n;
    const int64_t bytes = item->count * dtype_bytes(call->args->type);
    unsigned char *held = call->scratch;
    if (bytes > 0) memcpy(held, item->in, (size_t)bytes);
    int bit = 1;
    for (; bit < n && (place & bit) == 0; bit *= 2) {
        const int child = place + bit;
        if (child >= n) continue;
        TRY(message_receive(call, (child + root) % n, held + bit * bytes,
                            subtree(child, bit, n) * bytes));
    }
    if (place != 0) {
        return message_send(call, (place - bit + root) % n, held, subtree(place, bit, n) * bytes);
    }
    rotate(item->out, held, (n - root) % n, n, bytes);
    return ST_OK;
}

static status scatter_one(comm_call *call, const comm_item *item)
{
    const int n = call->size, root = call->args->root, place = (call->rank + n - root) % n;
    const int64_t bytes = item->count * dtype_bytes(call->args->type);
    unsigned char *held = call->scratch;
    int bit = 1;
    while (bit < n && (place & bit) == 0) bit *= 2;
    if (place == 0) {
        rotate(held, item->in, root, n, bytes);
    } else {
        TRY(message_receive(call, (place - bit + root) % n, held, subtree(place, bit, n) * bytes));
    }
    for (bit /= 2; bit > 0; bit /= 2) {
        const int child = place + bit;
        if (child >= n) continue;
        TRY(message_send(call, (child + root) % n, held + bit * bytes,
                         subtree(child, bit, n) * bytes));
    }
    if (bytes > 0) memcpy(item->out, held, (size_t)bytes);
    return ST_OK;
}

static status gather(comm_call *call)
{
    return message_each(call, gather_one);
}

static status scatter(comm_call *call)
{
    return message_each(call, scatter_one);
}

static int64_t scratch(const comm_args *args, int size)
{
    return message_largest(args) * size * dtype_bytes(args->type);
}

const comm_algorithm comm_algorithm_gather_tree = {
    .name = "tree",
    .op = COLLECTIVE_GATHER,
    .order = COMM_ORDER_SHARD,
    .items = true,
    .run = gather,
    .scratch = scratch,
};

const comm_algorithm comm_algorithm_scatter_tree = {
    .name = "tree",
    .op = COLLECTIVE_SCATTER,
    .order = COMM_ORDER_SHARD,
    .items = true,
    .run = scatter,
    .scratch = scratch,
};
