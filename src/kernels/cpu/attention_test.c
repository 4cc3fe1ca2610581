// Attention, forward and backward, against a naive loop in double over many odd shapes, and that
// the bits of a sequence depend on nothing but the sequence.
#include "fixtures/base/test_part.h"
#include "kernels/cpu/attention.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int64_t sequences, queries, keys; // keys of a sequence; 0: the number of queries
    int64_t heads, kv_heads, dim;
    int32_t window;
    int64_t document; // length of a document; 0: none
    float dropout;
    dtype type;
    bool cached;     // k and v are caches of `keys` rows, lengths vary
    int64_t padding; // columns between rows: views
} shape;

typedef struct fixture {
    shape s;
    kern_call forward, backward;
    step_block step;
    float *q, *k, *v, *dy; // rounded to the type, contiguous
    int32_t *documents, *lengths;
    void *buffers[48];
    int buffer_count;
} fixture;

static void *buffer(fixture *f, int64_t bytes)
{
    void *p = aligned_alloc(64, (size_t)align_up(bytes + 64, 64));
    assert_non_null(p);
    memset(p, 0xff, (size_t)align_up(bytes + 64, 64));
    f->buffers[f->buffer_count++] = p;
    return p;
}

static kern_tensor matrix(fixture *f, dtype type, int64_t rows, int64_t columns, int64_t padding)
{
    const int64_t stride = columns + padding;
    return (kern_tensor){.data = buffer(f, rows * stride * dtype_bytes(type)),
                         .type = type,
                         .ndim = 2,
                         .dims = {rows, columns},
                         .strides = {stride, 1}};
}

// Fills a tensor with normal numbers; returns them as they were rounded.
static float *fill(fixture *f, kern_tensor *t, uint64_t key, double spread)
{
    float *copy = buffer(f, t->dims[0] * t->dims[1] * 4);
    for (int64_t i = 0; i < t->dims[0]; i++) {
        for (int64_t j = 0; j < t->dims[1]; j++) {
            const int64_t n = i * t->dims[1] + j, at = i * t->strides[0] + j;
            dtype_store(t->type, t->data, at, spread * (double)rng_tensor_normal(11, key, n));
            copy[n] = (float)dtype_load(t->type, t->data, at);
        }
    }
    return copy;
}

static void fixture_create(fixture *f, const shape *s, double spread)
{
    *f = (fixture){.s = *s};
    if (f->s.keys == 0) f->s.keys = s->queries;
    s = &f->s;
    const int64_t rows = s->sequences * s->queries, key_rows = s->sequences * s->keys;
    kern_call *c = &f->forward;
    c->code = OP_ATTENTION;
    c->seq = s->queries;
    c->first_sequence = 5;
    c->attrs = (op_attrs){.heads = (int32_t)s->heads,
                          .kv_heads = (int32_t)s->kv_heads,
                          .head_dim = (int32_t)s->dim,
                          .window = s->window,
                          .dropout = s->dropout,
                          .site = 9,
                          .scale = (float)(1.0 / sqrt((double)s->dim))};
    c->step = &f->step;
    f->step.host = (step_host){.step = 4, .seed = UINT64_C(0x1122334455667788)};
    c->in[0] = matrix(f, s->type, rows, s->heads * s->dim, s->padding);
    c->in[1] = matrix(f, s->type, key_rows, s->kv_heads * s->dim, s->padding);
    c->in[2] = matrix(f, s->type, key_rows, s->kv_heads * s->dim, 2 * s->padding);
    f->q = fill(f, &c->in[0], 1, spread);
    f->k = fill(f, &c->in[1], 2, spread);
    f->v = fill(f, &c->in[2], 3, 1.0);
    c->out[0] = matrix(f, s->type, rows, s->heads * s->dim, s->padding);
    c->out[1] = matrix(f, DTYPE_F32, rows, s->heads, 0);
    if (s->document > 0) {
        f->documents = buffer(f, rows * 4);
        for (int64_t i = 0; i < rows; i++) {
            f->documents[i] = (int32_t)(i % s->queries / s->document);
        }
        c->in[3] = (kern_tensor){
            .data = f->documents, .type = DTYPE_I32, .ndim = 1, .dims = {rows}, .strides = {1}};
    }
    if (s->cached) {
        c->cache_seq = s->keys;
        f->lengths = buffer(f, s->sequences * 4);
        for (int64_t b = 0; b < s->sequences; b++) {
            f->lengths[b] = (int32_t)(s->keys - b * (s->keys - s->queries) / s->sequences);
            // Keys after the length are never read.
            for (int64_t i = f->lengths[b]; i < s->keys; i++) {
                for (int64_t j = 0; j < s->kv_heads * s->dim; j++) {
                    const int64_t row = b * s->keys + i;
                    dtype_store(s->type, c->in[1].data, row * c->in[1].strides[0] + j, (double)NAN);
                    dtype_store(s->type, c->in[2].data, row * c->in[2].strides[0] + j, (double)NAN);
                }
            }
        }
        c->in[4] = (kern_tensor){.data = f->lengths,
                                 .type = DTYPE_I32,
                                 .ndim = 1,
                                 .dims = {s->sequences},
                                 .strides = {1}};
        return;
    }
    kern_call *b = &f->backward;
    *b = *c;
    b->code = OP_ATTENTION_BWD;
    b->in[0] = matrix(f, s->type, rows, s->heads * s->dim, s->padding);
    f->dy = fill(f, &b->in[0], 4, 1.0);
    for (int i = 0; i < 3; i++) b->in[1 + i] = c->in[i];
    b->in[4] = c->out[0];
    b->in[5] = c->out[1];
    b->in[6] = c->in[3];
    b->out[0] = matrix(f, s->type, rows, s->heads * s->dim, 0);
    b->out[1] = matrix(f, s->type, key_rows, s->kv_heads * s->dim, 0);
    b->out[2] = matrix(f, s->type, key_rows, s->kv_heads * s->dim, s->padding);
}

static void fixture_destroy(fixture *f)
{
    for (int i = 0; i < f->buffer_count; i++) free(f->buffers[i]);
}

static void run(fixture *f, kern_call *c, kern_level level, kern_pool *pool)
{
    const kern_context context = {.pool = pool, .level = level};
    const int threads = kern_pool_threads(pool);
    const bool is_forward = c->code == OP_ATTENTION;
    c->workspace_bytes =
        is_forward ? cpu_attention_workspace(c, threads) : cpu_attention_bwd_workspace(c, threads);
    c->workspace = buffer(f, c->workspace_bytes);
    const status st = is_forward ? cpu_attention(&context, c) : cpu_attention_bwd(&context, c);
    assert_int_equal(st, ST_OK);
    f->buffer_count--;
    free(f->buffers[f->buffer_count]);
}

// ---- the naive loop -----------------------------------------------------------------------------
// Each result has a bound on the error of bf16. A value that is rounded to bf16 is off by BF16_UNIT
// of itself at most. That applies to every result and, in bf16 leaves, to P and dS of each key, so
// the bound counts sums of absolute terms. All other terms are fp32: FP32_TERM of a term.
#define BF16_UNIT 0x1p-8
#define FP32_TERM 1e-5
typedef struct naive {
    double *y, *lse, *dq, *dk, *dv, *p;
    double *y_off, *dq_off, *dk_off, *dv_off;
} naive;

static int64_t length_of(const fixture *f, int64_t b)
{
    return f->lengths != NULL ? f->lengths[b] : f->s.keys;
}

static bool is_seen(const fixture *f, int64_t b, int64_t position, int64_t key)
{
    if (key > position) return false;
    if (f->s.window > 0 && key <= position - f->s.window) return false;
    if (f->documents == NULL) return true;
    const int32_t *documents = f->documents + b * f->s.queries;
    return documents[key] == documents[position];
}

// Sets p[key] to the probability of each key; returns the log-sum-exp.
static double naive_softmax(const fixture *f, double *p, int64_t b, int64_t t, int64_t h)
{
    const shape *s = &f->s;
    const int64_t dim = s->dim, kv = h / (s->heads / s->kv_heads), keys = length_of(f, b);
    const float *q = f->q + ((b * s->queries + t) * s->heads + h) * dim;
    double highest = -HUGE_VAL, sum = 0.0;
    for (int64_t key = 0; key < keys; key++) {
        const float *k = f->k + ((b * s->keys + key) * s->kv_heads + kv) * dim;
        p[key] = -HUGE_VAL;
        if (!is_seen(f, b, keys - s->queries + t, key)) continue;
        double dot = 0.0;
        for (int64_t d = 0; d < dim; d++) dot += (double)q[d] * (double)k[d];
        p[key] = dot * (double)f->forward.attrs.scale;
        highest = fmax(highest, p[key]);
    }
    for (int64_t key = 0; key < keys; key++) {
        p[key] = highest > -HUGE_VAL ? exp(p[key] - highest) : 0.0;
        sum += p[key];
    }
    for (int64_t key = 0; key < keys; key++) p[key] = sum > 0.0 ? p[key] / sum : 0.0;
    return highest + log(sum);
}

static double naive_keep(const fixture *f, int64_t b, int64_t t, int64_t h, int64_t key)
{
    if (!(f->s.dropout > 0.0F)) return 1.0;
    const dropout_stream stream =
        dropout_stream_of(&f->step.host, f->forward.attrs.site, (int32_t)h, 5 + b);
    const int64_t position = length_of(f, b) - f->s.queries + t;
    return (double)dropout_factor_at(&stream, position, key, f->s.dropout);
}

static double dot_of(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static void add_to(double *to, double factor, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += factor * (double)from[i];
}

static void add_off(double *to, double factor, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += factor * fabs((double)from[i]);
}

// Returns the error bound of delta: y was rounded, and made of rounded P.
static double delta_off(const fixture *f, const naive *n, int64_t at)
{
    double off = 0.0;
    for (int64_t d = at; f->dy != NULL && d < at + f->s.dim; d++) {
        off += fabs((double)f->dy[d]) * (n->y_off[d] + BF16_UNIT * fabs(n->y[d]));
    }
    return off;
}

static void naive_row(const fixture *f, naive *n, int64_t b, int64_t t, int64_t h)
{
    const shape *s = &f->s;
    const int64_t dim = s->dim, kv = h / (s->heads / s->kv_heads), keys = length_of(f, b);
    const int64_t at = ((b * s->queries + t) * s->heads + h) * dim;
    n->lse[at / dim] = naive_softmax(f, n->p, b, t, h);
    double delta = 0.0;
    for (int64_t key = 0; key < keys; key++) {
        if (n->p[key] == 0.0) continue;
        const float *v = f->v + ((b * s->keys + key) * s->kv_heads + kv) * dim;
        const double kept = n->p[key] * naive_keep(f, b, t, h, key);
        add_to(n->y + at, kept, v, dim);
        add_off(n->y_off + at, kept * (BF16_UNIT + FP32_TERM), v, dim);
        if (f->dy != NULL) delta += kept * dot_of(f->dy + at, v, dim);
    }
    const double off = delta_off(f, n, at);
    for (int64_t key = 0; f->dy != NULL && key < keys; key++) {
        if (n->p[key] == 0.0) continue;
        const int64_t to = ((b * s->keys + key) * s->kv_heads + kv) * dim;
        const double keep = naive_keep(f, b, t, h, key);
        const double dp = keep * dot_of(f->dy + at, f->v + to, dim);
        const double ds = n->p[key] * (dp - delta) * (double)f->forward.attrs.scale;
        add_to(n->dv + to, n->p[key] * keep, f->dy + at, dim);
        add_to(n->dk + to, ds, f->q + at, dim);
        add_to(n->dq + at, ds, f->k + to, dim);
        const double scale = (double)f->forward.attrs.scale;
        const double ds_off = BF16_UNIT * fabs(ds) + n->p[key] * scale * off +
                              FP32_TERM * n->p[key] * scale * (fabs(dp) + fabs(delta));
        add_off(n->dv_off + to, n->p[key] * keep * (BF16_UNIT + FP32_TERM), f->dy + at, dim);
        add_off(n->dk_off + to, ds_off, f->q + at, dim);
        add_off(n->dq_off + at, ds_off, f->k + to, dim);
    }
}

// Largest difference, relative to the largest value.
static double difference(const kern_tensor *t, const double *want)
{
    double most = 0.0, largest = 1e-30;
    for (int64_t i = 0; i < t->dims[0]; i++) {
        for (int64_t j = 0; j < t->dims[1]; j++) {
            const double x = want[i * t->dims[1] + j];
            const double got = dtype_load(t->type, t->data, i * t->strides[0] + j);
            if (isinf(x) && got == x) continue;
            largest = fmax(largest, fabs(x));
            // This form of the comparison counts a NaN.
            if (!(fabs(got - x) <= most)) most = fabs(got - x);
        }
    }
    return most / largest;
}

// Returns the largest difference, relative to the error bound of bf16.
static double difference_bf16(const kern_tensor *t, const double *want, const double *off)
{
    double most = 0.0;
    for (int64_t i = 0; i < t->dims[0] * t->dims[1]; i++) {
        const int64_t at = i / t->dims[1] * t->strides[0] + i % t->dims[1];
        const double got = dtype_load(t->type, t->data, at);
        // Rounded twice, plus squares of the unit: one part in thirty.
        const double may = 1.03 * (off[i] + BF16_UNIT * fabs(want[i])) + 1e-30;
        if (!(fabs(got - want[i]) / may <= most)) most = fabs(got - want[i]) / may;
    }
    return most;
}

static void naive_create(const fixture *f, naive *n)
{
    const shape *s = &f->s;
    const int64_t rows = s->sequences * s->queries, key_rows = s->sequences * s->keys;
    const int64_t own = rows * s->heads * s->dim, kv = key_rows * s->kv_heads * s->dim;
    const int64_t counts[] = {own, rows * s->heads, own, kv, kv, s->keys, own, own, kv, kv};
    double **const sums[] = {&n->y, &n->lse,   &n->dq,     &n->dk,     &n->dv,
                             &n->p, &n->y_off, &n->dq_off, &n->dk_off, &n->dv_off};
    for (int64_t i = 0; i < COUNT_OF(sums); i++) {
        *sums[i] = calloc((size_t)counts[i], sizeof(double));
        assert_non_null(*sums[i]);
    }
    for (int64_t i = 0; i < rows * s->heads; i++) {
        naive_row(f, n, i / s->heads / s->queries, i / s->heads % s->queries, i % s->heads);
    }
}

static void naive_destroy(naive *n)
{
    double *const sums[] = {n->y, n->lse,   n->dq,     n->dk,     n->dv,
                            n->p, n->y_off, n->dq_off, n->dk_off, n->dv_off};
    for (int64_t i = 0; i < COUNT_OF(sums); i++) free(sums[i]);
}

// Runs both directions and returns the error of each result relative to its bound. off: y, dq, dk,
// dv; lse.
static void offsets_of(fixture *f, const naive *n, kern_level level, double off[5])
{
    const dtype type = f->s.type;
    const double unit = type == DTYPE_F32 ? 1e-6 : 5e-4;
    const kern_tensor *results[] = {&f->forward.out[0], &f->backward.out[0], &f->backward.out[1],
                                    &f->backward.out[2]};
    double *const want[] = {n->y, n->dq, n->dk, n->dv};
    double *const may[] = {n->y_off, n->dq_off, n->dk_off, n->dv_off};
    run(f, &f->forward, level, NULL);
    if (!f->s.cached) run(f, &f->backward, level, NULL);
    for (int i = 0; i < 4; i++) {
        off[i] = 0.0;
        if (i > 0 && f->s.cached) continue;
        off[i] = type == DTYPE_BF16 ? difference_bf16(results[i], want[i], may[i])
                                    : difference(results[i], want[i]) / (i == 0 ? 2 : 4) / unit;
    }
    off[4] = difference(&f->forward.out[1], n->lse) / 1e-6;
}

static void check_shape(const shape *given, kern_level level, double spread)
{
    fixture f;
    naive n;
    double off[5];
    fixture_create(&f, given, spread);
    const shape *s = &f.s;
    naive_create(&f, &n);
    offsets_of(&f, &n, level, off);
    for (int i = 0; i < 5; i++) {
        if (off[i] < 1.0) continue;
        print_message(
            "%s: queries %lld keys %lld heads %lld/%lld dim %lld window %d: y %.2g dq %.2g "
            "dk %.2g dv %.2g lse %.2g of what they may be off\n",
            kern_level_name(level), (long long)s->queries, (long long)s->keys, (long long)s->heads,
            (long long)s->kv_heads, (long long)s->dim, s->window, off[0], off[1], off[2], off[3],
            off[4]);
        assert_true(false);
    }
    naive_destroy(&n);
    fixture_destroy(&f);
}

static const shape shapes[] = {
    {1, 1, 0, 1, 1, 8, 0, 0, 0.0F, DTYPE_F32, false, 0},
    {2, 7, 0, 3, 1, 5, 0, 0, 0.0F, DTYPE_F32, false, 3},
    {1, 16, 0, 2, 2, 16, 0, 0, 0.0F, DTYPE_F32, false, 0},
    {2, 65, 0, 4, 2, 24, 0, 0, 0.0F, DTYPE_F32, false, 1},
    {1, 200, 0, 2, 1, 64, 0, 0, 0.0F, DTYPE_F32, false, 0},
    {1, 150, 0, 1, 1, 130, 0, 0, 0.0F, DTYPE_F32, false, 0},
    {1, 70, 0, 1, 1, 256, 0, 0, 0.0F, DTYPE_F32, false, 0},
    {1, 150, 0, 2, 2, 20, 1, 0, 0.0F, DTYPE_F32, false, 0},
    {1, 180, 0, 2, 2, 32, 17, 0, 0.0F, DTYPE_F32, false, 0},
    {1, 180, 0, 2, 1, 32, 70, 0, 0.0F, DTYPE_F32, false, 5},
    {2, 150, 0, 2, 1, 12, 0, 37, 0.0F, DTYPE_F32, false, 0},
    {1, 150, 0, 2, 2, 12, 9, 50, 0.0F, DTYPE_F32, false, 0},
    {1, 33, 97, 2, 1, 16, 0, 0, 0.0F, DTYPE_F32, false, 0},
    {1, 130, 163, 2, 2, 16, 1, 0, 0.0F, DTYPE_F32, false, 0},
    {1, 130, 165, 2, 2, 16, 20, 0, 0.0F, DTYPE_F32, false, 0},
    {2, 90, 0, 4, 2, 16, 0, 0, 0.3F, DTYPE_F32, false, 0},
    {1, 131, 0, 2, 1, 64, 0, 0, 0.0F, DTYPE_BF16, false, 0},
    {1, 131, 0, 2, 1, 64, 0, 0, 0.0F, DTYPE_F16, false, 0},
    // Enough heads for one thread to take its largest tiles, while three take smaller ones.
    {4, 150, 0, 2, 1, 24, 0, 0, 0.0F, DTYPE_F32, false, 0},
    {4, 270, 0, 2, 2, 8, 40, 100, 0.0F, DTYPE_F32, false, 0},
    // Three tiles in a task of one thread, one tile per task with three threads: keys are packed
    // once, or three times.
    {1, 520, 0, 12, 4, 8, 130, 0, 0.0F, DTYPE_F32, false, 0},
    {3, 5, 90, 6, 2, 16, 0, 0, 0.0F, DTYPE_F32, true, 0},
    {3, 1, 90, 6, 2, 16, 0, 0, 0.0F, DTYPE_F32, true, 2},
    {2, 1, 1100, 3, 1, 40, 0, 0, 0.0F, DTYPE_BF16, true, 0},
    {2, 1, 1100, 3, 1, 33, 600, 0, 0.0F, DTYPE_F32, true, 0},
    {1, 1, 700, 2, 2, 256, 0, 0, 0.0F, DTYPE_F16, true, 0},
    // In bf16, which has its own leaves: odd lengths and heads, each mask, and all of them at once.
    {2, 7, 0, 3, 1, 5, 0, 0, 0.0F, DTYPE_BF16, false, 3},
    {1, 1, 0, 1, 1, 16, 0, 0, 0.0F, DTYPE_BF16, false, 0},
    {1, 64, 0, 2, 1, 16, 0, 0, 0.0F, DTYPE_BF16, false, 0},
    {2, 65, 0, 4, 2, 24, 0, 0, 0.0F, DTYPE_BF16, false, 1},
    {1, 301, 0, 2, 2, 64, 0, 0, 0.0F, DTYPE_BF16, false, 0},
    {1, 150, 0, 1, 1, 130, 0, 0, 0.0F, DTYPE_BF16, false, 0},
    {1, 150, 0, 1, 1, 256, 0, 0, 0.0F, DTYPE_BF16, false, 0},
    {1, 90, 0, 2, 2, 33, 1, 0, 0.0F, DTYPE_BF16, false, 0},
    {1, 290, 0, 2, 1, 80, 70, 0, 0.0F, DTYPE_BF16, false, 5},
    {2, 150, 0, 2, 1, 12, 0, 37, 0.0F, DTYPE_BF16, false, 0},
    {1, 130, 163, 2, 2, 16, 20, 0, 0.0F, DTYPE_BF16, false, 0},
    {2, 90, 0, 4, 2, 16, 0, 0, 0.3F, DTYPE_BF16, false, 0},
    {1, 275, 0, 3, 1, 48, 100, 60, 0.2F, DTYPE_BF16, false, 2},
    {3, 5, 90, 6, 2, 16, 0, 0, 0.0F, DTYPE_BF16, true, 0},
};

// Three tests run all shapes; short runs with sanitizers test each shape in one of them.
enum { AGAINST_DOUBLE, THREADS, LEVELS, WALKS };

static void test_against_double(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(shapes); i++) {
        if (part_skips(CASES_PART, i, COUNT_OF(shapes), AGAINST_DOUBLE, WALKS)) continue;
        check_shape(&shapes[i], kern_level_of_machine(), 1.0);
    }
}

// Scores above a hundred: almost one-hot rows.
static void test_peaked(void **state)
{
    (void)state;
    fixture f;
    const shape s = {1, 100, 0, 2, 1, 64, 0, 0, 0.0F, DTYPE_F32, false, 0};
    fixture_create(&f, &s, 5.0);
    run(&f, &f.forward, kern_level_of_machine(), NULL);
    run(&f, &f.backward, kern_level_of_machine(), NULL);
    for (int i = 0; i < 3; i++) {
        const kern_tensor *t = &f.backward.out[i];
        for (int64_t j = 0; j < t->dims[0] * t->strides[0]; j++) {
            assert_true(isfinite(((const float *)t->data)[j]));
        }
    }
    fixture_destroy(&f);
}

// ---- bits ---------------------------------------------------------------------------------------
static void assert_rows_equal(const kern_tensor *a, int64_t a_row, const kern_tensor *b,
                              int64_t b_row, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        const int64_t width = dtype_bytes(a->type);
        const char *pa = (const char *)a->data + (a_row + i) * a->strides[0] * width;
        const char *pb = (const char *)b->data + (b_row + i) * b->strides[0] * width;
        assert_memory_equal(pa, pb, (size_t)(a->dims[1] * width));
    }
}

static void assert_same_results(const fixture *a, int64_t a_sequence, const fixture *b,
                                int64_t b_sequence)
{
    const int64_t q = a->s.queries, k = a->s.keys;
    for (int i = 0; i < 2; i++) {
        assert_rows_equal(&a->forward.out[i], a_sequence * q, &b->forward.out[i], b_sequence * q,
                          q);
    }
    if (a->dy == NULL) return;
    for (int i = 0; i < 3; i++) {
        assert_rows_equal(&a->backward.out[i], a_sequence * (i == 0 ? q : k), &b->backward.out[i],
                          b_sequence * (i == 0 ? q : k), i == 0 ? q : k);
    }
}

static void run_both(fixture *f, kern_level level, kern_pool *pool)
{
    run(f, &f->forward, level, pool);
    if (f->dy != NULL) run(f, &f->backward, level, pool);
}

static void test_threads_change_no_bit(void **state)
{
    (void)state;
    kern_pool *pool;
    assert_int_equal(kern_pool_create(3, &pool), ST_OK);
    for (int64_t i = 0; i < COUNT_OF(shapes); i++) {
        if (part_skips(CASES_PART, i, COUNT_OF(shapes), THREADS, WALKS)) continue;
        fixture one, many;
        fixture_create(&one, &shapes[i], 1.0);
        fixture_create(&many, &shapes[i], 1.0);
        run_both(&one, kern_level_of_machine(), NULL);
        run_both(&many, kern_level_of_machine(), pool);
        for (int64_t b = 0; b < one.s.sequences; b++) assert_same_results(&one, b, &many, b);
        fixture_destroy(&one);
        fixture_destroy(&many);
    }
    kern_pool_destroy(pool);
}

static void test_levels_have_the_same_bits(void **state)
{
    (void)state;
    if (kern_level_of_machine() < KERN_AVX2) skip();
    for (int64_t i = 0; i < COUNT_OF(shapes); i++) {
        if (part_skips(CASES_PART, i, COUNT_OF(shapes), LEVELS, WALKS)) continue;
        fixture plain, vector;
        fixture_create(&plain, &shapes[i], 1.0);
        fixture_create(&vector, &shapes[i], 1.0);
        vector.forward.strict = vector.backward.strict = true;
        run_both(&plain, KERN_SCALAR, NULL);
        run_both(&vector, i % 2 == 0 ? KERN_AVX2 : kern_level_of_machine(), NULL);
        assert_same_results(&plain, 0, &vector, 0);
        fixture_destroy(&plain);
        fixture_destroy(&vector);
    }
}

// The first rows of a sequence alone, at another address, give the same bits as with the other rows
// after them: forward rows see no later row.
static void test_rows_ignore_what_follows(void **state)
{
    (void)state;
    for (int type = 0; type < 2; type++) {
        shape whole = {1, 200, 0, 2, 1, 24, 50, 0, 0.0F, DTYPE_F32, false, 0};
        if (type == 1) whole.type = DTYPE_BF16;
        shape part = whole;
        part.queries = 137;
        part.padding = 8;
        fixture a, b;
        fixture_create(&a, &whole, 1.0);
        fixture_create(&b, &part, 1.0);
        run(&a, &a.forward, kern_level_of_machine(), NULL);
        run(&b, &b.forward, kern_level_of_machine(), NULL);
        assert_rows_equal(&a.forward.out[0], 0, &b.forward.out[0], 0, 137);
        fixture_destroy(&a);
        fixture_destroy(&b);
    }
}

// ---- pieces of sequences ------------------------------------------------------------------------
// Context parallelism: `whole` has all queries, and the backward results of each shard of them.
enum { CP_SHARDS = 4, CP_SEQ = 240 };
typedef struct pieces {
    fixture whole;
    kern_tensor dq, dk[CP_SHARDS], dv[CP_SHARDS];
} pieces;

static void rows_copy(const kern_tensor *to, int64_t row, const kern_tensor *from, int64_t from_row,
                      int64_t rows)
{
    const int64_t width = to->dims[1] * dtype_bytes(to->type);
    for (int64_t i = 0; i < rows; i++) {
        memcpy((char *)to->data + (row + i) * width, (char *)from->data + (from_row + i) * width,
               (size_t)width);
    }
}

static int64_t gathered_row(int64_t ways, int64_t row)
{
    int64_t run = 0;
    return row / CP_SEQ * CP_SEQ + zigzag_row(ways, 1, CP_SEQ, row % CP_SEQ, &run);
}

// Makes the queries of rank `at` of `ways` and the keys of all ranks, in the order of that rank.
static void piece_create(fixture *f, const fixture *whole, int32_t ways, int32_t at)
{
    shape s = whole->s;
    s.queries = CP_SEQ / ways;
    fixture_create(f, &s, 1.0);
    for (int64_t i = 0; i < s.sequences * s.queries; i++) {
        const int64_t position = zigzag_position(ways, 1, at, s.queries, i % s.queries);
        const int64_t row = i / s.queries * CP_SEQ + position;
        rows_copy(&f->forward.in[0], i, &whole->forward.in[0], row, 1);
        rows_copy(&f->backward.in[0], i, &whole->backward.in[0], row, 1);
    }
    for (int64_t row = 0; row < s.sequences * CP_SEQ; row++) {
        for (int k = 1; k <= 2; k++) {
            rows_copy(&f->forward.in[k], gathered_row(ways, row), &whole->forward.in[k], row, 1);
        }
    }
    kern_call *calls[] = {&f->forward, &f->backward};
    for (int i = 0; i < 2; i++) {
        calls[i]->in[i == 0 ? 3 : 6] = whole->forward.in[3];
        calls[i]->piece.cp_ways = ways;
        calls[i]->piece.cp_at = at;
    }
}

static void forward_is_same(const fixture *f, const fixture *whole, int32_t ways, int32_t at)
{
    for (int64_t i = 0; i < f->s.sequences * f->s.queries; i++) {
        const int64_t position = zigzag_position(ways, 1, at, f->s.queries, i % f->s.queries);
        const int64_t row = i / f->s.queries * CP_SEQ + position;
        for (int k = 0; k < 2; k++) {
            assert_rows_equal(&f->forward.out[k], i, &whole->forward.out[k], row, 1);
        }
    }
}

// Runs the backward of the queries of one shard and stores the results, or compares them with the
// stored ones.
static void shard_backward(pieces *p, fixture *f, int32_t ways, int32_t at, int32_t shard)
{
    zigzag_run runs[2];
    const int64_t queries = f->s.queries, keys = f->s.sequences * CP_SEQ;
    f->backward.piece.shards = CP_SHARDS;
    f->backward.piece.first_shard = shard;
    run(f, &f->backward, kern_level_of_machine(), NULL);
    zigzag_shard(ways, at, queries, CP_SHARDS, shard, runs);
    for (int64_t b = 0; b < f->s.sequences; b++) {
        for (int i = 0; i < 2; i++) {
            const int64_t row = b * queries + runs[i].row, to = b * CP_SEQ + runs[i].position;
            if (ways == 1) rows_copy(&p->dq, to, &f->backward.out[0], row, runs[i].count);
            assert_rows_equal(&f->backward.out[0], row, &p->dq, to, runs[i].count);
        }
    }
    for (int64_t row = 0; row < keys; row++) {
        const int64_t from = gathered_row(ways, row);
        if (ways == 1) rows_copy(&p->dk[shard], row, &f->backward.out[1], from, 1);
        if (ways == 1) rows_copy(&p->dv[shard], row, &f->backward.out[2], from, 1);
        assert_rows_equal(&f->backward.out[1], from, &p->dk[shard], row, 1);
        assert_rows_equal(&f->backward.out[2], from, &p->dv[shard], row, 1);
    }
}

// The sum of all shards' terms is the gradient of the whole.
static void terms_add_up(const kern_tensor *whole, const kern_tensor *terms)
{
    const int64_t count = whole->dims[0] * whole->dims[1];
    for (int64_t i = 0; i < count; i++) {
        double sum = 0.0, most = fabs(dtype_load(whole->type, whole->data, i));
        for (int s = 0; s < CP_SHARDS; s++) {
            const double term = dtype_load(whole->type, terms[s].data, i);
            sum += term;
            most += fabs(term);
        }
        const double may = whole->type == DTYPE_F32 ? 1e-4 : BF16_UNIT * most + 1e-4;
        assert_true(fabs(sum - dtype_load(whole->type, whole->data, i)) < may);
    }
}

static const shape pieces_of[] = {
    {2, CP_SEQ, CP_SEQ, 4, 2, 24, 0, 0, 0.0F, DTYPE_F32, false, 0},
    {1, CP_SEQ, CP_SEQ, 2, 2, 16, 50, 0, 0.2F, DTYPE_F32, false, 0},
    {2, CP_SEQ, CP_SEQ, 2, 1, 40, 0, 37, 0.0F, DTYPE_F32, false, 0},
    {1, CP_SEQ, CP_SEQ, 2, 1, 136, 100, 70, 0.0F, DTYPE_F32, false, 0},
    {2, CP_SEQ, CP_SEQ, 2, 1, 40, 0, 37, 0.0F, DTYPE_BF16, false, 0},
    {1, CP_SEQ, CP_SEQ, 2, 2, 16, 50, 0, 0.2F, DTYPE_BF16, false, 0},
};

static void test_pieces_have_the_bits_of_the_whole(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(pieces_of); i++) {
        pieces p;
        fixture *w = &p.whole;
        fixture_create(w, &pieces_of[i], 1.0);
        run_both(w, kern_level_of_machine(), NULL);
        const int64_t rows = w->s.sequences * CP_SEQ;
        p.dq = matrix(w, w->s.type, rows, w->s.heads * w->s.dim, 0);
        for (int s = 0; s < CP_SHARDS; s++) {
            p.dk[s] = matrix(w, w->s.type, rows, w->s.kv_heads * w->s.dim, 0);
            p.dv[s] = matrix(w, w->s.type, rows, w->s.kv_heads * w->s.dim, 0);
        }
        for (int32_t ways = 1; ways <= CP_SHARDS; ways *= 2) {
            for (int32_t at = 0; at < ways; at++) {
                fixture f;
                piece_create(&f, w, ways, at);
                run(&f, &f.forward, kern_level_of_machine(), NULL);
                forward_is_same(&f, w, ways, at);
                for (int32_t s = 0; s < CP_SHARDS / ways; s++) {
                    shard_backward(&p, &f, ways, at, at * (CP_SHARDS / ways) + s);
                }
                fixture_destroy(&f);
            }
        }
        terms_add_up(&w->backward.out[1], p.dk);
        terms_add_up(&w->backward.out[2], p.dv);
        fixture_destroy(w);
    }
}

// ---- rings --------------------------------------------------------------------------------------
// The queries of rank 1 against the keys of each rank, in bf16 leaves and in fp32: pieces of 37
// rows, so that runs of keys begin at odd addresses.
static void test_rings_in_bf16(void **state)
{
    (void)state;
    const shape s = {2, 4 * 37, 0, 4, 2, 40, 90, 0, 0.0F, DTYPE_BF16, false, 0};
    for (int32_t key_at = 0; key_at < 3; key_at++) {
        fixture f[2];
        for (int i = 0; i < 2; i++) {
            fixture_create(&f[i], &s, 1.0);
            kern_call *calls[] = {&f[i].forward, &f[i].backward};
            for (int k = 0; k < 2; k++) {
                calls[k]->strict = i == 1;
                calls[k]->piece.ring = true;
                calls[k]->piece.cp_ways = 3;
                calls[k]->piece.cp_turns = 2;
                calls[k]->piece.cp_at = 1;
                calls[k]->piece.key_at = key_at;
            }
            run_both(&f[i], kern_level_of_machine(), NULL);
        }
        const kern_tensor *got[] = {&f[0].forward.out[0], &f[0].backward.out[0],
                                    &f[0].backward.out[1], &f[0].backward.out[2],
                                    &f[0].forward.out[1]};
        const kern_tensor *want[] = {&f[1].forward.out[0], &f[1].backward.out[0],
                                     &f[1].backward.out[1], &f[1].backward.out[2],
                                     &f[1].forward.out[1]};
        for (int r = 0; r < 5; r++) {
            double *values = calloc((size_t)(want[r]->dims[0] * want[r]->dims[1]), sizeof(double));
            for (int64_t i = 0; i < want[r]->dims[0] * want[r]->dims[1]; i++) {
                const int64_t at =
                    i / want[r]->dims[1] * want[r]->strides[0] + i % want[r]->dims[1];
                values[i] = dtype_load(want[r]->type, want[r]->data, at);
            }
            assert_true(difference(got[r], values) < (r == 4 ? 1e-6 : 4 * BF16_UNIT));
            free(values);
        }
        for (int i = 0; i < 2; i++) fixture_destroy(&f[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_double),
        cmocka_unit_test(test_peaked),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_levels_have_the_same_bits),
        cmocka_unit_test(test_rows_ignore_what_follows),
        cmocka_unit_test(test_pieces_have_the_bits_of_the_whole),
        cmocka_unit_test(test_rings_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
