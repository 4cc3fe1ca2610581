// All-to-all in n - 1 steps: in step s each rank sends to rank + s. Every byte travels once.
#include "comm/algo/algo_messages.h"
#include "comm/algo/message.h"

#include <string.h>

static status run_one(comm_call *call, const comm_item *item)
{
    const int n = call->size, rank = call->rank;
    const int64_t bytes = item->count * dtype_bytes(call->args->type);
    const void *in = item->in;
    if (in == item->out && bytes > 0) { // in place: received data must not overwrite unsent data
        memcpy(call->scratch, in, (size_t)(n * bytes));
        in = call->scratch;
    } else if (bytes > 0) {
        memcpy(message_at(item->out, rank, bytes), message_at(in, rank, bytes), (size_t)bytes);
    }
    for (int step = 1; step < n; step++) {
        const int to = (rank + step) % n, from = (rank + n - step) % n;
        TRY(message_trade(call, to, message_at(in, to, bytes), bytes, from,
                          message_at(item->out, from, bytes), bytes));
    }
    return ST_OK;
}

static status run(comm_call *call)
{
    return message_each(call, run_one);
}

static int64_t scratch(const comm_args *args, int size)
{
    if (!message_any_in_place(args)) return 0;
    return message_largest(args) * size * dtype_bytes(args->type);
}

const comm_algorithm comm_algorithm_all_to_all_pairwise = {
    .name = "pairwise",
    .op = COLLECTIVE_ALL_TO_ALL,
    .order = COMM_ORDER_SHARD,
    .items = true,
    .run = run,
    .scratch = scratch,
};

// The variant with counts of each pair, whose running sums are the offsets.
static status run_v(comm_call *call)
{
    const comm_args *a = call->args;
    const int n = call->size, rank = call->rank;
    const int64_t width = dtype_bytes(a->type);
    int64_t *sent = call->scratch, *received = sent + n; // where each rank's elements begin
    for (int i = 0; i < n; i++) {
        sent[i] = i == 0 ? 0 : sent[i - 1] + a->send_counts[i - 1];
        received[i] = i == 0 ? 0 : received[i - 1] + a->receive_counts[i - 1];
    }
    if (a->send_counts[rank] != a->receive_counts[rank]) {
        return fail(ST_INTERNAL, "all_to_allv: %lld elements to this rank, %lld from it",
                    (long long)a->send_counts[rank], (long long)a->receive_counts[rank]);
    }
    const comm_item *item = &a->items[0];
    if (a->send_counts[rank] > 0) {
        memcpy(message_at(item->out, received[rank], width),
               message_at(item->in, sent[rank], width), (size_t)(a->send_counts[rank] * width));
    }
    for (int step = 1; step < n; step++) {
        const int to = (rank + step) % n, from = (rank + n - step) % n;
        TRY(message_trade(
            call, to, message_at(item->in, sent[to], width), a->send_counts[to] * width, from,
            message_at(item->out, received[from], width), a->receive_counts[from] * width));
    }
    return ST_OK;
}

static int64_t scratch_v(const comm_args *args, int size)
{
    (void)args;
    return 2 * size * (int64_t)sizeof(int64_t);
}

const comm_algorithm comm_algorithm_all_to_allv_pairwise = {
    .name = "pairwise",
    .op = COLLECTIVE_ALL_TO_ALLV,
    .order = COMM_ORDER_SHARD,
    .run = run_v,
    .scratch = scratch_v,
};
