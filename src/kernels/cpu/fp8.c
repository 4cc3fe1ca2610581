// Operands of products in 8 bits (op/fp8.h): rounded into the workspace in their own type, which
// holds the rounded numbers exactly. Stripes of 128 rows are the tasks; a stripe is worked on in
// pieces of 128 columns, whose factors are found in one pass and used in a second one.
#include "kernels/cpu/vec_call.h"
#include "kernels/fp8_operands.h"

#include <math.h>

typedef struct fp8_job {
    const cpu_vec *vec;
    const kern_tensor *from, *to;
    fp8_block block;
    int64_t group, stripes; // rows of a matrix, and its stripes
    bool has_history;       // with the factor of `exponent`
    int exponent;
    fp8_format format;
} fp8_job;

enum { SIDE = FP8_BLOCK_SIZE };

// Sets the largest magnitude of each row, of each column, or of all of them.
static void most_of(const fp8_job *job, const int64_t at[2], const int64_t count[2],
                    float most[SIDE])
{
    float x[SIDE], all = 0.0f;
    for (int i = 0; i < SIDE; i++) most[i] = 0.0f;
    for (int64_t i = 0; i < count[0]; i++) {
        job->vec->cast(cpu_span_fp32(x), cpu_span_offset(tensor_row(job->from, at[0] + i), at[1]),
                       count[1]);
        if (job->block == FP8_OF_COLUMN) {
            for (int64_t j = 0; j < count[1]; j++) most[j] = fp8_larger(most[j], x[j]);
            continue;
        }
        for (int64_t j = 0; j < count[1]; j++) all = fp8_larger(all, x[j]);
        most[i] = all;
        if (job->block == FP8_OF_ROW) all = 0.0f;
    }
    for (int i = 0; i < SIDE && job->block == FP8_OF_SQUARE; i++) most[i] = all;
}

static void round_piece(const fp8_job *job, const int64_t at[2], const int64_t count[2])
{
    float most[SIDE], x[SIDE], scale[SIDE], inverse[SIDE];
    int k[SIDE];
    if (!job->has_history) most_of(job, at, count, most);
    for (int i = 0; i < SIDE; i++) {
        k[i] =
            job->has_history ? job->exponent : fp8_exponent(most[i], FP8_E4M3, FP8_EXPONENT_MOST);
    }
    for (int64_t i = 0; i < count[0]; i++) {
        for (int j = 0; j < SIDE && (i == 0 || job->block == FP8_OF_ROW); j++) {
            const int own = k[job->block == FP8_OF_COLUMN ? j : i];
            scale[j] = fp8_power(own);
            inverse[j] = fp8_power(-own);
        }
        job->vec->cast(cpu_span_fp32(x), cpu_span_offset(tensor_row(job->from, at[0] + i), at[1]),
                       count[1]);
        for (int64_t j = 0; j < count[1]; j++) {
            x[j] = fp8_nearest(x[j] * scale[j], job->format) * inverse[j];
        }
        job->vec->cast(cpu_span_offset(tensor_row(job->to, at[0] + i), at[1]), cpu_span_fp32(x),
                       count[1]);
    }
}

static void stripe_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const fp8_job *job = context;
    const int64_t first = index / job->stripes * job->group, inside = index % job->stripes * SIDE;
    const int64_t rows = min_i64(SIDE, job->group - inside), columns = job->from->dims[1];
    for (int64_t j = 0; j < columns; j += SIDE) {
        const int64_t at[2] = {first + inside, j}, count[2] = {rows, min_i64(SIDE, columns - j)};
        round_piece(job, at, count);
    }
}

static void job_run(const kern_context *context, fp8_job *job)
{
    job->stripes = (job->group + SIDE - 1) / SIDE;
    kern_parallel(context->pool, job->from->dims[0] / job->group * job->stripes, stripe_task, job);
}

// Returns some rows of an operand.
static kern_tensor rows_of(const kern_tensor *t, const expert_rows *rows)
{
    kern_tensor some = *t;
    some.data = (char *)t->data + rows->begin * t->strides[0] * dtype_bytes(t->type);
    some.dims[0] = rows->count;
    return some;
}

static status whole_round(const kern_context *context, const kern_call *call, int operand,
                          const kern_tensor *to)
{
    for (int64_t s = 0; s < fp8_stretches(call, operand); s++) {
        int64_t expert = 0;
        expert_rows rows;
        TRY(fp8_stretch(call, operand, s, &rows, &expert));
        const kern_tensor from = rows_of(&call->in[operand], &rows), into = rows_of(to, &rows);
        fp8_job job = {.vec = cpu_vec_of(context->level),
                       .from = &from,
                       .to = &into,
                       .block = FP8_OF_ALL,
                       .group = rows.count,
                       .has_history = true,
                       .exponent = fp8_operand_exponent(call, operand, expert),
                       .format = fp8_operand_format(call, operand)};
        if (rows.count > 0) job_run(context, &job);
    }
    return ST_OK;
}

status cpu_fp8_operands(const kern_context *context, const kern_call **of, kern_call *rounded)
{
    const kern_call *call = *of;
    if (call->attrs.fp8 == FP8_NONE) return ST_OK;
    ASSERT(call->workspace_bytes >= cpu_fp8_workspace(call, context->threads));
    ASSERT(call->in[0].type == call->in[1].type && call->in[0].type != DTYPE_F16);
    fp8_operands_move(call, call->in[0].type, rounded);
    for (int i = 0; i < 2; i++) {
        fp8_job job = {.vec = cpu_vec_of(context->level),
                       .from = &call->in[i],
                       .to = &rounded->in[i],
                       .block = fp8_block_of(call, i),
                       .group = fp8_group_rows(call, i),
                       .format = FP8_E4M3};
        if (call->attrs.fp8 == FP8_BLOCK) job_run(context, &job);
        if (call->attrs.fp8 == FP8_TENSOR) TRY(whole_round(context, call, i, &rounded->in[i]));
    }
    *of = rounded;
    return ST_OK;
}

int64_t cpu_fp8_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return fp8_operands_bytes(call, call->in[0].type);
}

// ---- histories ----------------------------------------------------------------------------------

enum { COUNT_ROWS = 64, COUNT_PIECES = 4096 };

// The largest column of each piece of rows; the pieces are the same for any number of threads.
typedef struct counts_job {
    const cpu_vec *vec;
    const kern_tensor *of;
    int64_t rows; // of a piece
    int column[COUNT_PIECES];
} counts_job;

static void counts_task(void *context, int64_t index, int thread)
{
    (void)thread;
    counts_job *job = context;
    const int64_t end = min_i64((index + 1) * job->rows, job->of->dims[0]);
    float most = 0.0f, x[SIDE];
    for (int64_t i = index * job->rows; i < end; i++) {
        for (int64_t j = 0; j < job->of->dims[1]; j += SIDE) {
            const int64_t count = min_i64(SIDE, job->of->dims[1] - j);
            job->vec->cast(cpu_span_fp32(x), cpu_span_offset(tensor_row(job->of, i), j), count);
            for (int64_t k = 0; k < count; k++) most = fp8_larger(most, x[k]);
        }
    }
    job->column[index] = isfinite(most) ? fp8_column(most) : FP8_COLUMNS; // above all others
}

status cpu_fp8_counts(const kern_context *context, const kern_call *call)
{
    static const int operands[FP8_OPERANDS] = {1, 2, 0}; // x, w, dy
    const kern_tensor *counts = &call->out[0];
    TRY(cpu_call_check(call));
    for (int o = 0; o < FP8_OPERANDS; o++) {
        counts_job job = {.vec = cpu_vec_of(context->level), .of = &call->in[operands[o]]};
        const int64_t rows = job.of->dims[0];
        job.rows = max_i64(COUNT_ROWS, (rows + COUNT_PIECES - 1) / COUNT_PIECES);
        const int64_t pieces = (rows + job.rows - 1) / job.rows;
        int column = -1;
        kern_parallel(context->pool, pieces, counts_task, &job);
        for (int64_t i = 0; i < pieces; i++)
            column = job.column[i] > column ? job.column[i] : column;
        if (column == FP8_COLUMNS) column = -1;
        for (int j = 0; j < FP8_COLUMNS; j++) {
            const int64_t at = o * tensor_stride(counts) + j;
            const double before =
                call->accumulate ? dtype_load(counts->type, counts->data, at) : 0.0;
            dtype_store(counts->type, counts->data, at, before + (j <= column ? 1.0 : 0.0));
        }
    }
    return ST_OK;
}

// Counts the largest magnitude of one operand of one expert.
typedef struct rows_job {
    const cpu_vec *vec;
    const kern_call *call;
} rows_job;

static void counts_rows_task(void *context, int64_t index, int thread)
{
    static const int operands[FP8_OPERANDS] = {1, 4, 0}; // x, w, dy
    (void)thread;
    const rows_job *job = context;
    const kern_call *call = job->call;
    const int64_t expert = index / FP8_OPERANDS;
    const kern_tensor *of = &call->in[operands[index % FP8_OPERANDS]], *counts = &call->out[0];
    const bool is_weight = of == &call->in[4];
    const int64_t own = is_weight ? of->dims[0] / call->attrs.experts : 0;
    float most = 0.0f, x[SIDE];
    for (int64_t rank = 0; rank < (is_weight ? 1 : expert_ranks(call)); rank++) {
        expert_rows rows = {.begin = expert * own, .count = own};
        if (!is_weight && expert_rows_of(call, rank, expert, &rows) != ST_OK) return; // checked
        for (int64_t i = rows.begin; i < rows.begin + rows.count; i++) {
            for (int64_t j = 0; j < of->dims[1]; j += SIDE) {
                const int64_t count = min_i64(SIDE, of->dims[1] - j);
                job->vec->cast(cpu_span_fp32(x), cpu_span_offset(tensor_row(of, i), j), count);
                for (int64_t k = 0; k < count; k++) most = fp8_larger(most, x[k]);
            }
        }
    }
    for (int j = 0; j < FP8_COLUMNS; j++) {
        const int64_t at = index * tensor_stride(counts) + j;
        const double before = call->accumulate ? dtype_load(counts->type, counts->data, at) : 0.0;
        dtype_store(counts->type, counts->data, at, before + (j <= fp8_column(most) ? 1.0 : 0.0));
    }
}

// An action on some sequences counts all rows: a column only has to be positive.
status cpu_fp8_counts_rows(const kern_context *context, const kern_call *call)
{
    rows_job job = {.vec = cpu_vec_of(context->level), .call = call};
    TRY(cpu_call_check(call));
    for (int64_t i = 0; i < expert_ranks(call) * call->attrs.experts; i++) {
        expert_rows rows;
        TRY(expert_rows_of(call, i / call->attrs.experts, i % call->attrs.experts, &rows));
    }
    kern_parallel(context->pool, FP8_OPERANDS * call->attrs.experts, counts_rows_task, &job);
    return ST_OK;
}

status cpu_fp8_history(const kern_context *context, const kern_call *call)
{
    const kern_tensor *counts = &call->in[0], *steps = &call->in[1], *out = &call->out[0];
    const step_device *d = &call->step->device;
    (void)context;
    if (d->skip != 0 || d->halt != 0) return ST_OK;
    for (int64_t i = 0; i < tensor_rows(out); i++) {
        for (int64_t j = 0; j < tensor_columns(out); j++) {
            const float calls =
                (float)dtype_load(counts->type, counts->data, i * tensor_stride(counts) + j);
            const float before =
                (float)dtype_load(steps->type, steps->data, i * tensor_stride(steps) + j);
            dtype_store(out->type, out->data, i * tensor_stride(out) + j,
                        (double)fp8_history_next(before, calls, call->attrs.fp8_steps));
        }
    }
    return ST_OK;
}
