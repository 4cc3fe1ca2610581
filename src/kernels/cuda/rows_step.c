// Rows of the step block and of the optimizers.
#include "kernels/cuda/rows.h"

#include "op/op_kind.h"
#include "op/optimizer.h"

enum { SUM_BYTES = (EXACT_DIGITS + 2) * (int)sizeof(int64_t), BLOCKS_PER_PROCESSOR = 8 };

static status step_run(const kern_context *context, const kern_call *call, const char *kernel,
                       int threads)
{
    TRY(cuda_call_check(context, call));
    cuda_step_args args = {.step = call->step,
                           .load_words =
                               step_load_words(call->attrs.load_layers, call->attrs.experts)};
    const cuda_shape shape = {.grid = {1, 1, 1}, .threads = threads};
    return cuda_launch_run(context, kernel, &shape, &args, sizeof(args));
}

status cuda_row_step_begin(const kern_context *context, const kern_call *call)
{
    return step_run(context, call, "cuda_step_begin", CUDA_THREADS);
}

status cuda_row_step_decide(const kern_context *context, const kern_call *call)
{
    return step_run(context, call, "cuda_step_decide", 32);
}

// As many blocks as there is work, but not more than keep the GPU busy: each adds its digits to
// those in global memory at its end.
static cuda_shape sum_shape(const kern_context *context, int64_t blocks)
{
    const int64_t most = (int64_t)context->queue->multiprocessors * BLOCKS_PER_PROCESSOR;
    return (cuda_shape){.grid = {min_i64(blocks, max_i64(most, 1)), 1, 1},
                        .threads = CUDA_THREADS,
                        .shared_bytes = SUM_BYTES};
}

status cuda_row_step_loss(const kern_context *context, const kern_call *call)
{
    TRY(cuda_call_check(context, call));
    cuda_step_args args = {.terms = cuda_view_of(&call->in[0]),
                           .labels = cuda_view_of(&call->in[1]),
                           .step = call->step};
    const cuda_shape shape =
        sum_shape(context, (args.terms.columns + CUDA_THREADS - 1) / CUDA_THREADS);
    return cuda_launch_run(context, "cuda_step_loss", &shape, &args, sizeof(args));
}

status cuda_row_grad_norm(const kern_context *context, const kern_call *call)
{
    TRY(cuda_call_check(context, call));
    cuda_step_args args = {.terms = cuda_view_of(&call->in[0]),
                           .step = call->step,
                           .tensor_index = call->attrs.tensor_index};
    const int64_t blocks = (args.terms.columns + 1023) / 1024 * args.terms.rows;
    const int64_t per_block = CUDA_THREADS / 16;
    const cuda_shape shape = sum_shape(context, (blocks + per_block - 1) / per_block);
    return cuda_launch_run(context, "cuda_grad_norm", &shape, &args, sizeof(args));
}

// ---- updates ------------------------------------------------------------------------------------
status cuda_stochastic_check(const kern_call *call)
{
    for (int o = 0; o < OP_MAX_OUT && call->attrs.stochastic; o++) {
        if (!cuda_has(&call->out[o]) || call->out[o].type != DTYPE_F16) continue;
        return fail(ST_UNSUPPORTED, "backend cuda: stochastic rounding to fp16; use bf16");
    }
    const int slots = op_kind_of(call->code)->slots_in;
    if (slots > 0 && cuda_has(&call->in[slots])) {
        return fail(ST_UNSUPPORTED, "backend cuda: stochastic rounding of experts that move; use "
                                    "moe.rebalance=off");
    }
    return ST_OK;
}

cuda_rounding cuda_rounding_of(const kern_call *call, int64_t first_row)
{
    return (cuda_rounding){.step = &call->step->host,
                           .first_row = first_row,
                           .piece = call->piece,
                           .tensor_index = call->attrs.tensor_index,
                           .stochastic = call->attrs.stochastic,
                           .is_matrix = call->in[0].ndim == 2};
}

static bool updates_are_dense(const cuda_update_args *args)
{
    bool dense = cuda_view_is_dense(&args->grad) && cuda_view_is_dense(&args->master) &&
                 cuda_view_is_dense(&args->m) && cuda_view_is_dense(&args->v);
    for (int o = 0; o < 4; o++) dense = dense && cuda_view_is_dense(&args->out[o]);
    return dense;
}

static void update_flatten(cuda_update_args *args)
{
    cuda_view *views[] = {&args->grad,   &args->master, &args->m,      &args->v,
                          &args->out[0], &args->out[1], &args->out[2], &args->out[3]};
    const int64_t elements = args->grad.rows * args->grad.columns;
    for (int64_t i = 0; i < COUNT_OF(views); i++) {
        views[i]->rows = 1;
        views[i]->columns = views[i]->stride = elements;
    }
}

// An optimizer that works element by element. v is missing for those without.
static status update_run(const kern_context *context, const kern_call *c, const char *kernel)
{
    TRY(cuda_call_check(context, c));
    TRY(cuda_stochastic_check(c));
    cuda_update_args args = {.grad = cuda_view_of(&c->in[0]),
                             .master = cuda_view_of(&c->in[1]),
                             .m = cuda_view_of(&c->in[2]),
                             .v = cuda_view_of(&c->in[3]),
                             .step = c->step,
                             .beta1 = optimizer_beta(c->attrs.beta1),
                             .beta2 = optimizer_beta(c->attrs.beta2),
                             .lr_scale = (double)c->attrs.lr_scale,
                             .decay = c->attrs.decay ? (double)c->attrs.weight_decay : 0.0,
                             .rounding = cuda_rounding_of(c, c->first_row),
                             .eps = c->attrs.eps};
    for (int o = 0; o < 4; o++) args.out[o] = cuda_view_of(&c->out[o]);
    if (!args.rounding.stochastic && updates_are_dense(&args)) update_flatten(&args);
    cuda_shape shape = cuda_shape_of_columns(args.grad.rows, args.grad.columns);
    // Every block computes what all elements share, so there are not more than keep the GPU busy.
    const int64_t most = (int64_t)context->queue->multiprocessors * BLOCKS_PER_PROCESSOR;
    shape.grid[0] = min_i64(shape.grid[0], max_i64(most, 1));
    shape.shared_bytes = 64;
    return cuda_launch_run(context, kernel, &shape, &args, sizeof(args));
}

status cuda_row_adamw(const kern_context *context, const kern_call *c)
{
    return update_run(context, c, "cuda_adamw");
}

status cuda_row_lion(const kern_context *context, const kern_call *c)
{
    return update_run(context, c, "cuda_lion");
}
