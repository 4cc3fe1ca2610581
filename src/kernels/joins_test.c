// Two calls as one launch (kern_fuses): a GEMM fused with the activation after it, or with the
// gradient of the one before it, gives the bits of two calls; and calls are not fused if their
// operands would overlap.
#include "fixtures/base/test_part.h"
#include "fixtures/kernels/backend_fixture.h"
#include "fixtures/kernels/tensor_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { PAD = 7 }; // elements between rows

// Rows for each driver of gemm.c (one token, a piece of a batch, many), columns for one piece and
// for several, and so deep that narrow sums need their own driver.
typedef struct shape {
    int64_t m, n, k;
} shape;
static const shape shapes[] = {{1, 1100, 40},   {5, 96, 33},  {70, 72, 64},
                               {161, 1030, 24}, {150, 24, 8}, {20, 8, 17000}};

typedef struct trial {
    arena *a;
    uint64_t seed;
    shape size;
    dtype type;
    kern_call first, second;
} trial;

static kern_tensor matrix(trial *t, int64_t rows, int64_t columns)
{
    const int64_t whole[] = {rows, columns + PAD}, dims[] = {rows, columns};
    kern_tensor m = kt_make(t->a, t->type, 2, whole);
    memcpy(m.dims, dims, sizeof(dims));
    return m;
}

static void fill(trial *t, kern_tensor *m, double size)
{
    t->seed++;
    for (int64_t i = 0; i < kt_elements(m); i++) {
        // Some values are so small that a cast which flushes subnormals to zero would show.
        const double x = test_uniform(t->seed, 0, i) * size;
        kt_put(m, i, i % 97 == 5 ? x * 0x1p-130 : x);
    }
}

static kern_tensor operand(trial *t, int64_t rows, int64_t columns, double size)
{
    kern_tensor m = matrix(t, rows, columns);
    fill(t, &m, size);
    return m;
}

static void product_make(trial *t, op_code code, bool extra)
{
    const shape s = t->size;
    const double scale = 4.0 / sqrt((double)s.k);
    t->first = (kern_call){.code = code, .seq = 1};
    t->first.in[0] = operand(t, s.m, s.k, 1.0);
    t->first.in[1] = code == OP_MATMUL ? operand(t, s.n, s.k, scale) : operand(t, s.k, s.n, scale);
    if (extra && code == OP_MATMUL) {
        const int64_t n[] = {s.n};
        t->first.in[2] = kt_make(t->a, t->type, 1, n);
        fill(t, &t->first.in[2], 1.0);
    } else if (extra) {
        t->first.in[2] = operand(t, s.m, s.n, 1.0);
    }
    t->first.out[0] = matrix(t, s.m, s.n);
}

static void second_make(trial *t, op_code code, op_activation kind, bool in_place)
{
    const int64_t m = t->size.m, n = t->size.n;
    const kern_tensor made = t->first.out[0];
    t->second = (kern_call){.code = code, .attrs = {.activation = kind}, .seq = 1};
    if (code == OP_ACTIVATION || code == OP_SWIGLU) {
        t->second.in[0] = made;
        t->second.out[0] = code == OP_SWIGLU ? matrix(t, m, n / 2) : matrix(t, m, n);
    } else {
        t->second.in[0] = operand(t, m, code == OP_SWIGLU_BWD ? 2 * n : n, 3.0);
        t->second.in[1] = made;
        t->second.out[0] = matrix(t, m, code == OP_SWIGLU_BWD ? 2 * n : n);
    }
    if (in_place) t->second.out[0] = made;
}

static uint8_t *bits_of(const kern_tensor *m, uint8_t *to)
{
    const size_t row = (size_t)(m->dims[1] * dtype_bytes(m->type));
    for (int64_t i = 0; i < m->dims[0]; i++, to += row) {
        memcpy(to, (const char *)m->data + i * m->strides[0] * dtype_bytes(m->type), row);
    }
    return to;
}

// Returns the bytes that the two calls have written, separately or as one launch.
static int64_t outcome(const trial *t, const backend_run *run, bool joined, uint8_t *to)
{
    kern_call first = t->first;
    kern_tensor before = first.in[2];
    if (first.code == OP_MATMUL_DX && before.data != NULL) {
        // It continues in the output, as in a plan.
        for (int64_t i = 0; i < kt_elements(&before); i++) {
            kt_put(&first.out[0], i, kt_get(&before, i));
        }
        first.in[2] = first.out[0];
    }
    first.then = joined ? &t->second : NULL;
    must(kern_run(&run->context, &first));
    if (!joined) must(kern_run(&run->context, &t->second));
    uint8_t *end = bits_of(&first.out[0], to);
    return bits_of(&t->second.out[0], end) - to;
}

static bool compare(const trial *t, const backend_run *run)
{
    if (!kern_joins(&run->context, &t->first, &t->second)) return false;
    uint8_t *apart = NULL, *joined = NULL;
    const int64_t most = 8 * t->size.m * (t->size.n * 3);
    must(arena_alloc(t->a, most, (void **)&apart));
    must(arena_alloc(t->a, most, (void **)&joined));
    const int64_t bytes = outcome(t, run, false, apart);
    assert_int_equal(outcome(t, run, true, joined), bytes);
    if (memcmp(apart, joined, (size_t)bytes) != 0) {
        fail_msg("%s, %s of %lld x %lld x %lld in %s, then %s: other bits", run->name,
                 op_kind_of(t->first.code)->name, (long long)t->size.m, (long long)t->size.n,
                 (long long)t->size.k, dtype_name(t->type), op_kind_of(t->second.code)->name);
    }
    return true;
}

// Every pair of this size and type. Returns how many were joined.
static int64_t pairs(trial *t, const backend_run *run)
{
    static const op_activation kinds[] = {ACT_GELU_TANH, ACT_GELU_ERF, ACT_SILU, ACT_RELU};
    int64_t joined = 0;
    for (int i = 0; i < 4; i++) {
        const bool in_place = i % 2 == 1, extra = i >= 2;
        product_make(t, OP_MATMUL, extra);
        second_make(t, OP_ACTIVATION, kinds[i], in_place);
        joined += compare(t, run);
        product_make(t, OP_MATMUL_DX, extra);
        second_make(t, OP_ACTIVATION_BWD, kinds[(i + 1) % 4], in_place);
        joined += compare(t, run);
    }
    product_make(t, OP_MATMUL, true);
    second_make(t, OP_SWIGLU, ACT_NONE, false);
    joined += compare(t, run);
    product_make(t, OP_MATMUL_DX, false);
    second_make(t, OP_SWIGLU_BWD, ACT_NONE, false);
    joined += compare(t, run);
    return joined;
}

static void test_same_bits(void **state)
{
    (void)state;
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    backend_run runs[BACKEND_MAX_RUNS];
    const int count = backend_runs_init(runs, 2);
    for (int r = 0; r < count; r++) {
        int64_t joined = 0, tried = 0, halves = 0;
        for (int64_t s = 0; s < COUNT_OF(shapes); s++) {
            for (int k = 0; k < 3; k++) {
                if (part_skips(CASES_PART, r, count, 3 * s + k, 3 * COUNT_OF(shapes))) continue;
                trial t = {.size = shapes[s], .type = types[k], .seed = (uint64_t)(s * 100)};
                must(arena_create("joins", 0, &t.a));
                joined += pairs(&t, &runs[r]);
                arena_destroy(t.a);
                tried++;
                halves += types[k] != DTYPE_F32;
            }
        }
        assert_true(tried > 0);
        // All ten pairs but SwiGLU, for which these shapes have too few rows or columns.
        if (runs[r].backend == &kern_backend_cuda) { // GELU of halves, not in place
            assert_int_equal(joined, halves);
        } else if (runs[r].backend != &kern_backend_cpu) {
            assert_int_equal(joined, 0);
        } else {
            assert_int_equal(joined, 9 * tried);
        }
    }
    backend_runs_deinit(runs, count);
}

// SwiGLU with many rows and columns is fused, with few it is not.
static void test_swiglu(void **state)
{
    (void)state;
    static const struct {
        shape size;
        dtype type;
        bool joined;
    } cases[] = {{{390, 1030, 40}, DTYPE_F32, true},   {{390, 1030, 40}, DTYPE_BF16, true},
                 {{390, 2500, 1100}, DTYPE_F32, true}, {{390, 1200, 24}, DTYPE_F16, true},
                 {{390, 1022, 24}, DTYPE_F32, false},  {{70, 1030, 64}, DTYPE_BF16, false},
                 {{1, 1100, 40}, DTYPE_F32, false}};
    const int levels = (int)kern_level_of_machine() + 1;
    for (int level = 0; level < levels; level++) {
        backend_run run;
        backend_run_init(&run, &kern_backend_cpu, (kern_level)level, 2);
        for (int64_t i = 0; i < COUNT_OF(cases); i++) {
            if (level == KERN_SCALAR && cases[i].size.k > 1000) continue; // slow
            if (part_skips(CASES_PART, i, COUNT_OF(cases), level, levels)) continue;
            trial t = {.size = cases[i].size, .type = cases[i].type};
            must(arena_create("joins", 0, &t.a));
            product_make(&t, OP_MATMUL, true);
            second_make(&t, OP_SWIGLU, ACT_NONE, false);
            t.first.strict = level == KERN_AMX; // else oneDNN's, which does not go along rows
            assert_int_equal(compare(&t, &run), cases[i].joined);
            arena_destroy(t.a);
        }
        backend_runs_deinit(&run, 1);
    }
}

// The second call may not write operands that the first still reads, and must read the result of
// the first.
static void test_refused(void **state)
{
    (void)state;
    backend_run run;
    backend_run_init(&run, &kern_backend_cpu, kern_level_of_machine(), 2);
    trial t = {.size = {161, 40, 40}, .type = DTYPE_F32};
    must(arena_create("joins", 0, &t.a));
    product_make(&t, OP_MATMUL, true);
    second_make(&t, OP_ACTIVATION, ACT_SILU, false);
    const kern_call right = t.second;
    assert_true(kern_joins(&run.context, &t.first, &t.second));
    for (int i = 0; i < 2; i++) {
        const kern_tensor *in = &t.first.in[i];
        t.second = right;
        t.second.out[0].data = (float *)in->data + kt_offset(in, kt_elements(in) - 1);
        assert_false(kern_joins(&run.context, &t.first, &t.second));
    }
    t.second = right;
    t.second.out[0].data = (float *)t.first.out[0].data + 1; // neither on it nor apart
    assert_false(kern_joins(&run.context, &t.first, &t.second));
    t.second = right;
    t.second.in[0].data = t.first.in[0].data;
    assert_false(kern_joins(&run.context, &t.first, &t.second));
    t.second = right;
    t.second.code = OP_ADD;
    assert_false(kern_joins(&run.context, &t.first, &t.second));
    arena_destroy(t.a);
    backend_runs_deinit(&run, 1);
}

// If the operands do not allow fusion, the two calls of a launch run one after the other: here the
// activation overwrites an operand of the GEMM.
static void test_apart(void **state)
{
    (void)state;
    backend_run run;
    backend_run_init(&run, &kern_backend_cpu, kern_level_of_machine(), 2);
    trial t = {.size = {40, 40, 40}, .type = DTYPE_F32};
    must(arena_create("joins", 0, &t.a));
    product_make(&t, OP_MATMUL, true);
    second_make(&t, OP_ACTIVATION, ACT_SILU, false);
    uint8_t *apart = NULL, *joined = NULL;
    must(arena_alloc(t.a, 1 << 20, (void **)&apart));
    must(arena_alloc(t.a, 1 << 20, (void **)&joined));
    const int64_t bytes = outcome(&t, &run, false, apart);
    t.second.out[0] = t.first.in[0];
    assert_true(kern_fuses(&run.context, &t.first, &t.second));
    assert_false(kern_joins(&run.context, &t.first, &t.second));
    assert_int_equal(outcome(&t, &run, true, joined), bytes);
    assert_memory_equal(apart, joined, (size_t)bytes);
    arena_destroy(t.a);
    backend_runs_deinit(&run, 1);
}

// A plan asks before threads exist, by shapes alone, and its answer is what the threads then do.
static void test_planned(void **state)
{
    (void)state;
    static const kern_level levels[] = {KERN_SCALAR, KERN_AVX2, KERN_AVX512, KERN_AVX512_BF16};
    static const op_code codes[] = {OP_ACTIVATION, OP_SWIGLU, OP_ACTIVATION_BWD, OP_ADD};
    int told = 0;
    for (int64_t i = 0; i < COUNT_OF(levels) * COUNT_OF(shapes) * COUNT_OF(codes); i++) {
        const kern_level level = levels[i % COUNT_OF(levels)];
        const op_code second = codes[i / COUNT_OF(levels) % COUNT_OF(codes)];
        if (level > kern_level_of_machine()) continue;
        backend_run run;
        backend_run_init(&run, &kern_backend_cpu, level, 2);
        const kern_context planned = {.backend = &kern_backend_cpu, .level = level, .threads = 2};
        trial t = {.size = shapes[i / COUNT_OF(levels) / COUNT_OF(codes)],
                   .type = i % 3 == 0 ? DTYPE_BF16 : DTYPE_F32};
        must(arena_create("joins", 0, &t.a));
        product_make(&t, i % 2 == 0 ? OP_MATMUL : OP_MATMUL_DX, false);
        second_make(&t, second, ACT_SILU, false);
        const bool fuses = kern_fuses(&planned, &t.first, &t.second);
        assert_int_equal(fuses, kern_joins(&run.context, &t.first, &t.second));
        told += fuses;
        arena_destroy(t.a);
        backend_runs_deinit(&run, 1);
    }
    assert_true(told > 0);
}

// A launch of both is one span in the trace, with the bits of two.
static void test_launch(void **state)
{
    (void)state;
    trace_ring *trace = NULL;
    trial t = {.size = {390, 1030, 40}, .type = DTYPE_F32};
    must(arena_create("joins", 0, &t.a));
    must(trace_create(host_real(), 64, &trace));
    const kern_hint hint = {.threads = 2};
    kern_context *kernels = NULL;
    must(kern_context_create(t.a, "cpu", &hint, &kernels));
    const device_config config = {.h = host_real(),
                                  .run = &kern_device_kernels,
                                  .kernels = kernels,
                                  .trace = trace,
                                  .trace_end = 9};
    const device_api *api = &device_cpu;
    device *d = NULL;
    device_stream *stream = NULL;
    bool posted = false;
    must(api->create(&config, &d));
    must(api->stream_create(d, "compute", 0, &stream));
    product_make(&t, OP_MATMUL, true);
    second_make(&t, OP_SWIGLU, ACT_NONE, false);
    backend_run run;
    backend_run_init(&run, &kern_backend_cpu, kern_level_of_machine(), 2);
    uint8_t *apart = NULL, *joined = NULL;
    must(arena_alloc(t.a, 4 << 20, (void **)&apart));
    must(arena_alloc(t.a, 4 << 20, (void **)&joined));
    const int64_t bytes = outcome(&t, &run, false, apart);
    memset(t.second.out[0].data, 0xFF, 64);
    t.first.then = &t.second;
    must(api->launch(stream, &t.first, &posted));
    assert_true(posted);
    must(api->sync(d));
    assert_int_equal(bits_of(&t.second.out[0], bits_of(&t.first.out[0], joined)) - joined, bytes);
    assert_memory_equal(apart, joined, (size_t)bytes);
    trace_record spans[8];
    const int64_t count = trace_take(trace, spans, COUNT_OF(spans));
    assert_int_equal(count, 1);
    api->destroy(d);
    trace_destroy(trace);
    backend_runs_deinit(&run, 1);
    arena_destroy(t.a);
}

// A library of products that is asked for GELU too, and has no algorithm.
static cuda_product asked;

static status product_refuse(cuda_queue *q, const cuda_product *p)
{
    (void)q;
    if (p->gelu != NULL) asked = *p;
    return ST_UNSUPPORTED;
}

// On a GPU the library of products gets a GEMM with GELU; without it both are launches with the
// bits of two calls.
static void test_gpu(void **state)
{
    (void)state;
    backend_run run;
    backend_run_init(&run, &kern_backend_cuda, KERN_SCALAR, 1);
    for (int in_place = 0; in_place < 2; in_place++) {
        trial t = {.size = {70, 72, 64}, .type = DTYPE_BF16};
        must(arena_create("joins", 0, &t.a));
        product_make(&t, OP_MATMUL, true);
        second_make(&t, OP_ACTIVATION, ACT_GELU_TANH, in_place != 0);
        assert_true(compare(&t, &run));
        memset(&asked, 0, sizeof(asked));
        run.emulator.queue.product = product_refuse;
        assert_true(compare(&t, &run));
        run.emulator.queue.product = NULL;
        // In place there is one result only, and the library would write two.
        assert_ptr_equal(asked.gelu, in_place != 0 ? NULL : t.second.out[0].data);
        assert_int_equal(asked.gelu_stride, in_place != 0 ? 0 : 72 + PAD);
        t.second.attrs.activation = ACT_SILU;
        assert_false(kern_joins(&run.context, &t.first, &t.second));
        arena_destroy(t.a);
    }
    backend_runs_deinit(&run, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpu),    cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_swiglu), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_apart),  cmocka_unit_test(test_planned),
        cmocka_unit_test(test_launch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
