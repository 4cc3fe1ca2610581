// Products in 8 bits, through a linear layer and its gradients and through experts, on every
// backend against a naive product of operands that the casts of base/types.h rounded.
//
//   y  = R(x) S(w)^T    dx = R(dy) S(w)    dw = C(dy)^T C(x)
//
// R, C and S round 128 numbers of a row, 128 of a column, and 128 x 128 numbers with one factor.
// The sizes leave whole and broken blocks. Rows that are not finite reach the results.
//
// With a history, an operand has one factor; dy has the numbers of e5m2. The test keeps the largest
// magnitudes of each step in a list, and takes factors from it as the definition says.
//
// By day some elements of each row and each column of a result are compared, and a processor's
// backend has one of the types.
#include "fixtures/base/test_part.h"
#include "fixtures/device/fake_cublaslt.h"
#include "fixtures/kernels/sample_fixture.h"
#include "fixtures/kernels/tensor_fixture.h"
#include "kernels/interpret.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

// Multiples of 16, which the library of a GPU wants.
enum { ROWS = 144, IN = 208, OUT = 144, EXPERTS = 3, SIDE = 128, STEPS = 3, MARGIN = 1 };

typedef struct linear {
    op_program *p;
    tensor_id x, w, y, dy, dx, dw, offsets, history;
    kern_interpret *it;
    int window; // steps of a history; 0: blocks
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

// Whether element e of a result is compared.
static bool is_compared(int64_t e, int64_t rows, int64_t columns)
{
    return !part_skips(CASES_PART, e / columns, rows, e % columns, columns);
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
        if (!is_compared(e, y.rows, y.columns)) continue;
        check_sum(rx.at + e / y.columns * x.columns, rw.at + e % y.columns * w.columns, x.columns,
                  strides, y.at[e], tolerance);
    }
}

static void check_dx(arena *a, field dy, field w, field dx, double tolerance)
{
    const field rdy = rounded(a, dy, 1, SIDE), rw = rounded(a, w, SIDE, SIDE);
    const int64_t strides[2] = {1, w.columns};
    for (int64_t e = 0; e < dx.rows * dx.columns; e++) {
        if (!is_compared(e, dx.rows, dx.columns)) continue;
        check_sum(rdy.at + e / dx.columns * dy.columns, rw.at + e % dx.columns, dy.columns, strides,
                  dx.at[e], tolerance);
    }
}

static void check_dw(field dy, field x, field dw)
{
    const int64_t strides[2] = {dy.columns, x.columns};
    for (int64_t e = 0; e < dw.rows * dw.columns; e++) {
        if (!is_compared(e, dw.rows, dw.columns)) continue;
        check_sum(dy.at + e / dw.columns, x.at + e % dw.columns, x.rows, strides, dw.at[e], 1e-5);
    }
}

// ---- layers -------------------------------------------------------------------------------------
static tensor_id grad_of(const linear *l, tensor_id weight)
{
    for (tensor_id t = 0; t < (tensor_id)l->p->tensor_count; t++) {
        const op_tensor *x = &l->p->tensors[t];
        if (x->role == ROLE_WEIGHT_GRAD && x->of == weight) return t;
    }
    return TENSOR_NONE;
}

static void layer_make(arena *a, const backend_run *run, dtype type, bool experts, linear *l)
{
    must(op_program_create(a, PURPOSE_TRAIN, type, DTYPE_F32, &l->p));
    l->p->fp8 = l->window > 0 ? FP8_TENSOR : FP8_BLOCK;
    l->p->fp8_margin = l->window > 0 ? MARGIN : 0;
    must(op_input(l->p, "x", extent_tokens(1), extent_of(IN), &l->x));
    must(op_tensor_make(l->p, "w", ROLE_WEIGHT, type, 2, extent_of(experts ? EXPERTS * OUT : OUT),
                        extent_of(IN), &l->w));
    l->history = TENSOR_NONE;
    if (l->window > 0) {
        must(op_tensor_make(l->p, "history", ROLE_WEIGHT, DTYPE_F32, 2,
                            extent_of(FP8_OPERANDS * (experts ? EXPERTS : 1)),
                            extent_of(FP8_COLUMNS), &l->history));
    }
    if (experts) {
        must(op_tensor_make(l->p, "offsets", ROLE_BATCH, DTYPE_I32, 1, extent_of(EXPERTS + 1),
                            extent_of(0), &l->offsets));
        const tensor_id in[4] = {l->x, l->w, l->offsets, l->history};
        must(op_grouped_matmul_scaled(l->p, in, EXPERTS, &l->y));
    } else {
        const tensor_id in[4] = {l->x, l->w, TENSOR_NONE, l->history};
        must(op_matmul_scaled(l->p, in, ACT_NONE, &l->y));
    }
    must(op_output(l->p, l->y));
    must(op_program_differentiate(l->p));
    l->dy = l->p->d_outputs[0];
    l->dx = l->p->d_inputs[0];
    l->dw = grad_of(l, l->w);
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
        const bool slow = runs[i].backend->on_gpu; // the emulator, which gets one type
        if (!slow && !part_skips(CASES_PART, i, count, 0, 2)) check(&runs[i], DTYPE_F32);
        if (slow || !part_skips(CASES_PART, i, count, 1, 2)) check(&runs[i], DTYPE_BF16);
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

// ---- histories ----------------------------------------------------------------------------------
// A call whose operand has a NaN counts in no column of it, wherever the NaN stands.
static void nans_are_not_forgotten(void **state)
{
    enum { SMALL = 8 };
    static const int64_t dims[2] = {SMALL, SMALL}, counts_dims[2] = {FP8_OPERANDS, FP8_COLUMNS};
    backend_run runs[BACKEND_MAX_RUNS];
    const int count = backend_runs_init(runs, 2);
    arena *a = NULL;
    (void)state;
    must(arena_create("counts", 0, &a));
    for (int i = 0; i < count * SMALL * SMALL; i += 9) {
        const backend_run *run = &runs[i / (SMALL * SMALL)];
        kern_call c = {.code = OP_FP8_COUNTS}; // dy, x, w
        for (int o = 0; o < FP8_OPERANDS; o++) {
            c.in[o] = kt_make(a, DTYPE_BF16, 2, dims);
            for (int64_t e = 0; e < SMALL * SMALL; e++) kt_put(&c.in[o], e, 1.0);
        }
        kt_put(&c.in[1], i % (SMALL * SMALL), (double)NAN);
        c.out[0] = kt_make(a, DTYPE_F32, 2, counts_dims);
        c.workspace_bytes = kern_workspace_bytes(&run->context, &c);
        c.workspace = kt_make(a, DTYPE_U8, 1, &c.workspace_bytes).data;
        must(kern_run(&run->context, &c));
        assert_true(kt_get(&c.out[0], 0) == 0.0);
        assert_true(kt_get(&c.out[0], FP8_COLUMNS) == 1.0);
        assert_true(kt_get(&c.out[0], 2 * FP8_COLUMNS) == 1.0);
    }
    arena_destroy(a);
    backend_runs_deinit(runs, count);
}

// Returns the largest magnitude of a step's operand: at a different operand large every other step.
static double size_of(int step, int operand)
{
    static const double usual[FP8_OPERANDS] = {3.0, 0.1, 1e-4};
    return step % FP8_OPERANDS == operand ? 100.0 * usual[operand] : usual[operand];
}

// The rows of tokens, and of the weight, whose products have their own factors: those of an expert,
// or all.
typedef struct stretch {
    int64_t row, rows, matrix;
} stretch;

static stretch stretch_at(bool experts, int e)
{
    if (!experts) return (stretch){.rows = ROWS};
    return (stretch){
        .row = offsets[e], .rows = offsets[e + 1] - offsets[e], .matrix = (int64_t)e * OUT};
}

// The largest magnitude of an operand of a stretch.
static double most_of(const linear *l, const stretch *s, int operand)
{
    const int64_t columns = operand == 2 ? OUT : IN, rows = operand == 1 ? OUT : s->rows;
    const tensor_id t = operand == 0 ? l->x : operand == 1 ? l->w : l->dy;
    const int64_t begin = (operand == 1 ? s->matrix : s->row) * columns;
    double most = 0.0;
    for (int64_t e = begin; e < begin + rows * columns; e++) {
        most = fmax(most, fabs(kern_interpret_get(l->it, t, e)));
    }
    return most;
}

// The factor of an operand: the largest power of two that keeps the largest magnitude of the list
// within the format, less MARGIN powers of two.
static double factor_of(const double most[STEPS], int steps, int window, int operand)
{
    static const double first[FP8_OPERANDS] = {28.0, 1.75, 0.875 / 256};
    const double top = operand == 2 ? 57344.0 : 448.0;
    double largest = 0.0, factor = 0x1p-60;
    for (int i = steps > window ? steps - window : 0; i < steps; i++)
        largest = fmax(largest, most[i]);
    if (largest == 0.0) largest = first[operand];
    while (largest * factor * 2 <= top) factor *= 2;
    return factor / (1 << MARGIN);
}

static field tensor_rounded(arena *a, field from, int operand, double factor)
{
    field to = from;
    must(arena_new(a, from.rows * from.columns, &to.at));
    for (int64_t e = 0; e < from.rows * from.columns; e++) {
        const float x = (float)(from.at[e] * factor);
        const float y =
            operand == 2
                ? f32_from_f8e5m2(f8e5m2_from_f32(x, ROUND_NEAREST_EVEN, OVERFLOW_SATURATE, 0))
                : f32_from_f8e4m3(f8e4m3_from_f32(x, ROUND_NEAREST_EVEN, OVERFLOW_SATURATE, 0));
        to.at[e] = (double)y / factor;
    }
    return to;
}

static void products_check(arena *a, const linear *l, const stretch *s,
                           const double factor[FP8_OPERANDS], dtype type)
{
    const field xs = rows_of(read_field(a, l, l->x), s->row, s->rows);
    const field ws = rows_of(read_field(a, l, l->w), s->matrix, OUT);
    const field dys = rows_of(read_field(a, l, l->dy), s->row, s->rows);
    const field x = tensor_rounded(a, xs, 0, factor[0]), w = tensor_rounded(a, ws, 1, factor[1]);
    const field dy = tensor_rounded(a, dys, 2, factor[2]);
    const field y = rows_of(read_field(a, l, l->y), s->row, s->rows);
    const field dx = rows_of(read_field(a, l, l->dx), s->row, s->rows);
    const int64_t forward[2] = {1, 1}, back[2] = {1, IN};
    for (int64_t e = 0; e < s->rows * OUT; e++) {
        if (!is_compared(e, s->rows, OUT)) continue;
        check_sum(x.at + e / OUT * IN, w.at + e % OUT * IN, IN, forward, y.at[e],
                  tolerance_of(type));
    }
    for (int64_t e = 0; e < s->rows * IN; e++) {
        if (!is_compared(e, s->rows, IN)) continue;
        check_sum(dy.at + e / IN * OUT, w.at + e % IN, OUT, back, dx.at[e], tolerance_of(type));
    }
    check_dw(dy, x, rows_of(read_field(a, l, l->dw), s->matrix, OUT));
}

// Updates the history as the end of a step does.
static void history_update(const backend_run *run, const linear *l, int window)
{
    const int64_t dims[2] = {kern_interpret_elements(l->it, l->history) / FP8_COLUMNS, FP8_COLUMNS};
    static step_block step;
    arena *a = NULL;
    must(arena_create("update", 0, &a));
    kern_tensor counts = kt_make(a, DTYPE_F32, 2, dims), steps = kt_make(a, DTYPE_F32, 2, dims);
    const tensor_id grad = grad_of(l, l->history);
    for (int64_t e = 0; e < dims[0] * FP8_COLUMNS; e++) {
        kt_put(&counts, e, kern_interpret_get(l->it, grad, e));
        kt_put(&steps, e, kern_interpret_get(l->it, l->history, e));
    }
    kern_call call = {.code = OP_FP8_HISTORY, .step = &step, .in = {counts, steps}, .out = {steps}};
    call.attrs.fp8_steps = window;
    must(kern_run(&run->context, &call));
    for (int64_t e = 0; e < dims[0] * FP8_COLUMNS; e++) {
        kern_interpret_put(l->it, l->history, e, kt_get(&steps, e));
    }
    arena_destroy(a);
}

static void operands_put(const linear *l, int step)
{
    const tensor_id operands[FP8_OPERANDS] = {l->x, l->w, l->dy};
    for (int o = 0; o < FP8_OPERANDS; o++) {
        for (int64_t e = 0; e < kern_interpret_elements(l->it, operands[o]); e++) {
            const double x = test_uniform((uint64_t)step, o, e);
            kern_interpret_put(l->it, operands[o], e, size_of(step, o) * x * x * x);
        }
    }
}

static void histories_check(const backend_run *run, dtype type, bool experts, int window)
{
    arena *a = NULL;
    linear l = {.window = window};
    double most[EXPERTS][FP8_OPERANDS][STEPS] = {{{0}}};
    must(arena_create("history", 0, &a));
    layer_make(a, run, type, experts, &l);
    for (int step = 0; step < (experts ? 2 : STEPS); step++) {
        operands_put(&l, step);
        layer_run(&l, experts);
        for (int e = 0; e < (experts ? EXPERTS : 1); e++) {
            const stretch s = stretch_at(experts, e);
            double factor[FP8_OPERANDS];
            for (int o = 0; o < FP8_OPERANDS; o++) {
                factor[o] = factor_of(most[e][o], step, window, o);
                most[e][o][step] = most_of(&l, &s, o);
            }
            products_check(a, &l, &s, factor, type);
        }
        history_update(run, &l, window);
    }
    arena_destroy(a);
}

static void check_history(const backend_run *run, dtype type)
{
    for (int window = 1; window <= 2; window++) histories_check(run, type, false, window);
}

// Each expert has its own; one of them has no rows.
static void check_expert_history(const backend_run *run, dtype type)
{
    histories_check(run, type, true, 2);
}

static void histories(void **state)
{
    (void)state;
    every_backend(check_history);
}

static void histories_of_experts(void **state)
{
    (void)state;
    every_backend(check_expert_history);
}

// ---- by units for 8 bits ------------------------------------------------------------------------
// GPUs of compute capability 8.9 and more multiply the rows of experts in 8 bits.
static void units_multiply_rows_of_experts(void **state)
{
    backend_run run;
    (void)state;
    backend_run_init(&run, &kern_backend_cuda, KERN_SCALAR, 1);
    cuda_emulator_sm90(&run.emulator);
    check_experts(&run, DTYPE_BF16);
    check_expert_history(&run, DTYPE_BF16);
    backend_runs_deinit(&run, 1);
}

// ---- by the library of a GPU --------------------------------------------------------------------
static lt_products *products;

static status product_post(cuda_queue *q, const cuda_product *p)
{
    static int stream, workspace;
    (void)q;
    return lt_products_post(products, p, (cuda_stream)(void *)&stream, &workspace);
}

static status product_refuse(cuda_queue *q, const cuda_product *p)
{
    (void)q;
    assert_true(p->only_asks || p->a.type != DTYPE_F8E4M3); // nothing is posted after a refusal
    return ST_UNSUPPORTED;
}

static void gpu_init(backend_run *run, status (*product)(cuda_queue *, const cuda_product *))
{
    backend_run_init(run, &kern_backend_cuda, KERN_SCALAR, 1);
    run->emulator.queue.product = product;
    run->emulator.queue.fp8_tensors = run->emulator.queue.fp8_blocks = true;
}

// The library gets 8 bits and factors, and refuses what cuBLASLt does. Without it the same product
// is one of bf16.
static void the_library_multiplies_codes(void **state)
{
    const lt_library library = fake_lt_library();
    backend_run run;
    (void)state;
    must(lt_products_create(&library, FAKE_LT_WORKSPACE, &products));
    gpu_init(&run, product_post);
    check_linear(&run, DTYPE_BF16);
    assert_int_equal(fake_lt_counted()->narrow, 3);
    check_history(&run, DTYPE_BF16);
    assert_int_equal(fake_lt_counted()->narrow, 3 + 2 * 3 * STEPS);
    backend_runs_deinit(&run, 1);
    gpu_init(&run, product_refuse);
    check_linear(&run, DTYPE_BF16);
    backend_runs_deinit(&run, 1);
    lt_products_destroy(products);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_layers),
        cmocka_unit_test(experts),
        cmocka_unit_test(histories),
        cmocka_unit_test(histories_of_experts),
        cmocka_unit_test(units_multiply_rows_of_experts),
        cmocka_unit_test(infinities_are_not_hidden),
        cmocka_unit_test(nans_are_not_forgotten),
        cmocka_unit_test(the_library_multiplies_codes),
    };
    return cmocka_run_group_tests_name("fp8", tests, NULL, NULL);
}
