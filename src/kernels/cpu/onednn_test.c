// GEMMs by oneDNN against sums in double, and the same bits for any number of threads.
//
// Cases without a oneDNN primitive on this CPU (bf16 without AVX-512) are skipped and named.
#include "kernels/cpu/onednn.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PAD = 8 };

static float noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state * 0x1p-31f;
}

static gemm_matrix matrix_make(int64_t rows, int64_t columns, dtype type, bool transposed)
{
    uint32_t state = (uint32_t)(rows * 31 + columns);
    const int64_t inner = transposed ? rows : columns, outer = transposed ? columns : rows;
    const int64_t count = outer * (inner + PAD);
    void *data = malloc((size_t)(count * dtype_bytes(type)));
    for (int64_t i = 0; i < count; i++) dtype_store(type, data, i, (double)noise(&state));
    const gemm_matrix m = gemm_rows(data, type, inner + PAD);
    return transposed ? gemm_transposed(m) : m;
}

static double get(const gemm_matrix *m, int64_t i, int64_t j)
{
    return dtype_load(m->type, m->data, i * m->row_stride + j * m->column_stride);
}

static void twice(const void *context, float *values, int64_t i, int64_t j, int64_t count)
{
    (void)context;
    (void)i;
    (void)j;
    for (int64_t c = 0; c < count; c++) values[c] *= 2.0f;
}

static void compare(const gemm_args *g, const char *before, double limit)
{
    const int64_t width = dtype_bytes(g->c_type);
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            const int64_t at = i * g->ldc + j;
            double sum = g->accumulate ? dtype_load(g->c_type, before, at) : 0.0;
            for (int64_t k = 0; k < g->k; k++) sum += get(&g->a, i, k) * get(&g->b, k, j);
            if (g->epilogue != NULL) sum *= 2.0;
            assert_true(fabs(dtype_load(g->c_type, g->c, at) - sum) <= limit);
        }
        // Memory between the rows does not belong to C.
        const int64_t gap = (i * g->ldc + g->n) * width;
        assert_memory_equal((char *)g->c + gap, before + gap, (size_t)(PAD * width));
    }
}

typedef struct trial {
    dtype in, out;
    bool a_transposed, b_transposed, accumulate, epilogue, counted;
    int64_t m;
} trial;

// Returns false if oneDNN does not compute it.
static bool try_product(onednn *o, kern_pool *const pools[3], const trial *t)
{
    enum { N = 40, K = 77 };
    gemm_args g = {.m = t->m, .n = N, .k = K, .c_type = t->out, .ldc = N + PAD};
    g.a = matrix_make(t->m, K, t->in, t->a_transposed);
    g.b = matrix_make(K, N, t->in, t->b_transposed);
    g.accumulate = t->accumulate;
    g.counted_m = t->counted;
    if (t->epilogue) g.epilogue = twice;
    const gemm_matrix c0 = matrix_make(t->m, N, t->out, false);
    const size_t bytes = (size_t)(t->m * g.ldc * dtype_bytes(t->out));
    char *c[3];
    bool ran = true;
    for (int threads = 1; threads <= 2 && ran; threads++) {
        c[threads] = malloc(bytes);
        memcpy(c[threads], c0.data, bytes);
        g.c = c[threads];
        ran = onednn_run(o, pools[threads], &g);
        if (ran) compare(&g, c0.data, t->out == DTYPE_F32 ? 1e-4 : 0.2);
        if (threads == 2 && ran) assert_memory_equal(c[1], c[2], bytes);
        if (!ran) assert_memory_equal(c[threads], c0.data, bytes);
        if (threads == 2 || !ran) free(c[1]);
        if (threads == 2) free(c[2]);
    }
    free((void *)(uintptr_t)g.a.data);
    free((void *)(uintptr_t)g.b.data);
    free((void *)(uintptr_t)c0.data);
    return ran;
}

// More counts than shapes are kept: had each its own, the later ones would go to other kernels, and
// the bits of a count would depend on those before.
static void every_count_is_computed(void **state)
{
    enum { COUNTS = 400, N = 8, K = 4 };
    (void)state;
    onednn *o = onednn_create(1);
    if (o == NULL) skip();
    kern_pool *pool = NULL;
    void *scratch = aligned_alloc(4096, (size_t)KERN_SCRATCH_BYTES);
    assert_int_equal(kern_pool_create(1, &pool), ST_OK);
    kern_pool_scratch_set(pool, scratch);
    const gemm_matrix a = matrix_make(COUNTS, K, DTYPE_F32, false);
    const gemm_matrix c0 = matrix_make(COUNTS, N + PAD, DTYPE_F32, false);
    gemm_args g = {.n = N, .k = K, .c_type = DTYPE_F32, .ldc = N + PAD, .counted_m = true};
    const size_t bytes = (size_t)(COUNTS * g.ldc) * sizeof(float);
    g.a = a;
    g.b = matrix_make(K, N, DTYPE_F32, false);
    g.c = malloc(bytes);
    for (g.m = 1; g.m <= COUNTS; g.m++) {
        memcpy(g.c, c0.data, bytes);
        assert_true(onednn_run(o, pool, &g));
        compare(&g, c0.data, 1e-5);
    }
    free(g.c);
    free((void *)(uintptr_t)a.data);
    free((void *)(uintptr_t)g.b.data);
    free((void *)(uintptr_t)c0.data);
    kern_pool_destroy(pool);
    onednn_destroy(o);
    free(scratch);
}

static void every_product_is_right(void **state)
{
    (void)state;
    onednn *o = onednn_create(2);
    if (o == NULL) {
        print_message("oneDNN: untested, this build has it not\n");
        skip();
    }
    kern_pool *pools[3];
    void *scratch = aligned_alloc(4096, 2 * (size_t)KERN_SCRATCH_BYTES);
    for (int t = 1; t <= 2; t++) {
        assert_int_equal(kern_pool_create(t, &pools[t]), ST_OK);
        kern_pool_scratch_set(pools[t], scratch);
    }
    static const int64_t heights[] = {1, 9, 256, 300, 520};
    static const dtype ins[] = {DTYPE_F32, DTYPE_BF16};
    int ran[2] = {0, 0};
    for (int v = 0; v < 2 * 5 * 16; v++) {
        const trial t = {.in = ins[v % 2],
                         .m = heights[v / 2 % 5],
                         .a_transposed = (v / 10 & 1) != 0,
                         .b_transposed = (v / 10 & 2) != 0,
                         .accumulate = (v / 10 & 12) == 4,
                         .counted = v / 2 % 3 == 0,
                         .epilogue = (v / 10 & 12) == 8,
                         .out = (v / 10 & 12) == 12 ? DTYPE_BF16 : DTYPE_F32};
        ran[v % 2] += try_product(o, pools, &t);
    }
    assert_int_equal(ran[0], 5 * 16);
    if (ran[1] == 0) print_message("oneDNN in bf16: untested, this CPU has no unit for it\n");
    for (int t = 1; t <= 2; t++) kern_pool_destroy(pools[t]);
    onednn_destroy(o);
    free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_product_is_right),
        cmocka_unit_test(every_count_is_computed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
