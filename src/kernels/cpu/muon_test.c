// Muon on matrices of more than one block of rows, where only halves of the symmetric GEMMs are
// computed: against `ref`, and with the same bits for any number of threads.
#include "fixtures/kernels/backend_fixture.h"
#include "fixtures/kernels/tensor_fixture.h"
#include "kernels/cpu/pool.h"
#include "op/step.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct weights {
    int64_t rows, columns;
    float *grad, *master, *m;
} weights;

static void weights_make(weights *w, int64_t rows, int64_t columns)
{
    *w = (weights){.rows = rows, .columns = columns};
    float **const all[] = {&w->grad, &w->master, &w->m};
    for (int k = 0; k < COUNT_OF(all); k++) {
        float *values = calloc((size_t)(rows * columns), sizeof(float));
        assert_non_null(values);
        for (int64_t e = 0; e < rows * columns; e++) values[e] = (float)test_uniform(5, k, e);
        *all[k] = values;
    }
}

static void weights_free(weights *w)
{
    free(w->grad);
    free(w->master);
    free(w->m);
}

static void update(const char *backend, int threads, weights *w)
{
    kern_pool *pool = NULL;
    step_block *step = calloc(1, sizeof(*step));
    void *scratch = aligned_alloc(64, (size_t)(threads * KERN_SCRATCH_BYTES));
    assert_true(step != NULL && scratch != NULL);
    step_device_init(&step->device, 1.0);
    step->host = (step_host){.step = 1, .seed = 1, .lr = 0.1};
    step->device.applied = 1;
    step->device.grad_factor = 1.0;
    assert_int_equal(kern_pool_create(threads, &pool), ST_OK);
    kern_pool_scratch_set(pool, scratch);
    const kern_context context = {
        .backend = kern_backend_find(backend), .pool = pool, .level = kern_level_of_machine()};
    kern_call call = {.code = OP_MUON, .step = step, .seq = 1, .strict = true};
    call.attrs = (op_attrs){.momentum = 0.95F, .eps = 1e-7F, .lr_scale = 1.0F, .nesterov = true};
    float *const data[] = {w->grad, w->master, w->m};
    for (int i = 0; i < COUNT_OF(data); i++) {
        kern_tensor *t = &call.in[i];
        *t = (kern_tensor){.data = data[i], .type = DTYPE_F32, .ndim = 2};
        t->dims[0] = w->rows;
        t->dims[1] = t->strides[0] = w->columns;
        t->strides[1] = 1;
    }
    call.out[0] = call.in[1];
    call.out[1] = call.in[2];
    call.workspace_bytes = kern_workspace_bytes(&context, &call);
    call.workspace = aligned_alloc(64, (size_t)align_up(call.workspace_bytes, 64));
    assert_non_null(call.workspace);
    assert_int_equal(kern_run(&context, &call), ST_OK);
    free(call.workspace);
    kern_pool_destroy(pool);
    free(scratch);
    free(step);
}

static void check(int64_t rows, int64_t columns)
{
    weights want, one, two;
    weights_make(&want, rows, columns);
    weights_make(&one, rows, columns);
    weights_make(&two, rows, columns);
    update("ref", 1, &want);
    update("cpu", 1, &one);
    update("cpu", 2, &two);
    assert_memory_equal(one.master, two.master, (size_t)(rows * columns) * sizeof(float));
    double worst = 0.0;
    for (int64_t e = 0; e < rows * columns; e++) {
        worst = fmax(worst, fabs((double)one.master[e] - (double)want.master[e]));
    }
    // An update of size 0.1 times an entry of an orthogonal matrix, about 1 / sqrt(columns).
    assert_true(worst < 1e-5);
    weights_free(&want);
    weights_free(&one);
    weights_free(&two);
}

static void more_than_one_block_of_rows(void **state)
{
    (void)state;
    check(193, 200); // one row in the second block
    check(230, 205); // tall: the square of the columns, 13 in the second block
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_one_block_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
