// Products by cuBLASLt, over a library that computes on the host and checks what it is told:
// matrices by columns, strides, alignment, workspace, types. Products by rows have the sums of
// three plain loops.
#include "device/cuda/cublaslt.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORKSPACE = 1 << 20, MAX = 24 };

struct lt_handle_struct {
    int unused;
};
struct lt_preference_struct {
    uint64_t workspace;
    uint32_t alignment[4];
};
struct lt_product_struct {
    int32_t transpose_a, transpose_b, bias_type;
    uint32_t epilogue;
    const void *bias;
    float *aux;
    int64_t aux_stride;
};
struct lt_layout_struct {
    int type;
    uint64_t rows, columns;
    int64_t stride;
};

static int live, choices, products; // handles that exist; calls

static int fake_create(lt_handle *out)
{
    *out = calloc(1, sizeof(**out));
    live++;
    return 0;
}

static int fake_destroy(lt_handle h)
{
    free(h);
    live--;
    return 0;
}

static int fake_product_create(lt_product *out, int compute, int scale_type)
{
    if (compute != LT_COMPUTE_F32 || scale_type != LT_TYPE_F32) return 7;
    *out = calloc(1, sizeof(**out));
    live++;
    return 0;
}

static int fake_product_destroy(lt_product p)
{
    free(p);
    live--;
    return 0;
}

static int fake_product_set(lt_product p, int attribute, const void *value, size_t bytes)
{
    void *to = attribute == LT_TRANSPOSE_A   ? (void *)&p->transpose_a
               : attribute == LT_TRANSPOSE_B ? (void *)&p->transpose_b
               : attribute == LT_EPILOGUE    ? (void *)&p->epilogue
               : attribute == LT_BIAS        ? (void *)&p->bias
               : attribute == LT_BIAS_TYPE   ? (void *)&p->bias_type
               : attribute == LT_AUX         ? (void *)&p->aux
               : attribute == LT_AUX_STRIDE  ? (void *)&p->aux_stride
                                             : NULL;
    const bool wide = attribute == LT_BIAS || attribute == LT_AUX || attribute == LT_AUX_STRIDE;
    if (to == NULL || bytes != (wide ? 8 : 4)) return 7;
    memcpy(to, value, bytes);
    return 0;
}

static int fake_layout_create(lt_layout *out, int type, uint64_t rows, uint64_t columns,
                              int64_t stride)
{
    if (stride < (int64_t)rows) return 7; // of columns
    *out = calloc(1, sizeof(**out));
    **out = (struct lt_layout_struct){type, rows, columns, stride};
    live++;
    return 0;
}

static int fake_layout_destroy(lt_layout l)
{
    free(l);
    live--;
    return 0;
}

static int fake_preference_create(lt_preference *out)
{
    *out = calloc(1, sizeof(**out));
    live++;
    return 0;
}

static int fake_preference_destroy(lt_preference p)
{
    free(p);
    live--;
    return 0;
}

static int fake_preference_set(lt_preference p, int attribute, const void *value, size_t bytes)
{
    const bool is_alignment = attribute >= LT_ALIGNMENT_A && attribute < LT_ALIGNMENT_A + 4;
    if (is_alignment && bytes == sizeof(p->alignment[0])) {
        memcpy(&p->alignment[attribute - LT_ALIGNMENT_A], value, bytes);
    } else if (attribute == LT_WORKSPACE_BYTES && bytes == sizeof(p->workspace)) {
        memcpy(&p->workspace, value, bytes);
    } else {
        return 7;
    }
    return 0;
}

// Rows and columns of an operand after its transpose.
static uint64_t rows_of(lt_layout l, int32_t transposed)
{
    return transposed != 0 ? l->columns : l->rows;
}

// NOLINTNEXTLINE(readability-function-size): the signature is the library's
static int fake_choose(LT_CHOOSE_PARAMETERS)
{
    choices++;
    const bool fits = rows_of(a, p->transpose_a) == d->rows &&
                      rows_of(a, !p->transpose_a) == rows_of(b, p->transpose_b) &&
                      rows_of(b, !p->transpose_b) == d->columns && c == d;
    if (h == NULL || wanted != 1 || !fits || preference->workspace != WORKSPACE) return 7;
    for (int i = 0; i < 4; i++) assert_true(preference->alignment[i] >= 4);
    *count = a->type == b->type && a->type == LT_TYPE_F32; // all that it computes
    if (*count == 1) *out = (lt_choice){.algorithm = {{preference->alignment[0]}}};
    return *count == 1 ? 0 : 15;
}

static int fake_multiply(LT_MULTIPLY_PARAMETERS);

static size_t fake_version(void)
{
    return 130100;
}

static lt_library library_make(void)
{
    lt_library l = {.version = fake_version};
#define FAKE(field, symbol, parameters) l.field = fake_##field;
    LT_FUNCTIONS(FAKE)
#undef FAKE
    return l;
}

static float element(const void *data, lt_layout l, uint64_t row, uint64_t column,
                     int32_t transposed)
{
    const uint64_t r = transposed != 0 ? column : row, k = transposed != 0 ? row : column;
    assert_true(r < l->rows && k < l->columns);
    return ((const float *)data)[(int64_t)r + (int64_t)k * l->stride];
}

static float gelu_of(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

// By the library's rules for its auxiliary matrix.
static bool aux_is_right(lt_product p, lt_layout d)
{
    return p->aux != NULL && ((uintptr_t)p->aux & 15) == 0 && p->aux_stride % 8 == 0 &&
           p->aux_stride >= (int64_t)d->rows;
}

// NOLINTNEXTLINE(readability-function-size): the signature is the library's
static int fake_multiply(LT_MULTIPLY_PARAMETERS)
{
    const bool gelu = p->epilogue >= LT_EPILOGUE_GELU_AUX;
    float *to = d;
    products++;
    if (h == NULL || stream == NULL || c != d || c_layout != d_layout || workspace == NULL)
        return 7;
    if (workspace_bytes != WORKSPACE || (uintptr_t)a % algorithm->data[0] != 0) return 7;
    if (gelu && !aux_is_right(p, d_layout)) return 7;
    assert_true(*(const float *)alpha == 1.0f);
    for (uint64_t i = 0; i < d_layout->rows; i++) {
        for (uint64_t j = 0; j < d_layout->columns; j++) {
            float *out = &to[(int64_t)i + (int64_t)j * d_layout->stride];
            float sum = 0.0f;
            for (uint64_t k = 0; k < rows_of(a_layout, !p->transpose_a); k++) {
                sum += element(a, a_layout, i, k, p->transpose_a) *
                       element(b, b_layout, k, j, p->transpose_b);
            }
            if (*(const float *)beta != 0.0f) sum += *(const float *)beta * *out;
            if ((p->epilogue & LT_EPILOGUE_BIAS) != 0) sum += ((const float *)p->bias)[i];
            if (gelu) p->aux[(int64_t)i + (int64_t)j * p->aux_stride] = sum;
            *out = gelu ? gelu_of(sum) : sum;
        }
    }
    return 0;
}

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
            assert_true(at(&activated.m, i, j, false) == gelu_of(want[i][j]));
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
    const lt_library library = library_make();
    lt_products *p = NULL;
    assert_int_equal(lt_products_create(&library, WORKSPACE, &p), ST_OK);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < COUNT_OF(sizes); i++) {
            for (int form = 0; form < 20; form++) product_check(p, form, sizes[i]);
        }
        assert_int_equal(choices, 80); // once for each shape
        assert_int_equal(products, 80 * (turn + 1));
    }
    lt_products_destroy(p);
    assert_int_equal(live, 0);
}

// A product that the library has no algorithm for is the row's own; the library is asked once.
static void a_refused_product_is_told(void **state)
{
    (void)state;
    static int stream, workspace;
    const lt_library library = library_make();
    lt_products *p = NULL;
    operand a = operand_make(4, 4, 0);
    cuda_product product = {.a = a.m, .b = a.m, .c = a.m};
    const int before = choices;
    assert_int_equal(lt_products_create(&library, WORKSPACE, &p), ST_OK);
    product.b.type = DTYPE_BF16;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(lt_products_post(p, &product, (cuda_stream)(void *)&stream, &workspace),
                         ST_UNSUPPORTED);
        assert_non_null(strstr(error_last()->text, "no algorithm for a product (4, 4) x (4, 4)"));
    }
    assert_int_equal(choices, before + 1);
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
    assert_int_equal(live, 0);
    free(a.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_by_rows_are_exact),
        cmocka_unit_test(a_refused_product_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
