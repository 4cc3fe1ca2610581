// Ring all-gather (ring.c). Cost: n - 1 latencies, (n - 1) / n of the bytes; neighbours only.
#include "comm/algo/algo_messages.h"
#include "comm/algo/message.h"

#include <string.h>

static status run_one(comm_call *call, const comm_item *item)
{
    const int64_t width = dtype_bytes(call->args->type);
    const message_cut cut = message_cut_item(item, call->size);
    const message_part mine = message_cut_part(&cut, call->rank);
    void *own = message_at(item->out, mine.begin, width);
    if (mine.count > 0 && own != item->in) memcpy(own, item->in, (size_t)(mine.count * width));
    return ring_gather(call, item->out, cut, width);
}

static status run(comm_call *call)
{
    return message_each(call, run_one);
}

const comm_algorithm comm_algorithm_all_gather_ring = {
    .name = "ring",
    .op = COLLECTIVE_ALL_GATHER,
    .order = COMM_ORDER_SHARD,
    .ends = true,
    .items = true,
    .run = run,
};
