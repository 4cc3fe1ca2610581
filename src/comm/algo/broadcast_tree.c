// Broadcast down a binomial tree: log2 n latencies, each rank receives once.
//
//   relative to the root    0 -> 4, 0 -> 2, 4 -> 6, 0 -> 1, 2 -> 3, 4 -> 5, 6 -> 7
#include "comm/algo/algo_messages.h"
#include "comm/algo/message.h"

#include <string.h>

static status run_one(comm_call *call, const comm_item *item)
{
    const int n = call->size, root = call->args->root, place = (call->rank + n - root) % n;
    const int64_t bytes = item->count * dtype_bytes(call->args->type);
    const void *source = place == 0 ? item->in : item->out;
    int bit = 1;
    while (bit < n && (place & bit) == 0) bit *= 2;
    if (place != 0) {
        TRY(message_receive(call, (place - bit + root) % n, item->out, bytes));
    }
    for (bit /= 2; bit > 0; bit /= 2) {
        if (place + bit >= n) continue;
        TRY(message_send(call, (place + bit + root) % n, source, bytes));
    }
    if (place == 0 && item->out != NULL && item->out != item->in && bytes > 0) {
        memcpy(item->out, item->in, (size_t)bytes);
    }
    return ST_OK;
}

static status run(comm_call *call)
{
    return message_each(call, run_one);
}

const comm_algorithm comm_algorithm_broadcast_tree = {
    .name = "tree",
    .op = COLLECTIVE_BROADCAST,
    .order = COMM_ORDER_SHARD,
    .items = true,
    .run = run,
};
