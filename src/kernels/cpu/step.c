// Operations on the step block: sums over tokens and parameters, and the decision at the end.
//
// The sums are exact (op/step.h), so neither their order nor the rank that adds a term can change a
// bit. op/block_sum.h fixes the terms.
#include "kernels/cpu/vec_call.h"
#include "op/block_sum.h"

#include <math.h>

status cpu_step_begin(const kern_context *context, const kern_call *call)
{
    (void)context;
    step_device *d = &call->step->device;
    exact_zero(&d->loss_sum);
    exact_zero(&d->norm_sum);
    d->tokens = 0;
    d->skip = 0;
    d->bad_tensor = -1;
    step_loads_turn(call->step, step_load_words(call->attrs.load_layers, call->attrs.experts));
    return ST_OK;
}

// A few thousand losses are not worth a second thread.
status cpu_step_loss(const kern_context *context, const kern_call *call)
{
    (void)context;
    TRY(cpu_call_check(call));
    const kern_tensor *losses = &call->in[0], *labels = &call->in[1];
    step_device *d = &call->step->device;
    for (int64_t n = 0; n < losses->dims[0]; n++) {
        if (tensor_int(labels, n) < 0) continue;
        exact_add(&d->loss_sum, dtype_load(losses->type, losses->data, n));
        d->tokens++;
    }
    return ST_OK;
}

status cpu_step_decide(const kern_context *context, const kern_call *call)
{
    (void)context;
    step_decide(call->step);
    return ST_OK;
}

// ---- the norm of a gradient ---------------------------------------------------------------------
enum { NORM_PARTS = 16 }; // each with its own sum

typedef struct norm_job {
    const kern_tensor *grad;
    const cpu_vec *vec;
    int64_t rows, columns, blocks; // blocks of a row
    struct norm_part {
        exact_sum sum;
        bool bad; // a block is not finite
    } parts[NORM_PARTS];
} norm_job;

static void norm_task(void *context, int64_t index, int thread)
{
    (void)thread;
    norm_job *job = context;
    struct norm_part *part = &job->parts[index];
    const int64_t total = job->rows * job->blocks;
    exact_zero(&part->sum);
    part->bad = false;
    for (int64_t k = total * index / NORM_PARTS; k < total * (index + 1) / NORM_PARTS; k++) {
        const int64_t row = k / job->blocks, begin = k % job->blocks * BLOCK_SUM_ELEMENTS;
        const cpu_span block = cpu_span_at(job->grad, row * tensor_stride(job->grad) + begin);
        const double sum =
            job->vec->block_squares(block, min_i64(BLOCK_SUM_ELEMENTS, job->columns - begin));
        part->bad = part->bad || !isfinite(sum);
        exact_add(&part->sum, sum);
    }
}

status cpu_grad_norm(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    norm_job job = {.grad = &call->in[0], .vec = cpu_vec_of(context->level)};
    job.rows = tensor_rows(job.grad);
    job.columns = tensor_columns(job.grad);
    job.blocks = (job.columns + BLOCK_SUM_ELEMENTS - 1) / BLOCK_SUM_ELEMENTS;
    kern_parallel(context->pool, NORM_PARTS, norm_task, &job);
    step_device *d = &call->step->device;
    const int64_t tensor = call->attrs.tensor_index;
    for (int i = 0; i < NORM_PARTS; i++) {
        exact_merge(&d->norm_sum, &job.parts[i].sum);
        if (job.parts[i].bad && (d->bad_tensor < 0 || tensor < d->bad_tensor)) {
            d->bad_tensor = tensor;
        }
    }
    return ST_OK;
}
