// Gather: each rank copies its buffer into its piece of the root's output; inline the root takes
// them. Cost: one read and one write of a piece per rank, two waits; inline one.
#include "comm/algo/algo_table.h"
#include "comm/algo/direct.h"

static void core(const direct_view *v)
{
    const comm_call *c = v->call;
    const int root = c->args->root;
    char *out = v->out[root];
    if (out == NULL) return;
    for (int r = v->is_inline ? 0 : v->rank; r < (v->is_inline ? c->size : v->rank + 1); r++) {
        direct_copy(v, out + v->out_stride[root] * r, v->in[r], v->count * v->width);
    }
}

static status run(comm_call *call)
{
    return direct_run(call, DIRECT_PUSH, core);
}

const comm_algorithm comm_algorithm_gather_direct = {
    .name = "direct",
    .op = COLLECTIVE_GATHER,
    .order = COMM_ORDER_SHARD,
    .terms = false,
    .direct = true,
    .items = true,
    .run = run,
};
