// Operations around a sum that is split over ranks: the terms of one rank, and the operations after
// the sum.
#include "kernels/cpu/vec_call.h"
#include "op/zigzag.h"

typedef struct partial_job {
    const kern_call *call;
    const cpu_vec *vec;
    cpu_cut cut;
    int terms;
} partial_job;

static void bias_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        job->vec->add(tensor_row(&c->out[0], i), tensor_row(&c->in[0], i),
                      cpu_span_at(&c->in[1], 0), piece.columns);
    }
}

status cpu_add_bias(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    cpu_rows_run(context, call, call->out[0].dims[0], call->out[0].dims[1], bias_task);
    return ST_OK;
}

// ---- the tree -----------------------------------------------------------------------------------

enum { BLOCK = 256 }; // of eight terms in fp32: 8 KiB, which stay in the first cache

// Adds neighbours first, then the sums of neighbours, like the tree over as many shards.
static void block_sum_tree(const partial_job *job, int64_t element[], int64_t n)
{
    float terms[OP_MAX_IN][BLOCK];
    const kern_call *c = job->call;
    for (int k = 0; k < job->terms; k++) {
        const cpu_span wide = {.at = terms[k], .type = DTYPE_F32};
        job->vec->cast(wide, cpu_span_at(&c->in[k], element[k]), n);
    }
    for (int width = 1; width < job->terms; width *= 2) {
        for (int k = 0; k + width < job->terms; k += 2 * width) {
            const cpu_span sum = {.at = terms[k], .type = DTYPE_F32};
            const cpu_span other = {.at = terms[k + width], .type = DTYPE_F32};
            job->vec->add(sum, sum, other, n);
        }
    }
    const cpu_span all = {.at = terms[0], .type = DTYPE_F32};
    job->vec->cast(cpu_span_at(&c->out[0], element[OP_MAX_IN]), all, n);
}

static void sum_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const partial_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        for (int64_t j = 0; j < piece.columns; j += BLOCK) {
            int64_t element[OP_MAX_IN + 1];
            for (int k = 0; k < job->terms; k++) {
                element[k] = i * tensor_stride(&c->in[k]) + piece.column + j;
            }
            element[OP_MAX_IN] = i * tensor_stride(&c->out[0]) + piece.column + j;
            block_sum_tree(job, element, min_i64(BLOCK, piece.columns - j));
        }
    }
}

status cpu_sum(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    const kern_tensor *y = &call->out[0];
    partial_job job = {.call = call, .vec = cpu_vec_of(context->level)};
    while (job.terms < OP_MAX_IN && tensor_has(&call->in[job.terms])) job.terms++;
    job.cut = cpu_cut_field(tensor_rows(y), tensor_columns(y), false);
    kern_parallel(context->pool, job.cut.count, sum_task, &job);
    return ST_OK;
}

// ---- tiles of columns ---------------------------------------------------------------------------

// Adds tiles of the same columns, in their order.
static void tiles_add(const cpu_row_job *job, int64_t row, int64_t tile, int64_t repeat,
                      cpu_span to)
{
    const kern_tensor *x = &job->call->in[0], *y = &job->call->out[0];
    const int64_t width = x->dims[1];
    float sums[BLOCK];
    for (int64_t j = 0; j < width; j += BLOCK) {
        const int64_t n = min_i64(BLOCK, width - j);
        const cpu_span sum = {.at = sums, .type = DTYPE_F32};
        for (int64_t k = 0; k < repeat; k++) {
            const cpu_span term = cpu_span_offset(tensor_row(x, (tile + k) * y->dims[0] + row), j);
            if (k == 0) {
                job->vec->cast(sum, term, n);
            } else {
                job->vec->add(sum, sum, term, n);
            }
        }
        job->vec->cast(cpu_span_offset(to, j), sum, n);
    }
}

static void unpack_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_tensor *x = &job->call->in[0], *y = &job->call->out[0];
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const int64_t width = x->dims[1], repeat = max_i64(job->call->attrs.repeat, 1);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        for (int64_t tile = 0; tile < job->call->piece.shard_count; tile += repeat) {
            const cpu_span to = cpu_span_offset(tensor_row(y, i), tile / repeat * width);
            if (repeat > 1) {
                tiles_add(job, i, tile, repeat, to);
            } else {
                job->vec->cast(to, tensor_row(x, tile * y->dims[0] + i), width);
            }
        }
    }
}

static void pack_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_tensor *x = &job->call->in[0], *y = &job->call->out[0];
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const int64_t width = y->dims[1], repeat = max_i64(job->call->attrs.repeat, 1);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        const int64_t tile = i / x->dims[0];
        job->vec->cast(tensor_row(y, i),
                       cpu_span_offset(tensor_row(x, i % x->dims[0]), tile / repeat * width),
                       width);
    }
}

static void zigzag_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const kern_tensor *x = &c->in[0], *y = &c->out[0];
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        const int64_t other =
            zigzag_ordered_row(c->piece.shard_count, c->piece.cp_turns, x->dims[0], c->seq, i);
        job->vec->cast(tensor_row(y, c->attrs.inverse ? i : other),
                       tensor_row(x, c->attrs.inverse ? other : i), piece.columns);
    }
}

static status moved(const kern_context *context, const kern_call *call, kern_task task)
{
    TRY(cpu_call_check(call));
    cpu_rows_run(context, call, call->out[0].dims[0], call->out[0].dims[1], task);
    return ST_OK;
}

status cpu_unpack(const kern_context *context, const kern_call *call)
{
    return moved(context, call, unpack_task);
}

status cpu_pack(const kern_context *context, const kern_call *call)
{
    return moved(context, call, pack_task);
}

status cpu_zigzag(const kern_context *context, const kern_call *call)
{
    return moved(context, call, zigzag_task);
}
