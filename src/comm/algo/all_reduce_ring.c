// Ring all-reduce: reduce-scatter, then all-gather (ring.c).
// Cost: 2 (n - 1) latencies, 2 (n - 1) / n of the bytes. Best for large buffers.
#include "comm/algo/algo_messages.h"
#include "comm/algo/message.h"

static status run_one(comm_call *call, const comm_item *item)
{
    const message_sum s = message_sum_of(call);
    const message_part own = message_part_of(item->count, call->size, call->rank);
    const message_cut cut = {.total = item->count, .parts = call->size};
    TRY(ring_reduce(&s, item->in, cut, message_at(item->out, own.begin, s.width)));
    return ring_gather(call, item->out, cut, s.width);
}

static status run(comm_call *call)
{
    return message_each(call, run_one);
}

static int64_t scratch(const comm_args *args, int size)
{
    return ring_scratch(args, message_largest(args) / size + 1);
}

const comm_algorithm comm_algorithm_all_reduce_ring = {
    .name = "ring",
    .op = COLLECTIVE_ALL_REDUCE,
    .order = COMM_ORDER_ANY,
    .items = true,
    .run = run,
    .scratch = scratch,
};
