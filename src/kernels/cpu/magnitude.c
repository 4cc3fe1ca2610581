// Lengths of the rows of a weight with its adapter, and factors that they give (op/magnitude.c).
//
// The rows of the weight are cut into tasks. A task walks over blocks of columns: it widens a block
// of some rows of a at a time, and adds their terms to each of its rows. The squares are summed in
// double, one column after the other, so the bits do not depend on the width of a block.
#include "kernels/cpu/vec_call.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256, TASK_ROWS = 16, RANK_ROWS = 16 };

static float inverse_length(float square)
{
    return square > 0.0f ? (float)(1.0 / sqrt((double)square)) : 0.0f;
}

typedef struct squares_job {
    const kern_call *call;
    const cpu_vec *vec;
} squares_job;

// Rows first .. first + rows - 1 of b a, of one block of columns.
typedef struct squares_block {
    int64_t first, rows, column, count;
    float terms[TASK_ROWS][BLOCK];
} squares_block;

static void terms_make(const squares_job *job, squares_block *block)
{
    const kern_tensor *a = &job->call->in[1], *b = &job->call->in[2];
    float wide[RANK_ROWS][BLOCK];
    memset(block->terms, 0, sizeof(block->terms));
    for (int64_t r = 0; r < a->dims[0]; r += RANK_ROWS) {
        const int64_t ranks = min_i64(RANK_ROWS, a->dims[0] - r);
        for (int64_t k = 0; k < ranks; k++) {
            job->vec->cast(cpu_span_fp32(wide[k]),
                           cpu_span_offset(tensor_row(a, r + k), block->column), block->count);
        }
        for (int64_t i = 0; i < block->rows; i++) {
            const int64_t at = (block->first + i) * tensor_stride(b) + r;
            for (int64_t k = 0; k < ranks; k++) {
                const float factor = (float)dtype_load(b->type, b->data, at + k);
                for (int64_t j = 0; j < block->count; j++) {
                    block->terms[i][j] += factor * wide[k][j];
                }
            }
        }
    }
}

static void squares_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const squares_job *job = context;
    const kern_tensor *w = &job->call->in[0];
    squares_block block = {.first = index * TASK_ROWS};
    block.rows = min_i64(TASK_ROWS, w->dims[0] - block.first);
    double sums[TASK_ROWS] = {0.0};
    for (block.column = 0; block.column < w->dims[1]; block.column += BLOCK) {
        block.count = min_i64(BLOCK, w->dims[1] - block.column);
        terms_make(job, &block);
        for (int64_t i = 0; i < block.rows; i++) {
            float v[BLOCK];
            const cpu_span row = cpu_span_offset(tensor_row(w, block.first + i), block.column);
            job->vec->cast(cpu_span_fp32(v), row, block.count);
            for (int64_t j = 0; j < block.count; j++) {
                const double value = (double)(v[j] + job->call->attrs.scale * block.terms[i][j]);
                sums[i] += value * value;
            }
        }
    }
    float *out = job->call->out[0].data;
    for (int64_t i = 0; i < block.rows; i++) out[block.first + i] = (float)sums[i];
}

status cpu_row_squares(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    squares_job job = {.call = call, .vec = cpu_vec_of(context->level)};
    const int64_t tasks = (call->in[0].dims[0] + TASK_ROWS - 1) / TASK_ROWS;
    kern_parallel(context->pool, tasks, squares_task, &job);
    return ST_OK;
}

static void magnitude_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const float *squares = c->in[2].data;
    for (int64_t j = piece.column; j < piece.column + piece.columns; j += BLOCK) {
        const int64_t count = min_i64(BLOCK, piece.column + piece.columns - j);
        float factors[BLOCK], values[BLOCK];
        job->vec->cast(cpu_span_fp32(factors), cpu_span_at(&c->in[1], j), count);
        for (int64_t k = 0; k < count; k++) factors[k] *= inverse_length(squares[j + k]);
        for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
            const cpu_span x = cpu_span_offset(tensor_row(&c->in[0], i), j);
            job->vec->cast(cpu_span_fp32(values), x, count);
            for (int64_t k = 0; k < count; k++) values[k] *= factors[k];
            job->vec->cast(cpu_span_offset(tensor_row(&c->out[0], i), j), cpu_span_fp32(values),
                           count);
        }
    }
}

status cpu_magnitude(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    cpu_rows_run(context, call, call->out[0].dims[0], call->out[0].dims[1], magnitude_task);
    return ST_OK;
}

typedef struct column_job {
    const kern_call *call;
    const cpu_vec *vec;
} column_job;

static void magnitude_dw_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const column_job *job = context;
    const kern_call *c = job->call;
    const int64_t column = index * CPU_SUM_COLUMNS;
    const int64_t count = min_i64(CPU_SUM_COLUMNS, c->out[0].dims[0] - column);
    const float *squares = c->in[2].data;
    float sums[CPU_SUM_COLUMNS] = {0.0f}, inverse[CPU_SUM_COLUMNS];
    float dy[CPU_SUM_COLUMNS], x[CPU_SUM_COLUMNS];
    const cpu_span sum = cpu_span_at(&c->out[0], column);
    if (c->accumulate) job->vec->cast(cpu_span_fp32(sums), sum, count);
    for (int64_t k = 0; k < count; k++) inverse[k] = inverse_length(squares[column + k]);
    for (int64_t i = 0; i < c->in[0].dims[0]; i++) {
        job->vec->cast(cpu_span_fp32(dy), cpu_span_offset(tensor_row(&c->in[0], i), column), count);
        job->vec->cast(cpu_span_fp32(x), cpu_span_offset(tensor_row(&c->in[1], i), column), count);
        for (int64_t k = 0; k < count; k++) sums[k] += dy[k] * x[k] * inverse[k];
    }
    job->vec->cast(sum, cpu_span_fp32(sums), count);
}

status cpu_magnitude_dw(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    column_job job = {.call = call, .vec = cpu_vec_of(context->level)};
    const int64_t tasks = (call->out[0].dims[0] + CPU_SUM_COLUMNS - 1) / CPU_SUM_COLUMNS;
    kern_parallel(context->pool, tasks, magnitude_dw_task, &job);
    return ST_OK;
}
