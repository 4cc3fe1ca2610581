// Rows of Muon: momentum, then the update matrix is made orthogonal by five Newton-Schulz steps.
//
//   x = u / |u|      s = x x^T      x <- a x + (b s + c s s) x
//
// with s over the shorter side, as in kernels/cpu/muon.c. All of it is posted whether the step is
// skipped or not: the first and the last kernel look at the step block.
//
//   workspace   | that of kernels/muon_parts.h | sums of squares, in double |
#include "kernels/cuda/rows.h"

#include "kernels/muon_parts.h"
#include "op/optimizer.h"

#include <math.h>

enum { MAX_PARTS = 64, PART_ELEMENTS = 1 << 14 };

typedef struct muon_job {
    const kern_context *context;
    const kern_call *call;
    cuda_muon_args args;
    int64_t rows, columns; // of the part as a whole
    muon_buffers work;
} muon_job;

static int64_t bytes_of(int64_t floats)
{
    return floats * (int64_t)sizeof(float) + MAX_PARTS * (int64_t)sizeof(double);
}

int64_t cuda_muon_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return bytes_of(muon_floats(call));
}

int64_t cuda_muon_update_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return bytes_of(muon_update_floats(call));
}

static cuda_view matrix(float *data, int64_t rows, int64_t columns)
{
    return (cuda_view){
        .data = data, .rows = rows, .columns = columns, .stride = columns, .type = DTYPE_F32};
}

// Points to the buffers of a part of the workspace.
static void part_begin(muon_job *job, int64_t rows, int64_t columns)
{
    job->rows = rows;
    job->columns = columns;
    job->work = muon_buffers_of(job->call->workspace, rows, columns);
    job->args.partial = (double *)(void *)(job->work.x + muon_buffer_floats(rows, columns));
}

static status elements_run(muon_job *job, const char *kernel, const cuda_view *shape)
{
    const cuda_shape grid = cuda_shape_of_columns(shape->rows, shape->columns);
    return cuda_launch_run(job->context, kernel, &grid, &job->args, sizeof(job->args));
}

static status scale(const muon_job *job, float *y, float *x, double factor, int64_t n)
{
    cuda_map_args args = {.kind = CUDA_MAP_SCALE, .factor = (float)factor};
    args.in[0] = matrix(x, 1, n);
    args.out = matrix(y, 1, n);
    const cuda_shape shape = cuda_shape_of_columns(1, n);
    return cuda_launch_run(job->context, "cuda_map", &shape, &args, sizeof(args));
}

static status newton_schulz_step(muon_job *job)
{
    const int64_t rows = job->rows, columns = job->columns, low = min_i64(rows, columns);
    const bool tall = rows > columns;
    const cuda_view x = matrix(job->work.x, rows, columns),
                    next = matrix(job->work.next, rows, columns);
    const cuda_view square = matrix(job->work.square, low, low);
    const cuda_view polynomial = matrix(job->work.polynomial, low, low);
    const int32_t order = cuda_gemm_order_of(job->call);
    cuda_gemm_args first = {
        .a = x, .b = x, .c = square, .a_along_m = tall, .b_along_n = tall, .order = order};
    TRY(cuda_gemm_run(job->context, &first));
    TRY(scale(job, job->work.polynomial, job->work.square, muon_b, low * low));
    TRY(scale(job, job->work.scaled, job->work.square, muon_c, low * low));
    cuda_gemm_args second = {.a = matrix(job->work.scaled, low, low),
                             .b = square,
                             .c = polynomial,
                             .before = polynomial,
                             .b_along_n = 1,
                             .order = order};
    TRY(cuda_gemm_run(job->context, &second));
    TRY(scale(job, job->work.next, job->work.x, muon_a, rows * columns));
    cuda_gemm_args third = {.a = tall ? x : polynomial,
                            .b = tall ? polynomial : x,
                            .c = next,
                            .before = next,
                            .b_along_n = 1,
                            .order = order};
    TRY(cuda_gemm_run(job->context, &third));
    float *done = job->work.next;
    job->work.next = job->work.x;
    job->work.x = done;
    return ST_OK;
}

// Makes x orthogonal.
static status orthogonalize(muon_job *job)
{
    cuda_muon_args *args = &job->args;
    const int64_t elements = job->rows * job->columns;
    args->x = matrix(job->work.x, 1, elements);
    args->parts = max_i64(1, min_i64(MAX_PARTS, elements / PART_ELEMENTS));
    const cuda_shape squares = {.grid = {args->parts, 1, 1},
                                .threads = CUDA_THREADS,
                                .shared_bytes = CUDA_THREADS / 32 * (int64_t)sizeof(double)};
    TRY(cuda_launch_run(job->context, "cuda_muon_squares", &squares, args, sizeof(*args)));
    TRY(elements_run(job, "cuda_muon_normalize", &args->x));
    for (int step = 0; step < 5; step++) TRY(newton_schulz_step(job));
    return ST_OK;
}

// Applies x to the rows of the views.
static status end_run(muon_job *job)
{
    const op_attrs *a = &job->call->attrs;
    const double rows = (double)job->rows, columns = (double)job->columns;
    job->args.x = matrix(job->work.x, job->rows, job->columns);
    job->args.size =
        a->match_rms ? 0.2 * sqrt(fmax(rows, columns)) : sqrt(fmax(1.0, rows / columns));
    return elements_run(job, "cuda_muon_end", &job->args.master);
}

static muon_job job_of(const kern_context *context, const kern_call *c)
{
    return (muon_job){.context = context,
                      .call = c,
                      .args = {.step = c->step,
                               .momentum = optimizer_beta(c->attrs.momentum),
                               .lr_scale = (double)c->attrs.lr_scale,
                               .decay = c->attrs.decay ? (double)c->attrs.weight_decay : 0.0,
                               .rounding = cuda_rounding_of(c, 0),
                               .eps = c->attrs.eps,
                               .nesterov = c->attrs.nesterov}};
}

status cuda_row_muon(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    TRY(cuda_stochastic_check(c));
    muon_job job = job_of(context, c);
    int64_t begin = 0;
    for (int32_t k = 0; k < muon_part_count(c); k++) {
        const int64_t rows = muon_part_rows(c, k);
        const cuda_view grad = cuda_view_of(&c->in[0]), master = cuda_view_of(&c->in[1]);
        const cuda_view m = cuda_view_of(&c->in[2]);
        part_begin(&job, rows, grad.columns);
        job.args.grad = cuda_view_rows(&grad, begin, rows);
        job.args.master = cuda_view_rows(&master, begin, rows);
        job.args.m = cuda_view_rows(&m, begin, rows);
        job.args.rounding.first_row = begin;
        for (int o = 0; o < 3; o++) {
            const cuda_view out = cuda_view_of(&c->out[o]);
            job.args.out[o] = cuda_view_rows(&out, begin, rows);
        }
        job.args.x = matrix(job.work.x, rows, grad.columns);
        TRY(elements_run(&job, "cuda_muon_begin", &job.args.grad));
        TRY(orthogonalize(&job));
        TRY(end_run(&job));
        begin += rows;
    }
    return ST_OK;
}

status cuda_row_muon_direction(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    TRY(cuda_stochastic_check(c));
    muon_job job = job_of(context, c);
    job.args.grad = cuda_view_of(&c->in[0]);
    job.args.m = cuda_view_of(&c->in[1]);
    job.args.out[1] = cuda_view_of(&c->out[0]);
    job.args.x = cuda_view_of(&c->out[1]);
    return elements_run(&job, "cuda_muon_begin", &job.args.grad);
}

status cuda_row_muon_update(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    TRY(cuda_stochastic_check(c));
    const op_piece *piece = &c->piece;
    const cuda_view u = cuda_view_of(&c->in[0]), master = cuda_view_of(&c->in[1]);
    muon_job job = job_of(context, c);
    int64_t before = 0, own = 0; // rows of the parts before, in the whole and here
    for (int32_t k = 0; k < piece->part_count; k++) {
        const int64_t rows = piece->part_whole[k];
        part_begin(&job, rows, u.columns);
        const cuda_view from = cuda_view_rows(&u, before, rows);
        const cuda_view x = matrix(job.work.x, rows, u.columns);
        TRY(cuda_copy(context, &from, &x));
        TRY(orthogonalize(&job));
        job.args.master = cuda_view_rows(&master, own, piece->part_rows[k]);
        for (int o = 0; o < 2; o++) {
            const cuda_view out = cuda_view_of(&c->out[o]);
            job.args.out[2 * o] = cuda_view_rows(&out, own, piece->part_rows[k]);
        }
        job.args.rounding.first_row = own;
        job.args.row = piece->part_first[k] - before;
        job.args.column = piece->first_column;
        TRY(end_run(&job));
        before += rows;
        own += piece->part_rows[k];
    }
    return ST_OK;
}
