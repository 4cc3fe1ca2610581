// Barrier: arrive() is all that it needs.
#include "comm/algo/algo_table.h"
#include "comm/algo/direct.h"

static status run(comm_call *call)
{
    comm_descriptor *t = direct_descriptor(call);
    t->in = t->out = (comm_place){.region = COMM_NOWHERE};
    t->payload_bytes = 0;
    t->brief = call->args->item_count == 0;
    return call->transport->arrive(call->port, t);
}

const comm_algorithm comm_algorithm_barrier_direct = {
    .name = "direct",
    .op = COLLECTIVE_BARRIER,
    .order = COMM_ORDER_SHARD,
    .direct = true,
    .items = true,
    .run = run,
};
