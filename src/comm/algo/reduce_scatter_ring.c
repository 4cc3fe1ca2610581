// Ring reduce-scatter (ring.c). Cost: n - 1 latencies, (n - 1) / n of the bytes.
#include "comm/algo/algo_messages.h"
#include "comm/algo/message.h"

static status run_one(comm_call *call, const comm_item *item)
{
    const message_sum s = message_sum_of(call);
    return ring_reduce(&s, item->in, message_cut_item(item, call->size), item->out);
}

static status run(comm_call *call)
{
    return message_each(call, run_one);
}

static int64_t scratch(const comm_args *args, int size)
{
    (void)size;
    return ring_scratch(args, message_largest(args));
}

const comm_algorithm comm_algorithm_reduce_scatter_ring = {
    .name = "ring",
    .op = COLLECTIVE_REDUCE_SCATTER,
    .order = COMM_ORDER_ANY,
    .ends = true,
    .items = true,
    .run = run,
    .scratch = scratch,
};
