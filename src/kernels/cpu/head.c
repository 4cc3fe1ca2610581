// The end of a model: logits, cross-entropy and both gradients, some tokens at a time.
//
// All logits of a step would be the largest tensor by far (GPT-2, 4096 tokens: 823 MB). So a chunk of
// R tokens goes through everything before the next one starts:
//
//   logits (R x V) = x w^T      softmax, loss; dlogits in place      dx = dlogits w
//                                                                    dw += dlogits^T x
//
// A chunk costs 6 R V D operations, but w is read and packed twice and dw read and written once per
// chunk whatever R is: with few rows that traffic sets the speed, with many the logits leave the
// cache. One thread of a Zen 3 makes 60 GFLOP/s with chunks of 16 MB, 69 with 32, 79 with 64, 78 with
// 128, 81 with 256 (V = 50257, D = 768, 2026-11, other load beside it).
//
// dw is one left fold over tokens that continues from memory, dx one over the vocabulary: the bits do
// not depend on R. Logits and their gradients are fp32 in every precision.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_unit.h"
#include "kernels/cpu/head_rows.h"

#include <math.h>
#include <string.h>

enum { HEAD_CHUNK_BYTES = 64 << 20, HEAD_ROW_STEP = 64 };

// The workspace: R rows of logits, R rows of dx in fp32 where dx is narrower.
typedef struct head_layout {
    int64_t rows;   // R
    int64_t stride; // of logits, in elements
    bool narrow_dx;
    int64_t bytes;
} head_layout;

static head_layout layout_of(const kern_call *call)
{
    const int64_t tokens = call->in[0].dims[0], dim = call->in[0].dims[1];
    const kern_tensor *dx = &call->out[1];
    head_layout l = {.stride = align_up(call->in[1].dims[0], 16)};
    l.narrow_dx = dx->data != NULL && dx->type != DTYPE_F32;
    l.rows = HEAD_CHUNK_BYTES / (l.stride * (int64_t)sizeof(float));
    if (l.rows > HEAD_ROW_STEP) l.rows -= l.rows % HEAD_ROW_STEP;
    l.rows = max_i64(1, min_i64(l.rows, tokens));
    const int64_t floats = l.rows * (l.stride + (l.narrow_dx ? dim : 0));
    l.bytes = align_up(floats * (int64_t)sizeof(float), ALIGN_TENSOR);
    return l;
}

int64_t cpu_head_loss_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return layout_of(call).bytes;
}

typedef struct chunk {
    const kern_call *call;
    const head_rows *leaf;
    head_layout layout;
    int64_t first, rows; // tokens of this chunk
    float *logits, *dx;
    bool wants_grad;
    double unit; // what a loss is multiplied with before it is differentiated
} chunk;

static int64_t label_of(const kern_call *call, int64_t token)
{
    const kern_tensor *labels = &call->in[2];
    if (labels->type == DTYPE_I32) return ((const int32_t *)labels->data)[token];
    return ((const int64_t *)labels->data)[token];
}

// Loss of one token; its logits become the gradient of its scaled loss:
//     unit * (p (1 + 2 z lse) - [v = label])
static void softmax_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const chunk *c = context;
    const kern_call *call = c->call;
    const int64_t vocab = call->in[1].dims[0], label = label_of(call, c->first + index);
    float *row = c->logits + index * c->layout.stride;
    double loss = 0.0;
    if (label < 0) {
        if (c->wants_grad) memset(row, 0, (size_t)vocab * sizeof(float));
    } else {
        const float top = c->leaf->highest(row, vocab);
        const double gap = (double)top - (double)row[label];
        const double sum = c->leaf->exponents(row, vocab, top), log_sum = log(sum);
        const double lse = (double)top + log_sum, z = (double)call->attrs.z_loss;
        loss = gap + log_sum + z * lse * lse;
        if (c->wants_grad) {
            const double factor = (1.0 + 2.0 * z * lse) / sum;
            const double p = (double)row[label] * factor;
            c->leaf->scale(row, vocab, (float)(factor * c->unit));
            row[label] = (float)((p - 1.0) * c->unit);
        }
    }
    dtype_store(call->out[0].type, call->out[0].data, c->first + index, loss);
}

static gemm_matrix rows_of(const kern_tensor *t, int64_t first)
{
    const char *row = (const char *)t->data + first * t->strides[0] * dtype_bytes(t->type);
    return gemm_rows(row, t->type, t->strides[0]);
}

static void logits_make(const kern_context *context, const chunk *c)
{
    const kern_tensor *x = &c->call->in[0], *w = &c->call->in[1];
    const gemm_args g = {.m = c->rows,
                         .n = w->dims[0],
                         .k = x->dims[1],
                         .a = rows_of(x, c->first),
                         .b = gemm_transposed(rows_of(w, 0)),
                         .c = c->logits,
                         .c_type = DTYPE_F32,
                         .ldc = c->layout.stride};
    gemm_run(context, &g);
}

static void dx_make(const kern_context *context, const chunk *c)
{
    const kern_tensor *w = &c->call->in[1], *dx = &c->call->out[1];
    if (dx->data == NULL) return;
    const int64_t dim = dx->dims[1], width = dtype_bytes(dx->type);
    char *target = (char *)dx->data + c->first * dx->strides[0] * width;
    const gemm_args g = {.m = c->rows,
                         .n = dim,
                         .k = w->dims[0],
                         .a = gemm_rows(c->logits, DTYPE_F32, c->layout.stride),
                         .b = rows_of(w, 0),
                         .c = c->layout.narrow_dx ? (void *)c->dx : (void *)target,
                         .c_type = DTYPE_F32,
                         .ldc = c->layout.narrow_dx ? dim : dx->strides[0]};
    gemm_run(context, &g);
    if (!c->layout.narrow_dx) return;
    const gemm_unit *unit = gemm_unit_of(context->level);
    for (int64_t r = 0; r < c->rows; r++) {
        unit->store(target + r * dx->strides[0] * width, dx->type, c->dx + r * dim, dim);
    }
}

static void dw_add(const kern_context *context, const chunk *c)
{
    const kern_tensor *x = &c->call->in[0], *dw = &c->call->out[2];
    if (dw->data == NULL) return;
    const gemm_args g = {.m = dw->dims[0],
                         .n = dw->dims[1],
                         .k = c->rows,
                         .a = gemm_transposed(gemm_rows(c->logits, DTYPE_F32, c->layout.stride)),
                         .b = rows_of(x, c->first),
                         .c = dw->data,
                         .c_type = dw->type,
                         .ldc = dw->strides[0],
                         .accumulate = c->first > 0 || c->call->accumulate};
    gemm_run(context, &g);
}

static status labels_check(const kern_call *call)
{
    const int64_t tokens = call->in[0].dims[0], vocab = call->in[1].dims[0];
    for (int64_t i = 0; i < tokens; i++) {
        const int64_t label = label_of(call, i);
        if (label < vocab) continue;
        return fail(ST_DATA, "head: row %lld has label %lld, the vocabulary has %lld", (long long)i,
                    (long long)label, (long long)vocab);
    }
    return ST_OK;
}

status cpu_head_loss(const kern_context *context, const kern_call *call)
{
    TRY(labels_check(call));
    const int64_t tokens = call->in[0].dims[0];
    chunk c = {.call = call,
               .leaf = context->level >= KERN_AVX2 ? &head_rows_avx2 : &head_rows_scalar,
               .layout = layout_of(call),
               .logits = call->workspace,
               .wants_grad = call->out[1].data != NULL || call->out[2].data != NULL};
    c.dx = c.logits + c.layout.rows * c.layout.stride;
    if (c.wants_grad) c.unit = call->step->device.loss_scale / call->loss_divisor;
    if (tokens == 0) dw_add(context, &c); // an accumulator that starts here still starts from +0
    for (; c.first < tokens; c.first += c.rows) {
        c.rows = min_i64(c.layout.rows, tokens - c.first);
        logits_make(context, &c);
        kern_parallel(context->pool, c.rows, softmax_task, &c);
        if (!c.wants_grad) continue;
        dx_make(context, &c);
        dw_add(context, &c);
    }
    return ST_OK;
}
