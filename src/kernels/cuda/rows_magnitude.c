// ROW_SQUARES and MAGNITUDE: weights whose rows have a length of their own (magnitude.cu). The
// gradient of the lengths is a sum over rows (rows_norm.c).
#include "kernels/cuda/args_adapters.h"
#include "kernels/cuda/rows.h"

status cuda_row_row_squares(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_squares_args args = {.w = cuda_view_of(&c->in[0]),
                              .a = cuda_view_of(&c->in[1]),
                              .b = cuda_view_of(&c->in[2]),
                              .squares = cuda_view_of(&c->out[0]),
                              .scale = c->attrs.scale};
    const int64_t rows = (args.w.rows + CUDA_SQUARES_ROWS - 1) / CUDA_SQUARES_ROWS;
    const cuda_shape shape = cuda_shape_of_warps(rows);
    return cuda_launch_run(context, "cuda_row_squares", &shape, &args, sizeof(args));
}

status cuda_row_magnitude(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_magnitude_args args = {.x = cuda_view_of(&c->in[0]),
                                .m = cuda_view_of(&c->in[1]),
                                .squares = cuda_view_of(&c->in[2]),
                                .y = cuda_view_of(&c->out[0])};
    const cuda_shape shape = cuda_shape_of_columns(args.y.rows, args.y.columns);
    return cuda_launch_run(context, "cuda_magnitude", &shape, &args, sizeof(args));
}
