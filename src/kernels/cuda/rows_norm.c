// Rows of the norms and of sums over rows.
#include "kernels/cuda/rows.h"

enum { NORM_ROWS = CUDA_THREADS / 32, COLUMNS = 256, PART_ROWS = 64, MAX_PARTS = 128 };

static status norm_run(const kern_context *context, cuda_norm_args *args)
{
    const cuda_shape shape = cuda_shape_of_warps(args->y.rows * args->groups);
    return cuda_launch_run(context, "cuda_norm", &shape, args, sizeof(*args));
}

status cuda_row_rmsnorm(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_norm_args args = {.x = cuda_view_of(&c->in[0]),
                           .w = cuda_view_of(&c->in[1]),
                           .delta = cuda_view_of(&c->in[2]),
                           .y = cuda_view_of(&c->out[0]),
                           .r = cuda_view_of(&c->out[1]),
                           .h = cuda_view_of(&c->out[2]),
                           .dots = cuda_view_of(&c->in[3]),
                           .whole = c->piece.whole_columns,
                           .eps = c->attrs.eps,
                           .plus = c->attrs.plus};
    args.dim = args.w.columns;
    args.groups = args.y.columns / args.dim;
    return norm_run(context, &args);
}

status cuda_row_layernorm(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_norm_args args = {.x = cuda_view_of(&c->in[0]),
                           .w = cuda_view_of(&c->in[1]),
                           .b = cuda_view_of(&c->in[2]),
                           .delta = cuda_view_of(&c->in[3]),
                           .y = cuda_view_of(&c->out[0]),
                           .mean = cuda_view_of(&c->out[1]),
                           .r = cuda_view_of(&c->out[2]),
                           .h = cuda_view_of(&c->out[3]),
                           .groups = 1,
                           .eps = c->attrs.eps,
                           .subtracts_mean = 1};
    args.dim = args.y.columns;
    return norm_run(context, &args);
}

static status norm_dx_run(const kern_context *context, cuda_norm_dx_args *args)
{
    const cuda_shape shape = cuda_shape_of_warps(args->dx.rows * args->groups);
    return cuda_launch_run(context, "cuda_norm_dx", &shape, args, sizeof(*args));
}

status cuda_row_rmsnorm_dx(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_norm_dx_args args = {.dy = cuda_view_of(&c->in[0]),
                              .h = cuda_view_of(&c->in[1]),
                              .r = cuda_view_of(&c->in[2]),
                              .w = cuda_view_of(&c->in[3]),
                              .dh = cuda_view_of(&c->in[4]),
                              .dx = cuda_view_of(&c->out[0]),
                              .dots = cuda_view_of(&c->in[5]),
                              .whole = c->piece.whole_columns,
                              .eps = c->attrs.eps,
                              .plus = c->attrs.plus};
    args.dim = args.w.columns;
    args.groups = args.dx.columns / args.dim;
    return norm_dx_run(context, &args);
}

status cuda_row_layernorm_dx(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_norm_dx_args args = {.dy = cuda_view_of(&c->in[0]),
                              .h = cuda_view_of(&c->in[1]),
                              .r = cuda_view_of(&c->in[3]),
                              .w = cuda_view_of(&c->in[4]),
                              .dh = cuda_view_of(&c->in[5]),
                              .dx = cuda_view_of(&c->out[0]),
                              .groups = 1,
                              .subtracts_mean = 1};
    args.dim = args.dx.columns;
    return norm_dx_run(context, &args);
}

status cuda_row_row_dots(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    const op_columns columns = op_columns_of(&c->piece, c->in[0].dims[1]);
    cuda_dots_args args = {.x = cuda_view_of(&c->in[0]),
                           .dy = cuda_view_of(&c->in[1]),
                           .w = cuda_view_of(&c->in[2]),
                           .dots = cuda_view_of(&c->out[0]),
                           .begin = columns.begin,
                           .dim = columns.end - columns.begin,
                           .plus = c->attrs.plus};
    const cuda_shape shape = cuda_shape_of_warps(args.x.rows);
    return cuda_launch_run(context, "cuda_row_sums", &shape, &args, sizeof(args));
}

// ---- sums over rows -----------------------------------------------------------------------------
// The rows are summed in parts, as many as keep a GPU busy; how many depends on the shape only.
static void parts_of(int64_t rows, int64_t *parts, int64_t *part_rows)
{
    *parts = max_i64(1, min_i64((rows + PART_ROWS - 1) / PART_ROWS, MAX_PARTS));
    *part_rows = max_i64(1, (rows + *parts - 1) / *parts);
}

static int64_t column_workspace(const kern_call *call, int64_t dim)
{
    int64_t parts, part_rows;
    if (call->strict) return 0;
    const int64_t groups = dim > 0 ? call->in[0].dims[1] / dim : 1;
    parts_of(call->in[0].dims[0] * groups, &parts, &part_rows);
    return 2 * parts * dim * (int64_t)sizeof(float);
}

int64_t cuda_columns_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return column_workspace(call, call->out[0].dims[0]);
}

static status columns_run(const kern_context *context, const kern_call *call,
                          cuda_column_args *args)
{
    args->dy = cuda_view_of(&call->in[0]);
    args->out = cuda_view_of(&call->out[0]);
    args->dim = args->out.columns;
    args->groups = args->dy.columns / args->dim;
    args->accumulate = call->accumulate;
    const int64_t shared_bytes = 2 * NORM_ROWS * COLUMNS * (int64_t)sizeof(float);
    const int64_t across = (args->dim + COLUMNS - 1) / COLUMNS;
    if (call->strict) { // one sum, in the order of the rows
        const cuda_shape sequence = {
            .grid = {across, 1, 1}, .threads = CUDA_THREADS, .shared_bytes = shared_bytes};
        return cuda_launch_run(context, "cuda_column_sequence", &sequence, args, sizeof(*args));
    }
    args->partial = call->workspace;
    parts_of(args->dy.rows * args->groups, &args->parts, &args->part_rows);
    const cuda_shape sums = {
        .grid = {across, args->parts, 1}, .threads = CUDA_THREADS, .shared_bytes = shared_bytes};
    TRY(cuda_launch_run(context, "cuda_column_sums", &sums, args, sizeof(*args)));
    const cuda_shape finish = {.grid = {(args->dim + CUDA_THREADS - 1) / CUDA_THREADS, 2, 1},
                               .threads = CUDA_THREADS};
    return cuda_launch_run(context, "cuda_column_finish", &finish, args, sizeof(*args));
}

status cuda_row_bias_dw(const kern_context *context, const kern_call *call)
{
    TRY(cuda_call_check(context, call));
    cuda_column_args args = {.kind = CUDA_COLUMNS_BIAS};
    return columns_run(context, call, &args);
}

status cuda_row_magnitude_dw(const kern_context *context, const kern_call *call)
{
    TRY(cuda_call_check(context, call));
    cuda_column_args args = {.kind = CUDA_COLUMNS_MAGNITUDE,
                             .h = cuda_view_of(&call->in[1]),
                             .r = cuda_view_of(&call->in[2])};
    return columns_run(context, call, &args);
}

status cuda_row_rmsnorm_dw(const kern_context *context, const kern_call *call)
{
    TRY(cuda_call_check(context, call));
    cuda_column_args args = {.kind = CUDA_COLUMNS_RMSNORM,
                             .h = cuda_view_of(&call->in[1]),
                             .r = cuda_view_of(&call->in[2])};
    return columns_run(context, call, &args);
}

status cuda_row_layernorm_dw(const kern_context *context, const kern_call *call)
{
    TRY(cuda_call_check(context, call));
    cuda_column_args args = {.kind = CUDA_COLUMNS_LAYERNORM,
                             .h = cuda_view_of(&call->in[1]),
                             .mean = cuda_view_of(&call->in[2]),
                             .r = cuda_view_of(&call->in[3]),
                             .out_second = cuda_view_of(&call->out[1])};
    return columns_run(context, call, &args);
}
