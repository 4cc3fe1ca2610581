// Barrier: to meet is enough.
#include "comm/algo/algo_table.h"
#include "comm/algo/direct.h"

static status run(comm_call *call)
{
    const comm_place nowhere = {.region = COMM_NOWHERE};
    comm_ticket t;
    t.contract = call->contract;
    t.entry_count = t.leaf_count = t.payload_bytes = t.staged = 0;
    t.in = t.out = nowhere;
    t.unused[0] = t.unused[1] = 0;
    return call->transport->meet(call->port, &t);
}

const comm_algorithm comm_algorithm_barrier_direct = {
    .name = "direct",
    .op = COMM_BARRIER,
    .order = COMM_ORDER_SHARD,
    .direct = true,
    .items = true,
    .run = run,
};
