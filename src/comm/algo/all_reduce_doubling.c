// All-reduce by recursive doubling: in round k, ranks that differ in bit k exchange whole sums and
// add.
//
// It is for small buffers: log2 n latencies. If n is no power of two, the first 2 (n - p) ranks
// form pairs, in which the odd rank gives its term to the even one before and gets the result
// after. The lower rank's sum comes first, and a + b = b + a, so all ranks get the same bits. These
// depend on n: order `any`.
#include "comm/algo/algo_messages.h"
#include "comm/algo/message.h"

// Returns the rank with number v among the `p` ranks that take part.
static int rank_of(int v, int extra)
{
    return v < extra ? 2 * v : v + extra;
}

static status double_up(const message_sum *s, void *sum, void *arrives, int64_t count, int power)
{
    comm_call *call = s->call;
    const int extra = call->size - power, rank = call->rank;
    const int v = rank < 2 * extra ? rank / 2 : rank - extra;
    for (int bit = 1; bit < power; bit *= 2) {
        const int peer = rank_of(v ^ bit, extra);
        const int64_t bytes = count * s->wide_width;
        TRY(message_trade(call, peer, sum, bytes, peer, arrives, bytes));
        message_add(s, rank < peer ? sum : arrives, rank < peer ? arrives : sum, sum, count);
    }
    return ST_OK;
}

static status run_one(comm_call *call, const comm_item *item)
{
    const message_sum s = message_sum_of(call);
    const int64_t count = item->count, bytes = count * s.wide_width;
    if (call->size == 1) {
        message_alone(&s, item->in, item->out, count);
        return ST_OK;
    }
    int power = 1;
    while (2 * power <= call->size) power *= 2;
    const bool paired = call->rank < 2 * (call->size - power), odd = call->rank % 2 != 0;
    int64_t used = 0;
    void *arrives = message_scratch(call, &used, bytes);
    void *sum = s.widens ? message_scratch(call, &used, bytes) : item->out;
    message_widen(&s, item->in, sum, count);
    if (paired && odd) {
        TRY(message_send(call, call->rank - 1, sum, bytes));
        return message_receive(call, call->rank - 1, item->out, count * s.width);
    }
    if (paired) {
        TRY(message_receive(call, call->rank + 1, arrives, bytes));
        message_add(&s, sum, arrives, sum, count);
    }
    TRY(double_up(&s, sum, arrives, count, power));
    message_finish(&s, sum, item->out, count);
    return paired ? message_send(call, call->rank + 1, item->out, count * s.width) : ST_OK;
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

const comm_algorithm comm_algorithm_all_reduce_doubling = {
    .name = "doubling",
    .op = COLLECTIVE_ALL_REDUCE,
    .order = COMM_ORDER_ANY,
    .max_bytes = 64 << 10,
    .items = true,
    .run = run,
    .scratch = scratch,
};
