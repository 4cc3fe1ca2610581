// SCORE: the head of a reward model (score.cu).
#include "kernels/cuda/args_adapters.h"
#include "kernels/cuda/rows.h"

status cuda_row_score(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_score_args args = {.x = cuda_view_of(&c->in[0]),
                            .w = cuda_view_of(&c->in[1]),
                            .labels = cuda_view_of(&c->in[2]),
                            .slopes = cuda_view_of(&c->in[3]),
                            .loss = cuda_view_of(&c->out[0]),
                            .dx = cuda_view_of(&c->out[1]),
                            .dw = cuda_view_of(&c->out[2]),
                            .step = c->step,
                            .loss_divisor = c->loss_divisor,
                            .accumulate = c->accumulate,
                            .is_here = c->piece.first_shard == 0};
    const cuda_shape rows = cuda_shape_of_warps(args.x.rows);
    TRY(cuda_launch_run(context, "cuda_score", &rows, &args, sizeof(args)));
    if (!cuda_has(&c->out[2])) return ST_OK;
    const cuda_shape columns = {.grid = {(args.x.columns + CUDA_THREADS - 1) / CUDA_THREADS, 1, 1},
                                .threads = CUDA_THREADS};
    return cuda_launch_run(context, "cuda_score_dw", &columns, &args, sizeof(args));
}
