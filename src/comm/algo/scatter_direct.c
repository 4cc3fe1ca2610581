// Scatter: each rank copies its piece out of the root's input.
// Cost: one read and one write of a piece per rank, two waits; inline one.
#include "comm/algo/algo_table.h"
#include "comm/algo/direct.h"

static void core(const direct_view *v)
{
    const comm_call *c = v->call;
    const int root = c->args->root;
    direct_copy(v, v->out[v->rank], v->in[root] + v->in_stride[root] * v->rank,
                v->count * v->width);
}

static status run(comm_call *call)
{
    return direct_run(call, DIRECT_PULL, core);
}

const comm_algorithm comm_algorithm_scatter_direct = {
    .name = "direct",
    .op = COLLECTIVE_SCATTER,
    .order = COMM_ORDER_SHARD,
    .terms = false,
    .direct = true,
    .items = true,
    .run = run,
};
