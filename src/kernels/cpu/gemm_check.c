// Checked products (sdc.abft): checksums of rows, after Huang & Abraham 1984,
// doi:10.1109/TC.1984.1676475.
//
//     sum over j of C(i, j)   =   sum over k of A(i, k) s(k)  +  sum over j of C0(i, j)
//     s(k) = sum over j of B(k, j)
//
// The right side is computed in double before the product: a pass over B, one over A, and one over
// C if the product continues from it. The left side is summed from the finished values in fp32,
// while they are in a cache, before an epilogue changes them and before they are rounded to the
// type of C. So a check adds O(mk + kn + mn) to O(mnk), and no bit of the result changes.
//
// The sides differ by the rounding of the product. With u = 2^-24, K steps of one rounding each and
// M = |A(i)| |B| + |C0(i)| (2-norms of a row and, of B, of the whole matrix):
//
//     hard   K u / (1 - K u) sqrt(n) M     no sum of fp32 in any order is further off (Higham 2002,
//                                          Accuracy and Stability, section 3.1, with
//                                          Cauchy-Schwarz for the sum of magnitudes)
//     soft   4 u sqrt(K) M                 the errors form a martingale whose steps are at most u
//                                          times a partial sum, and by Cauchy-Schwarz and Minkowski
//                                          the root of the sum of their squares is at most
//                                          sqrt(K) M (Higham & Mary 2019, doi:10.1137/18M1226312)
//
// The soft limit is hundreds of times lower, but equal numbers may exceed it, because their errors
// are equal too. So a row beyond it is no alarm: the product is computed again, from a copy of C0
// if it continues from C.
//
//     the sum agrees now, and differs from before      a fault that has passed: repaired
//     the sum is the same as before, below `hard`      rounding; the result stands
//     otherwise                                        the processor is broken: ST_CORRUPT
//
// A product gives the same bits whenever it is computed, so the first case is never a false alarm,
// nor is the last one. Rows whose M is not finite or so large that fp32 may overflow are not
// compared. Units for bf16 may take subnormals as zeros, which `least` allows for.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/gemm_job.h"
#include "kernels/cpu/vec_kernels.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum {
    LANES = 16,    // doubles of the widest vector, to a multiple of which arrays are padded
    PIECE = 512,   // elements that are rounded at a time
    K_BLOCK = 512, // of a task
    ROWS = 64,     // of a task
    SLACK = 64,    // roundings beyond K: sums of blocks of k
};
static const double unit_roundoff = 0x1p-24, soft_factor = 4.0, same_part = 1e-3;

typedef struct checking {
    const gemm_args *g;
    const gemm_check *c;
    const cpu_vec *vec;
    bool rounds;
    double *s, *squares_b;                    // [k]
    double *expected, *squares_a, *squares_c; // [m]
    double *before;                           // [m] errors of the first try
    char *copy;                               // of C, row by row
    double norm_b;
} checking;

static int64_t padded(int64_t n)
{
    return align_up(n, LANES);
}

int64_t gemm_check_bytes(int64_t m, int64_t n, int64_t k, dtype c_type, bool adds)
{
    const int64_t doubles = 2 * padded(k) + 5 * padded(m);
    const int64_t bytes = doubles * (int64_t)sizeof(double);
    return bytes + (adds ? align_up(m * n * dtype_bytes(c_type), ALIGN_TENSOR) : 0);
}

gemm_check gemm_check_part(gemm_check *rest, int64_t bytes)
{
    gemm_check c = *rest;
    if (c.all == NULL) return c;
    bytes = align_up(bytes, ALIGN_TENSOR);
    ASSERT(rest->bytes >= bytes);
    c.bytes = bytes;
    rest->space += bytes;
    rest->bytes -= bytes;
    return c;
}

gemm_check gemm_check_of(const kern_context *context, const kern_call *call)
{
    gemm_check c = {.call = call, .level = context->level, .flip_row = -1};
    if (context->checks == NULL || call->workspace == NULL) return c;
    const int64_t plain = align_up(kern_workspace_plain(context, call), ALIGN_TENSOR);
    ASSERT(call->workspace_bytes >= plain);
    c.all = context->checks;
    c.space = (char *)call->workspace + plain;
    c.bytes = call->workspace_bytes - plain;
    return c;
}

static checking checking_of(const kern_context *context, const gemm_args *g, bool rounds)
{
    double *at = (void *)g->check->space;
    const int64_t k = padded(g->k), m = padded(g->m);
    ASSERT(g->check->bytes >= gemm_check_bytes(g->m, g->n, g->k, g->c_type, g->accumulate));
    const checking w = {.g = g,
                        .c = g->check,
                        .vec = cpu_vec_of(context->level),
                        .rounds = rounds,
                        .s = at,
                        .squares_b = at + k,
                        .expected = at + 2 * k,
                        .squares_a = at + 2 * k + m,
                        .squares_c = at + 2 * k + 2 * m,
                        .before = at + 2 * k + 3 * m,
                        .copy = (char *)(at + 2 * k + 5 * m)};
    g->check->row_sums = at + 2 * k + 4 * m;
    return w;
}

// ---- finished sums ------------------------------------------------------------------------------

static void sum_add(void *sums, int64_t i, double x)
{
    _Atomic(uint64_t) *at = (_Atomic(uint64_t) *)sums + i;
    uint64_t old = atomic_load_explicit(at, memory_order_relaxed), made;
    do {
        double value;
        memcpy(&value, &old, sizeof(value));
        value += x;
        memcpy(&made, &value, sizeof(made));
    } while (!atomic_compare_exchange_weak_explicit(at, &old, made, memory_order_relaxed,
                                                    memory_order_relaxed));
}

void gemm_check_row(const gemm_check *c, float *values, int64_t i, int64_t j, int64_t count)
{
    if (i == c->flip_row && c->flip_column >= j && c->flip_column < j + count) {
        uint32_t bits;
        memcpy(&bits, &values[c->flip_column - j], sizeof(bits));
        bits ^= 1u << c->flip_bit;
        memcpy(&values[c->flip_column - j], &bits, sizeof(bits));
    }
    if (c->sums) sum_add(c->row_sums, i, cpu_vec_of(c->level)->check_sum(values, count));
}

// ---- the other side -----------------------------------------------------------------------------

// Elements [first, first + count) of a line of a matrix, which are contiguous, rounded like those
// that the product takes.
static cpu_span line_of(const checking *w, const gemm_matrix *m, int64_t at, int64_t count,
                        uint16_t rounded[PIECE])
{
    const cpu_span all = {.at = (void *)(uintptr_t)m->data, .type = m->type};
    const cpu_span line = cpu_span_offset(all, at);
    if (!w->rounds || m->type != DTYPE_F32) return line;
    const cpu_span narrow = {.at = rounded, .type = DTYPE_BF16};
    w->vec->cast(narrow, line, count);
    return narrow;
}

static void line_dot(const checking *w, const gemm_matrix *m, int64_t at, const double *factors,
                     int64_t count, double out[2])
{
    uint16_t rounded[PIECE];
    out[0] = out[1] = 0.0;
    for (int64_t i = 0; i < count; i += PIECE) {
        const int64_t some = min_i64(PIECE, count - i);
        w->vec->check_dot(line_of(w, m, at + i, some, rounded),
                          factors != NULL ? factors + i : NULL, some, out);
    }
}

// Sums of the rows of B, some of them.
static void b_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const checking *w = context;
    const gemm_matrix *b = &w->g->b;
    const int64_t k = index * K_BLOCK, count = min_i64(K_BLOCK, w->g->k - k);
    uint16_t rounded[PIECE];
    if (b->row_stride != 1) {
        for (int64_t i = k; i < k + count; i++) {
            double out[2];
            line_dot(w, b, i * b->row_stride, NULL, w->g->n, out);
            w->s[i] = out[0];
            w->squares_b[i] = out[1];
        }
        return;
    }
    for (int64_t j = 0; j < w->g->n; j++) {
        const cpu_span line = line_of(w, b, k + j * b->column_stride, count, rounded);
        w->squares_b[k] += w->vec->check_columns(line, count, w->s + k);
    }
}

static void c_row(const checking *w, int64_t i)
{
    const gemm_args *g = w->g;
    const int64_t width = dtype_bytes(g->c_type);
    const gemm_matrix c = gemm_rows(gemm_c_at(g, i, 0), g->c_type, g->ldc);
    const checking whole = {.vec = w->vec}; // C is not rounded
    double out[2];
    line_dot(&whole, &c, 0, NULL, g->n, out);
    w->expected[i] += out[0];
    w->squares_c[i] = out[1];
    memcpy(w->copy + i * g->n * width, c.data, (size_t)(g->n * width));
}

static void a_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const checking *w = context;
    const gemm_matrix *a = &w->g->a;
    const int64_t i0 = index * ROWS, count = min_i64(ROWS, w->g->m - i0);
    uint16_t rounded[PIECE];
    for (int64_t i = i0; i < i0 + count && a->row_stride != 1; i++) {
        double out[2];
        line_dot(w, a, i * a->row_stride, w->s, w->g->k, out);
        w->expected[i] = out[0];
        w->squares_a[i] = out[1];
    }
    for (int64_t k = 0; k < w->g->k && a->row_stride == 1; k++) {
        const cpu_span line = line_of(w, a, i0 + k * a->column_stride, count, rounded);
        w->vec->check_add(line, w->s[k], count, w->expected + i0, w->squares_a + i0);
    }
    for (int64_t i = i0; i < i0 + count && w->g->accumulate; i++) c_row(w, i);
}

// Whether the sums of B are there from the product before.
static bool has_sums_of_b(const gemm_check *c, const gemm_args *g)
{
    return c->keeps_b && c->b.data == g->b.data && c->b.row_stride == g->b.row_stride &&
           c->b.column_stride == g->b.column_stride && c->n == g->n && c->k == g->k;
}

static void sums_of_b(kern_pool *pool, checking *w)
{
    const gemm_args *g = w->g;
    gemm_check *c = g->check;
    double squares = 0.0;
    memset(w->s, 0, 2 * (size_t)padded(g->k) * sizeof(double));
    kern_parallel(pool, (g->k + K_BLOCK - 1) / K_BLOCK, b_task, w);
    for (int64_t k = 0; k < g->k; k++) squares += w->squares_b[k];
    c->norm_b = sqrt(squares);
    c->b = g->b;
    c->n = g->n;
    c->k = g->k;
}

static void expect(kern_pool *pool, checking *w)
{
    const gemm_args *g = w->g;
    ASSERT(g->a.row_stride == 1 || g->a.column_stride == 1);
    ASSERT(g->b.row_stride == 1 || g->b.column_stride == 1);
    if (!has_sums_of_b(g->check, g)) sums_of_b(pool, w);
    w->norm_b = g->check->norm_b;
    memset(w->expected, 0, 5 * (size_t)padded(g->m) * sizeof(double));
    kern_parallel(pool, (g->m + ROWS - 1) / ROWS, a_task, w);
}

// ---- comparing ----------------------------------------------------------------------------------

typedef struct limits {
    double soft, hard;
    bool is_known;
} limits;

static limits limits_of(const checking *w, int64_t i)
{
    const double k = (double)(w->g->k + SLACK), n = (double)w->g->n;
    const double norm_a = sqrt(w->squares_a[i]);
    const double most = norm_a * w->norm_b + sqrt(w->squares_c[i]);
    const double steps = k * unit_roundoff;
    const double hard = steps < 1.0 ? steps / (1.0 - steps) * sqrt(n) * most : HUGE_VAL;
    const double soft = fmin(hard, soft_factor * unit_roundoff * sqrt(k) * most);
    // Both limits allow for sums in double, and for numbers below the smallest normal one.
    const double here = (k + n) * DBL_EPSILON * sqrt(n) * most;
    const double least = (double)FLT_MIN * (n * sqrt(k) * norm_a + sqrt(n * k) * w->norm_b + n * k);
    return (limits){.soft = soft + here + least,
                    .hard = hard + here + least,
                    .is_known = most < (double)FLT_MAX / 4.0};
}

static double error_of(const checking *w, int64_t i)
{
    double sum;
    memcpy(&sum, (const char *)w->c->row_sums + i * (int64_t)sizeof(sum), sizeof(sum));
    return sum - w->expected[i];
}

static bool is_within(double error, double limit)
{
    return fabs(error) <= limit; // not a NaN
}

// Whether both tries gave the same row: sums in double differ by their order alone.
static bool is_same(double a, double b, double soft)
{
    if (!isfinite(a) || !isfinite(b)) return !isfinite(a) && !isfinite(b);
    return fabs(a - b) <= same_part * soft + 0x1p-30 * fabs(a);
}

// Keeps the errors of all rows. True: some row is beyond its soft limit.
static bool is_suspect(const checking *w)
{
    bool any = false;
    for (int64_t i = 0; i < w->g->m; i++) {
        const limits l = limits_of(w, i);
        w->before[i] = error_of(w, i);
        any = any || (l.is_known && !is_within(w->before[i], l.soft));
    }
    return any;
}

// Compares the second try with the first one.
static void tries_compare(const checking *w)
{
    const kern_call *call = w->c->call;
    kern_hit hit = {.code = call->code,
                    .layer = call->layer,
                    .microbatch = call->microbatch,
                    .step = call->step_no,
                    .rows = w->g->m};
    bool repaired = false;
    for (int64_t i = 0; i < w->g->m; i++) {
        const limits l = limits_of(w, i);
        const double before = w->before[i], now = error_of(w, i);
        if (!l.is_known || (is_within(before, l.soft) && is_within(now, l.soft))) continue;
        const bool same = is_same(before, now, l.soft);
        if (same && is_within(now, l.hard)) continue;
        const bool passed = !same && is_within(now, l.soft);
        if (passed && repaired) continue;
        hit.row = i;
        hit.off = passed ? before : now;
        hit.limit = same ? l.hard : l.soft;
        if (!passed) {
            kern_checks_failed(w->c->all, &hit);
            return;
        }
        repaired = true;
    }
    if (repaired) kern_checks_repaired(w->c->all, &hit);
}

// ---- running ------------------------------------------------------------------------------------

static void c_restore(void *context, int64_t i, int thread)
{
    (void)thread;
    const checking *w = context;
    const gemm_args *g = w->g;
    const int64_t bytes = g->n * dtype_bytes(g->c_type);
    memcpy(gemm_c_at(g, i, 0), w->copy + i * bytes, (size_t)bytes);
}

static void try_once(const kern_context *context, const gemm_args *g)
{
    gemm_check *c = g->check;
    uint64_t where = 0;
    c->flip_row = -1;
    if (kern_checks_flips(c->all, &where)) {
        c->flip_row = (int64_t)((where >> 40) % (uint64_t)g->m);
        c->flip_column = (int64_t)((where >> 16 & 0xFFFFFF) % (uint64_t)g->n);
        c->flip_bit = (uint32_t)(where % 32);
    }
    if (c->sums) memset(c->row_sums, 0, (size_t)g->m * sizeof(double));
    gemm_args plain = *g;
    if (!c->sums && c->flip_row < 0) plain.check = NULL;
    gemm_run_once(context, &plain);
}

void gemm_run_checked(const kern_context *context, const gemm_args *g, bool rounds)
{
    gemm_check *c = g->check;
    c->sums = kern_checks_draw(c->all);
    if (!c->sums) {
        try_once(context, g);
        return;
    }
    checking w = checking_of(context, g, rounds);
    expect(context->pool, &w);
    try_once(context, g);
    if (!is_suspect(&w)) return;
    kern_checks_repeated(c->all);
    if (g->accumulate) kern_parallel(context->pool, g->m, c_restore, &w);
    try_once(context, g);
    tries_compare(&w);
}
