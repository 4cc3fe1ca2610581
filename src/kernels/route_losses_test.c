// The losses of routers against their definitions: central differences in double of
//   sum over rows of aux * E * sum over e of (share of rows that take e) (mean of p_e) + z * lse^2
// where the shares are constants, as the gradients of ROUTE_BWD that no expert's weight adds to.
// The sums of STEP_ROUTES are these losses, its counts those of ids; BALANCE follows the counts.
#include "fixtures/kernels/tensor_fixture.h"
#include "kernels/kernels_internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { SEQS = 2, SEQ = 5, ROWS = SEQS * SEQ, EXPERTS = 6, TAKEN = 2, LAYER = 1, LAYERS = 3 };
enum { WORDS = LAYERS * (EXPERTS + LOAD_WORDS) };
typedef enum scope { OF_SEQUENCE, OF_CALL, OF_BATCH, SCOPES } scope;

typedef struct router {
    double logits[ROWS * EXPERTS], d[ROWS * EXPERTS], zeros[ROWS * TAKEN];
    int32_t ids[ROWS * TAKEN];
    step_block step;
    int64_t loads[2 * WORDS];
    kern_call call;
} router;

static kern_tensor matrix(dtype type, void *data, int64_t rows, int64_t columns)
{
    return (kern_tensor){
        .data = data, .type = type, .ndim = 2, .dims = {rows, columns}, .strides = {columns, 1}};
}

static void router_make(router *r, bool sigmoid, scope of, bool skewed)
{
    memset(r, 0, sizeof(*r));
    for (int i = 0; i < ROWS * EXPERTS; i++) r->logits[i] = 2.0 * test_uniform(5, 1, i);
    for (int n = 0; n < ROWS; n++) { // expert 0 takes no row, or every row
        for (int t = 0; t < TAKEN; t++) r->ids[n * TAKEN + t] = skewed ? t : 1 + (n + 2 * t) % 5;
    }
    r->step.device.loss_scale = 4.0;
    r->call = (kern_call){.code = OP_ROUTE_BWD, .seq = SEQ, .loss_divisor = 8.0, .step = &r->step};
    r->call.layer = LAYER;
    r->call.attrs = (op_attrs){.top_k = TAKEN,
                               .experts = EXPERTS,
                               .load_layers = LAYERS,
                               .sigmoid = sigmoid,
                               .aux_loss = 0.3f,
                               .aux_micro = of == OF_CALL,
                               .aux_batch = of == OF_BATCH,
                               .z_loss = 0.05f};
    int64_t *before = step_loads(&r->step, LAYERS, EXPERTS, LAYER, true);
    for (int e = 0; e < EXPERTS; e++) before[e] = skewed ? 30 * (e == 2) : 3 + e;
    before[EXPERTS + LOAD_TOKENS] = skewed ? 15 : 17;
    r->call.in[0] = matrix(DTYPE_F64, r->zeros, ROWS, TAKEN);
    r->call.in[1] = matrix(DTYPE_F64, r->logits, ROWS, EXPERTS);
    r->call.in[2] = matrix(DTYPE_I32, r->ids, ROWS, TAKEN);
    r->call.in[3] = matrix(DTYPE_F64, r->zeros, ROWS, TAKEN);
    r->call.out[0] = matrix(DTYPE_F64, r->d, ROWS, EXPERTS);
}

static void scores(const router *r, int64_t n, double *p, double *lse)
{
    double sum = 0.0, all = 0.0;
    for (int e = 0; e < EXPERTS; e++) sum += exp(r->logits[n * EXPERTS + e]);
    *lse = log(sum);
    for (int e = 0; e < EXPERTS; e++) {
        const double x = r->logits[n * EXPERTS + e];
        p[e] = r->call.attrs.sigmoid ? 1.0 / (1.0 + exp(-x)) : exp(x) / sum;
        all += p[e];
    }
    for (int e = 0; e < EXPERTS; e++) p[e] /= all;
}

// The loss of all rows, before it is scaled.
static double loss(router *r)
{
    const int64_t *before = step_loads(&r->step, LAYERS, EXPERTS, LAYER, true);
    const int64_t rows = r->call.attrs.aux_micro ? ROWS : SEQ;
    double total = 0.0;
    for (int64_t first = 0; first < ROWS; first += rows) {
        double taken[EXPERTS] = {0.0}, mean[EXPERTS] = {0.0}, balance = 0.0;
        for (int64_t n = first; n < first + rows; n++) {
            double p[EXPERTS], lse = 0.0;
            scores(r, n, p, &lse);
            for (int e = 0; e < EXPERTS; e++) mean[e] += p[e] / (double)rows;
            for (int t = 0; t < TAKEN; t++) taken[r->ids[n * TAKEN + t]] += 1.0 / (double)rows;
            total += (double)r->call.attrs.z_loss * lse * lse;
        }
        for (int e = 0; e < EXPERTS && r->call.attrs.aux_batch; e++) {
            taken[e] = (double)before[e] / (double)before[EXPERTS + LOAD_TOKENS];
        }
        for (int e = 0; e < EXPERTS; e++) balance += EXPERTS * taken[e] * mean[e];
        total += (double)rows * (double)r->call.attrs.aux_loss * balance;
    }
    return total;
}

static void gradients_are_slopes(bool sigmoid, scope of, bool skewed)
{
    static router r;
    const kern_context ref = {.backend = &kern_backend_ref};
    router_make(&r, sigmoid, of, skewed);
    assert_int_equal(kern_run(&ref, &r.call), ST_OK);
    for (int i = 0; i < ROWS * EXPERTS; i++) {
        const double step = 1e-5, x = r.logits[i];
        r.logits[i] = x + step;
        const double above = loss(&r);
        r.logits[i] = x - step;
        const double below = loss(&r);
        r.logits[i] = x;
        const double want = 4.0 / 8.0 * (above - below) / (2.0 * step);
        if (fabs(r.d[i] - want) > 1e-8)
            fail_msg("logit %d: %.10g, expected %.10g", i, r.d[i], want);
    }
}

static void softmax_and_sigmoids(void **state)
{
    (void)state;
    for (int of = 0; of < SCOPES; of++) {
        for (int i = 0; i < 4; i++) gradients_are_slopes((i & 1) != 0, (scope)of, (i & 2) != 0);
    }
}

// The sums of both backends against the definition, and the counts against the ids.
static void routes_are_counted(void **state)
{
    (void)state;
    static router r;
    const kern_backend *const backends[] = {&kern_backend_ref, &kern_backend_cpu};
    for (int i = 0; i < 2 * 2 * SCOPES; i++) {
        const kern_context kernels = {.backend = backends[i & 1]};
        router_make(&r, (i & 2) != 0, (scope)(i / 4), i % 3 == 0);
        float logits[ROWS * EXPERTS];
        int32_t kept[ROWS * TAKEN];
        for (int k = 0; k < ROWS * EXPERTS; k++) {
            logits[k] = (float)r.logits[k];
            r.logits[k] = (double)logits[k];
        }
        memcpy(kept, r.ids, sizeof(kept));
        kept[3] = kept[7] = -1;
        kern_call call = r.call;
        memset(call.in, 0, sizeof(call.in));
        call.code = OP_STEP_ROUTES;
        call.in[0] = matrix(DTYPE_I32, r.ids, ROWS, TAKEN);
        call.in[1] = matrix(DTYPE_I32, kept, ROWS, TAKEN);
        call.in[2] = matrix(DTYPE_F32, logits, ROWS, EXPERTS);
        call.out[0] = (kern_tensor){.data = &r.step, .type = DTYPE_U8, .ndim = 1};
        call.out[0].dims[0] = call.out[0].strides[0] = 1;
        for (int twice = 0; twice < 2; twice++) assert_int_equal(kern_run(&kernels, &call), ST_OK);
        const int64_t *row = step_loads(&r.step, LAYERS, EXPERTS, LAYER, false);
        for (int e = 0; e < EXPERTS; e++) {
            int64_t want = 0;
            for (int k = 0; k < ROWS * TAKEN; k++) want += 2 * (r.ids[k] == e);
            assert_int_equal(row[e], want);
        }
        assert_int_equal(row[EXPERTS + LOAD_TOKENS], 2 * ROWS);
        assert_int_equal(row[EXPERTS + LOAD_DROPPED], 4);
        const double unit = ldexp(1.0, -LOAD_UNIT_BITS);
        const double got = unit * ((double)row[EXPERTS + LOAD_AUX] * (double)0.3f +
                                   (double)row[EXPERTS + LOAD_Z] * (double)0.05f);
        assert_true(fabs(got - 2.0 * loss(&r)) < 1e-4 * got);
        for (int k = 0; k < WORDS; k++) { // no other layer has any
            const bool own = k / (EXPERTS + LOAD_WORDS) == LAYER;
            if (!own) assert_int_equal(r.loads[k], 0);
        }
    }
}

// The gradients of logits alone, in fp32. whole: the choices of all rows, or NULL.
static void run_fp32(const kern_context *kernels, const router *r, const float *logits,
                     const int32_t *ids, int64_t rows, int64_t seq, int32_t *whole, float *d)
{
    static float zeros[ROWS * TAKEN];
    kern_call call = r->call;
    call.seq = seq;
    call.in[0] = call.in[3] = matrix(DTYPE_F32, zeros, rows, TAKEN);
    call.in[1] = matrix(DTYPE_F32, (void *)(uintptr_t)logits, rows, EXPERTS);
    call.in[2] = matrix(DTYPE_I32, (void *)(uintptr_t)ids, rows, TAKEN);
    if (whole != NULL) call.in[4] = matrix(DTYPE_I32, whole, ROWS, TAKEN);
    call.out[0] = matrix(DTYPE_F32, d, rows, EXPERTS);
    assert_int_equal(kern_run(kernels, &call), ST_OK);
}

// Ranks with the first rows and with the others of each sequence, and the choices of all, in
// another order within a sequence: the gradients are those of whole sequences, to the bit.
static void pieces_are_rows_of_the_whole(void **state)
{
    (void)state;
    static router r;
    const kern_backend *const backends[] = {&kern_backend_ref, &kern_backend_cpu};
    const int sizes[] = {2, SEQ - 2};
    for (int i = 0; i < 2 * 2 * 2; i++) {
        const kern_context kernels = {.backend = backends[i & 1]};
        float logits[ROWS * EXPERTS], want[ROWS * EXPERTS];
        int32_t choices[ROWS * TAKEN];
        router_make(&r, (i & 2) != 0, (scope)(i / 4), false);
        for (int k = 0; k < ROWS * EXPERTS; k++) logits[k] = (float)r.logits[k];
        for (int n = 0; n < ROWS; n++) {
            const int to = n / SEQ * SEQ + (n + 3) % SEQ;
            memcpy(choices + to * TAKEN, r.ids + n * TAKEN, TAKEN * sizeof(*choices));
        }
        run_fp32(&kernels, &r, logits, r.ids, ROWS, SEQ, NULL, want);
        for (int half = 0, first = 0; half < 2; first += sizes[half++]) {
            float x[ROWS * EXPERTS], got[ROWS * EXPERTS];
            int32_t ids[ROWS * TAKEN];
            const int size = sizes[half], rows = SEQS * size;
            for (int n = 0; n < rows; n++) {
                const int from = n / size * SEQ + first + n % size;
                memcpy(x + n * EXPERTS, logits + from * EXPERTS, EXPERTS * sizeof(*x));
                memcpy(ids + n * TAKEN, r.ids + from * TAKEN, TAKEN * sizeof(*ids));
            }
            run_fp32(&kernels, &r, x, ids, rows, size, choices, got);
            for (int n = 0; n < rows; n++) {
                const int from = n / size * SEQ + first + n % size;
                assert_memory_equal(got + n * EXPERTS, want + from * EXPERTS,
                                    EXPERTS * sizeof(*got));
            }
        }
    }
}

static void biases_follow_loads(void **state)
{
    (void)state;
    static router r;
    const kern_backend *const backends[] = {&kern_backend_ref, &kern_backend_cpu};
    const int64_t loads[EXPERTS] = {7, 9, 8, 0, 16, 8}; // the mean is 8
    const float signs[EXPERTS] = {1, -1, 0, 1, -1, 0};
    for (int i = 0; i < 6; i++) {
        const kern_context kernels = {.backend = backends[i & 1]};
        const bool masked = i >= 2;
        float bias[EXPERTS];
        router_make(&r, true, OF_SEQUENCE, false);
        r.step.device.skip = i / 2 == 1;
        r.step.device.halt = i / 2 == 2;
        memcpy(step_loads(&r.step, LAYERS, EXPERTS, LAYER, false), loads, sizeof(loads));
        for (int e = 0; e < EXPERTS; e++) bias[e] = (float)e - 2.5f;
        kern_call call = {.code = OP_BALANCE, .step = &r.step};
        call.attrs = (op_attrs){
            .experts = EXPERTS, .load_layers = LAYERS, .load_row = LAYER, .bias_rate = 0.125f};
        call.in[1] = call.out[0] = (kern_tensor){
            .data = bias, .type = DTYPE_F32, .ndim = 1, .dims = {EXPERTS}, .strides = {1}};
        assert_int_equal(kern_run(&kernels, &call), ST_OK);
        for (int e = 0; e < EXPERTS; e++) {
            const float want = (float)e - 2.5f + (masked ? 0.0f : 0.125f * signs[e]);
            assert_true(bias[e] == want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_and_sigmoids), cmocka_unit_test(routes_are_counted),
        cmocka_unit_test(pieces_are_rows_of_the_whole), cmocka_unit_test(biases_follow_loads)};
    return cmocka_run_group_tests_name("route_losses", tests, NULL, NULL);
}
