// Broadcast: every other rank copies the root's buffer.
// Cost: one read and one write of all bytes per rank, two waits; inline one.
#include "comm/algo/algo_table.h"
#include "comm/algo/direct.h"

static void core(const direct_view *v)
{
    const comm_call *c = v->call;
    char *out = v->out[v->rank];
    if (out != NULL) direct_copy(v, out, v->in[c->args->root], v->count * v->width);
}

static status run(comm_call *call)
{
    return direct_run(call, DIRECT_PULL, core);
}

const comm_algorithm comm_algorithm_broadcast_direct = {
    .name = "direct",
    .op = COLLECTIVE_BROADCAST,
    .order = COMM_ORDER_SHARD,
    .terms = false,
    .direct = true,
    .items = true,
    .run = run,
};
