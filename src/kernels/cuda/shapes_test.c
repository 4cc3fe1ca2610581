// CUDA kernels over shapes of several tiles, in the emulator against `ref`: products with edges on
// all sides, attention with windows, documents, shared keys, dropout and heads of odd width.
#include "fixtures/base/test_part.h"
#include "fixtures/kernels/backend_fixture.h"
#include "fixtures/kernels/tensor_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

typedef struct rig {
    arena *a;
    backend_run cuda, ref;
    step_block step;
} rig;

static void rig_open(rig *r)
{
    memset(r, 0, sizeof(*r));
    must(arena_create("shapes", 0, &r->a));
    backend_run_init(&r->cuda, &kern_backend_cuda, KERN_SCALAR, 1);
    backend_run_init(&r->ref, &kern_backend_ref, KERN_SCALAR, 1);
    r->step.host.seed = 7;
    r->step.host.step = 2;
}

static void rig_close(rig *r)
{
    backend_runs_deinit(&r->cuda, 1);
    backend_runs_deinit(&r->ref, 1);
    arena_destroy(r->a);
}

// A matrix of random numbers whose rows have `gap` further elements between them.
static kern_tensor matrix(rig *r, dtype type, int64_t rows, int64_t columns, int64_t gap, int seed)
{
    const int64_t dims[2] = {rows, columns + gap};
    kern_tensor t = kt_make(r->a, type, 2, dims);
    t.dims[1] = columns;
    for (int64_t e = 0; e < kt_elements(&t); e++) kt_put(&t, e, test_uniform(3, seed, e));
    return t;
}

static kern_tensor like(rig *r, const kern_tensor *t)
{
    kern_tensor out = kt_make(r->a, t->type, t->ndim, t->dims);
    return out;
}

static void run(rig *r, const backend_run *on, kern_call call)
{
    call.step = &r->step;
    call.workspace_bytes = kern_workspace_bytes(&on->context, &call);
    const int64_t dims[1] = {call.workspace_bytes};
    call.workspace = kt_make(r->a, DTYPE_U8, 1, dims).data;
    must(kern_run(&on->context, &call));
}

// Runs the call by both backends and compares the outputs.
static void compare(rig *r, const kern_call *call, double tolerance, const char *name)
{
    kern_call want = *call;
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (call->out[o].data == NULL) continue;
        want.out[o] = like(r, &call->out[o]);
        for (int64_t e = 0; e < kt_elements(&want.out[o]) && call->accumulate; e++) {
            kt_put(&want.out[o], e, kt_get(&call->out[o], e));
        }
    }
    run(r, &r->ref, want);
    run(r, &r->cuda, *call);
    for (int o = 0; o < OP_MAX_OUT; o++) {
        double worst = 0.0, largest = 0.0;
        for (int64_t e = 0; want.out[o].data != NULL && e < kt_elements(&want.out[o]); e++) {
            const double a = kt_get(&want.out[o], e), b = kt_get(&call->out[o], e);
            if (isfinite(a)) largest = fmax(largest, fabs(a));
            if (a != b) worst = fmax(worst, isnan(a - b) ? HUGE_VAL : fabs(a - b));
        }
        if (worst > tolerance * largest) {
            fail_msg("%s, output %d: off by %g, largest %g", name, o, worst, largest);
        }
    }
}

// Runs the call in schedules in which some warps starve: the bits are those of the first run.
static void reschedule(rig *r, const kern_call *call, const char *name)
{
    enum { SCHEDULES = 2 };
    for (uint64_t k = 1; k <= SCHEDULES; k++) {
        kern_call again = *call;
        for (int o = 0; o < OP_MAX_OUT; o++) {
            if (call->out[o].data != NULL) again.out[o] = like(r, &call->out[o]);
        }
        r->cuda.emulator.schedule = k;
        run(r, &r->cuda, again);
        r->cuda.emulator.schedule = 0;
        for (int o = 0; o < OP_MAX_OUT; o++) {
            for (int64_t e = 0; call->out[o].data != NULL && e < kt_elements(&call->out[o]); e++) {
                if (kt_get(&call->out[o], e) == kt_get(&again.out[o], e)) continue;
                fail_msg("%s, output %d: other bits in schedule %d", name, o, (int)k);
            }
        }
    }
}

// ---- products -----------------------------------------------------------------------------------
static void products(rig *r, dtype type, const int64_t size[3], int64_t gap, double tolerance)
{
    const int64_t n = size[0], m = size[1], k = size[2];
    const kern_tensor x = matrix(r, type, n, k, gap, 1), w = matrix(r, type, m, k, gap, 2);
    const kern_tensor dy = matrix(r, type, n, m, gap, 3);
    kern_call forward = {.code = OP_MATMUL, .in = {x, w}, .out = {matrix(r, type, n, m, gap, 4)}};
    kern_call dx = {.code = OP_MATMUL_DX, .in = {dy, w}, .out = {matrix(r, type, n, k, gap, 5)}};
    kern_call dw = {.code = OP_MATMUL_DW,
                    .in = {dy, x},
                    .out = {matrix(r, DTYPE_F32, m, k, 0, 6)},
                    .accumulate = true};
    compare(r, &forward, tolerance, "matmul");
    compare(r, &dx, tolerance, "matmul_dx");
    compare(r, &dw, tolerance, "matmul_dw");
}

static void test_products(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{130, 129, 72}, {257, 40, 200}, {64, 300, 33}, {1, 1, 129}};
    rig r;
    rig_open(&r);
    for (int64_t i = 0; i < COUNT_OF(sizes); i++) {
        for (int64_t gap = 0; gap < 16; gap += 8 - i % 2) { // rows aligned to 16 bytes, and not
            products(&r, DTYPE_BF16, sizes[i], gap, 0.008);
            products(&r, DTYPE_F16, sizes[i], gap, 0.001);
        }
        products(&r, DTYPE_F32, sizes[i], 3, 1e-5);
    }
    rig_close(&r);
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

static void attention(rig *r, const attention_case *c, dtype type)
{
    const int64_t rows = c->sequences * c->seq, wide = c->heads * c->dim;
    const int64_t narrow = c->kv_heads * c->dim, gap = c->dim % 8 == 0 ? 8 : 1;
    const int64_t value = c->value > 0 ? c->value : c->dim, wide_v = c->heads * value;
    const kern_tensor q = matrix(r, type, rows, wide, gap, 1);
    const kern_tensor k = matrix(r, type, rows, narrow, gap, 2);
    const kern_tensor v = matrix(r, type, rows, c->kv_heads * value, 0, 3);
    const kern_tensor lse = matrix(r, DTYPE_F32, rows, c->heads, 0, 4);
    kern_tensor documents = {.data = NULL};
    if (c->documents) documents = kt_make(r->a, DTYPE_I32, 1, &rows);
    for (int64_t i = 0; i < rows && c->documents; i++) {
        kt_put(&documents, i, (double)(i / c->seq * 1000 + i % c->seq / 45));
    }
    kern_call forward = {.code = OP_ATTENTION,
                         .in = {q, k, v, documents},
                         .out = {matrix(r, type, rows, wide_v, 0, 5), lse},
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
    compare(r, &forward, tolerance, c->name);
    if (c->dim > 128 && type == DTYPE_BF16) reschedule(r, &forward, c->name);
    kern_call backward = forward;
    backward.code = OP_ATTENTION_BWD;
    const kern_tensor in[] = {
        matrix(r, type, rows, wide_v, 0, 6), q, k, v, forward.out[0], lse, documents};
    memcpy(backward.in, in, sizeof(in));
    backward.out[0] = matrix(r, type, rows, wide, gap, 7);
    backward.out[1] = matrix(r, type, rows, narrow, gap, 8);
    backward.out[2] = matrix(r, type, rows, c->kv_heads * value, 0, 9);
    compare(r, &backward, type == DTYPE_F32 ? 2e-5 : 1.5 * tolerance, c->name);
    if (c->dim > 128 && type == DTYPE_BF16) reschedule(r, &backward, c->name);
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
            rig r;
            rig_open(&r);
            attention(&r, &cases[i], types[k]);
            rig_close(&r);
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
