// A factor and a soft cap for each element (op/scale.c), and the gradient of attention's sinks.
#include "kernels/cpu/vec_call.h"

#include <math.h>

static void scale_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        const cpu_span y = tensor_row(&c->out[0], i), x = tensor_row(&c->in[0], i);
        if (c->code == OP_SCALE) {
            job->vec->scale(y, x, c->attrs.scale, piece.columns);
        } else {
            job->vec->soft_cap(y, x, c->attrs.cap, piece.columns);
        }
    }
}

status cpu_scale(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    const kern_tensor *y = &call->out[0];
    cpu_rows_run(context, call, tensor_rows(y), tensor_columns(y), scale_task);
    return ST_OK;
}

status cpu_soft_cap(const kern_context *context, const kern_call *call)
{
    return cpu_scale(context, call);
}

typedef struct sinks_job {
    const kern_call *call;
} sinks_job;

static double dot(const kern_tensor *a, const kern_tensor *b, int64_t row, int64_t first,
                  int64_t count)
{
    double sum = 0.0;
    for (int64_t d = first; d < first + count; d++) {
        sum += dtype_load(a->type, a->data, row * a->strides[0] + d) *
               dtype_load(b->type, b->data, row * b->strides[0] + d);
    }
    return sum;
}

// One head: a sequential sum over the rows in fp32, which continues from the accumulator. (libm's
// exp of a double, rounded, has the same bits on every machine.)
static void sinks_task(void *context, int64_t head, int thread)
{
    (void)thread;
    const kern_call *c = ((const sinks_job *)context)->call;
    const kern_tensor *dy = &c->in[0], *y = &c->in[1], *lse = &c->in[2], *out = &c->out[0];
    const int64_t dim = y->dims[1] / out->dims[0];
    const double sink = dtype_load(c->in[3].type, c->in[3].data, head);
    float sum = c->accumulate ? (float)dtype_load(out->type, out->data, head) : 0.0F;
    for (int64_t i = 0; i < y->dims[0]; i++) {
        const float at = ((const float *)lse->data)[i * lse->strides[0] + head];
        const float p = -(float)exp(sink - (double)at);
        sum = fmaf(p, (float)dot(dy, y, i, head * dim, dim), sum);
    }
    dtype_store(out->type, out->data, head, (double)sum);
}

status cpu_sinks_dw(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    sinks_job job = {.call = call};
    kern_parallel(context->pool, call->out[0].dims[0], sinks_task, &job);
    return ST_OK;
}
