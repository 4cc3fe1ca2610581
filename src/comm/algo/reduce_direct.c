// Reduce in one pass: rank r adds piece r of all ranks' buffers and writes the sum to the root's
// output. Cost: n reads and one write of bytes/n per rank, two waits; inline the root adds all.
#include "comm/algo/algo_table.h"
#include "comm/algo/direct.h"

static void core(const direct_view *v)
{
    void *out = v->out[v->call->args->root];
    const comm_reduce_args args = {.in = (const void *const *)v->in,
                                   .out = &out,
                                   .outs = 1,
                                   .stores = v->stream ? COMM_STORE_STREAM : COMM_STORE_CACHED,
                                   .begin = v->is_inline ? 0 : v->begin,
                                   .count = v->is_inline ? v->count : v->end - v->begin};
    if (out != NULL && args.count > 0) direct_reduce(v, &args);
}

static status run(comm_call *call)
{
    return direct_run(call, DIRECT_BOTH, core);
}

const comm_algorithm comm_algorithm_reduce_direct = {
    .name = "direct",
    .op = COLLECTIVE_REDUCE,
    .order = COMM_ORDER_SHARD,
    .terms = true,
    .direct = true,
    .items = true,
    .run = run,
};

// The same, left to right over ranks.
const comm_algorithm comm_algorithm_reduce_direct_rank = {
    .name = "direct_rank",
    .op = COLLECTIVE_REDUCE,
    .order = COMM_ORDER_RANK,
    .direct = true,
    .items = true,
    .run = run,
};
