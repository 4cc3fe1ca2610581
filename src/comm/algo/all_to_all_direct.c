// All-to-all: each rank copies its piece from the inputs of all ranks, its neighbour's first. Cost:
// n reads and n writes of a piece per rank, and two waits (one if inline). In place it uses the
// stages.
#include "comm/algo/algo_table.h"
#include "comm/algo/direct.h"

static void core(const direct_view *v)
{
    const comm_call *c = v->call;
    for (int i = 1; i <= c->size; i++) {
        const int r = (v->rank + i) % c->size;
        direct_copy(v, v->out[v->rank] + v->out_stride[v->rank] * r,
                    v->in[r] + v->in_stride[r] * v->rank, v->count * v->width);
    }
}

static status run(comm_call *call)
{
    return direct_run(call, DIRECT_PULL, core);
}

const comm_algorithm comm_algorithm_all_to_all_direct = {
    .name = "direct",
    .op = COLLECTIVE_ALL_TO_ALL,
    .order = COMM_ORDER_SHARD,
    .terms = false,
    .direct = true,
    .items = true,
    .run = run,
};
