// GEGLU (op/geglu.c): a = gelu(gate) * up, where gate and up are the halves of h, and its gradient,
// row by row.
#include "kernels/cpu/vec_call.h"

static void forward_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const kern_tensor *h = &job->call->in[0], *a = &job->call->out[0];
    const int64_t width = a->dims[1];
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        const int64_t at = i * h->strides[0];
        job->vec->geglu(job->call->attrs.activation, tensor_row(a, i), cpu_span_at(h, at),
                        cpu_span_at(h, at + width), width);
    }
}

static void backward_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const kern_tensor *h = &job->call->in[0], *da = &job->call->in[1], *dh = &job->call->out[0];
    const int64_t width = da->dims[1];
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        const int64_t at = i * h->strides[0], to = i * dh->strides[0];
        job->vec->geglu_bwd(job->call->attrs.activation, cpu_span_at(dh, to),
                            cpu_span_at(dh, to + width), cpu_span_at(h, at),
                            cpu_span_at(h, at + width), tensor_row(da, i), width);
    }
}

status cpu_geglu(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    cpu_rows_run(context, call, tensor_rows(&call->in[0]), call->in[0].dims[1], forward_task);
    return ST_OK;
}

status cpu_geglu_bwd(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    cpu_rows_run(context, call, tensor_rows(&call->in[0]), call->in[0].dims[1], backward_task);
    return ST_OK;
}
