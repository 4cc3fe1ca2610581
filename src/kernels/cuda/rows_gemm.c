// Rows of the matrix products: the library of the queue where it has one and can do the product,
// else our own kernels.
#include "kernels/cuda/rows.h"

enum {
    SIDE = 128, // of a block's part of c
    PLAIN = 64,
    // The slices on their way, and later the sums of eight warps.
    HALF_SHARED = 8 * 64 * 36 * 4,
    PLAIN_SHARED = 64 * 64 * 4
};

static bool is_half(const cuda_view *v)
{
    return v->type == DTYPE_BF16 || v->type == DTYPE_F16;
}

// Returns whether every row begins at a multiple of 16 bytes.
static bool is_aligned(const cuda_view *v)
{
    return ((uintptr_t)v->data & 15) == 0 && (v->rows <= 1 || v->stride % 8 == 0);
}

static cuda_matrix matrix_of(const cuda_view *v)
{
    return (cuda_matrix){.data = v->data,
                         .type = (dtype)v->type,
                         .rows = v->rows,
                         .columns = v->columns,
                         .stride = v->stride};
}

static bool is_same(const cuda_view *a, const cuda_view *b)
{
    return a->data == b->data && a->type == b->type && a->stride == b->stride;
}

bool cuda_gemm_is_half(const cuda_gemm_args *args)
{
    return args->order != CUDA_GEMM_SEQUENCE && is_half(&args->a) && args->a.type == args->b.type &&
           !(args->a_along_m && !args->b_along_n);
}

bool cuda_gemm_is_aligned(const cuda_gemm_args *args)
{
    return is_aligned(&args->a) && is_aligned(&args->b);
}

int64_t cuda_gemm_side(bool half)
{
    return half ? SIDE : PLAIN;
}

int64_t cuda_gemm_shared(bool half)
{
    return half ? HALF_SHARED : PLAIN_SHARED;
}

int32_t cuda_gemm_order_of(const kern_call *call)
{
    return call->strict ? CUDA_GEMM_BY_ROWS : CUDA_GEMM_FREE;
}

int32_t cuda_gemm_order_of_rows(const kern_call *call)
{
    return call->strict ? CUDA_GEMM_SEQUENCE : CUDA_GEMM_FREE;
}

// *done: the library has the product. gelu: of c, which the library writes too; NULL: not wanted.
static status library_run(const kern_context *context, const cuda_gemm_args *args,
                          const cuda_view *gelu, bool *done)
{
    const bool continues = args->before.data != NULL;
    *done = false;
    if (args->order != CUDA_GEMM_FREE) return ST_OK;
    if (context->queue->product == NULL || args->activation != ACT_NONE) return ST_OK;
    if (continues && !is_same(&args->before, &args->c)) return ST_OK;
    const cuda_product product = {.a = matrix_of(&args->a),
                                  .b = matrix_of(&args->b),
                                  .c = matrix_of(&args->c),
                                  .a_transposed = args->a_along_m != 0,
                                  .b_transposed = args->b_along_n == 0,
                                  .accumulate = continues,
                                  .bias = args->bias.data,
                                  .bias_type = (dtype)args->bias.type,
                                  .gelu = gelu != NULL ? gelu->data : NULL,
                                  .gelu_stride = gelu != NULL ? gelu->stride : 0};
    const status st = context->queue->product(context->queue, &product);
    *done = st == ST_OK;
    return st == ST_UNSUPPORTED ? ST_OK : st;
}

static const char *half_kernel(const cuda_gemm_args *args)
{
    static const char *const names[2][3] = {
        {"cuda_gemm_bf16_nt", "cuda_gemm_bf16_nn", "cuda_gemm_bf16_tn"},
        {"cuda_gemm_f16_nt", "cuda_gemm_f16_nn", "cuda_gemm_f16_tn"}};
    const int order = args->a_along_m ? 2 : args->b_along_n ? 1 : 0;
    return names[args->a.type == DTYPE_BF16 ? 0 : 1][order];
}

static bool sizes_set(cuda_gemm_args *args)
{
    args->m = args->c.rows;
    args->n = args->c.columns;
    args->k = args->a_along_m ? args->a.rows : args->a.columns;
    return args->m > 0 && args->n > 0 && args->k > 0;
}

status cuda_gemm_run(const kern_context *context, cuda_gemm_args *args)
{
    bool done = false;
    if (sizes_set(args)) TRY(library_run(context, args, NULL, &done));
    if (done) return ST_OK;
    const bool half = cuda_gemm_is_half(args);
    const int64_t side = cuda_gemm_side(half);
    args->aligned = cuda_gemm_is_aligned(args);
    const int64_t down = (args->m + side - 1) / side;
    ASSERT(down <= CUDA_MAX_GRID_ROWS); // more rows than a micro-batch has
    const cuda_shape shape = {.grid = {(args->n + side - 1) / side, down, 1},
                              .threads = CUDA_THREADS,
                              .shared_bytes = cuda_gemm_shared(half)};
    return cuda_launch_run(context, half ? half_kernel(args) : "cuda_gemm_plain", &shape, args,
                           sizeof(*args));
}

// The library computes gelu of sums that it has not rounded yet.
bool cuda_fuses_matmul(const kern_context *context, const kern_call *first, const kern_call *second)
{
    (void)context;
    const kern_tensor *y = &first->out[0], *gelu = &second->out[0];
    const bool halves = y->type == DTYPE_BF16 || y->type == DTYPE_F16;
    return second->code == OP_ACTIVATION && second->attrs.activation == ACT_GELU_TANH && halves &&
           first->attrs.activation == ACT_NONE && gelu->type == y->type && !first->strict &&
           first->in[0].type == y->type && first->in[1].type == y->type;
}

// Both calls by the library, or one after the other by our own kernels.
static status matmul_gelu(const kern_context *context, cuda_gemm_args *args, const kern_call *gelu)
{
    bool done = false;
    const cuda_view view = cuda_view_of(&gelu->out[0]);
    const bool in_place = view.data == args->c.data; // the library writes both results
    if (sizes_set(args) && !in_place) TRY(library_run(context, args, &view, &done));
    if (done) return ST_OK;
    TRY(cuda_gemm_run(context, args));
    return cuda_row_activation(context, gelu);
}

// The product in 8 bits, where the library has it; `before` is what it continues from, if anything.
static status narrow_run(const kern_context *context, const kern_call *c, const kern_tensor *bias,
                         const cuda_view *before, bool *done)
{
    const cuda_view out = cuda_view_of(&c->out[0]);
    cuda_product product = {.c = matrix_of(&out), .accumulate = before->data != NULL};
    *done = false;
    if (c->strict) return ST_OK;
    if (before->data != NULL && !is_same(before, &out)) return ST_OK;
    if (bias != NULL && cuda_has(bias)) {
        product.bias = bias->data;
        product.bias_type = bias->type;
    }
    return cuda_fp8_product(context, c, &product, done);
}

// y (N, M) = act(x (N, K) w (M, K)^T + bias)
status cuda_row_matmul(const kern_context *context, const kern_call *c)
{
    kern_call rounded;
    const cuda_view nothing = {.data = NULL};
    bool done = false;
    TRY(cuda_call_check(context, c));
    if (c->attrs.activation == ACT_NONE) {
        TRY(narrow_run(context, c, &c->in[2], &nothing, &done));
    }
    if (done) return c->then != NULL ? cuda_row_activation(context, c->then) : ST_OK;
    TRY(cuda_fp8_operands(context, &c, &rounded));
    cuda_gemm_args args = {.a = cuda_view_of(&c->in[0]),
                           .b = cuda_view_of(&c->in[1]),
                           .bias = cuda_view_of(&c->in[2]),
                           .c = cuda_view_of(&c->out[0]),
                           .activation = (int32_t)c->attrs.activation,
                           .order = cuda_gemm_order_of(c)};
    if (c->then != NULL) return matmul_gelu(context, &args, c->then);
    return cuda_gemm_run(context, &args);
}

// dx (N, K) = before + dy (N, M) w (M, K)
status cuda_row_matmul_dx(const kern_context *context, const kern_call *c)
{
    kern_call rounded;
    const cuda_view before = cuda_view_of(&c->in[2]);
    bool done = false;
    TRY(cuda_call_check(context, c));
    TRY(narrow_run(context, c, NULL, &before, &done));
    if (done) return ST_OK;
    TRY(cuda_fp8_operands(context, &c, &rounded));
    cuda_gemm_args args = {.a = cuda_view_of(&c->in[0]),
                           .b = cuda_view_of(&c->in[1]),
                           .before = before,
                           .c = cuda_view_of(&c->out[0]),
                           .b_along_n = 1,
                           .order = cuda_gemm_order_of(c)};
    return cuda_gemm_run(context, &args);
}

// dw (M, K) += dy (N, M)^T x (N, K)
status cuda_row_matmul_dw(const kern_context *context, const kern_call *c)
{
    kern_call rounded;
    TRY(cuda_call_check(context, c));
    const cuda_view before = c->accumulate ? cuda_view_of(&c->out[0]) : (cuda_view){.data = NULL};
    bool done = false;
    TRY(narrow_run(context, c, NULL, &before, &done));
    if (done) return ST_OK;
    TRY(cuda_fp8_operands(context, &c, &rounded));
    cuda_gemm_args args = {.a = cuda_view_of(&c->in[0]),
                           .b = cuda_view_of(&c->in[1]),
                           .c = cuda_view_of(&c->out[0]),
                           .a_along_m = 1,
                           .b_along_n = 1,
                           .order = cuda_gemm_order_of_rows(c)};
    if (c->accumulate) args.before = args.c;
    return cuda_gemm_run(context, &args);
}
