// Products by cuBLASLt, over a library that computes on the host and checks what it is told:
// matrices by columns, strides, alignment, workspace, types. Products by rows have the sums of
// three plain loops. Operands in 8 bits are numbers times factors.
#include "fixtures/device/fake_cublaslt.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORKSPACE = FAKE_LT_WORKSPACE, MAX = 24 };

// ---- products -----------------------------------------------------------------------------------
static float value(int i)
{
    return (float)(i * 37 % 17 - 8); // sums are exact in any order
}

typedef struct operand {
    float *data;
    cuda_matrix m;
} operand;

// A matrix with gaps between its rows.
static operand operand_make(int64_t rows, int64_t columns, int gap)
{
    const int64_t stride = columns + gap;
    operand o = {.data = aligned_alloc(256, (size_t)align_up(rows * stride * 4, 256))};
    assert_non_null(o.data);
    for (int64_t i = 0; i < rows * stride; i++) o.data[i] = value((int)i);
    o.m = (cuda_matrix){
        .data = o.data, .type = DTYPE_F32, .rows = rows, .columns = columns, .stride = stride};
    return o;
}

static float at(const cuda_matrix *m, int64_t row, int64_t column, bool transposed)
{
    const float *data = m->data;
    return transposed ? data[column * m->stride + row] : data[row * m->stride + column];
}

static void product_check(lt_products *p, int form, const int64_t size[3])
{
    static int stream, workspace;
    const int64_t m = size[0], n = size[1], k = size[2];
    const bool ta = (form & 1) != 0, tb = (form & 2) != 0, adds = form / 4 == 1;
    const bool biased = form / 4 == 2 || form / 4 == 3, gelu = form / 4 >= 3;
    operand a = operand_make(ta ? k : m, ta ? m : k, 3),
            b = operand_make(tb ? n : k, tb ? k : n, 0);
    operand c = operand_make(m, n, gelu ? (int)(8 - n % 8) : 5), bias = operand_make(1, n, 0);
    operand activated = operand_make(m, n, 1);
    float want[MAX][MAX];
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            want[i][j] = adds ? at(&c.m, i, j, false) : biased ? bias.data[j] : 0.0f;
            for (int64_t l = 0; l < k; l++) want[i][j] += at(&a.m, i, l, ta) * at(&b.m, l, j, tb);
        }
    }
    const cuda_product product = {.a = a.m,
                                  .b = b.m,
                                  .c = c.m,
                                  .a_transposed = ta,
                                  .b_transposed = tb,
                                  .accumulate = adds,
                                  .bias = biased ? bias.data : NULL,
                                  .bias_type = DTYPE_F32,
                                  .gelu = gelu ? activated.data : NULL,
                                  .gelu_stride = activated.m.stride};
    assert_int_equal(lt_products_post(p, &product, (cuda_stream)(void *)&stream, &workspace),
                     ST_OK);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) assert_true(at(&c.m, i, j, false) == want[i][j]);
        for (int64_t j = 0; j < n && gelu; j++) {
            assert_true(at(&activated.m, i, j, false) == fake_lt_gelu(want[i][j]));
        }
        for (int64_t j = n; j < c.m.stride; j++) { // the gaps are as they were
            assert_true(c.data[i * c.m.stride + j] == value((int)(i * c.m.stride + j)));
        }
    }
    free(a.data);
    free(b.data);
    free(c.data);
    free(bias.data);
    free(activated.data);
}

static void products_by_rows_are_exact(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1}, {7, 5, 3}, {16, 24, 8}, {3, 17, 24}};
    const lt_library library = fake_lt_library();
    lt_products *p = NULL;
    assert_int_equal(lt_products_create(&library, WORKSPACE, &p), ST_OK);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < COUNT_OF(sizes); i++) {
            for (int form = 0; form < 20; form++) product_check(p, form, sizes[i]);
        }
        assert_int_equal(fake_lt_counted()->choices, 80); // once for each shape
        assert_int_equal(fake_lt_counted()->products, 80 * (turn + 1));
    }
    lt_products_destroy(p);
    assert_int_equal(fake_lt_counted()->live, 0);
}

// A product that the library has no algorithm for is the row's own; the library is asked once.
static void a_refused_product_is_told(void **state)
{
    (void)state;
    static int stream, workspace;
    const lt_library library = fake_lt_library();
    lt_products *p = NULL;
    operand a = operand_make(4, 4, 0);
    cuda_product product = {.a = a.m, .b = a.m, .c = a.m};
    const int before = fake_lt_counted()->choices;
    assert_int_equal(lt_products_create(&library, WORKSPACE, &p), ST_OK);
    product.b.type = DTYPE_BF16;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(lt_products_post(p, &product, (cuda_stream)(void *)&stream, &workspace),
                         ST_UNSUPPORTED);
        assert_non_null(strstr(error_last()->text, "no algorithm for a product (4, 4) x (4, 4)"));
    }
    assert_int_equal(fake_lt_counted()->choices, before + 1);
    product.b.type = DTYPE_F32; // GELU of a matrix whose rows are not aligned for the library
    product.gelu = a.data + 4;
    product.gelu_stride = 4;
    assert_int_equal(lt_products_post(p, &product, (cuda_stream)(void *)&stream, &workspace),
                     ST_UNSUPPORTED);
    product.gelu = NULL;
    product.b.type = DTYPE_F64;
    assert_int_equal(lt_products_post(p, &product, (cuda_stream)(void *)&stream, &workspace),
                     ST_UNSUPPORTED);
    lt_products_destroy(p);
    assert_int_equal(fake_lt_counted()->live, 0);
    free(a.data);
}

// ---- operands in 8 bits -------------------------------------------------------------------------
enum { NARROW_ROWS = 160, NARROW_OUT = 144, NARROW_IN = 272 };

static uint8_t codes_a[NARROW_ROWS * NARROW_IN + 64], codes_b[NARROW_OUT * NARROW_IN + 64];
static float results[NARROW_ROWS * NARROW_OUT + 64], factors_a[1024], factors_b[1024];

static cuda_product narrow_make(fp8_block of_a, fp8_block of_b)
{
    cuda_product p = {
        .a = {codes_a, DTYPE_F8E4M3, NARROW_ROWS, NARROW_IN, NARROW_IN},
        .b = {codes_b, DTYPE_F8E4M3, NARROW_OUT, NARROW_IN, NARROW_IN},
        .c = {results, DTYPE_F32, NARROW_ROWS, NARROW_OUT, NARROW_OUT},
        .b_transposed = true,
        .factors = {factors_a, factors_b},
        .blocks = {of_a, of_b},
    };
    for (int i = 0; i < COUNT_OF(codes_a); i++) codes_a[i] = (uint8_t)(0x30 + i * 7 % 16);
    for (int i = 0; i < COUNT_OF(codes_b); i++) codes_b[i] = (uint8_t)(0xb0 + i * 5 % 16);
    for (int i = 0; i < COUNT_OF(factors_a); i++) factors_a[i] = ldexpf(1.0f, i % 5 - 2);
    for (int i = 0; i < COUNT_OF(factors_b); i++) factors_b[i] = ldexpf(1.0f, i % 3 - 1);
    memset(results, 0, sizeof(results));
    return p;
}

// The factor of element k of a row, by the definition in launch.h.
static double factor_at(const cuda_product *p, int side, int64_t row, int64_t k)
{
    const int64_t rows = side == 0 ? p->a.rows : p->b.rows, along = (NARROW_IN + 127) / 128;
    const int64_t at = p->blocks[side] == FP8_OF_ALL   ? 0
                       : p->blocks[side] == FP8_OF_ROW ? k / 128 * rows + row
                                                       : row / 128 * align_up(along, 4) + k / 128;
    return (double)p->factors[side][at];
}

static void codes_are_multiplied(void **state)
{
    static const fp8_block blocks[][2] = {{FP8_OF_ALL, FP8_OF_ALL},
                                          {FP8_OF_ROW, FP8_OF_SQUARE},
                                          {FP8_OF_SQUARE, FP8_OF_ROW},
                                          {FP8_OF_ROW, FP8_OF_ROW}};
    static int stream, workspace;
    const lt_library library = fake_lt_library();
    lt_products *p = NULL;
    (void)state;
    assert_int_equal(lt_products_create(&library, WORKSPACE, &p), ST_OK);
    for (int i = 0; i < COUNT_OF(blocks); i++) {
        cuda_product product = narrow_make(blocks[i][0], blocks[i][1]);
        product.only_asks = true;
        assert_int_equal(lt_products_post(p, &product, (cuda_stream)(void *)&stream, &workspace),
                         ST_OK);
        assert_true(results[0] == 0.0f);
        product.only_asks = false;
        assert_int_equal(lt_products_post(p, &product, (cuda_stream)(void *)&stream, &workspace),
                         ST_OK);
        for (int64_t e = 0; e < NARROW_ROWS * NARROW_OUT; e += 97) {
            const int64_t row = e / NARROW_OUT, column = e % NARROW_OUT;
            double sum = 0.0;
            for (int64_t k = 0; k < NARROW_IN; k++) {
                sum += (double)f32_from_f8e4m3(codes_a[row * NARROW_IN + k]) *
                       factor_at(&product, 0, row, k) *
                       (double)f32_from_f8e4m3(codes_b[column * NARROW_IN + k]) *
                       factor_at(&product, 1, column, k);
            }
            assert_true(fabs((double)results[e] - sum) <= 1e-5 * fabs(sum));
        }
    }
    lt_products_destroy(p);
}

// A product that the library has no kernel for is refused before anything is posted.
static void forbidden_codes_are_refused(void **state)
{
    static int stream, workspace;
    enum { CASES = 12 };
    const lt_library library = fake_lt_library();
    (void)state;
    for (int i = 0; i < CASES; i++) {
        lt_products *p = NULL;
        cuda_product x =
            narrow_make(i >= 9 ? FP8_OF_ROW : FP8_OF_ALL, i >= 9 ? FP8_OF_SQUARE : FP8_OF_ALL);
        if (i == 0) x.a.type = x.b.type = DTYPE_F8E5M2;
        if (i == 1) x.a.type = DTYPE_BF16;
        if (i == 2) x.a_transposed = true;
        if (i == 3) x.b_transposed = false;
        if (i == 4) x.a.columns = x.b.columns = NARROW_IN - 8;
        if (i == 5) x.a.stride = NARROW_IN + 8;
        if (i == 6) x.b.data = codes_b + 8;
        if (i == 7) x.factors[0] = factors_a + 1;
        if (i == 8) x.c.type = DTYPE_F8E4M3;
        if (i == 9) x.blocks[0] = FP8_OF_SQUARE;
        if (i == 10) x.a.rows = x.c.rows = NARROW_ROWS - 2;
        if (i == 11) x.blocks[0] = FP8_OF_ALL;
        assert_int_equal(lt_products_create(&library, WORKSPACE, &p), ST_OK);
        assert_int_equal(lt_products_post(p, &x, (cuda_stream)(void *)&stream, &workspace),
                         ST_UNSUPPORTED);
        assert_true(results[0] == 0.0f);
        lt_products_destroy(p);
    }
    assert_false(lt_has_fp8_tensors(&library, 80));
    assert_true(lt_has_fp8_tensors(&library, 89));
    assert_true(lt_has_fp8_blocks(&library, 90));
    assert_false(lt_has_fp8_blocks(&library, 100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_by_rows_are_exact),
        cmocka_unit_test(a_refused_product_is_told),
        cmocka_unit_test(codes_are_multiplied),
        cmocka_unit_test(forbidden_codes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
