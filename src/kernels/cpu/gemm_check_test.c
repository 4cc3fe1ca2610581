// Checked products: no false alarm for any operands, every flipped bit that matters is found and
// repaired, and no bit of a result depends on the check.
#include "base/fault.h"
#include "fixtures/base/test_part.h"
#include "kernels/cpu/gemm_unit.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const kern_level levels[] = {KERN_SCALAR, KERN_AVX2, KERN_AVX512, KERN_AVX512_BF16,
                                    KERN_AMX};
static const dtype types[] = {DTYPE_BF16, DTYPE_F32, DTYPE_F16};

// Every driver of gemm.c, and edges: flat, short, tall, deep, one column, no step of k.
static const struct {
    int64_t m, n, k;
} shapes[] = {{1, 70, 90},    {9, 33, 5}, {150, 130, 70}, {290, 64, 300}, {20, 2, 16500},
              {300, 40, 200}, {1, 1, 1},  {17, 1, 40},    {5, 7, 0},      {33, 600, 2}};

// Numbers that rounding treats badly.
typedef enum nasty { USUAL, EQUAL, SPREAD, CANCELS, TINY, HUGE_ONES, BROKEN, NASTY_COUNT } nasty;

static arena *memory;
static kern_pool *pool;
static void *scratch;
static uint64_t noise_state = 88172645463325252u;

static uint64_t noise(void)
{
    noise_state ^= noise_state << 13;
    noise_state ^= noise_state >> 7;
    noise_state ^= noise_state << 17;
    return noise_state;
}

static double uniform(void)
{
    return (double)(noise() >> 11) * 0x1p-52 - 1.0;
}

static double number(nasty kind, int64_t i, int64_t inner)
{
    switch (kind) {
    case EQUAL:
        return 0.1;
    case SPREAD:
        return ldexp(uniform(), (int)(noise() % 60) - 30);
    case CANCELS:
        return i % inner % 2 == 0 ? 1000.0 : -999.9;
    case TINY:
        return ldexp(uniform(), -70 - (int)(noise() % 70));
    case HUGE_ONES:
        return ldexp(uniform(), 30 + (int)(noise() % 34));
    case BROKEN:
        return noise() % 50 == 0 ? (noise() % 2 == 0 ? (double)INFINITY : (double)NAN) : uniform();
    case USUAL:
    case NASTY_COUNT:
    default:
        return uniform();
    }
}

static int open_all(void **state)
{
    (void)state;
    if (arena_create("checks", 0, &memory) != ST_OK) return -1;
    scratch = aligned_alloc(4096, 2 * (size_t)KERN_SCRATCH_BYTES);
    if (kern_pool_create(2, &pool) != ST_OK) return -1;
    kern_pool_scratch_set(pool, scratch);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    kern_pool_destroy(pool);
    free(scratch);
    arena_destroy(memory);
    return 0;
}

static gemm_matrix matrix_make(int64_t rows, int64_t columns, dtype type, bool transposed,
                               nasty kind)
{
    const int64_t inner = transposed ? rows : columns, outer = transposed ? columns : rows;
    const int64_t stride = inner + 3, count = max_i64(outer * stride, 1);
    void *data = malloc((size_t)(count * dtype_bytes(type)));
    for (int64_t i = 0; i < count; i++) dtype_store(type, data, i, number(kind, i, stride));
    const gemm_matrix m = gemm_rows(data, type, stride);
    return transposed ? gemm_transposed(m) : m;
}

// A product with its operands; C before and after it.
typedef struct product {
    gemm_args g;
    char *c, *begin, *want;
    int64_t bytes;
    void *space;
    gemm_check check;
} product;

static void product_make(product *p, int64_t shape, dtype type, nasty kind, uint64_t how)
{
    const int64_t m = shapes[shape].m, n = shapes[shape].n, k = shapes[shape].k;
    memset(p, 0, sizeof(*p));
    p->g = (gemm_args){.m = m, .n = n, .k = k, .ldc = n + 5};
    p->g.a = matrix_make(m, k, type, (how & 1) != 0, kind);
    p->g.b = matrix_make(k, n, (how & 64) != 0 ? DTYPE_BF16 : type, (how & 2) != 0, kind);
    p->g.c_type = (how & 4) != 0 ? type : DTYPE_F32;
    p->g.accumulate = (how & 8) != 0;
    p->g.any_order = (how & 16) != 0;
    p->g.rounds = (how & 48) == 48;
    p->bytes = m * p->g.ldc * dtype_bytes(p->g.c_type);
    p->c = malloc((size_t)p->bytes);
    p->begin = malloc((size_t)p->bytes);
    p->want = malloc((size_t)p->bytes);
    for (int64_t i = 0; i < m * p->g.ldc; i++) {
        dtype_store(p->g.c_type, p->begin, i, number(kind, i, n));
    }
    p->g.c = p->c;
    const int64_t bytes = gemm_check_bytes(m, n, k, p->g.c_type, p->g.accumulate);
    p->space = aligned_alloc(64, (size_t)align_up(bytes, 64));
    memset(p->space, 0xFF, (size_t)bytes);
    p->check = (gemm_check){.space = p->space, .bytes = bytes};
}

static void product_free(product *p)
{
    free((void *)(uintptr_t)p->g.a.data);
    free((void *)(uintptr_t)p->g.b.data);
    free(p->c);
    free(p->begin);
    free(p->want);
    free(p->space);
}

static kern_context context_of(kern_level level, kern_checks *checks)
{
    return (kern_context){.backend = &kern_backend_cpu,
                          .level = level,
                          .threads = 2,
                          .pool = pool,
                          .scratch = scratch,
                          .checks = checks};
}

// Runs the product from its first C, checked or not.
static void product_run(product *p, kern_level level, kern_checks *checks)
{
    static const kern_call call = {.code = OP_MATMUL, .layer = 3, .step_no = 5};
    const kern_context context = context_of(level, checks);
    memcpy(p->c, p->begin, (size_t)p->bytes);
    p->check.all = checks;
    p->check.call = &call;
    p->check.level = level;
    p->g.check = checks != NULL ? &p->check : NULL;
    gemm_run(&context, &p->g);
}

static kern_checks *checks_make(double share, int rank)
{
    kern_checks *k = NULL;
    assert_int_equal(kern_checks_create(memory, share, &k), ST_OK);
    kern_checks_begin(k, rank);
    return k;
}

static bool is_here(kern_level level)
{
    return level <= kern_level_of_machine();
}

static void no_false_alarm_and_no_other_bit(void **state)
{
    (void)state;
    kern_checks *checks = checks_make(1.0, 0);
    int64_t count = 0;
    for (int64_t i = 0; i < COUNT_OF(shapes) * (int)NASTY_COUNT * COUNT_OF(types); i++) {
        const int64_t shape = i % COUNT_OF(shapes), rest = i / COUNT_OF(shapes);
        if (part_skips(TRIALS_PART, shape, COUNT_OF(shapes), rest,
                       (int64_t)NASTY_COUNT * COUNT_OF(types))) {
            continue;
        }
        product p;
        product_make(&p, shape, types[rest % COUNT_OF(types)], (nasty)(rest / COUNT_OF(types)),
                     noise());
        for (int64_t l = 0; l < COUNT_OF(levels); l++) {
            if (!is_here(levels[l])) continue;
            product_run(&p, levels[l], NULL);
            memcpy(p.want, p.c, (size_t)p.bytes);
            product_run(&p, levels[l], checks);
            assert_memory_equal(p.c, p.want, (size_t)p.bytes);
            count++;
        }
        product_free(&p);
    }
    const kern_checks_facts f = kern_checks_read(checks);
    print_message("%lld products, %lld computed again because of rounding\n", (long long)f.checked,
                  (long long)f.repeated);
    assert_int_equal(f.checked, count);
    assert_int_equal(f.repaired, 0);
    assert_false(kern_checks_has_failed(checks));
    assert_int_equal(kern_checks_status(checks), ST_OK);
}

static double element(const gemm_matrix *m, int64_t i, int64_t j)
{
    return (double)gemm_load_one(m->type, m->data, i * m->row_stride + j * m->column_stride);
}

// The soft limit of row i, as gemm_check.c has it, from the operands alone.
static double limit_of(const product *p, int64_t i)
{
    const gemm_args *g = &p->g;
    double a = 0.0, b = 0.0, c = 0.0;
    for (int64_t k = 0; k < g->k; k++) {
        a += element(&g->a, i, k) * element(&g->a, i, k);
        for (int64_t j = 0; j < g->n; j++) b += element(&g->b, k, j) * element(&g->b, k, j);
    }
    for (int64_t j = 0; j < g->n && g->accumulate; j++) {
        const double x = (double)gemm_load_one(g->c_type, p->begin, i * g->ldc + j);
        c += x * x;
    }
    return 4.0 * 0x1p-24 * sqrt((double)(g->k + 64)) * (sqrt(a * b) + sqrt(c)) * 1.01 + 0x1p-60;
}

// The element that differs between C and the undisturbed result, and by how much.
static double difference(const product *p, int64_t *row)
{
    double most = 0.0;
    *row = -1;
    for (int64_t i = 0; i < p->g.m * p->g.ldc; i++) {
        const int64_t width = dtype_bytes(p->g.c_type);
        const float x = gemm_load_one(p->g.c_type, p->c, i);
        const float y = gemm_load_one(p->g.c_type, p->want, i);
        if (memcmp(p->c + i * width, p->want + i * width, (size_t)width) == 0) continue;
        assert_int_equal(*row, -1); // one element alone
        *row = i / p->g.ldc;
        most = fabs((double)x - (double)y);
        if (!isfinite(most)) most = HUGE_VAL;
    }
    return most;
}

// Flips one bit of one element: first with a check that takes no product, which shows what the flip
// does, then with one that takes each. Counts flips beyond twice the limit, which must be found,
// and others, which may be.
static void flip(product *p, kern_level level, int number, int64_t counts[2])
{
    char plan[64];
    int64_t row = 0;
    kern_checks *blind = checks_make(1e-300, number), *seeing = checks_make(1.0, number);
    (void)snprintf(plan, sizeof(plan), "kernels.product.%d=1", number);
    product_run(p, level, NULL);
    memcpy(p->want, p->c, (size_t)p->bytes);
    assert_int_equal(fault_arm(plan), ST_OK);
    product_run(p, level, blind);
    const double off = difference(p, &row);
    assert_int_equal(fault_arm(plan), ST_OK);
    product_run(p, level, seeing);
    assert_int_equal(fault_arm(NULL), ST_OK);
    const bool matters = row >= 0 && !(off <= 2.0 * limit_of(p, row));
    const kern_checks_facts f = kern_checks_read(seeing);
    assert_false(kern_checks_has_failed(seeing));
    counts[0] += matters;
    counts[1] += matters && f.repaired == 1 && f.last.row == row && f.last.layer == 3;
    if (f.repaired > 0) assert_memory_equal(p->c, p->want, (size_t)p->bytes);
}

static void flips_that_matter_are_repaired(void **state)
{
    const int flips = (int)(4800 / part_of(TRIALS_PART));
    (void)state;
    int64_t counts[2] = {0, 0};
    int number = 1;
    while (number <= flips) {
        product p;
        const uint64_t how = noise();
        // Results in fp32 alone show by how much the sum was changed.
        product_make(&p, (int64_t)(noise() % 6), types[noise() % 2], USUAL, how & ~4u);
        for (int64_t l = 0; l < COUNT_OF(levels); l++) {
            if (!is_here(levels[l])) continue;
            for (int i = 0; i < 4; i++) flip(&p, levels[l], number++, counts);
        }
        product_free(&p);
    }
    print_message("%lld of %d flips beyond the limit, %lld repaired\n", (long long)counts[0],
                  number - 1, (long long)counts[1]);
    assert_true(counts[0] > flips / 8);
    assert_int_equal(counts[0], counts[1]);
}

// Each try has its own flip: the product is given up, with its place and rank.
static void a_fault_that_stays_is_an_error(void **state)
{
    (void)state;
    int64_t given_up = 0;
    for (int number = 1; number <= 40; number++) {
        char plan[64];
        product p;
        kern_checks *checks = checks_make(1.0, number);
        (void)snprintf(plan, sizeof(plan), "kernels.product.%d=1+", number);
        product_make(&p, 2, DTYPE_F32, USUAL, noise());
        assert_int_equal(fault_arm(plan), ST_OK);
        product_run(&p, KERN_SCALAR, checks);
        assert_int_equal(fault_arm(NULL), ST_OK);
        if (kern_checks_has_failed(checks)) {
            given_up++;
            assert_int_equal(kern_checks_status(checks), ST_CORRUPT);
            assert_non_null(strstr(error_last()->text, "step 5: the product"));
            assert_non_null(strstr(error_last()->text, "of layer 3"));
            error_clear();
            kern_checks_begin(checks, number); // a session that goes on in this process
            assert_int_equal(kern_checks_status(checks), ST_OK);
        }
        product_free(&p);
    }
    assert_true(given_up > 3);
}

// A share of the products is checked, not always the same ones.
static void a_share_is_drawn(void **state)
{
    (void)state;
    kern_checks *checks = checks_make(0.01, 0);
    int64_t in_a_row = 0, drawn = 0;
    for (int i = 0; i < 100000; i++) {
        const bool is_drawn = kern_checks_draw(checks);
        drawn += is_drawn;
        if (is_drawn && i % 100 == 0) in_a_row++;
    }
    assert_true(drawn > 850 && drawn < 1150);
    assert_true(in_a_row < 40);
    assert_int_equal(kern_checks_read(checks).seen, 100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_false_alarm_and_no_other_bit),
        cmocka_unit_test(flips_that_matter_are_repaired),
        cmocka_unit_test(a_fault_that_stays_is_an_error),
        cmocka_unit_test(a_share_is_drawn),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
