// OBJECTIVE: the losses of pairs and groups of answers (objective.cu).
#include "kernels/cuda/rows.h"

static int64_t ways_of(const kern_call *c)
{
    return max_i64(1, c->piece.cp_ways);
}

static int64_t sequences_of(const kern_call *c)
{
    return c->seq > 0 ? c->in[0].dims[0] / (c->seq * ways_of(c)) : 0;
}

// Numbers in double for one sequence.
static int64_t numbers_of(const kern_call *c)
{
    return align_up(op_objective_bytes(c->seq * ways_of(c)), 64) / (int64_t)sizeof(double);
}

int64_t cuda_objective_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return sequences_of(call) * numbers_of(call) * (int64_t)sizeof(double);
}

status cuda_row_objective(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_objective_args args = {.losses = cuda_view_of(&c->in[0]),
                                .documents = cuda_view_of(&c->in[1]),
                                .given = cuda_view_of(&c->in[2]),
                                .scratch = c->workspace,
                                .seq = c->seq,
                                .ways = ways_of(c),
                                .turns = c->piece.cp_turns,
                                .at = c->piece.cp_at,
                                .numbers = numbers_of(c),
                                .attrs = c->attrs.objective};
    for (int i = 0; i < COUNT_OF(args.out); i++) args.out[i] = cuda_view_of(&c->out[i]);
    const cuda_shape shape = {.grid = {sequences_of(c), 1, 1}, .threads = CUDA_THREADS};
    return cuda_launch_run(context, "cuda_objective", &shape, &args, sizeof(args));
}
