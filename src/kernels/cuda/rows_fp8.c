// Products in 8 bits: their operands are rounded into the workspace, in their own type. Histories
// of their factors.
#include "kernels/cuda/rows.h"
#include "kernels/fp8_operands.h"

enum {
    SIDE = FP8_BLOCK_SIZE,
    FACTORS_SHARED = CUDA_THREADS * 4 + SIDE * 4, // of fp8_tile in fp8.cu, without codes
    MAX_PARTS = 128,                              // of an operand whose largest magnitude is wanted
    PART_ROWS = 32
};

// The operand and its factors; the result is for the caller to name.
static cuda_fp8_args operand_args(const kern_call *c, int operand)
{
    cuda_fp8_args args = {.in = cuda_view_of(&c->in[operand]),
                          .group = fp8_group_rows(c, operand),
                          .block = fp8_block_of(c, operand),
                          .format = (int32_t)fp8_operand_format(c, operand)};
    if (args.block != FP8_OF_ALL) return args;
    const kern_tensor *history = fp8_history_of(c);
    ASSERT(history->type == DTYPE_F32);
    args.operand = fp8_operand_of(c, operand);
    args.margin = c->attrs.fp8_margin;
    args.history = (const float *)history->data + args.operand * history->strides[0];
    return args;
}

static status operand_run(const kern_context *context, const char *kernel, cuda_fp8_args *args,
                          int64_t shared_bytes)
{
    const int64_t stripes = (args->group + SIDE - 1) / SIDE;
    const int64_t down = args->in.rows / args->group * stripes;
    ASSERT(down <= CUDA_MAX_GRID_ROWS); // more rows than a micro-batch or a weight has
    const cuda_shape shape = {.grid = {(args->in.columns + SIDE - 1) / SIDE, down, 1},
                              .threads = CUDA_THREADS,
                              .shared_bytes = shared_bytes};
    return cuda_launch_run(context, kernel, &shape, args, sizeof(*args));
}

status cuda_fp8_operands(const kern_context *context, const kern_call **call, kern_call *rounded)
{
    const kern_call *c = *call;
    if (c->attrs.fp8 == FP8_NONE) return ST_OK;
    fp8_operands_move(c, c->in[0].type, rounded);
    for (int i = 0; i < 2; i++) {
        cuda_fp8_args args = operand_args(c, i);
        args.out = cuda_view_of(&rounded->in[i]);
        TRY(operand_run(context, "cuda_fp8_operand", &args, FACTORS_SHARED));
    }
    *call = rounded;
    return ST_OK;
}

int64_t cuda_fp8_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return fp8_operands_bytes(call, call->in[0].type);
}

// ---- histories ----------------------------------------------------------------------------------
// As many parts as the operand with most rows keeps busy.
static int64_t parts_of(const kern_call *call)
{
    int64_t rows = 1;
    for (int i = 0; i < FP8_OPERANDS; i++) rows = max_i64(rows, call->in[i].dims[0]);
    return min_i64((rows + PART_ROWS - 1) / PART_ROWS, MAX_PARTS);
}

int64_t cuda_fp8_counts_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return FP8_OPERANDS * parts_of(call) * (int64_t)sizeof(float);
}

status cuda_row_fp8_counts(const kern_context *context, const kern_call *call)
{
    TRY(cuda_call_check(context, call));
    cuda_fp8_counts_args args = {.dy = cuda_view_of(&call->in[0]),
                                 .x = cuda_view_of(&call->in[1]),
                                 .w = cuda_view_of(&call->in[2]),
                                 .counts = cuda_view_of(&call->out[0]),
                                 .partial = call->workspace,
                                 .parts = parts_of(call),
                                 .accumulate = call->accumulate};
    const cuda_shape most = {.grid = {args.parts, FP8_OPERANDS, 1},
                             .threads = CUDA_THREADS,
                             .shared_bytes = CUDA_THREADS / 32 * (int64_t)sizeof(float)};
    TRY(cuda_launch_run(context, "cuda_fp8_most", &most, &args, sizeof(args)));
    const cuda_shape one = {.grid = {1, 1, 1}, .threads = CUDA_THREADS};
    return cuda_launch_run(context, "cuda_fp8_counts", &one, &args, sizeof(args));
}

status cuda_row_fp8_history(const kern_context *context, const kern_call *call)
{
    TRY(cuda_call_check(context, call));
    cuda_fp8_history_args args = {.counts = cuda_view_of(&call->in[0]),
                                  .steps = cuda_view_of(&call->in[1]),
                                  .out = cuda_view_of(&call->out[0]),
                                  .step = call->step,
                                  .most = call->attrs.fp8_steps};
    const cuda_shape one = {.grid = {1, 1, 1}, .threads = CUDA_THREADS};
    return cuda_launch_run(context, "cuda_fp8_history", &one, &args, sizeof(args));
}
