// Products in 8 bits: their operands are rounded into the workspace, in their own type.
#include "kernels/cuda/rows.h"
#include "kernels/fp8_operands.h"

enum { SIDE = FP8_BLOCK_SIZE };

static status operand_run(const kern_context *context, const kern_call *c, int operand,
                          const kern_call *rounded)
{
    cuda_fp8_args args = {.in = cuda_view_of(&c->in[operand]),
                          .out = cuda_view_of(&rounded->in[operand]),
                          .group = fp8_group_rows(c, operand),
                          .block = fp8_block_of(c, operand)};
    const int64_t stripes = (args.group + SIDE - 1) / SIDE;
    const int64_t down = args.in.rows / args.group * stripes;
    ASSERT(down <= CUDA_MAX_GRID_ROWS); // more rows than a micro-batch or a weight has
    const cuda_shape shape = {.grid = {(args.in.columns + SIDE - 1) / SIDE, down, 1},
                              .threads = CUDA_THREADS,
                              .shared_bytes = CUDA_THREADS * (int64_t)sizeof(float)};
    return cuda_launch_run(context, "cuda_fp8_operand", &shape, &args, sizeof(args));
}

status cuda_fp8_operands(const kern_context *context, const kern_call **call, kern_call *rounded)
{
    const kern_call *c = *call;
    if (c->attrs.fp8 == FP8_NONE) return ST_OK;
    fp8_operands_move(c, c->in[0].type, rounded);
    for (int i = 0; i < 2; i++) TRY(operand_run(context, c, i, rounded));
    *call = rounded;
    return ST_OK;
}

int64_t cuda_fp8_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return fp8_operands_bytes(call, call->in[0].type);
}
