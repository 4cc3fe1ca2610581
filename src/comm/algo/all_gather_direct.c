// All-gather: each rank copies the buffers of all ranks into its own output, its neighbour's first.
// Cost: n reads and n writes of a piece per rank, and two waits (one if inline).
#include "comm/algo/algo_table.h"
#include "comm/algo/direct.h"

static void core(const direct_view *v)
{
    const comm_call *c = v->call;
    for (int i = 1; i <= c->size; i++) {
        const int r = (v->rank + i) % c->size;
        const int64_t bytes = direct_piece(v, r) * v->width;
        if (bytes == 0) continue; // the receive buffer has no place for it either
        direct_copy(v, v->out[v->rank] + v->out_stride[v->rank] * r, v->in[r], bytes);
    }
}

static status run(comm_call *call)
{
    return direct_run(call, DIRECT_PULL, core);
}

const comm_algorithm comm_algorithm_all_gather_direct = {
    .name = "direct",
    .op = COLLECTIVE_ALL_GATHER,
    .order = COMM_ORDER_SHARD,
    .terms = false,
    .direct = true,
    .ends = true,
    .items = true,
    .run = run,
};
