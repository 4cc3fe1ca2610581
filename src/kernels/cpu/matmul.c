// The matrix products of a layer, as calls of our packed product (gemm.h).
//
// Weights are stored (out, in): y = x w^T reads both along k. Bias and activation are applied to a
// tile of finished sums while it is in cache. Gradients of weights continue from their accumulator,
// token after token, so a cut between tokens changes no bit where the accumulator is fp32; a
// narrower one is rounded once per call.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/vec_kernels.h"

#include <string.h>

static gemm_matrix matrix_of(const kern_tensor *t)
{
    return gemm_rows(t->data, t->type, t->strides[0]);
}

static gemm_args product_into(const kern_call *call, gemm_matrix a, gemm_matrix b, int64_t k)
{
    const kern_tensor *c = &call->out[0];
    return (gemm_args){.any_order = !call->strict,
                       .in_pairs = call->in_pairs,
                       .m = c->dims[0],
                       .n = c->dims[1],
                       .k = k,
                       .a = a,
                       .b = b,
                       .c = c->data,
                       .c_type = c->type,
                       .ldc = c->strides[0],
                       .panels = call->panels,
                       .fills = call->fills};
}

typedef struct finish {
    const cpu_vec *vec;
    const kern_tensor *bias;
    op_activation activation;
} finish;

static void finish_row(const void *context, float *values, int64_t i, int64_t j, int64_t count)
{
    (void)i;
    const finish *f = context;
    if (f->bias->data != NULL) {
        f->vec->finish(f->activation, values, cpu_span_at(f->bias, j), count);
    } else {
        const cpu_span row = {.at = values, .type = DTYPE_F32};
        f->vec->activation(f->activation, row, row, count);
    }
}

// The weight w (M x K) as these products read it: x w^T over K, dy w over M.
int64_t cpu_matmul_panels(const kern_call *call, kern_level level)
{
    const kern_tensor *w = &call->in[1];
    return gemm_panels_bytes(level, w->type, !call->strict, w->dims[0], w->dims[1]);
}

int64_t cpu_matmul_dx_panels(const kern_call *call, kern_level level)
{
    const kern_tensor *w = &call->in[1];
    return gemm_panels_bytes(level, w->type, !call->strict, w->dims[1], w->dims[0]);
}

status cpu_matmul(const kern_context *context, const kern_call *call)
{
    const kern_tensor *x = &call->in[0], *w = &call->in[1], *bias = &call->in[2];
    const finish f = {
        .vec = cpu_vec_of(context->level), .bias = bias, .activation = call->attrs.activation};
    gemm_args g = product_into(call, matrix_of(x), gemm_transposed(matrix_of(w)), x->dims[1]);
    if (bias->data != NULL || f.activation != ACT_NONE) {
        g.epilogue = finish_row;
        g.epilogue_context = &f;
    }
    gemm_run(context, &g);
    return ST_OK;
}

static void rows_copy(const kern_tensor *to, const kern_tensor *from)
{
    const int64_t width = dtype_bytes(to->type);
    ASSERT(to->type == from->type);
    for (int64_t i = 0; i < to->dims[0]; i++) {
        memcpy((char *)to->data + i * to->strides[0] * width,
               (const char *)from->data + i * from->strides[0] * width,
               (size_t)(to->dims[1] * width));
    }
}

status cpu_matmul_dx(const kern_context *context, const kern_call *call)
{
    const kern_tensor *dy = &call->in[0], *w = &call->in[1], *before = &call->in[2];
    gemm_args g = product_into(call, matrix_of(dy), matrix_of(w), dy->dims[1]);
    g.accumulate = before->data != NULL;
    if (g.accumulate && before->data != call->out[0].data) rows_copy(&call->out[0], before);
    gemm_run(context, &g);
    return ST_OK;
}

status cpu_matmul_dw(const kern_context *context, const kern_call *call)
{
    const kern_tensor *dy = &call->in[0], *x = &call->in[1];
    gemm_args g = product_into(call, gemm_transposed(matrix_of(dy)), matrix_of(x), dy->dims[0]);
    g.accumulate = call->accumulate;
    gemm_run(context, &g);
    return ST_OK;
}
