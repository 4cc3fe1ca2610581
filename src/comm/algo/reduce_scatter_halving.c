// Reduce-scatter by recursive halving (halving.c). Cost: log2 n latencies, (n - 1) / n of the
// bytes.
#include "comm/algo/algo_messages.h"
#include "comm/algo/message.h"

static status run_one(comm_call *call, const comm_item *item)
{
    const message_sum s = message_sum_of(call);
    return halving_reduce(&s, item->in, item->count * call->size, NULL, item->out);
}

static status run(comm_call *call)
{
    return message_each(call, run_one);
}

static int64_t scratch(const comm_args *args, int size)
{
    return halving_scratch(args, message_largest(args) * size, size);
}

const comm_algorithm comm_algorithm_reduce_scatter_halving = {
    .name = "halving",
    .op = COLLECTIVE_REDUCE_SCATTER,
    .order = COMM_ORDER_ANY,
    .power_of_two = true,
    .items = true,
    .run = run,
    .scratch = scratch,
};
