// Rows of the products with one matrix per expert, and of biases of experts.
#include "kernels/cuda/args_experts.h"
#include "kernels/cuda/rows.h"
#include "kernels/expert_rows.h"

#include <stdio.h>

enum { BIAS_ROWS = 64 }; // of a block (grouped.cu)

cuda_groups cuda_groups_of(const kern_call *c, int64_t rows)
{
    return (cuda_groups){.offsets = cuda_view_of(&c->in[2]),
                         .counts = cuda_view_of(&c->in[3]),
                         .rows = rows,
                         .experts = c->attrs.experts,
                         .ranks = expert_ranks(c),
                         .pieces = max_i64(c->attrs.pieces, 1),
                         .rows_of = c->rows_of,
                         .sequence_begin = c->sequence_begin,
                         .sequence_count = c->sequence_count};
}

int64_t cuda_groups_tiles(const cuda_groups *g, int64_t side)
{
    return (g->rows + side - 1) / side + g->ranks * g->experts;
}

// Runs the kernel of the operands' types. tiles: along axis 1, for each side of a tile.
static status grouped_run(const kern_context *context, cuda_grouped_args *args, const char *order)
{
    cuda_gemm_args *p = &args->product;
    char name[48];
    const bool sums = p->a_along_m != 0, half = cuda_gemm_is_half(p);
    const int64_t side = cuda_gemm_side(half);
    p->aligned = cuda_gemm_is_aligned(p);
    const int64_t down = sums ? (p->m + side - 1) / side : cuda_groups_tiles(&args->groups, side);
    const cuda_shape shape = {
        .grid = {(p->n + side - 1) / side, down, sums ? args->groups.experts : 1},
        .threads = CUDA_THREADS,
        .shared_bytes = cuda_gemm_shared(half)};
    (void)snprintf(name, sizeof(name), "cuda_grouped_%s_%s",
                   !half                     ? "plain"
                   : p->a.type == DTYPE_BF16 ? "bf16"
                                             : "f16",
                   !half ? (sums ? "sums" : "rows") : order);
    return cuda_launch_run(context, name, &shape, args, sizeof(*args));
}

// Products of rows: of operands in 8 bits, where the GPU and the shapes allow it, else of rounded
// ones.
static status grouped_or_narrow(const kern_context *context, const kern_call *c,
                                cuda_grouped_args *args, const char *order)
{
    kern_call rounded;
    bool done = false;
    TRY(cuda_fp8_grouped(context, c, args, &done));
    if (done) return ST_OK;
    TRY(cuda_fp8_operands(context, &c, &rounded));
    args->product.a = cuda_view_of(&c->in[0]);
    args->product.b = cuda_view_of(&c->in[1]);
    return grouped_run(context, args, order);
}

// y = x w^T, each row with the matrix of its expert
status cuda_row_grouped_matmul(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_grouped_args args = {.product = {.a = cuda_view_of(&c->in[0]),
                                          .b = cuda_view_of(&c->in[1]),
                                          .c = cuda_view_of(&c->out[0])}};
    args.groups = cuda_groups_of(c, args.product.a.rows);
    args.groups.counts.data = NULL;
    args.product.n = args.own = args.product.c.columns;
    args.product.k = args.product.a.columns;
    args.whole = c->piece.whole_rows > 0 ? c->piece.whole_rows : args.own;
    args.first_row = c->piece.first_row;
    return grouped_or_narrow(context, c, &args, "nt");
}

// dx = before + dy w
status cuda_row_grouped_matmul_dx(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_grouped_args args = {.product = {.a = cuda_view_of(&c->in[0]),
                                          .b = cuda_view_of(&c->in[1]),
                                          .before = cuda_view_of(&c->in[3]),
                                          .c = cuda_view_of(&c->out[0]),
                                          .b_along_n = 1}};
    args.groups = cuda_groups_of(c, args.product.a.rows);
    args.groups.counts.data = NULL;
    args.product.n = args.product.c.columns;
    args.product.k = args.own = args.product.a.columns;
    args.whole = c->piece.whole_rows > 0 ? c->piece.whole_rows : args.own;
    args.first_row = c->piece.first_row;
    return grouped_or_narrow(context, c, &args, "nn");
}

// dw += dy^T x over the rows of each expert
status cuda_row_grouped_matmul_dw(const kern_context *context, const kern_call *c)
{
    kern_call rounded;
    TRY(cuda_call_check(context, c));
    TRY(cuda_fp8_operands(context, &c, &rounded));
    cuda_grouped_args args = {.product = {.a = cuda_view_of(&c->in[0]),
                                          .b = cuda_view_of(&c->in[1]),
                                          .c = cuda_view_of(&c->out[0]),
                                          .a_along_m = 1,
                                          .b_along_n = 1,
                                          .order = cuda_gemm_order_of_rows(c)}};
    args.groups = cuda_groups_of(c, args.product.a.rows);
    args.product.m = args.own = args.product.a.columns;
    args.product.n = args.product.c.columns;
    if (c->accumulate) args.product.before = args.product.c;
    return grouped_run(context, &args, "tn");
}

// ---- biases -------------------------------------------------------------------------------------
static cuda_shape columns_shape(int64_t columns, int64_t down)
{
    return (cuda_shape){.grid = {(columns + CUDA_THREADS - 1) / CUDA_THREADS, down, 1},
                        .threads = CUDA_THREADS};
}

status cuda_row_bias_rows(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_bias_args args = {.x = cuda_view_of(&c->in[0]),
                           .bias = cuda_view_of(&c->in[1]),
                           .y = cuda_view_of(&c->out[0])};
    args.groups = cuda_groups_of(c, args.x.rows);
    args.groups.counts.data = NULL;
    const cuda_shape shape =
        columns_shape(args.x.columns, cuda_groups_tiles(&args.groups, BIAS_ROWS));
    return cuda_launch_run(context, "cuda_bias_rows", &shape, &args, sizeof(args));
}

status cuda_row_bias_rows_dw(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_bias_args args = {.x = cuda_view_of(&c->in[0]),
                           .scale = cuda_view_of(&c->in[1]),
                           .bias = cuda_view_of(&c->out[0]),
                           .accumulate = c->accumulate};
    args.groups = cuda_groups_of(c, args.x.rows);
    const cuda_shape shape = columns_shape(args.x.columns, args.groups.experts);
    return cuda_launch_run(context, "cuda_bias_rows_dw", &shape, &args, sizeof(args));
}

static cuda_bias_args tokens_args(const kern_call *c)
{
    return (cuda_bias_args){.x = cuda_view_of(&c->in[0]), .ids = cuda_view_of(&c->in[1])};
}

status cuda_row_bias_tokens(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_bias_args args = tokens_args(c);
    args.weights = cuda_view_of(&c->in[2]);
    args.bias = cuda_view_of(&c->in[3]);
    args.y = cuda_view_of(&c->out[0]);
    const cuda_shape shape = cuda_shape_of_columns(args.y.rows, args.y.columns);
    return cuda_launch_run(context, "cuda_bias_tokens", &shape, &args, sizeof(args));
}

status cuda_row_bias_tokens_dw(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_bias_args args = tokens_args(c);
    args.weights = cuda_view_of(&c->in[2]);
    args.bias = cuda_view_of(&c->out[0]);
    args.accumulate = c->accumulate;
    const cuda_shape shape = columns_shape(args.bias.columns, args.bias.rows);
    return cuda_launch_run(context, "cuda_bias_tokens_dw", &shape, &args, sizeof(args));
}

status cuda_row_bias_tokens_ds(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_bias_args args = tokens_args(c);
    args.bias = cuda_view_of(&c->in[2]);
    args.weights = cuda_view_of(&c->out[0]);
    const cuda_shape shape = cuda_shape_of_warps(args.ids.rows * args.ids.columns);
    return cuda_launch_run(context, "cuda_bias_tokens_ds", &shape, &args, sizeof(args));
}
