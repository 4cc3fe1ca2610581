// GEMMs: the contract of gemm.h, bit by bit.
//
// The reference is the sequential sum, written with fmaf. Every level, thread count, type, operand
// order and cut must give its bits; this sum in turn is compared with sums in double. The unit for
// bf16 adds in pairs: its results are compared with sums in double, and its bits with those of
// other threads, pieces and cuts.
#include "kernels/cpu/gemm_unit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int64_t m, n, k;
} shape;

// Shapes for every driver, its edges, and sizes around the blocks.
static const shape shapes[] = {
    {1, 1, 1},    {1, 40, 9},   {2, 64, 31},   {5, 17, 8},    {8, 129, 61},  {9, 33, 5},
    {13, 37, 70}, {64, 16, 20}, {145, 5, 260}, {151, 50, 9},  {147, 530, 3}, {7, 3, 0},
    {0, 4, 4},    {4, 0, 4},    {150, 18, 30}, {29, 1600, 5},
};
static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

enum { PAD = 3 }; // rows are further apart than they are long

static kern_pool *pools[4]; // by threads
static void *scratch;

static int pools_open(void **state)
{
    (void)state;
    scratch = aligned_alloc(4096, 3 * (size_t)KERN_SCRATCH_BYTES);
    for (int t = 1; t <= 3; t++) {
        if (kern_pool_create(t, &pools[t]) != ST_OK) return -1;
        kern_pool_scratch_set(pools[t], scratch);
    }
    return 0;
}

static int pools_close(void **state)
{
    (void)state;
    for (int t = 1; t <= 3; t++) kern_pool_destroy(pools[t]);
    free(scratch);
    return 0;
}

static uint32_t noise_state = 1;
static float noise(void)
{
    noise_state = noise_state * 1664525u + 1013904223u;
    return (float)(int32_t)noise_state * 0x1p-31f;
}

static int64_t width_of(dtype type)
{
    return type == DTYPE_F32 ? 4 : 2;
}

// A matrix of exactly the bytes that it needs, so that ASan detects an access after the end.
static gemm_matrix matrix_make(int64_t rows, int64_t columns, dtype type, bool transposed)
{
    const int64_t inner = transposed ? rows : columns, outer = transposed ? columns : rows;
    const int64_t stride = inner + PAD;
    const int64_t count = outer == 0 ? 0 : (outer - 1) * stride + inner;
    char *data = malloc((size_t)(max_i64(count, 1) * width_of(type)));
    for (int64_t i = 0; i < count; i++) dtype_store(type, data, i, (double)noise());
    const gemm_matrix m = gemm_rows(data, type, stride);
    return transposed ? gemm_transposed(m) : m;
}

static void matrix_free(gemm_matrix m)
{
    free((void *)(uintptr_t)m.data);
}

static float at(const gemm_matrix *m, int64_t i, int64_t j)
{
    return gemm_load_one(m->type, m->data, i * m->row_stride + j * m->column_stride);
}

// A bias and a nonlinear function, to check that the epilogue gets the right indices and finished
// sums.
static void bent(const void *context, float *values, int64_t i, int64_t j, int64_t count)
{
    const float *bias = context;
    for (int64_t c = 0; c < count; c++) {
        values[c] = fmaf(values[c] + bias[j + c], 0.5f, (float)(i % 7));
    }
}

static void expected(const gemm_args *g, char *c)
{
    double worst = 0.0;
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            const int64_t place = i * g->ldc + j;
            float sum = g->accumulate ? gemm_load_one(g->c_type, c, place) : 0.0f;
            double exact = (double)sum, size = fabs(exact);
            for (int64_t k = 0; k < g->k; k++) {
                const float a = at(&g->a, i, k), b = at(&g->b, k, j);
                sum = fmaf(a, b, sum);
                exact += (double)a * (double)b;
                size += fabs((double)a * (double)b);
            }
            worst = fmax(worst, fabs((double)sum - exact) - 0x1p-23 * (double)g->k * size);
            if (g->epilogue != NULL) g->epilogue(g->epilogue_context, &sum, i, j, 1);
            dtype_store(g->c_type, c, place, (double)sum);
        }
    }
    assert_true(worst <= 0.0);
}

static const kern_level levels[] = {KERN_SCALAR, KERN_AVX2, KERN_AVX512};

static bool has_level(kern_level level)
{
    return level <= kern_level_of_machine();
}

// Packs the panels of B for the same GEMM, in exactly the bytes that gemm_panels_bytes returns.
// NULL: there are none.
static void *panels_make(const kern_context *context, gemm_args *g)
{
    const int64_t bytes = gemm_panels_bytes(context->level, g->b.type, g->any_order, g->n, g->k);
    if (bytes == 0) return NULL;
    void *panels = aligned_alloc(64, (size_t)align_up(bytes, 64));
    memset(panels, 0xff, (size_t)align_up(bytes, 64));
    g->panels = panels;
    gemm_args none = *g;
    none.m = 0;
    none.fills = true;
    gemm_run(context, &none);
    return panels;
}

static void check(const gemm_args *g, const char *c0, int64_t c_bytes, const char *want)
{
    char *got = malloc((size_t)c_bytes + 1);
    for (int64_t l = 0; l < COUNT_OF(levels); l++) {
        if (!has_level(levels[l])) continue;
        for (int threads = 0; threads <= 3; threads++) {
            // The plain loops are slow, so one run per case is enough.
            if (threads == 0 && l != 0) continue;
            if (threads != 2 && threads != 0 && l == 0) continue;
            const kern_context context = {.pool = pools[threads], .level = levels[l]};
            for (int kept = 0; kept < (threads > 0 ? 2 : 1); kept++) {
                gemm_args run = *g;
                run.c = got;
                memcpy(got, c0, (size_t)c_bytes);
                void *panels = kept > 0 ? panels_make(&context, &run) : NULL;
                memset(scratch, 0xff, 64 * 1024); // NaN: unpacked memory must not be read
                gemm_run(&context, &run);
                free(panels);
                if (memcmp(got, want, (size_t)c_bytes) == 0) continue;
                fail_msg("m %d n %d k %d c %s level %s threads %d%s", (int)g->m, (int)g->n,
                         (int)g->k, dtype_name(g->c_type), kern_level_name(levels[l]), threads,
                         panels != NULL ? ", panels kept" : "");
            }
        }
    }
    free(got);
}

// variant: bit 0, 1: A, B transposed; 2: accumulate; 3: epilogue
static void check_shape(shape s, dtype a, dtype b, dtype c, int variant)
{
    gemm_args g = {.m = s.m, .n = s.n, .k = s.k, .c_type = c, .ldc = s.n + PAD};
    g.a = matrix_make(s.m, s.k, a, (variant & 1) != 0);
    g.b = matrix_make(s.k, s.n, b, (variant & 2) != 0);
    g.accumulate = (variant & 4) != 0;
    float *bias = malloc((size_t)(s.n + 1) * sizeof(float));
    for (int64_t j = 0; j < s.n; j++) bias[j] = noise();
    if ((variant & 8) != 0) {
        g.epilogue = bent;
        g.epilogue_context = bias;
    }
    const gemm_matrix c0 = matrix_make(s.m, s.n, c, false);
    const int64_t bytes = s.m == 0 ? 0 : ((s.m - 1) * g.ldc + s.n) * width_of(c);
    char *want = malloc((size_t)bytes + 1);
    memcpy(want, c0.data, (size_t)bytes);
    expected(&g, want);
    check(&g, c0.data, bytes, want);
    matrix_free(g.a);
    matrix_free(g.b);
    matrix_free(c0);
    free(bias);
    free(want);
}

static void every_level_gives_the_sequential_sum(void **state)
{
    (void)state;
    for (int64_t l = 0; l < COUNT_OF(levels); l++) {
        if (has_level(levels[l])) continue;
        print_message("level %s: untested, this machine has it not\n", kern_level_name(levels[l]));
    }
    for (int64_t i = 0; i < COUNT_OF(shapes); i++) {
        for (int variant = 0; variant < 16; variant++) {
            check_shape(shapes[i], DTYPE_F32, DTYPE_F32, DTYPE_F32, variant);
        }
    }
}

static void every_type_gives_the_sequential_sum(void **state)
{
    (void)state;
    for (int mix = 1; mix < 27; mix++) {
        const dtype a = types[mix % 3], b = types[mix / 3 % 3], c = types[mix / 9];
        for (int64_t i = 0; i < COUNT_OF(shapes); i++) {
            // Over the shapes, every variant is combined with every mix of types.
            if ((mix + i) % 2 != 0) continue;
            check_shape(shapes[i], a, b, c, (int)(mix * 7 + i * 5) % 16);
        }
    }
}

// The flat driver: whole groups of lines and the remaining ones, groups of columns and a last one.
static void few_rows_give_the_sequential_sum(void **state)
{
    (void)state;
    static const shape few[] = {{1, 16, 64}, {1, 83, 103}, {3, 17, 64}, {8, 70, 97}, {2, 5, 33}};
    for (int64_t i = 0; i < COUNT_OF(few); i++) {
        for (int mix = 0; mix < 9; mix++) {
            check_shape(few[i], types[mix % 3], types[mix / 3], DTYPE_F32, mix % 2 != 0 ? 2 : 10);
        }
    }
}

// Wide enough for several shared panels, deep enough for several passes and for the deep driver.
static void large_products_are_blocked_rightly(void **state)
{
    (void)state;
    check_shape((shape){146, 5, 2600}, DTYPE_F32, DTYPE_F32, DTYPE_F32, 2 | 4);
    check_shape((shape){146, 1300, 9}, DTYPE_F32, DTYPE_F32, DTYPE_BF16, 2 | 8);
    check_shape((shape){9, 10, 17000}, DTYPE_BF16, DTYPE_F32, DTYPE_BF16, 2);
    check_shape((shape){3, 17, 17000}, DTYPE_F32, DTYPE_BF16, DTYPE_F16, 2 | 4 | 8);
}

// A GEMM over all of k equals two, the second continuing from the first, at every cut.
static void a_cut_in_k_changes_no_bit(void **state)
{
    (void)state;
    enum { M = 150, N = 23, K = 25 };
    const gemm_matrix a = matrix_make(M, K, DTYPE_F32, true);
    const gemm_matrix b = matrix_make(K, N, DTYPE_F32, false);
    static float whole[M * N], parts[M * N];
    const kern_context context = {.pool = pools[2], .level = kern_level_of_machine()};
    gemm_args g = {
        .m = M, .n = N, .k = K, .a = a, .b = b, .c = whole, .c_type = DTYPE_F32, .ldc = N};
    gemm_run(&context, &g);
    for (int64_t cut = 0; cut <= K; cut++) {
        memset(parts, 0x7f, sizeof(parts));
        g.c = parts;
        g.k = cut;
        g.a.data = a.data;
        g.b.data = b.data;
        g.accumulate = false;
        gemm_run(&context, &g);
        g.k = K - cut;
        g.a.data = (const float *)a.data + cut * a.column_stride;
        g.b.data = (const float *)b.data + cut * b.row_stride;
        g.accumulate = true;
        gemm_run(&context, &g);
        assert_memory_equal(whole, parts, sizeof(whole));
    }
    matrix_free(a);
    matrix_free(b);
}

// Several passes over columns and over k, packed while others are multiplied, give the bits of a
// GEMM that is computed piece by piece.
static void passes_change_no_bit(void **state)
{
    (void)state;
    enum { M = 151, N = 1711, K = 1057, WIDTH = 300, CUT = 509 };
    const gemm_matrix a = matrix_make(M, K, DTYPE_F32, false);
    const gemm_matrix b = matrix_make(K, N, DTYPE_F32, true);
    float *want = calloc(M * N, sizeof(*want)), *got = calloc(M * N, sizeof(*got));
    const kern_level level = kern_level_of_machine();
    for (int64_t j = 0; j < N; j += WIDTH) {
        for (int64_t k = 0; k < K; k += CUT) {
            gemm_args g = {.m = M, .n = min_i64(WIDTH, N - j), .k = min_i64(CUT, K - k)};
            g.a = a;
            g.a.data = (const float *)a.data + k * a.column_stride;
            g.b = b;
            g.b.data = (const float *)b.data + k * b.row_stride + j * b.column_stride;
            g.c = want + j;
            g.c_type = DTYPE_F32;
            g.ldc = N;
            g.accumulate = k > 0;
            gemm_run(&(kern_context){.pool = pools[1], .level = level}, &g);
        }
    }
    for (int threads = 1; threads <= 3; threads++) {
        for (int repeat = 0; repeat < 4; repeat++) {
            const gemm_args g = {.m = M, .n = N, .k = K, .a = a, .b = b, .c = got, .ldc = N};
            memset(got, 0xff, M * N * sizeof(*got));
            gemm_run(&(kern_context){.pool = pools[threads], .level = level}, &g);
            assert_memory_equal(got, want, M * N * sizeof(*got));
        }
        const kern_context context = {.pool = pools[threads], .level = level};
        gemm_args g = {.m = M, .n = N, .k = K, .a = a, .b = b, .c = got, .ldc = N};
        void *panels = panels_make(&context, &g);
        memset(got, 0xff, M * N * sizeof(*got));
        gemm_run(&context, &g);
        free(panels);
        assert_memory_equal(got, want, M * N * sizeof(*got));
    }
    free(want);
    free(got);
    matrix_free(a);
    matrix_free(b);
}

// ---- the unit for bf16 --------------------------------------------------------------------------
static bool has_bf16_unit(void)
{
    if (has_level(KERN_AVX512_BF16)) return true;
    print_message("level %s: untested, this machine has it not\n",
                  kern_level_name(KERN_AVX512_BF16));
    return false;
}

static void run_free(const gemm_args *g, int threads, bool in_pairs, bool keeps)
{
    gemm_args run = *g;
    run.rounds = true;
    run.any_order = !in_pairs;
    run.in_pairs = in_pairs;
    const kern_context context = {.pool = pools[threads], .level = KERN_AVX512_BF16};
    void *panels = keeps ? panels_make(&context, &run) : NULL;
    memset(scratch, 0xff, 64 * 1024); // NaN: unpacked memory must not be read
    gemm_run(&context, &run);
    free(panels);
}

static double rounded_at(const gemm_matrix *m, int64_t i, int64_t j)
{
    return (double)f32_from_bf16(bf16_from_f32(at(m, i, j)));
}

// Every term and every sum is rounded once, in fp32; C once more if it is narrower.
static void near_the_exact_sum(const gemm_args *g, const char *c0, const char *got)
{
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            const int64_t place = i * g->ldc + j;
            double sum = g->accumulate ? dtype_load(g->c_type, c0, place) : 0.0, size = fabs(sum);
            for (int64_t k = 0; k < g->k; k++) {
                const double term = rounded_at(&g->a, i, k) * rounded_at(&g->b, k, j);
                sum += term;
                size += fabs(term);
            }
            const double narrow = g->c_type == DTYPE_F32 ? 0.0 : 0x1p-8 * fabs(sum);
            const double bound = 0x1p-23 * (double)(g->k + 1) * size + narrow;
            assert_true(fabs(dtype_load(g->c_type, got, place) - sum) <= bound);
        }
    }
}

// variant: bit 0, 1: A, B transposed; 2: accumulate
static void check_free(shape s, dtype a, dtype b, dtype c, int variant)
{
    gemm_args g = {.m = s.m, .n = s.n, .k = s.k, .c_type = c, .ldc = s.n + PAD};
    g.a = matrix_make(s.m, s.k, a, (variant & 1) != 0);
    g.b = matrix_make(s.k, s.n, b, (variant & 2) != 0);
    g.accumulate = (variant & 4) != 0;
    const gemm_matrix c0 = matrix_make(s.m, s.n, c, false);
    const size_t bytes = (size_t)(((s.m - 1) * g.ldc + s.n) * width_of(c));
    char *first = malloc(bytes), *other = malloc(bytes);
    for (int threads = 1; threads <= 3; threads++) {
        char *to = threads == 1 ? first : other;
        memcpy(to, c0.data, bytes);
        g.c = to;
        run_free(&g, threads, false, false);
        if (threads > 1) assert_memory_equal(first, other, bytes);
        memcpy(other, c0.data, bytes);
        g.c = other;
        run_free(&g, threads, false, true);
        assert_memory_equal(first, other, bytes);
    }
    near_the_exact_sum(&g, c0.data, first);
    // The last rows and columns alone: other positions in the tiles, the same bits.
    memcpy(other, c0.data, bytes);
    const int64_t i = s.m - s.m * 2 / 3, j = s.n / 3;
    gemm_args part = g;
    part.m = s.m - i;
    part.n = s.n - j;
    part.a.data = (const char *)g.a.data + i * g.a.row_stride * width_of(a);
    part.b.data = (const char *)g.b.data + j * g.b.column_stride * width_of(b);
    part.c = other + (i * g.ldc + j) * width_of(c);
    run_free(&part, 2, true, false); // few rows too, which any_order takes another way with
    for (int64_t r = i; r < s.m; r++) {
        const int64_t from = (r * g.ldc + j) * width_of(c);
        assert_memory_equal(first + from, other + from, (size_t)(part.n * width_of(c)));
    }
    matrix_free(g.a);
    matrix_free(g.b);
    matrix_free(c0);
    free(first);
    free(other);
}

static void the_bf16_unit_adds_pairs_in_order(void **state)
{
    (void)state;
    if (!has_bf16_unit()) skip();
    static const shape sizes[] = {{9, 1, 1},     {13, 37, 70},   {64, 16, 20},
                                  {145, 5, 261}, {151, 50, 9},   {147, 530, 3},
                                  {150, 18, 30}, {29, 33, 2049}, {146, 1300, 10}};
    for (int64_t i = 0; i < COUNT_OF(sizes); i++) {
        for (int variant = 0; variant < 8; variant++) {
            check_free(sizes[i], DTYPE_BF16, DTYPE_BF16, types[(variant + i) % 2], variant);
            check_free(sizes[i], DTYPE_F32, types[variant / 2 % 2], DTYPE_F32, variant);
        }
    }
    check_free((shape){11, 20, 34000}, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 0); // deep
}

static void the_bf16_unit_goes_on_after_an_even_cut(void **state)
{
    (void)state;
    if (!has_bf16_unit()) skip();
    enum { M = 150, N = 41, K = 1033 };
    const gemm_matrix a = matrix_make(M, K, DTYPE_BF16, true);
    const gemm_matrix b = matrix_make(K, N, DTYPE_BF16, false);
    static float whole[M * N], parts[M * N];
    gemm_args g = {.m = M, .n = N, .k = K, .a = a, .b = b, .c = whole, .ldc = N};
    run_free(&g, 2, true, false);
    g.c = parts;
    for (int64_t k = 0, step; k < K; k += step) {
        step = min_i64(2 + 6 * k, K - k);
        g.k = step;
        g.a.data = (const uint16_t *)a.data + k * a.column_stride;
        g.b.data = (const uint16_t *)b.data + k * b.row_stride;
        g.accumulate = k > 0;
        run_free(&g, 2, true, false);
    }
    assert_memory_equal(whole, parts, sizeof(whole));
    matrix_free(a);
    matrix_free(b);
}

// ---- conversions: the units' against the scalar truth -------------------------------------------
enum { PATTERNS = 1 << 16, PIECE = 37 };
static uint16_t bits[PATTERNS];
static float wide[PATTERNS];

static void loads_check(const gemm_unit *unit, dtype type)
{
    for (int i = 0; i < PATTERNS; i++) bits[i] = (uint16_t)i;
    unit->load(wide, bits, type, PATTERNS);
    for (int i = 0; i < PATTERNS; i++) {
        const float truth = gemm_load_one(type, bits, i);
        assert_true(wide[i] == truth || (isnan(wide[i]) && isnan(truth)));
    }
}

// Around every pattern of the narrow types: ties, just below and just above them.
static void stores_check(const gemm_unit *unit, dtype type)
{
    static const uint32_t rests[4] = {0x8000, 0x7fff, 0x8001, 0x1000};
    for (uint32_t i = 0; i < PATTERNS; i++) {
        const uint32_t word = i << 16 | rests[i % 4];
        memcpy(&wide[i], &word, sizeof(word));
    }
    for (int64_t i = 0; i < PATTERNS; i += PIECE) {
        unit->store(bits + i, type, wide + i, min_i64(PIECE, PATTERNS - i));
    }
    for (int i = 0; i < PATTERNS; i++) {
        if (isnan(wide[i])) {
            assert_true(isnan(gemm_load_one(type, bits, i)));
        } else {
            const bool is_bf16 = type == DTYPE_BF16;
            assert_int_equal(bits[i], is_bf16 ? bf16_from_f32(wide[i]) : f16_from_f32(wide[i]));
        }
    }
}

static void conversions_are_exact(void **state)
{
    (void)state;
    for (int64_t l = 0; l < COUNT_OF(levels); l++) {
        if (!has_level(levels[l])) continue;
        for (int t = 1; t < 3; t++) {
            loads_check(gemm_unit_of(levels[l]), types[t]);
            stores_check(gemm_unit_of(levels[l]), types[t]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversions_are_exact),
        cmocka_unit_test(every_level_gives_the_sequential_sum),
        cmocka_unit_test(every_type_gives_the_sequential_sum),
        cmocka_unit_test(few_rows_give_the_sequential_sum),
        cmocka_unit_test(large_products_are_blocked_rightly),
        cmocka_unit_test(a_cut_in_k_changes_no_bit),
        cmocka_unit_test(passes_change_no_bit),
        cmocka_unit_test(the_bf16_unit_adds_pairs_in_order),
        cmocka_unit_test(the_bf16_unit_goes_on_after_an_even_cut),
    };
    return cmocka_run_group_tests(tests, pools_open, pools_close);
}
