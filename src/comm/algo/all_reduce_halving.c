// Rabenseifner's all-reduce: reduce-scatter by halving, all-gather by doubling (halving.c).
// Cost: 2 log2 n latencies, 2 (n - 1) / n of the bytes.
#include "comm/algo/algo_messages.h"
#include "comm/algo/message.h"

static status run_one(comm_call *call, const comm_item *item)
{
    const message_sum s = message_sum_of(call);
    const message_part own = message_part_of(item->count, call->size, call->rank);
    TRY(halving_reduce(&s, item->in, item->count, s.widens ? NULL : item->out,
                       message_at(item->out, own.begin, s.width)));
    return doubling_gather(call, item->out, item->count, s.width);
}

static status run(comm_call *call)
{
    return message_each(call, run_one);
}

static int64_t scratch(const comm_args *args, int size)
{
    return halving_scratch(args, message_largest(args), size);
}

const comm_algorithm comm_algorithm_all_reduce_halving = {
    .name = "halving",
    .op = COLLECTIVE_ALL_REDUCE,
    .order = COMM_ORDER_ANY,
    .power_of_two = true,
    .items = true,
    .run = run,
    .scratch = scratch,
};
