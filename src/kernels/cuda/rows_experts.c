// Rows of experts: there and back, factors and counts of rows, rows in 8 bits.
#include "kernels/cuda/args_experts.h"
#include "kernels/cuda/rows.h"

enum { MOST_EXPERTS = 4096 };

static status experts_check(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    if (c->attrs.experts <= MOST_EXPERTS) return ST_OK;
    return fail(ST_UNSUPPORTED, "backend cuda: %s with %d experts, at most %d",
                op_kind_of(c->code)->name, (int)c->attrs.experts, (int)MOST_EXPERTS);
}

// ---- there --------------------------------------------------------------------------------------
static int64_t parts_of(const kern_call *c)
{
    const kern_tensor *ids = &c->in[1];
    return (ids->dims[0] * ids->dims[1] + CUDA_THREADS - 1) / CUDA_THREADS;
}

int64_t cuda_permute_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return parts_of(call) * call->attrs.experts * (int64_t)sizeof(int64_t);
}

status cuda_row_permute(const kern_context *context, const kern_call *c)
{
    TRY(experts_check(context, c));
    cuda_permute_args args = {.x = cuda_view_of(&c->in[0]),
                              .ids = cuda_view_of(&c->in[1]),
                              .weights = cuda_view_of(&c->in[2]),
                              .rows = cuda_view_of(&c->out[0]),
                              .row_of = cuda_view_of(&c->out[1]),
                              .offsets = cuda_view_of(&c->out[2]),
                              .scale = cuda_view_of(&c->out[3]),
                              .counts = c->workspace,
                              .experts = c->attrs.experts,
                              .parts = parts_of(c)};
    const int64_t numbers = args.experts * (int64_t)sizeof(int64_t);
    if (!cuda_has(&c->in[2])) args.scale.data = NULL;
    const cuda_shape count = {
        .grid = {args.parts, 1, 1}, .threads = CUDA_THREADS, .shared_bytes = numbers};
    TRY(cuda_launch_run(context, "cuda_permute_count", &count, &args, sizeof(args)));
    const cuda_shape offsets = {
        .grid = {1, 1, 1}, .threads = CUDA_THREADS, .shared_bytes = numbers};
    TRY(cuda_launch_run(context, "cuda_permute_offsets", &offsets, &args, sizeof(args)));
    const cuda_shape rows = {.grid = {args.parts, 1, 1},
                             .threads = CUDA_THREADS,
                             .shared_bytes = 2 * CUDA_THREADS * (int64_t)sizeof(int64_t)};
    return cuda_launch_run(context, "cuda_permute_rows", &rows, &args, sizeof(args));
}

// ---- and back -----------------------------------------------------------------------------------
static status add_run(const kern_context *context, cuda_rows_args *args)
{
    const cuda_shape shape = cuda_shape_of_columns(args->y.rows, args->y.columns);
    return cuda_launch_run(context, "cuda_rows_add", &shape, args, sizeof(*args));
}

status cuda_row_unpermute(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_rows_args args = {.rows = cuda_view_of(&c->in[0]),
                           .row_of = cuda_view_of(&c->in[1]),
                           .weights = cuda_view_of(&c->in[2]),
                           .y = cuda_view_of(&c->out[0])};
    return add_run(context, &args);
}

status cuda_row_permute_bwd(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_rows_args args = {.rows = cuda_view_of(&c->in[0]),
                           .row_of = cuda_view_of(&c->in[1]),
                           .d_scale = cuda_view_of(&c->in[2]),
                           .y = cuda_view_of(&c->out[0]),
                           .d_weights = cuda_view_of(&c->out[1])};
    return add_run(context, &args);
}

status cuda_row_unpermute_bwd(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_rows_args args = {.y = cuda_view_of(&c->in[0]),
                           .row_of = cuda_view_of(&c->in[1]),
                           .other = cuda_view_of(&c->in[2]),
                           .weights = cuda_view_of(&c->in[3]),
                           .rows = cuda_view_of(&c->out[0]),
                           .d_weights = cuda_view_of(&c->out[1])};
    const cuda_shape shape = cuda_shape_of_warps(args.row_of.rows * args.row_of.columns);
    return cuda_launch_run(context, "cuda_rows_spread", &shape, &args, sizeof(args));
}

// ---- factors ------------------------------------------------------------------------------------
static status factor_run(const kern_context *context, const kern_call *c, cuda_factor_args *args)
{
    TRY(cuda_call_check(context, c));
    const cuda_shape shape = cuda_shape_of_warps(args->x.rows);
    return cuda_launch_run(context, "cuda_rows_factor", &shape, args, sizeof(*args));
}

status cuda_row_scale_rows(const kern_context *context, const kern_call *c)
{
    cuda_factor_args args = {.x = cuda_view_of(&c->in[0]),
                             .factor = cuda_view_of(&c->in[1]),
                             .y = cuda_view_of(&c->out[0])};
    return factor_run(context, c, &args);
}

status cuda_row_scale_rows_ds(const kern_context *context, const kern_call *c)
{
    cuda_factor_args args = {.x = cuda_view_of(&c->in[0]),
                             .other = cuda_view_of(&c->in[1]),
                             .dot = cuda_view_of(&c->out[0])};
    return factor_run(context, c, &args);
}

status cuda_row_gate_rows(const kern_context *context, const kern_call *c)
{
    cuda_factor_args args = {.x = cuda_view_of(&c->in[0]),
                             .factor = cuda_view_of(&c->in[1]),
                             .y = cuda_view_of(&c->out[0]),
                             .sigmoid = 1};
    return factor_run(context, c, &args);
}

status cuda_row_gate_rows_bwd(const kern_context *context, const kern_call *c)
{
    cuda_factor_args args = {.x = cuda_view_of(&c->in[0]),
                             .other = cuda_view_of(&c->in[1]),
                             .factor = cuda_view_of(&c->in[2]),
                             .y = cuda_view_of(&c->out[0]),
                             .dot = cuda_view_of(&c->out[1]),
                             .sigmoid = 1};
    return factor_run(context, c, &args);
}

// ---- counts -------------------------------------------------------------------------------------
static cuda_counts_args counts_args(const kern_call *c)
{
    return (cuda_counts_args){.in = cuda_view_of(&c->in[0]),
                              .out = cuda_view_of(&c->out[0]),
                              .experts = c->attrs.experts,
                              .ranks = c->attrs.ranks,
                              .limit = c->attrs.limit,
                              .limit_seq = c->attrs.limit_seq};
}

status cuda_row_count_rows(const kern_context *context, const kern_call *c)
{
    TRY(experts_check(context, c));
    cuda_counts_args args = counts_args(c);
    args.sequences = args.out.rows / args.ranks;
    const cuda_shape shape = {.grid = {args.out.rows, 1, 1},
                              .threads = CUDA_THREADS,
                              .shared_bytes = args.experts * (int64_t)sizeof(int64_t)};
    return cuda_launch_run(context, "cuda_count_rows", &shape, &args, sizeof(args));
}

status cuda_row_row_offsets(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_counts_args args = counts_args(c);
    args.sequences = args.in.rows / args.ranks;
    const cuda_shape shape = {.grid = {1, 1, 1}, .threads = CUDA_THREADS};
    return cuda_launch_run(context, "cuda_row_offsets", &shape, &args, sizeof(args));
}

status cuda_row_limit_rows(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_counts_args args = counts_args(c);
    const cuda_shape shape = cuda_shape_of_warps(args.in.rows * args.in.columns);
    return cuda_launch_run(context, "cuda_limit_rows", &shape, &args, sizeof(args));
}

status cuda_row_place_experts(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_place_args args = {.ids = cuda_view_of(&c->in[0]),
                            .table = cuda_view_of(&c->in[1]),
                            .slots = cuda_view_of(&c->out[0]),
                            .experts = c->attrs.experts,
                            .layer = max_i64(c->layer, 0)};
    const int64_t choices = args.ids.rows * args.ids.columns;
    const cuda_shape shape = {.grid = {(choices + CUDA_THREADS - 1) / CUDA_THREADS, 1, 1},
                              .threads = CUDA_THREADS};
    return cuda_launch_run(context, "cuda_place_experts", &shape, &args, sizeof(args));
}

// ---- rows in 8 bits -----------------------------------------------------------------------------
status cuda_row_narrow_rows(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_counts_args args = counts_args(c);
    const cuda_shape shape = cuda_shape_of_warps(args.in.rows);
    return cuda_launch_run(context, "cuda_narrow_rows", &shape, &args, sizeof(args));
}

status cuda_row_widen_rows(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_counts_args args = counts_args(c);
    const cuda_shape shape = cuda_shape_of_warps(args.out.rows);
    return cuda_launch_run(context, "cuda_widen_rows", &shape, &args, sizeof(args));
}
