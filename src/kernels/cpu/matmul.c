// The GEMMs of a layer, as calls of gemm.h.
//
// Weights are stored (out, in): y = x w^T reads both along k. Bias and activation are applied to a
// tile of finished sums while it is in cache, and so is a following operation that works element by
// element on the result (call.then), such as an activation or its gradient. Gradients of weights
// continue from their accumulator, token after token, so a cut between tokens changes no bit if the
// accumulator is fp32; a narrower one is rounded once per call.
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
                       .panels = call->packed,
                       .fills = call->fills};
}

typedef struct finish {
    const cpu_vec *vec;
    const kern_tensor *bias; // NULL, or with data NULL: none
    op_activation activation;
    const kern_call *then;
    const kern_tensor *made;
} finish;

// Runs the second call on columns j .. of row i of the result, which are in `row`, in the type of
// the result.
static void then_row(const finish *f, cpu_span row, int64_t i, int64_t j, int64_t count)
{
    const kern_call *then = f->then;
    const kern_tensor *in = &then->in[0], *out = &then->out[0];
    const bool in_place = out->data == f->made->data;
    const cpu_span to = in_place ? row : cpu_span_at(out, i * out->strides[0] + j);
    const int64_t half = f->made->dims[1] / 2, at = i * in->strides[0] + j;
    switch ((int)then->code) {
    case OP_ACTIVATION:
        f->vec->activation(then->attrs.activation, to, row, count);
        return;
    case OP_ACTIVATION_BWD:
        f->vec->activation_bwd(then->attrs.activation, to, cpu_span_at(in, at), row, count);
        return;
    case OP_SWIGLU: { // the gates of these columns are finished and in place
        const int64_t skip = max_i64(half - j, 0);
        if (skip >= count) return;
        const int64_t column = j + skip - half;
        f->vec->swiglu(cpu_span_at(out, i * out->strides[0] + column),
                       cpu_span_at(in, i * in->strides[0] + column), cpu_span_offset(row, skip),
                       count - skip);
        return;
    }
    default: { // OP_SWIGLU_BWD
        const int64_t width = f->made->dims[1];
        f->vec->swiglu_bwd(to, cpu_span_offset(to, width), cpu_span_at(in, at),
                           cpu_span_at(in, at + width), row, count);
        return;
    }
    }
}

// Rounds the values to the type of the result, because the next operation reads rounded values.
static void then_rounded(const finish *f, float *values, int64_t i, int64_t j, int64_t count)
{
    uint16_t narrow[GEMM_PIECE];
    const cpu_span row = {.at = narrow, .type = f->made->type};
    for (int64_t begin = 0; begin < count; begin += GEMM_PIECE) {
        const int64_t columns = min_i64(GEMM_PIECE, count - begin);
        const cpu_span whole = {.at = values + begin, .type = DTYPE_F32};
        f->vec->cast(row, whole, columns);
        then_row(f, row, i, j + begin, columns);
        f->vec->cast(whole, row, columns);
    }
}

static void finish_row(const void *context, float *values, int64_t i, int64_t j, int64_t count)
{
    const finish *f = context;
    const cpu_span row = {.at = values, .type = DTYPE_F32};
    if (f->bias != NULL && f->bias->data != NULL) {
        f->vec->finish(f->activation, values, cpu_span_at(f->bias, j), count);
    } else if (f->activation != ACT_NONE) {
        f->vec->activation(f->activation, row, row, count);
    }
    if (f->then == NULL) return;
    if (f->made->type == DTYPE_F32) {
        then_row(f, row, i, j, count);
    } else {
        then_rounded(f, values, i, j, count);
    }
}

static void epilogue_set(gemm_args *g, const finish *f)
{
    const bool has_bias = f->bias != NULL && f->bias->data != NULL;
    if (!has_bias && f->activation == ACT_NONE && f->then == NULL) return;
    g->epilogue = finish_row;
    g->epilogue_context = f;
}

// The weight w (M x K) in the order in which these GEMMs read it: x w^T over K, dy w over M.
int64_t cpu_matmul_packed_bytes(const kern_call *call, kern_level level)
{
    const kern_tensor *w = &call->in[1];
    if (call->attrs.fp8 != FP8_NONE) return 0; // the rounded weight is made for each call
    return gemm_panels_bytes(level, w->type, !call->strict, w->dims[0], w->dims[1]);
}

int64_t cpu_matmul_dx_packed_bytes(const kern_call *call, kern_level level)
{
    const kern_tensor *w = &call->in[1];
    if (call->attrs.fp8 != FP8_NONE) return 0; // the rounded weight is made for each call
    return gemm_panels_bytes(level, w->type, !call->strict, w->dims[1], w->dims[0]);
}

static gemm_args forward_of(const kern_call *call)
{
    const kern_tensor *x = &call->in[0], *w = &call->in[1];
    return product_into(call, matrix_of(x), gemm_transposed(matrix_of(w)), x->dims[1]);
}

static gemm_args dx_of(const kern_call *call)
{
    const kern_tensor *dy = &call->in[0], *w = &call->in[1], *before = &call->in[2];
    gemm_args g = product_into(call, matrix_of(dy), matrix_of(w), dy->dims[1]);
    g.accumulate = before->data != NULL;
    return g;
}

int64_t cpu_matmul_check_bytes(const kern_call *call)
{
    const kern_tensor *c = &call->out[0];
    // The accumulator's copy is there whether or not this call continues from it.
    const bool is_dw = call->code == OP_MATMUL_DW;
    const bool adds = is_dw || (call->code == OP_MATMUL_DX && call->in[2].data != NULL);
    return gemm_check_bytes(c->dims[0], c->dims[1], call->in[0].dims[is_dw ? 0 : 1], c->type, adds);
}

bool cpu_matmul_fuses(const kern_context *context, const kern_call *first, const kern_call *second)
{
    const gemm_args g = forward_of(first);
    // The gates of a row are read from the result when the other half of the row is finished.
    const bool along_rows = second->code == OP_SWIGLU;
    if (along_rows && g.n < 2 * GEMM_PIECE) return false;
    return gemm_may_finish(context, &g, along_rows);
}

bool cpu_matmul_dx_fuses(const kern_context *context, const kern_call *first,
                         const kern_call *second)
{
    const gemm_args g = dx_of(first);
    (void)second;
    return gemm_may_finish(context, &g, false);
}

status cpu_matmul(const kern_context *context, const kern_call *of)
{
    kern_call rounded;
    const kern_call *call = of;
    TRY(cpu_fp8_operands(context, &call, &rounded));
    const finish f = {.vec = cpu_vec_of(context->level),
                      .bias = &call->in[2],
                      .activation = call->attrs.activation,
                      .then = call->then,
                      .made = &call->out[0]};
    gemm_args g = forward_of(call);
    gemm_check check = gemm_check_of(context, of);
    g.check = &check;
    epilogue_set(&g, &f);
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

status cpu_matmul_dx(const kern_context *context, const kern_call *of)
{
    kern_call rounded;
    const kern_call *call = of;
    TRY(cpu_fp8_operands(context, &call, &rounded));
    const kern_tensor *before = &call->in[2];
    const finish f = {.vec = cpu_vec_of(context->level), .then = call->then, .made = &call->out[0]};
    gemm_args g = dx_of(call);
    gemm_check check = gemm_check_of(context, of);
    g.check = &check;
    epilogue_set(&g, &f);
    if (g.accumulate && before->data != call->out[0].data) rows_copy(&call->out[0], before);
    gemm_run(context, &g);
    return ST_OK;
}

status cpu_matmul_dw(const kern_context *context, const kern_call *of)
{
    kern_call rounded;
    const kern_call *call = of;
    TRY(cpu_fp8_operands(context, &call, &rounded));
    const kern_tensor *dy = &call->in[0], *x = &call->in[1];
    gemm_args g = product_into(call, gemm_transposed(matrix_of(dy)), matrix_of(x), dy->dims[0]);
    g.accumulate = call->accumulate;
    gemm_check check = gemm_check_of(context, of);
    g.check = &check;
    gemm_run(context, &g);
    return ST_OK;
}
