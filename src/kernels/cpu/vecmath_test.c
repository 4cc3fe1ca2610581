// The vector functions against double libm, the levels against each other to the bit, and the
// leaves against their scalar references.
#include "kernels/cpu/vec_kernels.h"
#include "op/block_sum.h"
#include "op/optimizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { LOT = 1000 };

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static double exact_value_of(int which, double x)
{
    switch (which) {
    case 0:
        return exp(x);
    case 1:
        return exp2(x);
    case 2:
        return tanh(x);
    case 3:
        return erf(x);
    default:
        return 1.0 / (1.0 + exp(-x));
    }
}

// |got - want| in units of the last place of `want` as a float (subnormals: their spacing).
static double ulps(double want, float got)
{
    if (fabs(want) > 0x1.ffffffp127) return isinf(got) ? 0.0 : HUGE_VAL;
    int exponent;
    (void)frexp(want, &exponent);
    const double spacing = ldexp(1.0, exponent < -125 ? -149 : exponent - 24);
    return fabs((double)got - want) / spacing;
}

// The worst error over every 9973rd float pattern, both signs.
static double worst(const cpu_vec *vec, int which, float low, float high)
{
    float x[LOT], y[LOT];
    double most = 0.0;
    uint64_t pattern = 0;
    while (pattern <= UINT32_MAX) {
        int64_t n = 0;
        for (; n < LOT && pattern <= UINT32_MAX; pattern += 9973) {
            const float candidate = float_of((uint32_t)pattern);
            if (candidate >= low && candidate <= high) x[n++] = candidate;
        }
        vec->function(which, y, x, n);
        for (int64_t i = 0; i < n; i++) {
            most = fmax(most, ulps(exact_value_of(which, (double)x[i]), y[i]));
        }
    }
    return most;
}

enum { TABLES = 3 };
static const cpu_vec *const tables[TABLES] = {&cpu_vec_scalar, &cpu_vec_avx2, &cpu_vec_avx512};

// Returns the number of tables that this machine can run.
static int table_count(void)
{
    const kern_level level = kern_level_of_machine();
    const int count = level >= KERN_AVX512 ? TABLES : level >= KERN_AVX2 ? 2 : 1;
    if (count < TABLES) print_message("%d of %d levels: the machine has no more\n", count, TABLES);
    return count;
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int which;
        float low, high;
        double limit;
    } rows[] = {{"exp", 0, -104.0F, 89.0F, 1.01},
                {"exp2_neg", 1, -125.9F, 0.0F, 2.1},
                {"tanh", 2, -1e30F, 1e30F, 1.5},
                {"erf", 3, -1e30F, 1e30F, 1.2},
                {"sigmoid", 4, -87.0F, 1e30F, 2.5}};
    const cpu_vec *vec = cpu_vec_of(kern_level_of_machine());
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const double most = worst(vec, rows[i].which, rows[i].low, rows[i].high);
        print_message("%-9s at most %.3f ulp\n", rows[i].name, most);
        assert_true(most <= rows[i].limit);
    }
}

// Four vectors together, as the softmax takes them, equal one at a time.
static void test_exp2_of_four(void **state)
{
    (void)state;
    enum { LANES = 16 }; // the most
    float x[4 * LANES], four[4 * LANES], one[LANES];
    for (int i = 0; i < 4 * LANES; i++) x[i] = -0.09F * (float)(i * i);
    x[5] = -INFINITY;
    x[17] = NAN;
    x[30] = -0.5F;
    for (int t = 0; t < table_count(); t++) {
        const cpu_vec *vec = tables[t];
        vec->function(1, four, x, 4 * LANES);
        for (int i = 0; i < 4 * LANES; i += LANES) {
            vec->function(1, one, x + i, LANES);
            for (int l = 0; l < LANES; l++) {
                assert_true(bits_of(one[l]) == bits_of(four[i + l]) ||
                            (isnan(x[i + l]) && isnan(one[l]) && isnan(four[i + l])));
            }
        }
    }
}

static void test_special_values(void **state)
{
    (void)state;
    const float x[] = {NAN, INFINITY, -INFINITY, 0.0F, -0.0F, 3e38F, -3e38F, 1e-40F};
    for (int t = 0; t < table_count(); t++) {
        const cpu_vec *vec = tables[t];
        float y[5][8];
        for (int f = 0; f < 5; f++) vec->function(f, y[f], x, 8);
        for (int f = 0; f < 5; f++) assert_true(isnan(y[f][0]));
        assert_true(isinf(y[0][1]) && y[0][2] == 0.0F && y[0][3] == 1.0F && y[0][6] == 0.0F);
        assert_true(y[1][2] == 0.0F && y[1][3] == 1.0F && y[1][4] == 1.0F && y[1][6] == 0.0F);
        assert_true(y[2][1] == 1.0F && y[2][2] == -1.0F && y[2][7] == 1e-40F);
        assert_true(bits_of(y[2][4]) == bits_of(-0.0F) && bits_of(y[3][4]) == bits_of(-0.0F));
        assert_true(y[3][1] == 1.0F && y[3][6] == -1.0F);
        assert_true(y[4][1] == 1.0F && y[4][2] == 0.0F && y[4][5] == 1.0F && y[4][3] == 0.5F);
    }
}

static void assert_same(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (isnan(a[i]) && isnan(b[i])) continue;
        assert_int_equal(bits_of(a[i]), bits_of(b[i]));
    }
}

static void check_functions(const cpu_vec *vec, const float *x, int64_t n, int64_t shift)
{
    float a[LOT], b[LOT];
    for (int f = 0; f < 5; f++) {
        cpu_vec_scalar.function(f, a, x, n);
        vec->function(f, b, x + shift, n - shift);
        assert_same(a + shift, b, n - shift);
    }
    const cpu_span in = {(void *)(uintptr_t)x, DTYPE_F32}, to_a = {a, DTYPE_F32},
                   to_b = {b, DTYPE_F32};
    for (int kind = ACT_NONE; kind <= ACT_RELU; kind++) {
        cpu_vec_scalar.activation((op_activation)kind, to_a, in, n);
        vec->activation((op_activation)kind, to_b, in, n);
        assert_same(a, b, n);
        cpu_vec_scalar.activation_bwd((op_activation)kind, to_a, in, in, n);
        vec->activation_bwd((op_activation)kind, to_b, in, in, n);
        assert_same(a, b, n);
    }
}

static void test_levels_agree(void **state)
{
    (void)state;
    float x[LOT];
    for (int t = 1; t < table_count(); t++) {
        for (uint32_t round = 0; round < 60; round++) {
            for (uint32_t i = 0; i < LOT; i++) {
                x[i] = round < 30 ? float_of(rng_word(1, round, i))
                                  : rng_tensor_normal(7, round, i) * (float)(round - 20);
            }
            // Each round has another offset, so elements pass through body and tail.
            check_functions(tables[t], x, LOT - (int64_t)round, round);
        }
    }
}

// ---- rows and sums of them, in every type, of every length --------------------------------------
typedef struct norm_case {
    dtype type, weight_type;
    bool has_delta, keeps_h;
    int64_t n;
} norm_case;

enum { NORM_MOST = 150, NORM_ROWS = 5, NORM_BUFFERS = 8 };
typedef struct norm_memory {
    float buffer[NORM_BUFFERS][NORM_ROWS * NORM_MOST]; // as any type
    float r, mean;
} norm_memory;

static cpu_span filled(norm_memory *m, int k, dtype type, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        dtype_store(type, m->buffer[k], i, (double)rng_tensor_normal(11, (uint64_t)k, i));
    }
    return (cpu_span){m->buffer[k], type};
}

// All leaves over rows of norms, one after the other, into m.
static void run_norms(const cpu_vec *vec, const norm_case *c, norm_memory *m)
{
    const int64_t n = c->n, all = NORM_ROWS * n;
    memset(m, 0, sizeof(*m));
    const cpu_span x = filled(m, 0, c->type, all), delta = filled(m, 1, c->type, n);
    const cpu_span w = filled(m, 2, c->weight_type, n), b = filled(m, 3, c->weight_type, n);
    const cpu_span y = filled(m, 4, c->type, n), h = filled(m, 5, c->type, all);
    const cpu_span dw = filled(m, 6, DTYPE_F32, n), db = filled(m, 7, DTYPE_F32, n);
    cpu_norm_row row = {.x = x, .w = w, .b = b, .y = y, .dim = n, .eps = 1e-5F, .plus = 1.0F};
    if (c->has_delta) row.delta = delta;
    if (c->keeps_h) row.h = h;
    vec->rmsnorm(&row);
    m->r = row.r;
    row.b = row.y; // adds to the output of the first
    vec->layernorm(&row);
    m->mean = row.mean + 3.0F * row.r;
    const float r[NORM_ROWS] = {row.r, 0.5F, 2.0F, 1.0F, 0.1F};
    const double mean[NORM_ROWS] = {vec->row_mean(x, n), 0.25, -3.0, 0.0, 1e-3};
    row = (cpu_norm_row){
        .dy = y, .h = x, .w = w, .dh = c->has_delta ? delta : (cpu_span){0}, .dx = y, .dim = n};
    row.r = r[0];
    vec->layernorm_dx(&row);
    row.dh = (cpu_span){0};
    vec->rmsnorm_dx(&row);
    cpu_norm_sum args = {.dy = h, .h = x, .dy_stride = n, .h_stride = n, .r = r, .mean = mean};
    args.r_stride = args.groups = 1;
    args.rows = NORM_ROWS;
    args.dim = n;
    args.dw = dw;
    args.db = db;
    args.accumulate = true;
    for (args.column = 0; args.column < n; args.column += CPU_SUM_COLUMNS) {
        args.count = min_i64(CPU_SUM_COLUMNS, n - args.column);
        vec->norm_dw(&args);
    }
    args.mean = NULL;
    args.db.at = NULL;
    args.column = 0;
    args.count = min_i64(CPU_SUM_COLUMNS, n);
    vec->norm_dw(&args);
    const cpu_row_sum sum = {db, x, NORM_ROWS, n, n, c->has_delta};
    vec->sum_rows(&sum);
}

static void test_norms_agree(void **state)
{
    (void)state;
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    static norm_memory want, got;
    for (int64_t k = 0; k < 3 * 4 * NORM_MOST; k++) {
        norm_case c = {.type = types[k % 3], .weight_type = types[k % 3], .n = 1 + k / 12};
        if (k % 7 == 0) c.weight_type = DTYPE_F32;
        c.has_delta = (k / 3) % 2 == 1;
        c.keeps_h = (k / 6) % 2 == 1;
        run_norms(&cpu_vec_scalar, &c, &want);
        for (int t = 1; t < table_count(); t++) {
            run_norms(tables[t], &c, &got);
            assert_memory_equal(&got, &want, sizeof(got));
        }
    }
}

// A sequential sum, column by column; no column after the last one changes.
static void test_sum_rows(void **state)
{
    (void)state;
    enum { ROWS = 9, MOST = 200 };
    static uint16_t x[ROWS * MOST];
    for (int64_t i = 0; i < ROWS * MOST; i++) {
        dtype_store(DTYPE_BF16, x, i, (double)rng_tensor_normal(2, 9, i));
    }
    for (int t = 0; t < table_count(); t++) {
        for (int64_t n = 1; n < MOST; n++) {
            float sum[MOST + 1];
            for (int64_t j = 0; j <= n; j++) sum[j] = 0.1F * (float)j;
            const cpu_span to = {sum, DTYPE_F32}, from = {x, DTYPE_BF16};
            const cpu_row_sum args = {to, from, ROWS, MOST, n, n % 3 != 0};
            tables[t]->sum_rows(&args);
            for (int64_t j = 0; j < n; j++) {
                float want = args.accumulate ? 0.1F * (float)j : 0.0F;
                for (int64_t i = 0; i < ROWS; i++) want += f32_from_bf16(x[i * MOST + j]);
                assert_int_equal(bits_of(sum[j]), bits_of(want));
            }
            assert_int_equal(bits_of(sum[n]), bits_of(0.1F * (float)n));
        }
    }
}

static void check_widening(const cpu_vec *vec, dtype type)
{
    static float wide[1 << 16];
    static uint16_t narrow[1 << 16];
    for (int64_t i = 0; i < 1 << 16; i++) narrow[i] = (uint16_t)i;
    vec->cast((cpu_span){wide, DTYPE_F32}, (cpu_span){narrow, type}, 1 << 16);
    for (int64_t i = 0; i < 1 << 16; i++) {
        const float want = (float)dtype_load(type, narrow, i);
        assert_same(&want, &wide[i], 1);
    }
}

// All upper halves of fp32, with lower halves at and around ties.
static void check_narrowing(const cpu_vec *vec, dtype type, uint32_t low)
{
    static float wide[1 << 16];
    static uint16_t narrow[1 << 16];
    for (uint32_t i = 0; i < 1 << 16; i++) wide[i] = float_of(i << 16 | low);
    vec->cast((cpu_span){narrow, type}, (cpu_span){wide, DTYPE_F32}, 1 << 16);
    for (int64_t i = 0; i < 1 << 16; i++) {
        uint16_t want;
        dtype_store(type, &want, 0, (double)wide[i]);
        if (!isnan(wide[i])) assert_int_equal(narrow[i], want);
        if (isnan(wide[i])) assert_true(isnan((float)dtype_load(type, narrow, i)));
    }
}

static void test_casts(void **state)
{
    (void)state;
    static const uint32_t lows[] = {0x0000, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xd001};
    for (int t = 0; t < table_count(); t++) {
        const cpu_vec *vec = tables[t];
        check_widening(vec, DTYPE_BF16);
        check_widening(vec, DTYPE_F16);
        for (int64_t i = 0; i < COUNT_OF(lows); i++) {
            check_narrowing(vec, DTYPE_BF16, lows[i]);
            check_narrowing(vec, DTYPE_F16, lows[i]);
        }
    }
}

static void check_dropout(const cpu_vec *vec, dtype type, int64_t n, float p)
{
    enum { MOST = 150 };
    const step_host at = {.step = 9, .seed = UINT64_C(0x123456789abcdef0)};
    const dropout_stream stream = dropout_stream_of(&at, 5, 0, 77);
    float x[MOST], y[MOST + 1];
    for (int64_t i = 0; i < n; i++) dtype_store(type, x, i, i % 5 == 0 ? -1.0 : 1.0);
    dtype_store(type, y, n, 7.0);
    vec->dropout((cpu_span){y, type}, (cpu_span){x, type}, 4, n, &stream, 12, p);
    for (int64_t i = 0; i < n; i++) {
        const float by = dropout_factor_at(&stream, 12, 4 + i, p);
        float want[1];
        dtype_store(type, want, 0, (double)(i % 5 == 0 ? -by : by));
        assert_true(dtype_load(type, y, i) == dtype_load(type, want, 0));
    }
    assert_true(dtype_load(type, y, n) == 7.0);
}

static void test_dropout_follows_the_rule(void **state)
{
    (void)state;
    static const float chances[] = {0.0F, 0x1p-24F, 0.2F, 0.3F, 0.5F, 0x1.fffffep-1F};
    for (int t = 0; t < table_count(); t++) {
        for (int64_t n = 1; n < 150; n++) {
            const float p = chances[n % COUNT_OF(chances)];
            check_dropout(tables[t], DTYPE_F32, n, p);
            check_dropout(tables[t], DTYPE_BF16, n, p);
        }
    }
}

static void test_block_squares(void **state)
{
    (void)state;
    float x[BLOCK_SUM_ELEMENTS];
    for (int64_t i = 0; i < BLOCK_SUM_ELEMENTS; i++) x[i] = rng_tensor_normal(3, 4, i);
    for (int64_t n = 1; n <= BLOCK_SUM_ELEMENTS; n = n * 5 / 4 + 1) {
        block_sum sum;
        block_sum_begin(&sum);
        for (int64_t j = 0; j < n; j++) block_sum_add(&sum, j, (double)x[j]);
        const double want = block_sum_end(&sum);
        const cpu_span block = {x, DTYPE_F32};
        for (int t = 0; t < table_count(); t++) {
            assert_true(tables[t]->block_squares(block, n) == want);
        }
    }
}

// With rate 0 and no decay the master weight is only rounded.
static void test_stochastic_rounding(void **state)
{
    (void)state;
    enum { N = 37 };
    const step_host at = {.step = 3, .seed = UINT64_C(0xfeedfacecafebeef)};
    float zero[N] = {0}, p[N];
    for (int64_t i = 0; i < N; i++) p[i] = rng_tensor_normal(1, 2, i);
    p[5] = INFINITY;
    for (int t = 0; t < table_count(); t++) {
        for (int kind = 0; kind < 2; kind++) {
            uint16_t out[N];
            const cpu_span zeros = {zero, DTYPE_F32};
            const cpu_update_span span = {
                .grad = zeros,
                .m = zeros,
                .v = zeros,
                .master = {p, DTYPE_F32},
                .master_out = {out, kind == 0 ? DTYPE_BF16 : DTYPE_F16},
                .n = N,
                .element = INT64_C(0xfffffffb),
                .keep = 1.0F,
                .unbias2 = 1.0F,
                .eps = 1.0F,
                .stochastic = true,
                .step = &at,
                .tensor_index = 6,
            };
            tables[t]->adamw(&span);
            for (int64_t i = 0; i < N; i++) {
                const uint32_t word = optimizer_random(&at, 6, span.element + i).w[0];
                assert_int_equal(out[i], kind == 0 ? bf16_from_f32_stochastic(p[i], word)
                                                   : f16_from_f32_stochastic(p[i], word));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),         cmocka_unit_test(test_exp2_of_four),
        cmocka_unit_test(test_special_values), cmocka_unit_test(test_levels_agree),
        cmocka_unit_test(test_casts),          cmocka_unit_test(test_dropout_follows_the_rule),
        cmocka_unit_test(test_block_squares),  cmocka_unit_test(test_stochastic_rounding),
        cmocka_unit_test(test_norms_agree),    cmocka_unit_test(test_sum_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
