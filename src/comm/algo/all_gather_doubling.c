// All-gather by recursive doubling (halving.c). Cost: log2 n latencies, (n - 1) / n of the bytes.
#include "comm/algo/algo_messages.h"
#include "comm/algo/message.h"

#include <string.h>

static status run_one(comm_call *call, const comm_item *item)
{
    const int64_t bytes = item->count * dtype_bytes(call->args->type);
    void *own = message_at(item->out, call->rank, bytes);
    if (bytes > 0 && own != item->in) memcpy(own, item->in, (size_t)bytes);
    return doubling_gather(call, item->out, bytes * call->size, 1);
}

static status run(comm_call *call)
{
    return message_each(call, run_one);
}

const comm_algorithm comm_algorithm_all_gather_doubling = {
    .name = "doubling",
    .op = COLLECTIVE_ALL_GATHER,
    .order = COMM_ORDER_SHARD,
    .power_of_two = true,
    .items = true,
    .run = run,
};
