// Latent attention (op/latent.c). The first three kernels copy and rotate, row by row. In
// generation a task is one head of one sequence: its query is multiplied into the space of the
// latent rows, so scores and values are products with the narrow rows of the cache and no key is
// made.
#include "kernels/cpu/vec_call.h"

#include <math.h>
#include <string.h>

typedef struct latent {
    int64_t heads, dim, rope, value; // columns of a head: all, the rotated ones, those of values
    int64_t plain;                   // columns of a head that are not rotated
} latent;

enum { ROPE_MOST = 256 };

static latent latent_of(const kern_call *c, const kern_tensor *table)
{
    const int64_t rope = table->dims[1], dim = c->attrs.head_dim;
    return (latent){c->attrs.heads, dim, rope, c->attrs.value_dim, dim - rope};
}

static status positions_check(const kern_call *c, const kern_tensor *positions,
                              const kern_tensor *table)
{
    TRY(cpu_call_check(c));
    if (table->dims[1] > ROPE_MOST || table->type != DTYPE_F32) {
        return fail(ST_UNSUPPORTED,
                    "backend cpu: %s rotates %lld columns by %s, at most %d by fp32",
                    op_kind_of(c->code)->name, (long long)table->dims[1], dtype_name(table->type),
                    (int)ROPE_MOST);
    }
    for (int64_t n = 0; n < positions->dims[0]; n++) {
        const int64_t position = tensor_int(positions, n);
        if (position >= 0 && position < table->dims[0]) continue;
        return fail(ST_DATA, "%s: row %lld has position %lld, the table ends at %lld",
                    op_kind_of(c->code)->name, (long long)n, (long long)position,
                    (long long)table->dims[0]);
    }
    return ST_OK;
}

static void rotate(const cpu_row_job *job, const kern_tensor *table, int64_t position, bool back,
                   cpu_span x, cpu_span y)
{
    const cpu_rope_row row = {.x = x,
                              .y = y,
                              .turn = (const float *)table->data + position * table->strides[0],
                              .heads = 1,
                              .dim = table->dims[1],
                              .head_dim = table->dims[1],
                              .interleaved = job->call->attrs.interleaved,
                              .inverse = back};
    job->vec->rope(&row);
}

static cpu_span at(const kern_tensor *t, int64_t row, int64_t column)
{
    return cpu_span_at(t, row * t->strides[0] + column);
}

static void latent_row(const cpu_row_job *job, const latent *l, int64_t n)
{
    const kern_call *c = job->call;
    const kern_tensor *kv = &c->in[1], *table = &c->in[4];
    const int64_t position = tensor_int(&c->in[3], n);
    float key[ROPE_MOST];
    job->vec->cast(cpu_span_fp32(key), at(&c->in[2], n, 0), l->rope);
    rotate(job, table, position, false, cpu_span_fp32(key), cpu_span_fp32(key));
    for (int64_t h = 0; h < l->heads; h++) {
        const int64_t to = h * l->dim, from = h * (l->plain + l->value), rotated = to + l->plain;
        job->vec->cast(at(&c->out[0], n, to), at(&c->in[0], n, to), l->plain);
        rotate(job, table, position, false, at(&c->in[0], n, rotated), at(&c->out[0], n, rotated));
        job->vec->cast(at(&c->out[1], n, to), at(kv, n, from), l->plain);
        job->vec->cast(at(&c->out[1], n, rotated), cpu_span_fp32(key), l->rope);
        job->vec->cast(at(&c->out[2], n, h * l->value), at(kv, n, from + l->plain), l->value);
    }
}

static void latent_bwd_row(const cpu_row_job *job, const latent *l, int64_t n)
{
    const kern_call *c = job->call;
    const int64_t position = tensor_int(&c->in[3], n);
    for (int64_t h = 0; h < l->heads; h++) {
        const int64_t from = h * l->dim, to = h * (l->plain + l->value), rotated = from + l->plain;
        job->vec->cast(at(&c->out[0], n, from), at(&c->in[0], n, from), l->plain);
        rotate(job, &c->in[4], position, true, at(&c->in[0], n, rotated),
               at(&c->out[0], n, rotated));
        job->vec->cast(at(&c->out[1], n, to), at(&c->in[1], n, from), l->plain);
        job->vec->cast(at(&c->out[1], n, to + l->plain), at(&c->in[2], n, h * l->value), l->value);
    }
}

// The heads are added in their order, in fp32.
static void latent_dr_row(const cpu_row_job *job, const latent *l, int64_t n)
{
    const kern_call *c = job->call;
    float sum[ROPE_MOST] = {0.0F};
    for (int64_t h = 0; h < l->heads; h++) {
        job->vec->add(cpu_span_fp32(sum), cpu_span_fp32(sum),
                      at(&c->in[0], n, h * l->dim + l->plain), l->rope);
    }
    rotate(job, &c->in[2], tensor_int(&c->in[1], n), true, cpu_span_fp32(sum), cpu_span_fp32(sum));
    job->vec->cast(at(&c->out[0], n, 0), cpu_span_fp32(sum), l->rope);
}

static void rows_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const bool sums = c->code == OP_LATENT_DR;
    const latent l = latent_of(c, &c->in[sums ? 2 : 4]);
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) {
        if (sums) {
            latent_dr_row(job, &l, n);
        } else if (c->code == OP_LATENT) {
            latent_row(job, &l, n);
        } else {
            latent_bwd_row(job, &l, n);
        }
    }
}

status cpu_latent(const kern_context *context, const kern_call *call)
{
    TRY(positions_check(call, &call->in[3], &call->in[4]));
    cpu_rows_run(context, call, call->in[0].dims[0], call->in[0].dims[1], rows_task);
    return ST_OK;
}

status cpu_latent_bwd(const kern_context *context, const kern_call *call)
{
    return cpu_latent(context, call);
}

status cpu_latent_dr(const kern_context *context, const kern_call *call)
{
    TRY(positions_check(call, &call->in[1], &call->in[2]));
    cpu_rows_run(context, call, call->in[0].dims[0], call->in[0].dims[1], rows_task);
    return ST_OK;
}

// ---- a cache of latent rows ---------------------------------------------------------------------

typedef struct cached_job {
    cpu_row_job rows; // rotate() reads it
    latent l;
    int64_t rank, floats; // of a thread's workspace
} cached_job;

static int64_t cached_floats(const kern_call *c)
{
    return align_up(c->cache_seq + 3 * c->in[2].dims[1] + c->in[0].dims[1], 16);
}

int64_t cpu_latent_cached_workspace(const kern_call *call, int threads)
{
    return threads * cached_floats(call) * (int64_t)sizeof(float);
}

// One sequential sum in double.
static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

// Returns the row with key s of the sequence of query n.
static int64_t cached_row(const kern_call *c, int64_t n, int64_t s)
{
    const kern_tensor *pages = &c->in[7];
    const int64_t b = n / c->seq;
    if (!tensor_has(pages)) return b * c->cache_seq + s;
    return cpu_page_row(cpu_pages_of(pages, b, c->in[4].dims[0]), c->attrs.page, s);
}

// Computes y of one head of query n over `keys` cached rows. `work`: scores, the query in the space
// of latent rows, the mean of latent rows, a row.
static void cached_query(const cached_job *job, int64_t n, int64_t h, int64_t keys, float *work)
{
    const kern_call *c = job->rows.call;
    const cpu_vec *vec = job->rows.vec;
    const latent *l = &job->l;
    const kern_tensor *w = &c->in[1], *rows = &c->in[2];
    const int64_t rank = job->rank;
    const int64_t of = h * (l->plain + l->value);
    float *p = work, *query = p + c->cache_seq, *mean = query + rank, *row = mean + rank;
    float head[ROPE_MOST], rotated[ROPE_MOST], narrow[ROPE_MOST];
    vec->cast(cpu_span_fp32(rotated), at(&c->in[0], n, h * l->dim + l->plain), l->rope);
    rotate(&job->rows, &c->in[6], tensor_int(&c->in[5], n), false, cpu_span_fp32(rotated),
           cpu_span_fp32(rotated));
    memset(query, 0, (size_t)(2 * rank) * sizeof(float));
    vec->cast(cpu_span_fp32(head), at(&c->in[0], n, h * l->dim), l->plain);
    for (int64_t j = 0; j < l->plain; j++) {
        vec->scale(cpu_span_fp32(row), at(w, of + j, 0), head[j], rank);
        vec->add(cpu_span_fp32(query), cpu_span_fp32(query), cpu_span_fp32(row), rank);
    }
    double highest = -HUGE_VAL, sum = 0.0;
    for (int64_t s = 0; s < keys; s++) {
        vec->cast(cpu_span_fp32(row), at(rows, cached_row(c, n, s), 0), rank);
        vec->cast(cpu_span_fp32(narrow), at(&c->in[3], cached_row(c, n, s), 0), l->rope);
        const double score = dot(query, row, rank) + dot(rotated, narrow, l->rope);
        p[s] = (float)(score * (double)c->attrs.scale);
        highest = (double)p[s] > highest ? (double)p[s] : highest;
    }
    for (int64_t s = 0; s < keys; s++) {
        p[s] = (float)exp((double)p[s] - highest);
        sum += (double)p[s];
    }
    for (int64_t s = 0; s < keys; s++) {
        vec->scale(cpu_span_fp32(row), at(rows, cached_row(c, n, s), 0),
                   (float)((double)p[s] / sum), rank);
        vec->add(cpu_span_fp32(mean), cpu_span_fp32(mean), cpu_span_fp32(row), rank);
    }
    for (int64_t j = 0; j < l->value; j++) {
        vec->cast(cpu_span_fp32(row), at(w, of + l->plain + j, 0), rank);
        head[j] = (float)dot(row, mean, rank);
    }
    vec->cast(at(&c->out[0], n, h * l->value), cpu_span_fp32(head), l->value);
}

static void cached_task(void *context, int64_t index, int thread)
{
    const cached_job *job = context;
    const kern_call *c = job->rows.call;
    const int64_t n = index / job->l.heads, h = index % job->l.heads;
    const int64_t length = tensor_int(&c->in[4], n / c->seq);
    // Rows before a sequence that is shorter than the call's have no keys, and become zeros.
    cached_query(job, n, h, max_i64(length - c->seq + n % c->seq + 1, 0),
                 (float *)c->workspace + thread * job->floats);
}

status cpu_latent_cached(const kern_context *context, const kern_call *call)
{
    TRY(positions_check(call, &call->in[5], &call->in[6]));
    cached_job job = {.rows = {.call = call, .vec = cpu_vec_of(context->level)},
                      .l = latent_of(call, &call->in[6]),
                      .rank = call->in[2].dims[1],
                      .floats = cached_floats(call)};
    if (job.l.dim > ROPE_MOST || job.l.value > ROPE_MOST) {
        return fail(ST_UNSUPPORTED, "backend cpu: latent_cached with heads of more than %d",
                    (int)ROPE_MOST);
    }
    for (int64_t b = 0; b < call->in[4].dims[0]; b++) {
        const int64_t length = tensor_int(&call->in[4], b);
        if (length >= 0 && length <= call->cache_seq) continue;
        return fail(ST_DATA, "latent_cached over %lld positions: sequence %lld has %lld",
                    (long long)call->cache_seq, (long long)b, (long long)length);
    }
    TRY(cpu_pages_check(call, &call->in[7], &call->in[4], call->in[2].dims[0]));
    kern_parallel(context->pool, call->in[0].dims[0] * job.l.heads, cached_task, &job);
    return ST_OK;
}
