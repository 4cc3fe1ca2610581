// Muon: momentum, then the update matrix is made orthogonal by five Newton-Schulz steps.
//
//   x = u / |u|      s = x x^T      x <- a x + (b s + c s s) x
//
// s and c s s are symmetric: only their lower triangle is computed, by blocks of rows, and
// mirrored, which saves a quarter of the work. s is taken over the shorter side; for a tall matrix
// that is x^T x, and the GEMMs multiply x from the other side, so nothing is transposed. Sources:
// Jordan et al. 2024, kellerjordan.github.io/posts/muon, with the conventions of torch.optim.Muon
// (momentum is a mean, the norm is clamped at eps), here in fp32.
//
// If ranks have pieces of a matrix, the passes over elements work on a piece, each in its own call,
// and the steps between them work on the whole matrix, with the same bits.
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/vec_call.h"
#include "kernels/muon_parts.h"
#include "op/block_sum.h"
#include "op/optimizer.h"

#include <string.h>

typedef struct muon_job {
    const kern_context *context;
    const kern_call *call;
    const cpu_vec *vec;
    cpu_update_span constants;
    // The operands of the passes; missing ones are not touched.
    const kern_tensor *grad, *master, *m, *master_out, *m_out, *weight_out;
    int64_t begin, own_rows, own_columns; // of the part: rows of the operands
    int64_t row, column;                  // with which row and column of the part they begin
    int64_t rows, columns;                // of the part as a whole
    cpu_cut cut;
    muon_buffers work;
    int64_t direction_stride; // of the rows of x that the first pass writes
} muon_job;

int64_t cpu_muon_update_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return muon_update_floats(call) * (int64_t)sizeof(float);
}

int64_t cpu_muon_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return muon_floats(call) * (int64_t)sizeof(float);
}

// ---- passes over the part's rows ----------------------------------------------------------------
static cpu_span span_of(const kern_tensor *t, int64_t row)
{
    return t != NULL ? tensor_row(t, row) : (cpu_span){NULL, DTYPE_F32};
}

// Returns row `row` of the part's rows on this rank; `direction` is where the direction of the row
// is.
static cpu_update_span row_span(const muon_job *job, int64_t row, float *direction)
{
    const int64_t at = job->begin + row;
    cpu_update_span span = job->constants;
    span.grad = span_of(job->grad, at);
    span.master = span_of(job->master, at);
    span.m = span_of(job->m, at);
    span.master_out = span_of(job->master_out, at);
    span.m_out = span_of(job->m_out, at);
    span.weight_out = span_of(job->weight_out, at);
    span.n = job->own_columns;
    span.element =
        optimizer_run_of(&job->call->piece, at * job->own_columns, job->own_columns).element;
    span.direction = direction;
    return span;
}

static void begin_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const muon_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        float *direction = job->work.x + i * job->direction_stride;
        const cpu_update_span span = row_span(job, i, direction);
        job->vec->muon_begin(&span);
    }
}

static void end_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const muon_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        float *direction = job->work.x + (job->row + i) * job->columns + job->column;
        const cpu_update_span span = row_span(job, i, direction);
        job->vec->muon_end(&span);
    }
}

// Returns the sum of squares, in blocks of one row, added in order.
static double squares_of(const muon_job *job)
{
    double sum = 0.0;
    for (int64_t i = 0; i < job->rows; i++) {
        for (int64_t j = 0; j < job->columns; j += BLOCK_SUM_ELEMENTS) {
            const cpu_span block = {job->work.x + i * job->columns + j, DTYPE_F32};
            const int64_t n = min_i64(BLOCK_SUM_ELEMENTS, job->columns - j);
            sum += job->vec->block_squares(block, n);
        }
    }
    return sum;
}

static void scale(const muon_job *job, float *y, const float *x, double factor, int64_t n)
{
    const cpu_span to = {y, DTYPE_F32}, from = {(void *)(uintptr_t)x, DTYPE_F32};
    job->vec->scale(to, from, (float)factor, n);
}

// Runs a GEMM with the arguments that all GEMMs here share.
static void product(const muon_job *job, gemm_args args)
{
    args.c_type = DTYPE_F32;
    args.any_order = !job->call->strict;
    gemm_run(job->context, &args);
}

enum { TRIANGLE_ROWS = 192 }; // of a block: enough that packing the other operand costs little

typedef struct mirror {
    float *c;
    int64_t n;
} mirror;

// Tiles of sixteen rows by sixteen columns, so that the reads touch few cache lines.
enum { MIRROR_TILE = 16 };
static void mirror_task(void *context, int64_t index, int thread)
{
    const mirror *m = context;
    const int64_t first = index * MIRROR_TILE, last = min_i64(first + MIRROR_TILE, m->n);
    const int64_t done = min_i64(m->n, (first / TRIANGLE_ROWS + 1) * TRIANGLE_ROWS);
    (void)thread;
    for (int64_t j0 = done; j0 < m->n; j0 += MIRROR_TILE) {
        for (int64_t i = first; i < last; i++) {
            for (int64_t j = j0; j < min_i64(j0 + MIRROR_TILE, m->n); j++) {
                m->c[i * m->n + j] = m->c[j * m->n + i];
            }
        }
    }
}
_Static_assert(TRIANGLE_ROWS % MIRROR_TILE == 0, "rows of a task end at one column");

// Computes c (n, n), which is symmetric except for rounding: elements above the blocks are copied
// from below.
static void product_symmetric(const muon_job *job, float *c, int64_t n, int64_t k, gemm_matrix a,
                              gemm_matrix b, bool accumulate)
{
    for (int64_t i = 0; i < n; i += TRIANGLE_ROWS) {
        const int64_t rows = min_i64(TRIANGLE_ROWS, n - i), columns = i + rows;
        const gemm_matrix part = {.data = (const float *)a.data + i * a.row_stride,
                                  .type = a.type,
                                  .row_stride = a.row_stride,
                                  .column_stride = a.column_stride};
        product(job, (gemm_args){.m = rows,
                                 .n = columns,
                                 .k = k,
                                 .a = part,
                                 .b = b,
                                 .c = c + i * n,
                                 .ldc = n,
                                 .accumulate = accumulate});
    }
    mirror m = {c, n};
    kern_parallel(job->context->pool, (n + MIRROR_TILE - 1) / MIRROR_TILE, mirror_task, &m);
}

static void newton_schulz_step(muon_job *job)
{
    const int64_t rows = job->rows, columns = job->columns, low = min_i64(rows, columns);
    const bool tall = rows > columns;
    const gemm_matrix x = gemm_rows(job->work.x, DTYPE_F32, columns), xt = gemm_transposed(x);
    const gemm_matrix square = gemm_rows(job->work.square, DTYPE_F32, low);
    product_symmetric(job, job->work.square, low, max_i64(rows, columns), tall ? xt : x,
                      tall ? x : xt, false);
    scale(job, job->work.polynomial, job->work.square, muon_b, low * low);
    scale(job, job->work.scaled, job->work.square, muon_c, low * low);
    product_symmetric(job, job->work.polynomial, low, low,
                      gemm_rows(job->work.scaled, DTYPE_F32, low), square, true);
    scale(job, job->work.next, job->work.x, muon_a, rows * columns);
    const gemm_matrix polynomial = gemm_rows(job->work.polynomial, DTYPE_F32, low);
    product(job, (gemm_args){.m = rows,
                             .n = columns,
                             .k = low,
                             .a = tall ? x : polynomial,
                             .b = tall ? polynomial : x,
                             .c = job->work.next,
                             .ldc = columns,
                             .accumulate = true});
    float *done = job->work.next;
    job->work.next = job->work.x;
    job->work.x = done;
}

static void begin_run(muon_job *job)
{
    job->cut = cpu_cut_rows(job->own_rows, job->own_columns);
    kern_parallel(job->context->pool, job->cut.count, begin_task, job);
}

// Makes x orthogonal and applies the part of it that is on this rank to the weight.
static void end_run(muon_job *job)
{
    const int64_t rows = job->rows, columns = job->columns;
    const op_attrs *a = &job->call->attrs;
    const double norm = fmax(sqrt(squares_of(job)), (double)a->eps);
    scale(job, job->work.x, job->work.x, 1.0 / norm, rows * columns);
    for (int step = 0; step < 5; step++) newton_schulz_step(job);
    const double lr = job->call->step->host.lr * (double)a->lr_scale;
    const double size = a->match_rms ? 0.2 * sqrt((double)max_i64(rows, columns))
                                     : sqrt(fmax(1.0, (double)rows / (double)columns));
    job->constants.rate = (float)(lr * size);
    job->constants.keep = (float)(1.0 - (a->decay ? lr * (double)a->weight_decay : 0.0));
    job->cut = cpu_cut_rows(job->own_rows, job->own_columns);
    kern_parallel(job->context->pool, job->cut.count, end_task, job);
}

static muon_job job_of(const kern_context *context, const kern_call *call)
{
    const step_block *step = call->step;
    const double mu = optimizer_beta(call->attrs.momentum);
    return (muon_job){.context = context,
                      .call = call,
                      .vec = cpu_vec_of(context->level),
                      .constants = {.factor = (float)step->device.grad_factor,
                                    .beta1 = (float)mu,
                                    .rest1 = (float)(1.0 - mu),
                                    .stochastic = call->attrs.stochastic,
                                    .step = &step->host,
                                    .tensor_index = call->attrs.tensor_index,
                                    .nesterov = call->attrs.nesterov}};
}

static bool is_masked(const kern_call *call)
{
    return call->step->device.skip != 0 || call->step->device.halt != 0;
}

status cpu_muon(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    if (is_masked(call)) return ST_OK;
    muon_job job = job_of(context, call);
    job.grad = &call->in[0];
    job.master = &call->in[1];
    job.m = &call->in[2];
    job.master_out = &call->out[0];
    job.m_out = &call->out[1];
    job.weight_out = &call->out[2];
    job.columns = job.own_columns = job.direction_stride = call->in[0].dims[1];
    for (int32_t part = 0; part < muon_part_count(call); part++) {
        job.rows = job.own_rows = muon_part_rows(call, part);
        job.work = muon_buffers_of(call->workspace, job.rows, job.columns);
        begin_run(&job);
        end_run(&job);
        job.begin += job.rows;
    }
    return ST_OK;
}

status cpu_muon_direction(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    if (is_masked(call)) return ST_OK;
    muon_job job = job_of(context, call);
    job.grad = &call->in[0];
    job.m = &call->in[1];
    job.m_out = &call->out[0];
    job.work.x = call->out[1].data;
    job.direction_stride = tensor_stride(&call->out[1]);
    job.own_rows = call->in[0].dims[0];
    job.own_columns = call->in[0].dims[1];
    begin_run(&job);
    return ST_OK;
}

status cpu_muon_update(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    const op_piece *piece = &call->piece;
    if (is_masked(call)) return ST_OK;
    muon_job job = job_of(context, call);
    int64_t before = 0; // rows of the parts before
    job.master = &call->in[1];
    job.master_out = &call->out[0];
    job.weight_out = &call->out[1];
    job.columns = call->in[0].dims[1];
    job.own_columns = call->in[1].dims[1];
    job.column = piece->first_column;
    for (int32_t part = 0; part < piece->part_count; part++) {
        job.rows = piece->part_whole[part];
        job.own_rows = piece->part_rows[part];
        job.row = piece->part_first[part] - before;
        job.work = muon_buffers_of(call->workspace, job.rows, job.columns);
        for (int64_t i = 0; i < job.rows; i++) {
            memcpy(job.work.x + i * job.columns, tensor_row(&call->in[0], before + i).at,
                   (size_t)job.columns * sizeof(float));
        }
        end_run(&job);
        before += job.rows;
        job.begin += job.own_rows;
    }
    return ST_OK;
}
