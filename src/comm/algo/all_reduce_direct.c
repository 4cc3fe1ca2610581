// All-reduce in one pass: rank r adds piece r of all ranks' buffers and writes the sum to all
// outputs. Each byte is read once and written once, without a copy. Cost: n reads and n writes of
// bytes/n per rank, and two waits (one if inline).
#include "comm/algo/algo_table.h"
#include "comm/algo/direct.h"

static void core(const direct_view *v)
{
    const int size = v->call->size;
    __attribute__((
        uninitialized)) void *outs[COMM_MAX_LOCAL]; // clearing it takes as long as 8 bytes
    int count = 0;
    // Each rank begins with its own: no two write to the same buffer.
    for (int i = 0, r = v->rank; i < size; i++, r = r + 1 < size ? r + 1 : 0) {
        if (v->out[r] != NULL) outs[count++] = v->out[r];
    }
    const comm_reduce_args args = {.in = (const void *const *)v->in,
                                   .out = outs,
                                   .outs = count,
                                   .stores = v->stream ? COMM_STORE_STREAM : COMM_STORE_CACHED,
                                   .begin = v->is_inline ? 0 : v->begin,
                                   .count = v->is_inline ? v->count : v->end - v->begin};
    if (count > 0 && args.count > 0) direct_reduce(v, &args);
}

static status run(comm_call *call)
{
    return direct_run(call, DIRECT_BOTH, core);
}

const comm_algorithm comm_algorithm_all_reduce_direct = {
    .name = "direct",
    .op = COLLECTIVE_ALL_REDUCE,
    .order = COMM_ORDER_SHARD,
    .terms = true,
    .direct = true,
    .items = true,
    .run = run,
};

// The same, left to right over ranks.
const comm_algorithm comm_algorithm_all_reduce_direct_rank = {
    .name = "direct_rank",
    .op = COLLECTIVE_ALL_REDUCE,
    .order = COMM_ORDER_RANK,
    .direct = true,
    .items = true,
    .run = run,
};
