// Products in 8 bits, through a linear layer and its gradients and through experts, on every
// backend against a naive product of operands that the casts of base/types.h rounded.
//
//   y  = R(x) S(w)^T    dx = R(dy) S(w)    dw = C(dy)^T C(x)
//
// R, C and S round 128 numbers of a row, 128 of a column, and 128 x 128 numbers with one factor.
// The sizes leave whole and broken blocks. Rows that are not finite reach the results.
#include "fixtures/kernels/sample_fixture.h"
#include "kernels/interpret.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 150, IN = 200, OUT = 140, EXPERTS = 3, SIDE = 128 };

typedef struct linear {
    op_program *p;
    tensor_id x, w, y, dy, dx, dw, offsets;
    kern_interpret *it;
} linear;

// ---- the naive product --------------------------------------------------------------------------
typedef struct field {
    double *at;
    int64_t rows, columns;
} field;

static void round_block(const field *from, const field *to, const int64_t begin[2],
                        const int64_t size[2])
{
    double most = 0.0;
    for (int64_t i = begin[0]; i < min_i64(begin[0] + size[0], from->rows); i++) {
        for (int64_t j = begin[1]; j < min_i64(begin[1] + size[1], from->columns); j++) {
            most = fmax(most, fabs(from->at[i * from->columns + j]));
        }
    }
    double factor = 1.0;
    while (most > 0.0 && most * factor > 448.0) factor /= 2;
    while (most > 0.0 && most * factor * 2 <= 448.0) factor *= 2;
    for (int64_t i = begin[0]; i < min_i64(begin[0] + size[0], from->rows); i++) {
        for (int64_t j = begin[1]; j < min_i64(begin[1] + size[1], from->columns); j++) {
            const float scaled = (float)(from->at[i * from->columns + j] * factor);
            const uint8_t code = f8e4m3_from_f32(scaled, ROUND_NEAREST_EVEN, OVERFLOW_SATURATE, 0);
            to->at[i * from->columns + j] = (double)f32_from_f8e4m3(code) / factor;
        }
    }
}

static field rounded(arena *a, field from, int64_t height, int64_t width)
{
    field to = from;
    must(arena_new(a, from.rows * from.columns, &to.at));
    for (int64_t i = 0; i < from.rows; i += height) {
        for (int64_t j = 0; j < from.columns; j += width) {
            const int64_t begin[2] = {i, j}, size[2] = {height, width};
            round_block(&from, &to, begin, size);
        }
    }
    return to;
}

static field read_field(arena *a, const linear *l, tensor_id t)
{
    field f = {.columns = l->p->tensors[t].dims[1].scale};
    f.rows = kern_interpret_elements(l->it, t) / f.columns;
    must(arena_new(a, f.rows * f.columns, &f.at));
    for (int64_t i = 0; i < f.rows * f.columns; i++) f.at[i] = kern_interpret_get(l->it, t, i);
    return f;
}

static field rows_of(field f, int64_t begin, int64_t count)
{
    return (field){.at = f.at + begin * f.columns, .rows = count, .columns = f.columns};
}

// Checks element (i, j) of a result, whose terms are a(i, t) b(j, t), by strides.
static void check_sum(const double *a, const double *b, int64_t terms, const int64_t strides[2],
                      double got, double tolerance)
{
    double sum = 0.0, size = 0.0;
    for (int64_t t = 0; t < terms; t++) {
        sum += a[t * strides[0]] * b[t * strides[1]];
        size += fabs(a[t * strides[0]] * b[t * strides[1]]);
    }
    if (!(fabs(got - sum) <= tolerance * size)) fail_msg("%.9g, expected %.9g", got, sum);
}

static void check_forward(arena *a, field x, field w, field y, double tolerance)
{
    const field rx = rounded(a, x, 1, SIDE), rw = rounded(a, w, SIDE, SIDE);
    const int64_t strides[2] = {1, 1};
    for (int64_t e = 0; e < y.rows * y.columns; e++) {
        check_sum(rx.at + e / y.columns * x.columns, rw.at + e % y.columns * w.columns, x.columns,
                  strides, y.at[e], tolerance);
    }
}

static void check_dx(arena *a, field dy, field w, field dx, double tolerance)
{
    const field rdy = rounded(a, dy, 1, SIDE), rw = rounded(a, w, SIDE, SIDE);
    const int64_t strides[2] = {1, w.columns};
    for (int64_t e = 0; e < dx.rows * dx.columns; e++) {
        check_sum(rdy.at + e / dx.columns * dy.columns, rw.at + e % dx.columns, dy.columns, strides,
                  dx.at[e], tolerance);
    }
}

static void check_dw(field dy, field x, field dw)
{
    const int64_t strides[2] = {dy.columns, x.columns};
    for (int64_t e = 0; e < dw.rows * dw.columns; e++) {
        check_sum(dy.at + e / dw.columns, x.at + e % dw.columns, x.rows, strides, dw.at[e], 1e-5);
    }
}

// ---- layers -------------------------------------------------------------------------------------
static tensor_id weight_grad(const linear *l)
{
    for (tensor_id t = 0; t < (tensor_id)l->p->tensor_count; t++) {
        const op_tensor *x = &l->p->tensors[t];
        if (x->role == ROLE_WEIGHT_GRAD && x->of == l->w) return t;
    }
    return TENSOR_NONE;
}

static void layer_make(arena *a, const backend_run *run, dtype type, bool experts, linear *l)
{
    must(op_program_create(a, PURPOSE_TRAIN, type, DTYPE_F32, &l->p));
    l->p->fp8 = FP8_BLOCK;
    must(op_input(l->p, "x", extent_tokens(1), extent_of(IN), &l->x));
    must(op_tensor_make(l->p, "w", ROLE_WEIGHT, type, 2, extent_of(experts ? EXPERTS * OUT : OUT),
                        extent_of(IN), &l->w));
    if (experts) {
        must(op_tensor_make(l->p, "offsets", ROLE_BATCH, DTYPE_I32, 1, extent_of(EXPERTS + 1),
                            extent_of(0), &l->offsets));
        must(op_grouped_matmul(l->p, l->x, l->w, l->offsets, EXPERTS, &l->y));
    } else {
        must(op_matmul(l->p, l->x, l->w, TENSOR_NONE, ACT_NONE, &l->y));
    }
    must(op_output(l->p, l->y));
    must(op_program_differentiate(l->p));
    l->dy = l->p->d_outputs[0];
    l->dx = l->p->d_inputs[0];
    l->dw = weight_grad(l);
    kern_interpret_config config = {.program = l->p,
                                    .context = &run->context,
                                    .loss_divisor = 1.0,
                                    .strict = !run->backend->on_gpu};
    config.bound.value[EXTENT_TOKENS] = ROWS;
    config.bound.value[EXTENT_SEQS] = 1;
    must(kern_interpret_create(a, &config, &l->it));
    const tensor_id given[] = {l->x, l->w, l->dy};
    for (int i = 0; i < COUNT_OF(given); i++) {
        for (int64_t e = 0; e < kern_interpret_elements(l->it, given[i]); e++) {
            const double size = ldexp(1.0, (int)(e / 97 % 23) - 11 - 5 * i); // far apart
            kern_interpret_put(l->it, given[i], e, size * test_uniform(5, i, e));
        }
    }
}

static const int64_t offsets[EXPERTS + 1] = {0, 17, 17, ROWS};

static void layer_run(const linear *l, bool experts)
{
    for (int e = 0; e <= EXPERTS && experts; e++) {
        kern_interpret_put(l->it, l->offsets, e, (double)offsets[e]);
    }
    must(kern_interpret_run(l->it, OP_FORWARD, false));
    must(kern_interpret_run(l->it, OP_BACKWARD_INPUT, false));
    must(kern_interpret_run(l->it, OP_BACKWARD_WEIGHT, false));
}

static double tolerance_of(dtype type)
{
    return type == DTYPE_BF16 ? 1.0 / 128 : 1e-5;
}

static void check_linear(const backend_run *run, dtype type)
{
    arena *a = NULL;
    linear l = {0};
    must(arena_create("layer", 0, &a));
    layer_make(a, run, type, false, &l);
    layer_run(&l, false);
    const field x = read_field(a, &l, l.x), w = read_field(a, &l, l.w);
    const field dy = read_field(a, &l, l.dy);
    check_forward(a, x, w, read_field(a, &l, l.y), tolerance_of(type));
    check_dx(a, dy, w, read_field(a, &l, l.dx), tolerance_of(type));
    check_dw(rounded(a, dy, SIDE, 1), rounded(a, x, SIDE, 1), read_field(a, &l, l.dw));
    arena_destroy(a);
}

// The gradient of an expert's weight is of operands that are not rounded.
static void check_experts(const backend_run *run, dtype type)
{
    arena *a = NULL;
    linear l = {0};
    must(arena_create("experts", 0, &a));
    layer_make(a, run, type, true, &l);
    layer_run(&l, true);
    const field x = read_field(a, &l, l.x), w = read_field(a, &l, l.w);
    const field dy = read_field(a, &l, l.dy), y = read_field(a, &l, l.y);
    const field dx = read_field(a, &l, l.dx), dw = read_field(a, &l, l.dw);
    for (int e = 0; e < EXPERTS; e++) {
        const int64_t first = offsets[e], count = offsets[e + 1] - first;
        const field own = rows_of(w, (int64_t)e * OUT, OUT);
        check_forward(a, rows_of(x, first, count), own, rows_of(y, first, count),
                      tolerance_of(type));
        check_dx(a, rows_of(dy, first, count), own, rows_of(dx, first, count), tolerance_of(type));
        check_dw(rows_of(dy, first, count), rows_of(x, first, count),
                 rows_of(dw, (int64_t)e * OUT, OUT));
    }
    arena_destroy(a);
}

static void every_backend(void (*check)(const backend_run *, dtype))
{
    backend_run runs[BACKEND_MAX_RUNS];
    const int count = backend_runs_init(runs, 2);
    for (int i = 0; i < count; i++) {
        check(&runs[i], DTYPE_F32);
        check(&runs[i], DTYPE_BF16);
    }
    backend_runs_deinit(runs, count);
}

static void linear_layers(void **state)
{
    (void)state;
    every_backend(check_linear);
}

static void experts(void **state)
{
    (void)state;
    every_backend(check_experts);
}

// A number that is not finite makes its results NaN, so that the run's policy sees it.
static void infinities_are_not_hidden(void **state)
{
    backend_run runs[BACKEND_MAX_RUNS];
    const int count = backend_runs_init(runs, 1);
    (void)state;
    for (int i = 0; i < count; i++) {
        arena *a = NULL;
        linear l = {0};
        must(arena_create("layer", 0, &a));
        layer_make(a, &runs[i], DTYPE_BF16, false, &l);
        kern_interpret_put(l.it, l.x, 3 * IN + 150, (double)INFINITY);
        layer_run(&l, false);
        assert_true(isnan(kern_interpret_get(l.it, l.y, 3 * OUT)));
        assert_true(isfinite(kern_interpret_get(l.it, l.y, 4 * OUT)));
        assert_true(isnan(kern_interpret_get(l.it, l.dw, 150)));
        assert_true(isfinite(kern_interpret_get(l.it, l.dw, 151)));
        arena_destroy(a);
    }
    backend_runs_deinit(runs, count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_layers),
        cmocka_unit_test(experts),
        cmocka_unit_test(infinities_are_not_hidden),
    };
    return cmocka_run_group_tests_name("fp8", tests, NULL, NULL);
}
