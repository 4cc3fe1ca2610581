// The head of a reward model with its loss of pairs: gradients against central differences, in
// double.
#include "kernels/ref/ref.h"
#include "op/objective.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 12, DIM = 5, EACH = 3 }; // rows of a document

typedef struct problem {
    double x[ROWS * DIM], w[DIM];
    double token_loss[ROWS], slopes[ROWS], dx[ROWS * DIM], dw[DIM];
    int32_t labels[ROWS];
} problem;

static kern_tensor matrix(double *data, int64_t rows)
{
    return (kern_tensor){
        .data = data, .type = DTYPE_F64, .ndim = 2, .dims = {rows, DIM}, .strides = {DIM, 1}};
}

static kern_tensor vector(void *data, dtype type)
{
    return (kern_tensor){.data = data, .type = type, .ndim = 1, .dims = {ROWS}, .strides = {1}};
}

static void score(problem *p, bool gradients)
{
    step_block step;
    memset(&step, 0, sizeof(step));
    step_device_init(&step.device, 2.0);
    kern_call call = {.code = OP_SCORE, .step = &step, .loss_divisor = 8.0};
    call.in[0] = matrix(p->x, ROWS);
    call.in[1] = matrix(p->w, 1);
    call.in[2] = vector(p->labels, DTYPE_I32);
    call.out[0] = vector(p->token_loss, DTYPE_F64);
    if (gradients) {
        call.in[3] = vector(p->slopes, DTYPE_F64);
        call.out[1] = matrix(p->dx, ROWS);
        call.out[2] = matrix(p->dw, 1);
    }
    assert_int_equal(ref_score(NULL, &call), ST_OK);
}

static double loss(problem *p)
{
    double losses[ROWS], measures[ROWS * MEASURE_COLUMNS], sum = 0.0;
    double given[ROWS * GIVEN_COLUMNS] = {0.0};
    int32_t documents[ROWS], units[ROWS];
    for (int t = 0; t < ROWS; t++) {
        documents[t] = t / EACH;
        given[t * GIVEN_COLUMNS + GIVEN_LABEL] = p->labels[t] >= 0 ? 1.0 : 0.0;
    }
    const op_objective_attrs attrs = {.kind = OBJECTIVE_REWARD};
    const op_objective_sequence s = {.rows = ROWS,
                                     .token_loss = p->token_loss,
                                     .given = given,
                                     .documents = documents,
                                     .losses = losses,
                                     .slopes = p->slopes,
                                     .measures = measures,
                                     .units = units};
    score(p, false);
    op_objective_compute(&attrs, &s);
    for (int t = 0; t < ROWS; t++) sum += losses[t];
    return sum;
}

static double slope_at(problem *p, double *value)
{
    const double h = 1e-6, was = *value;
    *value = was + h;
    const double above = loss(p);
    *value = was - h;
    const double below = loss(p);
    *value = was;
    return (above - below) / (2.0 * h);
}

static void gradients_are_differences(void **state)
{
    (void)state;
    static problem p;
    for (int i = 0; i < ROWS * DIM; i++) p.x[i] = sin(1.0 + 0.7 * i);
    for (int j = 0; j < DIM; j++) p.w[j] = cos(2.0 * j);
    for (int t = 0; t < ROWS; t++) p.labels[t] = t % EACH == EACH - 1 ? 0 : -1;
    const double scale = 8.0 / 2.0; // of the loss scale and the divisor
    assert_true(loss(&p) > 0.0);
    score(&p, true);
    for (int i = 0; i < ROWS * DIM; i++) {
        const double want = slope_at(&p, &p.x[i]);
        assert_true(fabs(scale * p.dx[i] - want) <= 1e-8);
        assert_true(p.labels[i / DIM] >= 0 || p.dx[i] == 0.0);
    }
    for (int j = 0; j < DIM; j++) {
        const double want = slope_at(&p, &p.w[j]);
        assert_true(fabs(want) > 1e-3 && fabs(scale * p.dw[j] - want) <= 1e-8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_differences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
