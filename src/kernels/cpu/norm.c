// RMSNorm and LayerNorm, forward and backward, fused with the residual addition before them.
//
//   h = x + delta, rounded as stored, because backward reads the value that forward normalized
//   RMSNorm    y = h r (w + plus)          r = 1 / sqrt(mean(h^2) + eps), per group of w's size
//   LayerNorm  y = (h - mean) r w + b      r = 1 / sqrt(var(h) + eps)
//
// Statistics are in double, because a running fp32 sum of 4,096 squares has too many rounding
// errors. Gradients of weights and biases are one sequential sum over the rows for each column, so
// tasks own columns, never rows. Sources: Zhang & Sennrich 2019, arXiv:1910.07467; Ba et al. 2016,
// arXiv:1607.06450.
#include "kernels/cpu/vec_call.h"

typedef struct norm_job {
    const kern_call *call;
    const cpu_vec *vec;
    cpu_cut cut;
    int64_t dim, groups;
} norm_job;

static status norm_run(const kern_context *context, const kern_call *call, int64_t rows,
                       int64_t dim, int64_t groups, kern_task task)
{
    TRY(cpu_call_check(call));
    norm_job job = {.call = call, .vec = cpu_vec_of(context->level), .dim = dim, .groups = groups};
    job.cut = cpu_cut_rows(rows, dim * groups);
    kern_parallel(context->pool, job.cut.count, task, &job);
    return ST_OK;
}

// Returns group g of row i.
static cpu_span group_of(const norm_job *job, const kern_tensor *t, int64_t i, int64_t g)
{
    return cpu_span_at(t, i * tensor_stride(t) + g * job->dim);
}

static void put_stat(const kern_tensor *t, int64_t at, float value)
{
    if (tensor_has(t)) ((float *)t->data)[at] = value;
}

static float get_stat(const kern_tensor *t, int64_t at)
{
    return ((const float *)t->data)[at];
}

// Returns the sum of row i if the columns are a piece of the row, else NULL.
static const float *dots_of(const kern_tensor *t, int64_t i)
{
    return tensor_has(t) ? (const float *)t->data + i * tensor_stride(t) : NULL;
}

static void rmsnorm_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const norm_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        for (int64_t g = 0; g < job->groups; g++) {
            cpu_norm_row row = {
                .x = group_of(job, &c->in[0], i, g),
                .w = tensor_row(&c->in[1], 0),
                .delta = group_of(job, &c->in[2], i, g),
                .y = group_of(job, &c->out[0], i, g),
                .h = group_of(job, &c->out[2], i, g),
                .dim = job->dim,
                .whole = c->piece.whole_columns,
                .dots = dots_of(&c->in[3], i),
                .eps = c->attrs.eps,
                .plus = c->attrs.plus,
            };
            job->vec->rmsnorm(&row);
            put_stat(&c->out[1], i * tensor_stride(&c->out[1]) + g, row.r);
        }
    }
}

status cpu_rmsnorm(const kern_context *context, const kern_call *call)
{
    const kern_tensor *x = &call->in[0];
    const int64_t dim = call->in[1].dims[0];
    return norm_run(context, call, x->dims[0], dim, x->dims[1] / dim, rmsnorm_task);
}

static void rmsnorm_dx_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const norm_job *job = context;
    const kern_call *c = job->call;
    const kern_tensor *r = &c->in[2];
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        for (int64_t g = 0; g < job->groups; g++) {
            const cpu_norm_row row = {
                .dy = group_of(job, &c->in[0], i, g),
                .h = group_of(job, &c->in[1], i, g),
                .w = tensor_row(&c->in[3], 0),
                .dh = group_of(job, &c->in[4], i, g),
                .dx = group_of(job, &c->out[0], i, g),
                .dim = job->dim,
                .whole = c->piece.whole_columns,
                .dots = dots_of(&c->in[5], i),
                .plus = c->attrs.plus,
                .r = get_stat(r, i * tensor_stride(r) + g),
            };
            job->vec->rmsnorm_dx(&row);
        }
    }
}

status cpu_rmsnorm_dx(const kern_context *context, const kern_call *call)
{
    const kern_tensor *dy = &call->in[0];
    const int64_t dim = call->in[3].dims[0];
    return norm_run(context, call, dy->dims[0], dim, dy->dims[1] / dim, rmsnorm_dx_task);
}

static void row_dots_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const norm_job *job = context;
    const kern_call *c = job->call;
    const kern_tensor *dots = &c->out[0];
    const op_columns columns = op_columns_of(&c->piece, c->in[0].dims[1]);
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        const cpu_span h = cpu_span_offset(tensor_row(&c->in[0], i), columns.begin);
        cpu_norm_row row = {.h = h,
                            .w = {.type = h.type},
                            .dim = columns.end - columns.begin,
                            .plus = c->attrs.plus};
        if (tensor_has(&c->in[1])) {
            row.dy = cpu_span_offset(tensor_row(&c->in[1], i), columns.begin);
            row.w = cpu_span_offset(tensor_row(&c->in[2], 0), columns.begin);
        }
        put_stat(dots, i * tensor_stride(dots), (float)job->vec->row_dot(&row));
    }
}

status cpu_row_dots(const kern_context *context, const kern_call *call)
{
    const kern_tensor *x = &call->in[0];
    return norm_run(context, call, x->dims[0], x->dims[1], 1, row_dots_task);
}

static void layernorm_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const norm_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        cpu_norm_row row = {
            .x = tensor_row(&c->in[0], i),
            .w = tensor_row(&c->in[1], 0),
            .b = tensor_row(&c->in[2], 0),
            .delta = tensor_row(&c->in[3], i),
            .y = tensor_row(&c->out[0], i),
            .h = tensor_row(&c->out[3], i),
            .dim = job->dim,
            .eps = c->attrs.eps,
        };
        job->vec->layernorm(&row);
        put_stat(&c->out[1], i, row.mean);
        put_stat(&c->out[2], i, row.r);
    }
}

status cpu_layernorm(const kern_context *context, const kern_call *call)
{
    const kern_tensor *x = &call->in[0];
    return norm_run(context, call, x->dims[0], x->dims[1], 1, layernorm_task);
}

static void layernorm_dx_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const norm_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        const cpu_norm_row row = {
            .dy = tensor_row(&c->in[0], i),
            .h = tensor_row(&c->in[1], i),
            .w = tensor_row(&c->in[4], 0),
            .dh = tensor_row(&c->in[5], i),
            .dx = tensor_row(&c->out[0], i),
            .dim = job->dim,
            .r = get_stat(&c->in[3], i),
        };
        job->vec->layernorm_dx(&row);
    }
}

status cpu_layernorm_dx(const kern_context *context, const kern_call *call)
{
    const kern_tensor *dy = &call->in[0];
    return norm_run(context, call, dy->dims[0], dy->dims[1], 1, layernorm_dx_task);
}

// ---- weight gradients ---------------------------------------------------------------------------
typedef struct column_sum_job {
    const kern_call *call;
    const cpu_vec *vec;
    const kern_tensor *dw, *db; // db may be NULL
    const float *r;
    int64_t r_stride, dim, groups;
    const double *mean;
} column_sum_job;

static void column_sum_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const column_sum_job *job = context;
    const kern_tensor *dy = &job->call->in[0], *h = &job->call->in[1];
    const int64_t column = index * CPU_SUM_COLUMNS;
    const cpu_norm_sum sum = {
        .dy = cpu_span_at(dy, 0),
        .h = cpu_span_at(h, 0),
        .dy_stride = dy->strides[0],
        .h_stride = h->strides[0],
        .r = job->r,
        .r_stride = job->r_stride,
        .mean = job->mean,
        .rows = dy->dims[0],
        .groups = job->groups,
        .dim = job->dim,
        .column = column,
        .count = min_i64(CPU_SUM_COLUMNS, job->dim - column),
        .dw = cpu_span_at(job->dw, 0),
        .db = job->db != NULL ? cpu_span_at(job->db, 0) : (cpu_span){0},
        .accumulate = job->call->accumulate,
    };
    job->vec->norm_dw(&sum);
}

static void column_sum_run(const kern_context *context, column_sum_job *job, kern_task task)
{
    job->vec = cpu_vec_of(context->level);
    const int64_t blocks = (job->dim + CPU_SUM_COLUMNS - 1) / CPU_SUM_COLUMNS;
    kern_parallel(context->pool, blocks, task, job);
}

status cpu_rmsnorm_dw(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    const kern_tensor *r = &call->in[2], *dw = &call->out[0];
    column_sum_job job = {
        .call = call,
        .dw = dw,
        .r = r->data,
        .r_stride = tensor_stride(r),
        .dim = dw->dims[0],
        .groups = call->in[0].dims[1] / dw->dims[0],
    };
    column_sum_run(context, &job, column_sum_task);
    return ST_OK;
}

// Workspace for the means of the rows, computed again in double.
int64_t cpu_layernorm_dw_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return call->in[0].dims[0] * (int64_t)sizeof(double);
}

static void means_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const norm_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    double *mean = c->workspace;
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        mean[i] = job->vec->row_mean(tensor_row(&c->in[1], i), job->dim);
    }
}

status cpu_layernorm_dw(const kern_context *context, const kern_call *call)
{
    const kern_tensor *dy = &call->in[0];
    TRY(norm_run(context, call, dy->dims[0], dy->dims[1], 1, means_task));
    column_sum_job job = {
        .call = call,
        .dw = &call->out[0],
        .db = tensor_has(&call->out[1]) ? &call->out[1] : NULL,
        .r = call->in[3].data,
        .r_stride = 1,
        .mean = call->workspace,
        .dim = dy->dims[1],
        .groups = 1,
    };
    column_sum_run(context, &job, column_sum_task);
    return ST_OK;
}

// ---- gradient of a bias -------------------------------------------------------------------------
static void sum_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const column_sum_job *job = context;
    const kern_tensor *dy = &job->call->in[0], *db = &job->call->out[0];
    const int64_t column = index * CPU_SUM_COLUMNS;
    const cpu_row_sum sum = {
        .sum = cpu_span_at(db, column),
        .x = cpu_span_at(dy, column),
        .rows = dy->dims[0],
        .stride = dy->strides[0],
        .count = min_i64(CPU_SUM_COLUMNS, job->dim - column),
        .accumulate = job->call->accumulate,
    };
    job->vec->sum_rows(&sum);
}

// The bits are those of a GEMM with ones that continues from db (gemm.h): fma(1, x, s) is s + x.
status cpu_bias_dw(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    column_sum_job job = {.call = call, .dim = call->out[0].dims[0]};
    column_sum_run(context, &job, sum_task);
    return ST_OK;
}
