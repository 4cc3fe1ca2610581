// The losses of pairs or groups of documents: op/objective.h has the rules, in double. A thread
// takes a sequence at a time; no sequence depends on another.
#include "op/objective.h"
#include "kernels/cpu/vec_call.h"

int64_t cpu_objective_workspace(const kern_call *call, int threads)
{
    return align_up(op_objective_bytes(call->seq), ALIGN_TENSOR) * threads;
}

// Rows [first, first + rows) of a tensor, one behind the other.
static void load(const kern_tensor *t, int64_t first, int64_t rows, double *to)
{
    const int64_t columns = t->ndim == 1 ? 1 : t->dims[1],
                  stride = t->ndim == 1 ? 1 : t->strides[0];
    for (int64_t i = 0; i < rows * columns; i++) {
        to[i] = dtype_load(t->type, t->data, (first + i / columns) * stride + i % columns);
    }
}

static void store(const kern_tensor *t, int64_t first, int64_t rows, const double *from)
{
    const int64_t columns = t->ndim == 1 ? 1 : t->dims[1],
                  stride = t->ndim == 1 ? 1 : t->strides[0];
    for (int64_t i = 0; i < rows * columns && t->data != NULL; i++) {
        dtype_store(t->type, t->data, (first + i / columns) * stride + i % columns, from[i]);
    }
}

static void sequence_task(void *context, int64_t index, int thread)
{
    const kern_call *c = context;
    const int64_t rows = c->seq, first = index * rows;
    void *own = (char *)c->workspace + thread * align_up(op_objective_bytes(rows), ALIGN_TENSOR);
    double *losses = own;
    double *given = losses + rows, *made = given + rows * GIVEN_COLUMNS;
    int32_t *labels = (int32_t *)(made + rows * (2 + MEASURE_COLUMNS));
    const op_objective_sequence s = {.rows = rows,
                                     .token_loss = losses,
                                     .given = given,
                                     .losses = made,
                                     .slopes = made + rows,
                                     .measures = made + 2 * rows,
                                     .labels = labels,
                                     .documents = labels + rows,
                                     .units = labels + 2 * rows};
    load(&c->in[0], first, rows, losses);
    load(&c->in[3], first, rows, given);
    for (int64_t t = 0; t < rows; t++) {
        labels[t] = (int32_t)tensor_int(&c->in[1], first + t);
        labels[rows + t] = (int32_t)tensor_int(&c->in[2], first + t);
    }
    op_objective_compute(&c->attrs.objective, &s);
    store(&c->out[0], first, rows, s.losses);
    for (int64_t t = 0; t < rows; t++) tensor_int_put(&c->out[1], 0, first + t, s.units[t]);
    store(&c->out[2], first, rows, s.measures);
    store(&c->out[3], first, rows, s.slopes);
}

status cpu_objective(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    kern_call whole = *call;
    if (call->seq > 0) {
        kern_parallel(context->pool, call->in[0].dims[0] / call->seq, sequence_task, &whole);
    }
    return ST_OK;
}
