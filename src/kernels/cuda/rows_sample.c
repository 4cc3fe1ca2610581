// SAMPLE: choice of the next token (sample.cu).
//
//   workspace   weights of (sequences, vocabulary), in double | two arrays of candidates of each
#include "kernels/cuda/args_generation.h"
#include "kernels/cuda/rows.h"

enum { DIGITS = 16 }; // that of the kernel

static int64_t weights_bytes(const kern_call *c)
{
    return c->in[0].dims[0] * c->in[0].dims[1] * (int64_t)sizeof(double);
}

int64_t cuda_sample_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return weights_bytes(call) +
           2 * call->in[0].dims[0] * call->in[0].dims[1] * (int64_t)sizeof(cuda_candidate);
}

status cuda_row_sample(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    char *const space = c->workspace;
    cuda_sample_args args = {.logits = cuda_view_of(&c->in[0]),
                             .params = cuda_view_of(&c->in[1]),
                             .draws = cuda_view_of(&c->in[2]),
                             .ids = cuda_view_of(&c->out[0]),
                             .weights = (double *)(void *)space,
                             .candidates = (cuda_candidate *)(void *)(space + weights_bytes(c))};
    const int64_t each =
        (int64_t)(sizeof(double) + sizeof(cuda_candidate)) + DIGITS * (int64_t)sizeof(int32_t);
    const cuda_shape shape = {.grid = {args.logits.rows, 1, 1},
                              .threads = CUDA_THREADS,
                              .shared_bytes = CUDA_THREADS * each};
    return cuda_launch_run(context, "cuda_sample", &shape, &args, sizeof(args));
}
