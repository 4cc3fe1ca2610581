// The head of a reward model: minus a row times a vector, and the gradients of it. Few rows have a
// label, so plain code is fast enough: a thread takes some rows, or some columns of dw, whose sums
// go over the rows in order.
#include "kernels/cpu/vec_call.h"

#include <math.h>

enum { ROWS = 32, COLUMNS = 256 }; // of a task

typedef struct score_job {
    const kern_call *call;
    double unit;
} score_job;

static double number_at(const kern_tensor *t, int64_t row, int64_t column)
{
    return dtype_load(t->type, t->data, row * tensor_stride(t) + column);
}

static bool has_label(const kern_call *c, int64_t n)
{
    return tensor_int(&c->in[2], n) >= 0;
}

static double slope_of(const score_job *job, int64_t n)
{
    const kern_tensor *slopes = &job->call->in[3];
    return tensor_has(slopes) ? job->unit * number_at(slopes, 0, n) : job->unit;
}

static void row_compute(const score_job *job, int64_t n)
{
    const kern_tensor *x = &job->call->in[0], *w = &job->call->in[1];
    const kern_tensor *loss = &job->call->out[0], *dx = &job->call->out[1];
    const int64_t dim = x->dims[1];
    double sum = 0.0;
    if (has_label(job->call, n)) {
        for (int64_t j = 0; j < dim; j++) sum += number_at(x, n, j) * number_at(w, 0, j);
    }
    dtype_store(loss->type, loss->data, n, sum != 0.0 ? -sum : 0.0);
    if (!tensor_has(dx)) return;
    const bool is_here = job->call->piece.first_shard == 0; // another rank has the term
    const bool has_value = is_here && has_label(job->call, n);
    const double slope = has_value ? -slope_of(job, n) : 0.0, none = is_here ? 0.0 : -0.0;
    for (int64_t j = 0; j < dim; j++) {
        dtype_store(dx->type, dx->data, n * tensor_stride(dx) + j,
                    has_value ? slope * number_at(w, 0, j) : none);
    }
}

static void rows_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const score_job *job = context;
    const int64_t end = min_i64((index + 1) * ROWS, job->call->in[0].dims[0]);
    for (int64_t n = index * ROWS; n < end; n++) row_compute(job, n);
}

static void columns_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const score_job *job = context;
    const kern_tensor *x = &job->call->in[0], *dw = &job->call->out[2];
    const int64_t begin = index * COLUMNS, count = min_i64(COLUMNS, x->dims[1] - begin);
    float sums[COLUMNS];
    for (int64_t j = 0; j < count; j++) {
        sums[j] = job->call->accumulate ? (float)number_at(dw, 0, begin + j) : 0.0F;
    }
    for (int64_t n = 0; n < x->dims[0]; n++) {
        if (!has_label(job->call, n)) continue;
        const float slope = (float)-slope_of(job, n);
        for (int64_t j = 0; j < count; j++) {
            sums[j] = fmaf(slope, (float)number_at(x, n, begin + j), sums[j]);
        }
    }
    for (int64_t j = 0; j < count; j++) {
        dtype_store(dw->type, dw->data, begin + j, (double)sums[j]);
    }
}

status cpu_score(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    const bool has_gradient = tensor_has(&call->out[1]) || tensor_has(&call->out[2]);
    score_job job = {.call = call};
    if (has_gradient) job.unit = call->step->device.loss_scale / call->loss_divisor;
    kern_parallel(context->pool, (call->in[0].dims[0] + ROWS - 1) / ROWS, rows_task, &job);
    if (tensor_has(&call->out[2])) {
        kern_parallel(context->pool, (call->in[0].dims[1] + COLUMNS - 1) / COLUMNS, columns_task,
                      &job);
    }
    return ST_OK;
}
