// The losses of routers against their definitions: central differences in double of
//   sum over rows of aux * E * sum over e of (share of rows that take e) (mean of p_e) + z * lse^2
// where the shares are constants, as the gradients of ROUTE_BWD that no expert's weight adds to.
#include "fixtures/kernels/tensor_fixture.h"
#include "kernels/kernels_internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { SEQS = 2, SEQ = 5, ROWS = SEQS * SEQ, EXPERTS = 6, TAKEN = 2 };

typedef struct router {
    double logits[ROWS * EXPERTS], d[ROWS * EXPERTS], zeros[ROWS * TAKEN];
    int32_t ids[ROWS * TAKEN];
    step_block step;
    kern_call call;
} router;

static kern_tensor matrix(dtype type, void *data, int64_t rows, int64_t columns)
{
    return (kern_tensor){
        .data = data, .type = type, .ndim = 2, .dims = {rows, columns}, .strides = {columns, 1}};
}

static void router_make(router *r, bool sigmoid, bool micro, bool skewed)
{
    memset(r, 0, sizeof(*r));
    for (int i = 0; i < ROWS * EXPERTS; i++) r->logits[i] = 2.0 * test_uniform(5, 1, i);
    for (int n = 0; n < ROWS; n++) { // expert 0 takes no row, or every row
        for (int t = 0; t < TAKEN; t++) r->ids[n * TAKEN + t] = skewed ? t : 1 + (n + 2 * t) % 5;
    }
    r->step.device.loss_scale = 4.0;
    r->call = (kern_call){.code = OP_ROUTE_BWD, .seq = SEQ, .loss_divisor = 8.0, .step = &r->step};
    r->call.attrs = (op_attrs){
        .top_k = TAKEN, .sigmoid = sigmoid, .aux_loss = 0.3f, .aux_micro = micro, .z_loss = 0.05f};
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
static double loss(const router *r)
{
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
        for (int e = 0; e < EXPERTS; e++) balance += EXPERTS * taken[e] * mean[e];
        total += (double)rows * (double)r->call.attrs.aux_loss * balance;
    }
    return total;
}

static void gradients_are_slopes(bool sigmoid, bool micro, bool skewed)
{
    static router r;
    const kern_context ref = {.backend = &kern_backend_ref};
    router_make(&r, sigmoid, micro, skewed);
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
    for (int i = 0; i < 8; i++) gradients_are_slopes((i & 1) != 0, (i & 2) != 0, (i & 4) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(softmax_and_sigmoids)};
    return cmocka_run_group_tests_name("route_losses", tests, NULL, NULL);
}
