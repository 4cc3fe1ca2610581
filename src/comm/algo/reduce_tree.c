// Reduce up a binomial tree: log2 n latencies. Which ranks meet depends on the root: order `any`.
#include "comm/algo/algo_messages.h"
#include "comm/algo/message.h"

static status run_one(comm_call *call, const comm_item *item)
{
    const message_sum s = message_sum_of(call);
    const int n = call->size, root = call->args->root, place = (call->rank + n - root) % n;
    const int64_t count = item->count, bytes = count * s.wide_width;
    if (n == 1) {
        message_alone(&s, item->in, item->out, count);
        return ST_OK;
    }
    int64_t used = 0;
    void *sum = message_scratch(call, &used, bytes), *arrives = message_scratch(call, &used, bytes);
    const void *has = item->in;
    if (s.widens) {
        message_widen(&s, item->in, sum, count);
        has = sum;
    }
    for (int bit = 1; bit < n; bit *= 2) {
        if ((place & bit) != 0) return message_send(call, (place - bit + root) % n, has, bytes);
        if (place + bit >= n) continue;
        TRY(message_receive(call, (place + bit + root) % n, arrives, bytes));
        message_add(&s, has, arrives, sum, count);
        has = sum;
    }
    message_finish(&s, has, item->out, count);
    return ST_OK;
}

static status run(comm_call *call)
{
    return message_each(call, run_one);
}

static int64_t scratch(const comm_args *args, int size)
{
    (void)size;
    return 2 * align_up(message_largest(args) * message_wide_bytes(args), ALIGN_TENSOR);
}

const comm_algorithm comm_algorithm_reduce_tree = {
    .name = "tree",
    .op = COLLECTIVE_REDUCE,
    .order = COMM_ORDER_ANY,
    .max_bytes = 256 << 10,
    .items = true,
    .run = run,
    .scratch = scratch,
};
