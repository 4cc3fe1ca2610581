// AdamW, in one pass over memory: unscale and clip, both moments, decay, update, cast to the working
// copy. What it costs is what it reads and writes.
//
// The gradient that arrives is a raw accumulator; step->device.grad_factor makes it the clipped mean.
// A skipped step and a halted run write nothing.
// Source: Loshchilov & Hutter 2019, arXiv:1711.05101; decay is of the old value, eps outside the root,
// after bias correction; t counts applied updates, this one included.
#include "op/optimizer.h"
#include "kernels/cpu/vec_call.h"

typedef struct adamw_job {
    const kern_call *call;
    const cpu_vec *vec;
    cpu_cut cut;
    cpu_update_span constants; // without spans
} adamw_job;

// n elements of a row, the first of which is number `element` of the whole weight.
static void run_update(const adamw_job *job, int64_t row, int64_t column, int64_t n,
                       int64_t element)
{
    const kern_call *c = job->call;
    cpu_update_span span = job->constants;
    const kern_tensor *const tensors[] = {&c->in[0],  &c->in[1],  &c->in[2],  &c->in[3],
                                          &c->out[0], &c->out[1], &c->out[2], &c->out[3]};
    cpu_span *const spans[] = {&span.grad,       &span.master, &span.m,     &span.v,
                               &span.master_out, &span.m_out,  &span.v_out, &span.weight_out};
    for (int64_t k = 0; k < COUNT_OF(tensors); k++) {
        *spans[k] = cpu_span_at(tensors[k], row * tensor_stride(tensors[k]) + column);
    }
    span.n = n;
    span.element = element;
    job->vec->adamw(&span);
}

static void adamw_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const adamw_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const int64_t columns = c->in[0].ndim == 2 ? c->in[0].dims[1] : 1;
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        // Where all lie together the field was cut as one row.
        const int64_t at = c->first_row * columns + i * job->cut.columns + piece.column;
        for (int64_t done = 0; done < piece.columns;) {
            const optimizer_run run = optimizer_run_of(&c->attrs, at + done, columns);
            const int64_t n = min_i64(run.count, piece.columns - done);
            run_update(job, i, piece.column + done, n, run.element);
            done += n;
        }
    }
}

status cpu_adamw(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    const step_block *step = call->step;
    if (step->device.skip != 0 || step->device.halt != 0) return ST_OK;
    const op_attrs *a = &call->attrs;
    const double beta1 = optimizer_beta(a->beta1), beta2 = optimizer_beta(a->beta2);
    const double lr = step->host.lr * (double)a->lr_scale, t = (double)step->device.applied;
    adamw_job job = {
        .call = call,
        .vec = cpu_vec_of(context->level),
        .constants =
            {
                .factor = (float)step->device.grad_factor,
                .beta1 = (float)beta1,
                .rest1 = (float)(1.0 - beta1),
                .beta2 = (float)beta2,
                .rest2 = (float)(1.0 - beta2),
                .keep = (float)(1.0 - (a->decay ? lr * (double)a->weight_decay : 0.0)),
                .rate = (float)(lr / (1.0 - pow(beta1, t))),
                .unbias2 = (float)(1.0 / (1.0 - pow(beta2, t))),
                .eps = a->eps,
                .stochastic = a->stochastic,
                .step = &step->host,
                .tensor_index = a->tensor_index,
            },
    };
    bool contiguous = true;
    for (int i = 0; i < 4; i++) {
        contiguous = contiguous && tensor_contiguous(&call->in[i]);
        if (tensor_has(&call->out[i])) contiguous = contiguous && tensor_contiguous(&call->out[i]);
    }
    const kern_tensor *grad = &call->in[0];
    job.cut = cpu_cut_field(tensor_rows(grad), tensor_columns(grad), contiguous);
    kern_parallel(context->pool, job.cut.count, adamw_task, &job);
    return ST_OK;
}
