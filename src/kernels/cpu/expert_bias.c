// Biases of experts and the clamped gate (op/expert_bias.c, op/clamped_gate.c).
//
// Rows are independent, so each is in one task. Gradients of biases are cut by columns: a task adds
// its columns over all rows in their order, so a sum is one sequential sum in fp32.
#include "kernels/cpu/vec_call.h"
#include "kernels/expert_rows.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256, SIGMOID = 4 }; // SIGMOID: see vec_kernels.h, function

static float statistic_at(const kern_tensor *t, int64_t row, int64_t column)
{
    return ((const float *)t->data)[row * tensor_stride(t) + column];
}

// ---- rows ---------------------------------------------------------------------------------------

typedef struct rows_job {
    const kern_call *call;
    const cpu_vec *vec;
    int64_t first, columns; // element of the bias, and columns
    expert_rows rows;
    cpu_cut cut;
} rows_job;

static void rows_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const rows_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t at = 0; at < job->columns; at += BLOCK) {
        const int64_t count = min_i64(BLOCK, job->columns - at);
        float bias[BLOCK];
        for (int64_t i = 0; i < count; i++) {
            const int64_t element = (job->first + at + i) * tensor_stride(&c->in[1]);
            bias[i] = (float)dtype_load(c->in[1].type, c->in[1].data, element);
        }
        for (int64_t n = piece.row; n < piece.row + piece.rows; n++) {
            const int64_t row = job->rows.begin + n;
            job->vec->add(cpu_span_offset(tensor_row(&c->out[0], row), at),
                          cpu_span_offset(tensor_row(&c->in[0], row), at), cpu_span_fp32(bias),
                          count);
        }
    }
}

status cpu_bias_rows(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    const int64_t experts = call->attrs.experts, columns = call->in[0].dims[1];
    for (int64_t i = 0; i < expert_ranks(call) * experts; i++) {
        rows_job job = {.call = call,
                        .vec = cpu_vec_of(context->level),
                        .first = i % experts * columns,
                        .columns = columns};
        TRY(expert_rows_of(call, i / experts, i % experts, &job.rows));
        if (job.rows.count == 0) continue;
        job.cut = cpu_cut_rows(job.rows.count, columns);
        kern_parallel(context->pool, job.cut.count, rows_task, &job);
    }
    return ST_OK;
}

// ---- sums over rows -----------------------------------------------------------------------------

typedef struct sum_job {
    const kern_call *call;
    const cpu_vec *vec;
} sum_job;

// A sum has consecutive elements, `step` apart, from `at` on.
typedef struct sum_place {
    const kern_tensor *out;
    int64_t at, step, count;
} sum_place;

static void sum_begin(const sum_place *p, bool accumulate, float sum[BLOCK])
{
    for (int64_t i = 0; i < p->count; i++) {
        const double before =
            accumulate ? dtype_load(p->out->type, p->out->data, p->at + i * p->step) : 0.0;
        sum[i] = (float)before;
    }
}

static void sum_end(const sum_place *p, const float sum[BLOCK])
{
    for (int64_t i = 0; i < p->count; i++) {
        dtype_store(p->out->type, p->out->data, p->at + i * p->step, (double)sum[i]);
    }
}

static void row_add(const cpu_vec *vec, cpu_span row, float factor, int64_t count, float sum[BLOCK])
{
    float x[BLOCK];
    vec->cast(cpu_span_fp32(x), row, count);
    for (int64_t i = 0; i < count; i++) sum[i] = fmaf(factor, x[i], sum[i]);
}

static int64_t blocks(int64_t columns)
{
    return (columns + BLOCK - 1) / BLOCK;
}

// One block of columns of one expert.
static void rows_sum_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const sum_job *job = context;
    const kern_call *c = job->call;
    const int64_t columns = c->in[0].dims[1], e = index / blocks(columns);
    const int64_t first = index % blocks(columns) * BLOCK, count = min_i64(BLOCK, columns - first);
    const int64_t step = tensor_stride(&c->out[0]);
    const sum_place place = {&c->out[0], (e * columns + first) * step, step, count};
    float sum[BLOCK];
    sum_begin(&place, c->accumulate, sum);
    expert_walk walk = expert_walk_begin(c);
    while (expert_walk_has(&walk)) {
        expert_rows g = {0};
        if (expert_walk_next(c, e, &walk, &g) != ST_OK) return; // checked before
        for (int64_t n = g.begin; n < g.begin + g.count; n++) {
            const float scale = tensor_has(&c->in[1]) ? statistic_at(&c->in[1], n, 0) : 1.0F;
            row_add(job->vec, cpu_span_offset(tensor_row(&c->in[0], n), first), scale, count, sum);
        }
    }
    sum_end(&place, sum);
}

static status walks_check(const kern_call *c)
{
    for (int64_t e = 0; e < c->attrs.experts; e++) {
        expert_walk walk = expert_walk_begin(c);
        while (expert_walk_has(&walk)) {
            expert_rows g = {0};
            TRY(expert_walk_next(c, e, &walk, &g));
        }
    }
    return ST_OK;
}

status cpu_bias_rows_dw(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    TRY(walks_check(call));
    sum_job job = {.call = call, .vec = cpu_vec_of(context->level)};
    kern_parallel(context->pool, call->attrs.experts * blocks(call->in[0].dims[1]), rows_sum_task,
                  &job);
    return ST_OK;
}

// ---- tokens -------------------------------------------------------------------------------------

static status ids_check(const kern_call *c, int64_t experts)
{
    const kern_tensor *ids = &c->in[1];
    for (int64_t n = 0; n < ids->dims[0]; n++) {
        for (int64_t t = 0; t < ids->dims[1]; t++) {
            if (tensor_int_at(ids, n, t) < experts) continue;
            return fail(ST_DATA, "%s: token %lld has expert %lld of %lld",
                        op_kind_of(c->code)->name, (long long)n,
                        (long long)tensor_int_at(ids, n, t), (long long)experts);
        }
    }
    return ST_OK;
}

static void tokens_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) {
        for (int64_t at = 0; at < piece.columns; at += BLOCK) {
            const int64_t count = min_i64(BLOCK, piece.columns - at);
            float sum[BLOCK];
            job->vec->cast(cpu_span_fp32(sum), cpu_span_offset(tensor_row(&c->in[0], n), at),
                           count);
            for (int64_t t = 0; t < c->in[1].dims[1]; t++) {
                const int64_t e = tensor_int_at(&c->in[1], n, t);
                if (e < 0) continue;
                row_add(job->vec, cpu_span_offset(tensor_row(&c->in[3], e), at),
                        statistic_at(&c->in[2], n, t), count, sum);
            }
            job->vec->cast(cpu_span_offset(tensor_row(&c->out[0], n), at), cpu_span_fp32(sum),
                           count);
        }
    }
}

status cpu_bias_tokens(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    TRY(ids_check(call, call->in[3].dims[0]));
    cpu_rows_run(context, call, call->in[0].dims[0], call->in[0].dims[1], tokens_task);
    return ST_OK;
}

// One block of columns of one expert, over all tokens.
static void tokens_sum_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const sum_job *job = context;
    const kern_call *c = job->call;
    const kern_tensor *ids = &c->in[1];
    const int64_t columns = c->in[0].dims[1], e = index / blocks(columns);
    const int64_t first = index % blocks(columns) * BLOCK, count = min_i64(BLOCK, columns - first);
    const sum_place place = {&c->out[0], e * tensor_stride(&c->out[0]) + first, 1, count};
    float sum[BLOCK];
    sum_begin(&place, c->accumulate, sum);
    for (int64_t n = 0; n < ids->dims[0]; n++) {
        for (int64_t t = 0; t < ids->dims[1]; t++) {
            if (tensor_int_at(ids, n, t) != e) continue;
            row_add(job->vec, cpu_span_offset(tensor_row(&c->in[0], n), first),
                    statistic_at(&c->in[2], n, t), count, sum);
        }
    }
    sum_end(&place, sum);
}

status cpu_bias_tokens_dw(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    TRY(ids_check(call, call->out[0].dims[0]));
    sum_job job = {.call = call, .vec = cpu_vec_of(context->level)};
    kern_parallel(context->pool, call->out[0].dims[0] * blocks(call->in[0].dims[1]),
                  tokens_sum_task, &job);
    return ST_OK;
}

static void tokens_ds_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const kern_tensor *out = &c->out[0];
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) {
        for (int64_t t = 0; t < c->in[1].dims[1]; t++) {
            const int64_t e = tensor_int_at(&c->in[1], n, t);
            double sum = 0.0;
            for (int64_t at = 0; e >= 0 && at < piece.columns; at += BLOCK) {
                const int64_t count = min_i64(BLOCK, piece.columns - at);
                float x[BLOCK], b[BLOCK];
                job->vec->cast(cpu_span_fp32(x), cpu_span_offset(tensor_row(&c->in[0], n), at),
                               count);
                job->vec->cast(cpu_span_fp32(b), cpu_span_offset(tensor_row(&c->in[2], e), at),
                               count);
                for (int64_t i = 0; i < count; i++) sum += (double)x[i] * (double)b[i];
            }
            ((float *)out->data)[n * tensor_stride(out) + t] = (float)sum;
        }
    }
}

status cpu_bias_tokens_ds(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    TRY(ids_check(call, call->in[2].dims[0]));
    cpu_rows_run(context, call, call->in[0].dims[0], call->in[0].dims[1], tokens_ds_task);
    return ST_OK;
}

// ---- the gate -----------------------------------------------------------------------------------

// Some columns of a row: gate and up after the clamp, and sigmoid(slope gate).
typedef struct gate_block {
    float gate[BLOCK], up[BLOCK], sigmoid[BLOCK];
} gate_block;

static void gate_load(const cpu_row_job *job, int64_t row, int64_t at, int64_t width, int64_t count,
                      gate_block *raw, gate_block *b)
{
    const kern_call *c = job->call;
    const float limit = c->attrs.cap;
    const cpu_span h = tensor_row(&c->in[0], row);
    job->vec->cast(cpu_span_fp32(raw->gate), cpu_span_offset(h, at), count);
    job->vec->cast(cpu_span_fp32(raw->up), cpu_span_offset(h, width + at), count);
    for (int64_t i = 0; i < count; i++) {
        b->gate[i] = raw->gate[i] > limit ? limit : raw->gate[i];
        b->up[i] = raw->up[i] > limit ? limit : raw->up[i] < -limit ? -limit : raw->up[i];
        b->sigmoid[i] = c->attrs.scale * b->gate[i];
    }
    job->vec->function(SIGMOID, b->sigmoid, b->sigmoid, count);
}

static void gate_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_tensor *a = &job->call->out[0];
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    gate_block raw, b;
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) {
        for (int64_t at = 0; at < a->dims[1]; at += BLOCK) {
            const int64_t count = min_i64(BLOCK, a->dims[1] - at);
            gate_load(job, n, at, a->dims[1], count, &raw, &b);
            for (int64_t i = 0; i < count; i++) {
                b.gate[i] = (1.0F + b.up[i]) * (b.gate[i] * b.sigmoid[i]);
            }
            job->vec->cast(cpu_span_offset(tensor_row(a, n), at), cpu_span_fp32(b.gate), count);
        }
    }
}

status cpu_clamped_gate(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    cpu_rows_run(context, call, call->in[0].dims[0], call->in[0].dims[1], gate_task);
    return ST_OK;
}

static void gate_bwd_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const kern_tensor *da = &c->in[1], *dh = &c->out[0];
    const int64_t width = da->dims[1];
    const float limit = c->attrs.cap, slope = c->attrs.scale;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    gate_block raw, b;
    float d[BLOCK];
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) {
        for (int64_t at = 0; at < width; at += BLOCK) {
            const int64_t count = min_i64(BLOCK, width - at);
            gate_load(job, n, at, width, count, &raw, &b);
            job->vec->cast(cpu_span_fp32(d), cpu_span_offset(tensor_row(da, n), at), count);
            for (int64_t i = 0; i < count; i++) {
                const float g = b.gate[i], s = b.sigmoid[i];
                const float dgate = d[i] * (1.0F + b.up[i]) * (s * (1.0F + slope * g * (1.0F - s)));
                b.gate[i] = raw.gate[i] <= limit ? dgate : 0.0F;
                b.up[i] = fabsf(raw.up[i]) <= limit ? d[i] * (g * s) : 0.0F;
            }
            const cpu_span out = tensor_row(dh, n);
            job->vec->cast(cpu_span_offset(out, at), cpu_span_fp32(b.gate), count);
            job->vec->cast(cpu_span_offset(out, width + at), cpu_span_fp32(b.up), count);
        }
    }
}

status cpu_clamped_gate_bwd(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    cpu_rows_run(context, call, call->in[0].dims[0], call->in[0].dims[1], gate_bwd_task);
    return ST_OK;
}
