// Products in 8 bits: their operands go into the workspace, as 8 bits and factors if the queue's
// library multiplies these, else rounded in their own type. Histories of their factors.
#include "kernels/cuda/args_experts.h"
#include "kernels/cuda/rows.h"
#include "kernels/fp8_operands.h"

enum {
    SIDE = FP8_BLOCK_SIZE,
    FACTORS_SHARED = CUDA_THREADS * 4 + SIDE * 4, // of fp8_tile in fp8.cu, without codes
    CODES_SHARED = FACTORS_SHARED + SIDE * (SIDE + 16),
    MAX_PARTS = 128, // of an operand whose largest magnitude is wanted
    PART_ROWS = 32,
    NARROW_ARCH = 89 // from which on mma instructions multiply 8 bits
};

// The operand and its factors; the result is for the caller to name.
static cuda_fp8_args operand_args(const kern_call *c, int operand)
{
    cuda_fp8_args args = {.in = cuda_view_of(&c->in[operand]),
                          .group = fp8_group_rows(c, operand),
                          .block = fp8_block_of(c, operand),
                          .format = (int32_t)fp8_operand_format(c, operand)};
    if (args.block != FP8_OF_ALL) return args;
    const kern_tensor *history = fp8_history_of(c); // of experts: the row of the first one
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

// Each expert's rows, or matrix, with its factor.
static status experts_run(const kern_context *context, const char *kernel, const kern_call *c,
                          int operand, const cuda_fp8_args *of, int64_t shared_bytes)
{
    const bool is_weight = fp8_operand_of(c, operand) == 1;
    const kern_tensor *t = &c->in[operand];
    cuda_fp8_experts_args args = {.of = *of,
                                  .groups = cuda_groups_of(c, t->dims[0]),
                                  .history_stride = fp8_history_of(c)->strides[0]};
    args.groups.counts.data = NULL;
    if (is_weight) {
        args.groups.offsets.data = NULL;
        args.groups.ranks = 1;
    }
    const cuda_shape shape = {
        .grid = {(t->dims[1] + SIDE - 1) / SIDE, cuda_groups_tiles(&args.groups, SIDE), 1},
        .threads = CUDA_THREADS,
        .shared_bytes = shared_bytes};
    return cuda_launch_run(context, kernel, &shape, &args, sizeof(args));
}

status cuda_fp8_operands(const kern_context *context, const kern_call **call, kern_call *rounded)
{
    const kern_call *c = *call;
    if (c->attrs.fp8 == FP8_NONE) return ST_OK;
    fp8_operands_move(c, c->in[0].type, rounded);
    for (int i = 0; i < 2; i++) {
        cuda_fp8_args args = operand_args(c, i);
        args.out = cuda_view_of(&rounded->in[i]);
        if (c->attrs.fp8 == FP8_TENSOR && c->attrs.experts > 0) {
            TRY(experts_run(context, "cuda_fp8_experts", c, i, &args, FACTORS_SHARED));
        } else {
            TRY(operand_run(context, "cuda_fp8_operand", &args, FACTORS_SHARED));
        }
    }
    *call = rounded;
    return ST_OK;
}

// ---- 8 bits and factors -------------------------------------------------------------------------
// An operand as the library takes it: `rows` of `inner` numbers, the summed ones.
typedef struct narrow {
    bool transposed; // against the operand
    int64_t rows, inner, factor_stride, codes_bytes, factors_bytes;
} narrow;

static narrow narrow_of(const kern_call *c, int operand)
{
    const kern_tensor *t = &c->in[operand];
    const fp8_block block = fp8_block_of(c, operand);
    const bool is_dx = c->code == OP_MATMUL_DX || c->code == OP_GROUPED_MATMUL_DX;
    narrow n = {.transposed = c->code == OP_MATMUL_DW || (is_dx && operand == 1)};
    n.rows = t->dims[n.transposed ? 1 : 0];
    n.inner = t->dims[n.transposed ? 0 : 1];
    // Blocks of a matrix of experts begin anew with each of them.
    const int64_t experts = fp8_operand_of(c, operand) == 1 ? max_i64(c->attrs.experts, 1) : 1;
    const int64_t stripes = experts * ((t->dims[0] / experts + SIDE - 1) / SIDE);
    const int64_t across = (t->dims[1] + SIDE - 1) / SIDE;
    const int64_t blocks = n.transposed ? stripes : across,
                  groups = n.transposed ? across : stripes;
    n.factor_stride = block == FP8_OF_SQUARE ? align_up(blocks, 4) : n.rows;
    const int64_t factors = block == FP8_OF_ALL      ? max_i64(c->attrs.experts, 1)
                            : block == FP8_OF_SQUARE ? n.factor_stride * groups
                                                     : n.rows * blocks;
    n.codes_bytes = align_up(n.rows * n.inner, ALIGN_TENSOR);
    n.factors_bytes = align_up(factors * (int64_t)sizeof(float), ALIGN_TENSOR);
    return n;
}

// The factors of rows are in the terms of an expert's gradient, not before its sum.
static bool is_rounded(const kern_call *c)
{
    return c->code == OP_GROUPED_MATMUL_DW;
}

int64_t cuda_fp8_workspace(const kern_call *call, int threads)
{
    (void)threads;
    const int64_t rounded = fp8_operands_bytes(call, call->in[0].type);
    if (call->attrs.fp8 == FP8_NONE || is_rounded(call)) return rounded;
    int64_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        const narrow n = narrow_of(call, i);
        bytes += n.codes_bytes + n.factors_bytes;
    }
    return max_i64(rounded, bytes);
}

// Sets the operands of the product, which lie in the workspace of the call.
static void operands_place(const kern_call *c, cuda_product *product)
{
    char *at = (char *)c->workspace;
    for (int i = 0; i < 2; i++) {
        const narrow n = narrow_of(c, i);
        cuda_matrix *m = i == 0 ? &product->a : &product->b;
        *m = (cuda_matrix){.data = at,
                           .type =
                               fp8_operand_format(c, i) == FP8_E4M3 ? DTYPE_F8E4M3 : DTYPE_F8E5M2,
                           .rows = n.rows,
                           .columns = n.inner,
                           .stride = n.inner};
        product->factors[i] = (const float *)(void *)(at + n.codes_bytes);
        product->blocks[i] = fp8_block_of(c, i) == FP8_OF_COLUMN ? FP8_OF_ROW : fp8_block_of(c, i);
        at += n.codes_bytes + n.factors_bytes;
    }
    product->b_transposed = true;
}

static status codes_run(const kern_context *context, const kern_call *c, int operand,
                        const cuda_product *product)
{
    const narrow n = narrow_of(c, operand);
    const cuda_matrix *m = operand == 0 ? &product->a : &product->b;
    cuda_fp8_args args = operand_args(c, operand);
    args.codes = m->data;
    args.code_stride = m->stride;
    args.scales = (float *)(void *)((char *)m->data + n.codes_bytes);
    args.scale_stride = n.factor_stride;
    args.transposed = n.transposed;
    if (args.block == FP8_OF_ALL && c->attrs.experts > 0) {
        return experts_run(context, "cuda_fp8_experts_codes", c, operand, &args, CODES_SHARED);
    }
    return operand_run(context, "cuda_fp8_codes", &args, CODES_SHARED);
}

status cuda_fp8_product(const kern_context *context, const kern_call *c, cuda_product *product,
                        bool *done)
{
    const cuda_queue *q = context->queue;
    const bool has_units = c->attrs.fp8 == FP8_TENSOR ? q->fp8_tensors : q->fp8_blocks;
    *done = false;
    if (c->attrs.fp8 == FP8_NONE || q->product == NULL || !has_units) return ST_OK;
    if (c->in[0].dims[0] == 0) return ST_OK;
    operands_place(c, product);
    product->only_asks = true;
    const status st = context->queue->product(context->queue, product);
    if (st != ST_OK) return st == ST_UNSUPPORTED ? ST_OK : st;
    for (int i = 0; i < 2; i++) TRY(codes_run(context, c, i, product));
    product->only_asks = false;
    *done = true;
    return context->queue->product(context->queue, product);
}

// ---- experts ------------------------------------------------------------------------------------
static cuda_view pairs_of(const cuda_matrix *m)
{
    return (cuda_view){.data = m->data,
                       .type = DTYPE_BF16,
                       .rows = m->rows,
                       .columns = m->columns / 2,
                       .stride = m->stride / 2};
}

status cuda_fp8_grouped(const kern_context *context, const kern_call *c,
                        const cuda_grouped_args *of, bool *done)
{
    const int64_t own = c->in[1].dims[0] / max_i64(c->attrs.experts, 1);
    const bool is_dx = c->code == OP_GROUPED_MATMUL_DX, is_whole = of->own == own && !c->strict;
    *done = false;
    if (c->attrs.fp8 == FP8_NONE || context->queue->arch < NARROW_ARCH || !is_whole) return ST_OK;
    if (own % 16 != 0 || c->in[1].dims[1] % 16 != 0 || c->in[0].dims[0] == 0) return ST_OK;
    cuda_product p = {.b_transposed = false};
    operands_place(c, &p);
    for (int i = 0; i < 2; i++) TRY(codes_run(context, c, i, &p));
    cuda_grouped_narrow_args args = {.of = *of,
                                     .factors = {p.factors[0], p.factors[1]},
                                     .stripes = (own + SIDE - 1) / SIDE,
                                     .across = is_dx};
    args.of.product.a = pairs_of(&p.a);
    args.of.product.b = pairs_of(&p.b);
    if (is_dx) args.of.product.b.columns = own / 2;
    args.of.product.b_along_n = 0;
    args.of.product.k = (is_dx ? own : c->in[1].dims[1]) / 2;
    args.of.product.aligned = 1;
    for (int i = 0; i < 2; i++) args.factor_strides[i] = narrow_of(c, i).factor_stride;
    const int64_t side = cuda_gemm_side(true);
    const cuda_shape shape = {.grid = {(args.of.product.n + side - 1) / side,
                                       cuda_groups_tiles(&args.of.groups, side), 1},
                              .threads = CUDA_THREADS,
                              .shared_bytes = cuda_gemm_shared(true)};
    *done = true;
    return cuda_launch_run(context,
                           c->attrs.fp8 == FP8_BLOCK ? "cuda_grouped_blocks"
                           : is_dx                   ? "cuda_grouped_e5m2"
                                                     : "cuda_grouped_e4m3",
                           &shape, &args, sizeof(args));
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

status cuda_row_fp8_counts_rows(const kern_context *context, const kern_call *call)
{
    TRY(cuda_call_check(context, call));
    cuda_fp8_counts_rows_args args = {.dy = cuda_view_of(&call->in[0]),
                                      .x = cuda_view_of(&call->in[1]),
                                      .w = cuda_view_of(&call->in[4]),
                                      .counts = cuda_view_of(&call->out[0]),
                                      .groups = cuda_groups_of(call, call->in[0].dims[0]),
                                      .accumulate = call->accumulate};
    const cuda_shape shape = {.grid = {call->attrs.experts, FP8_OPERANDS, 1},
                              .threads = CUDA_THREADS,
                              .shared_bytes = CUDA_THREADS / 32 * (int64_t)sizeof(float)};
    return cuda_launch_run(context, "cuda_fp8_counts_rows", &shape, &args, sizeof(args));
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
