// CUDA kernels over shapes of several tiles, in the emulator against `ref`: products with edges on
// all sides, attention with windows, documents, shared keys, dropout and heads of odd width.
#include "fixtures/base/test_part.h"
#include "fixtures/kernels/pair_fixture.h"

static void pair_begin(backend_pair *p)
{
    pair_open(p);
    p->step.host.seed = 7;
    p->step.host.step = 2;
}

// Runs the call by both backends, compares the outputs, and returns the call with those of CUDA.
static kern_call compare(backend_pair *p, const kern_call *call, double tolerance, const char *name)
{
    const kern_call want = pair_run(p, &p->ref, call), got = pair_run(p, &p->cuda, call);
    pair_compare(&want, &got, tolerance, name);
    return got;
}

// ---- products -----------------------------------------------------------------------------------
static void products(backend_pair *p, dtype type, const int64_t size[3], int64_t gap,
                     double tolerance)
{
    const int64_t n = size[0], m = size[1], k = size[2];
    const kern_tensor x = pair_matrix(p, type, n, k, gap, 1),
                      w = pair_matrix(p, type, m, k, gap, 2);
    const kern_tensor dy = pair_matrix(p, type, n, m, gap, 3);
    const kern_call forward = {
        .code = OP_MATMUL, .in = {x, w}, .out = {pair_matrix(p, type, n, m, gap, 4)}};
    const kern_call dx = {
        .code = OP_MATMUL_DX, .in = {dy, w}, .out = {pair_matrix(p, type, n, k, gap, 5)}};
    const kern_call dw = {.code = OP_MATMUL_DW,
                          .in = {dy, x},
                          .out = {pair_matrix(p, DTYPE_F32, m, k, 0, 6)},
                          .accumulate = true};
    (void)compare(p, &forward, tolerance, "matmul");
    (void)compare(p, &dx, tolerance, "matmul_dx");
    (void)compare(p, &dw, tolerance, "matmul_dw");
}

static void test_products(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{130, 129, 72}, {257, 40, 200}, {64, 300, 33}, {1, 1, 129}};
    backend_pair p;
    pair_begin(&p);
    for (int64_t i = 0; i < COUNT_OF(sizes); i++) {
        for (int64_t gap = 0; gap < 16; gap += 8 - i % 2) { // rows aligned to 16 bytes, and not
            products(&p, DTYPE_BF16, sizes[i], gap, 0.008);
            products(&p, DTYPE_F16, sizes[i], gap, 0.001);
        }
        products(&p, DTYPE_F32, sizes[i], 3, 1e-5);
    }
    pair_close(&p);
}

// ---- attention ----------------------------------------------------------------------------------
typedef struct attention_case {
    const char *name;
    int64_t sequences, seq, heads, kv_heads, dim;
    int32_t window;
    bool documents;
    float dropout, cap;
    int64_t value; // columns of a head of v and y; 0: dim
} attention_case;

static void attention(backend_pair *p, const attention_case *c, dtype type)
{
    const int64_t rows = c->sequences * c->seq, wide = c->heads * c->dim;
    const int64_t narrow = c->kv_heads * c->dim, gap = c->dim % 8 == 0 ? 8 : 1;
    const int64_t value = c->value > 0 ? c->value : c->dim, wide_v = c->heads * value;
    const kern_tensor q = pair_matrix(p, type, rows, wide, gap, 1);
    const kern_tensor k = pair_matrix(p, type, rows, narrow, gap, 2);
    const kern_tensor v = pair_matrix(p, type, rows, c->kv_heads * value, 0, 3);
    const kern_tensor lse = pair_matrix(p, DTYPE_F32, rows, c->heads, 0, 4);
    kern_tensor documents = {.data = NULL};
    if (c->documents) documents = kt_make(p->a, DTYPE_I32, 1, &rows);
    for (int64_t i = 0; i < rows && c->documents; i++) {
        kt_put(&documents, i, (double)(i / c->seq * 1000 + i % c->seq / 45));
    }
    kern_call forward = {.code = OP_ATTENTION,
                         .in = {q, k, v, documents},
                         .out = {pair_matrix(p, type, rows, wide_v, 0, 5), lse},
                         .seq = c->seq,
                         .first_sequence = 3,
                         .first_head = 2};
    forward.attrs.heads = (int32_t)c->heads;
    forward.attrs.kv_heads = (int32_t)c->kv_heads;
    forward.attrs.head_dim = (int32_t)c->dim;
    forward.attrs.value_dim = (int32_t)c->value;
    forward.attrs.cap = c->cap;
    forward.attrs.window = c->window;
    forward.attrs.dropout = c->dropout;
    forward.attrs.scale = 1.5f / sqrtf((float)c->dim);
    const double tolerance = type == DTYPE_F32 ? 1e-5 : type == DTYPE_BF16 ? 0.012 : 0.002;
    const bool reschedules = c->dim > 128 && type == DTYPE_BF16;
    const kern_call got = compare(p, &forward, tolerance, c->name);
    if (reschedules) pair_reschedule(p, &forward, &got, c->name);
    kern_call backward = forward;
    backward.code = OP_ATTENTION_BWD;
    const kern_tensor in[] = {
        pair_matrix(p, type, rows, wide_v, 0, 6), q, k, v, got.out[0], got.out[1], documents};
    memcpy(backward.in, in, sizeof(in));
    backward.out[0] = pair_matrix(p, type, rows, wide, gap, 7);
    backward.out[1] = pair_matrix(p, type, rows, narrow, gap, 8);
    backward.out[2] = pair_matrix(p, type, rows, c->kv_heads * value, 0, 9);
    const kern_call gradients =
        compare(p, &backward, type == DTYPE_F32 ? 2e-5 : 1.5 * tolerance, c->name);
    if (reschedules) pair_reschedule(p, &backward, &gradients, c->name);
}

static void test_attention(void **state)
{
    (void)state;
    static const attention_case cases[] = {
        {"two sequences", 2, 150, 2, 2, 64, 0, false, 0.0f, 0.0f, 0},
        {"keys shared", 1, 260, 4, 2, 64, 0, false, 0.0f, 0.0f, 0},
        {"a window", 1, 270, 1, 1, 64, 70, false, 0.0f, 0.0f, 0},
        {"documents", 1, 200, 2, 1, 32, 0, true, 0.0f, 0.0f, 0},
        {"dropout", 1, 140, 2, 2, 16, 0, false, 0.25f, 0.0f, 0},
        {"wide heads", 1, 140, 2, 1, 128, 90, true, 0.1f, 0.0f, 0},
        {"heads of odd width", 1, 135, 2, 2, 75, 0, false, 0.0f, 0.0f, 0},
        {"very wide heads", 1, 70, 2, 1, 200, 0, true, 0.0f, 0.0f, 0},
        {"latent heads", 1, 133, 1, 1, 192, 0, false, 0.0f, 0.0f, 128},
        {"narrow values", 1, 40, 2, 2, 24, 0, false, 0.1f, 0.0f, 13},
        {"capped scores", 1, 80, 2, 1, 64, 40, false, 0.0f, 0.8f, 0},
        {"capped scores of very wide heads", 1, 70, 1, 1, 256, 0, false, 0.0f, 0.8f, 0},
    };
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        const dtype types[] = {DTYPE_BF16, i % 4 < 2 ? DTYPE_F16 : DTYPE_F32};
        for (int64_t k = 0; k < COUNT_OF(types); k++) {
            if (part_skips(CASES_PART, i, COUNT_OF(cases), k, COUNT_OF(types))) continue;
            backend_pair p;
            pair_begin(&p);
            attention(&p, &cases[i], types[k]);
            pair_close(&p);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
