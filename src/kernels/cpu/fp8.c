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

const kern_call *cpu_fp8_operands(const kern_context *context, const kern_call *call,
                                  kern_call *rounded)
{
    if (call->attrs.fp8 == FP8_NONE) return call;
    ASSERT(call->workspace_bytes >= cpu_fp8_workspace(call, context->threads));
    ASSERT(call->in[0].type == call->in[1].type && call->in[0].type != DTYPE_F16);
    fp8_operands_move(call, call->in[0].type, rounded);
    for (int i = 0; i < 2; i++) {
        const int64_t group = fp8_group_rows(call, i);
        const bool has_history = call->attrs.fp8 == FP8_TENSOR;
        fp8_job job = {.vec = cpu_vec_of(context->level),
                       .from = &call->in[i],
                       .to = &rounded->in[i],
                       .block = fp8_block_of(call, i),
                       .group = group,
                       .stripes = (group + SIDE - 1) / SIDE,
                       .has_history = has_history,
                       .exponent = has_history ? fp8_operand_exponent(call, i) : 0,
                       .format = fp8_operand_format(call, i)};
        kern_parallel(context->pool, call->in[i].dims[0] / group * job.stripes, stripe_task, &job);
    }
    return rounded;
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
