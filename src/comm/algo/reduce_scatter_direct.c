// Reduce-scatter in one pass: rank r adds piece r of all ranks' inputs into its output. Cost: n
// reads and one write of a piece per rank, two waits; inline one.
#include "comm/algo/algo_table.h"
#include "comm/algo/direct.h"

static void core(const direct_view *v)
{
    void *out = v->out[v->rank];
    const int64_t at = v->in_stride[v->rank] * v->rank, count = direct_piece(v, v->rank);
    if (count == 0) return;
    for (int t = 0; t < v->terms; t++) v->in[t] += at; // in_stride is the same on all ranks
    const comm_reduce_args args = {.in = (const void *const *)v->in,
                                   .out = &out,
                                   .outs = 1,
                                   .stores = v->stream ? COMM_STORE_STREAM : COMM_STORE_CACHED,
                                   .count = count};
    direct_reduce(v, &args);
}

static status run(comm_call *call)
{
    return direct_run(call, DIRECT_PULL, core);
}

const comm_algorithm comm_algorithm_reduce_scatter_direct = {
    .name = "direct",
    .op = COLLECTIVE_REDUCE_SCATTER,
    .order = COMM_ORDER_SHARD,
    .terms = true,
    .direct = true,
    .ends = true,
    .items = true,
    .run = run,
};

// The same, left to right over ranks.
const comm_algorithm comm_algorithm_reduce_scatter_direct_rank = {
    .name = "direct_rank",
    .op = COLLECTIVE_REDUCE_SCATTER,
    .order = COMM_ORDER_RANK,
    .direct = true,
    .ends = true,
    .items = true,
    .run = run,
};
