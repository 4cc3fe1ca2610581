// Barrier by dissemination: in round k each rank sends to rank + 2^k; log2 n latencies, any n.
// Source: Hensgen, Finkel, Manber 1988, doi:10.1007/BF01379320.
#include "comm/algo/algo_messages.h"
#include "comm/algo/message.h"

static status run(comm_call *call)
{
    const int n = call->size;
    for (int step = 1; step < n; step *= 2) {
        TRY(message_trade(call, (call->rank + step) % n, NULL, 0, (call->rank + n - step) % n, NULL,
                          0));
    }
    return ST_OK;
}

const comm_algorithm comm_algorithm_barrier_dissemination = {
    .name = "dissemination",
    .op = COLLECTIVE_BARRIER,
    .order = COMM_ORDER_SHARD,
    .run = run,
};
