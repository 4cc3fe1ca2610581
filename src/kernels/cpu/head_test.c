// The head over more than one chunk: the same bits for any cut of the tokens, and the right values.
//
// kernels/backend_test.c compares small cases with `ref`; here the vocabulary is so large that a
// chunk of logits holds only some of the tokens.
#include "kernels/cpu/cpu_kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 230, VOCAB = 140001, DIM = 3 };

typedef struct problem {
    float x[TOKENS * DIM], w[VOCAB * DIM];
    int32_t labels[TOKENS];
    float loss[TOKENS], dx[TOKENS * DIM], dw[VOCAB * DIM];
    uint16_t dx_narrow[TOKENS * DIM];
    step_block step;
} problem;

static problem *problem_make(void)
{
    problem *p = calloc(1, sizeof(*p));
    uint32_t state = 5;
    float *all[] = {p->x, p->w};
    const int64_t counts[] = {COUNT_OF(p->x), COUNT_OF(p->w)};
    for (int a = 0; a < 2; a++) {
        for (int64_t i = 0; i < counts[a]; i++) {
            state = state * 1664525u + 1013904223u;
            all[a][i] = (float)(int32_t)state * 0x1p-30f;
        }
    }
    for (int i = 0; i < TOKENS; i++) p->labels[i] = i % 7 == 3 ? -100 : i * 233 % VOCAB;
    p->step.device.loss_scale = 4.0;
    return p;
}

static kern_tensor matrix(void *data, dtype type, int64_t rows, int64_t columns)
{
    return (kern_tensor){
        .data = data, .type = type, .ndim = 2, .dims = {rows, columns}, .strides = {columns, 1}};
}

static kern_tensor vector(void *data, dtype type, int64_t count)
{
    return (kern_tensor){.data = data, .type = type, .ndim = 1, .dims = {count}, .strides = {1}};
}

// Runs tokens [begin, end).
static void run(problem *p, const kern_context *context, int64_t begin, int64_t end, bool narrow)
{
    const int64_t rows = end - begin, at = begin * DIM;
    kern_call call = {.code = OP_HEAD_LOSS,
                      .step = &p->step,
                      .loss_divisor = 10.0,
                      .accumulate = begin > 0,
                      .strict = true};
    call.attrs.z_loss = 0.01f;
    call.in[0] = matrix(p->x + at, DTYPE_F32, rows, DIM);
    call.in[1] = matrix(p->w, DTYPE_F32, VOCAB, DIM);
    call.in[2] = vector(p->labels + begin, DTYPE_I32, rows);
    call.out[0] = vector(p->loss + begin, DTYPE_F32, rows);
    call.out[1] = narrow ? matrix(p->dx_narrow + at, DTYPE_BF16, rows, DIM)
                         : matrix(p->dx + at, DTYPE_F32, rows, DIM);
    call.out[2] = matrix(p->dw, DTYPE_F32, VOCAB, DIM);
    const int64_t bytes = cpu_head_loss_workspace(&call, kern_pool_threads(context->pool));
    assert_true(bytes < 144 << 20);
    assert_true(rows <= 192 || bytes < rows * VOCAB * 4); // never all of them
    call.workspace = aligned_alloc(64, (size_t)bytes);
    call.workspace_bytes = bytes;
    assert_int_equal(cpu_head_loss(context, &call), ST_OK);
    free(call.workspace);
}

// Checks the loss and the gradient by x of one token, in double.
static void token_check(const problem *p, int64_t n)
{
    if (p->labels[n] < 0) {
        assert_true(p->loss[n] == 0.0f);
        for (int d = 0; d < DIM; d++) assert_true(p->dx[n * DIM + d] == 0.0f);
        return;
    }
    static double logits[VOCAB];
    double top = -HUGE_VAL, sum = 0.0, dx[DIM] = {0};
    for (int64_t v = 0; v < VOCAB; v++) {
        logits[v] = 0.0;
        for (int d = 0; d < DIM; d++) {
            logits[v] += (double)p->x[n * DIM + d] * (double)p->w[v * DIM + d];
        }
        top = fmax(top, logits[v]);
    }
    for (int64_t v = 0; v < VOCAB; v++) sum += exp(logits[v] - top);
    const double lse = top + log(sum), z = (double)0.01f;
    const double loss = lse - logits[p->labels[n]] + z * lse * lse;
    assert_true(fabs((double)p->loss[n] - loss) < 2e-6 * fabs(loss) + 1e-6);
    for (int64_t v = 0; v < VOCAB; v++) {
        const double prob = exp(logits[v] - lse) * (1.0 + 2.0 * z * lse);
        const double d_logit = (prob - (v == p->labels[n] ? 1.0 : 0.0)) * 4.0 / 10.0;
        for (int d = 0; d < DIM; d++) dx[d] += d_logit * (double)p->w[v * DIM + d];
    }
    for (int d = 0; d < DIM; d++) assert_true(fabs((double)p->dx[n * DIM + d] - dx[d]) < 2e-4);
}

static void chunks_threads_and_levels_change_no_bit(void **state)
{
    (void)state;
    kern_pool *pools[3];
    void *scratch = aligned_alloc(4096, 2 * (size_t)KERN_SCRATCH_BYTES);
    for (int t = 1; t <= 2; t++) {
        assert_int_equal(kern_pool_create(t, &pools[t]), ST_OK);
        kern_pool_scratch_set(pools[t], scratch);
    }
    const kern_level level = kern_level_of_machine();
    problem *whole = problem_make(), *other = problem_make();
    run(whole, &(kern_context){.pool = pools[2], .level = level}, 0, TOKENS, false);
    for (int64_t n = 0; n < TOKENS; n += 80) token_check(whole, n);
    // Two calls, cut inside a chunk; one thread.
    const kern_context single = {.pool = pools[1], .level = level};
    run(other, &single, 0, 99, false);
    run(other, &single, 99, TOKENS, false);
    assert_memory_equal(whole->loss, other->loss, sizeof(whole->loss));
    assert_memory_equal(whole->dx, other->dx, sizeof(whole->dx));
    assert_memory_equal(whole->dw, other->dw, sizeof(whole->dw));
    // Plain C, a narrow gradient: the same values, rounded once.
    run(other, &(kern_context){.pool = pools[2], .level = KERN_SCALAR}, 0, TOKENS, true);
    assert_memory_equal(whole->loss, other->loss, sizeof(whole->loss));
    assert_memory_equal(whole->dw, other->dw, sizeof(whole->dw));
    for (int64_t i = 0; i < COUNT_OF(whole->dx); i++) {
        assert_int_equal(other->dx_narrow[i], bf16_from_f32(whole->dx[i]));
    }
    for (int t = 1; t <= 2; t++) kern_pool_destroy(pools[t]);
    free(scratch);
    free(whole);
    free(other);
}

// Statistics of four shards, then losses from them; `kept`: in one workspace, where logits may
// stay.
static void run_in_shards(problem *p, const kern_context *context, int64_t tokens, bool kept)
{
    static float stats[TOKENS * 12], terms[TOKENS * DIM * 4];
    kern_call call = {
        .code = OP_HEAD_STATS, .step = &p->step, .loss_divisor = 10.0, .strict = true};
    call.piece.shards = call.piece.shard_count = 4;
    call.attrs.kept = kept;
    call.attrs.z_loss = 0.01f;
    call.in[0] = matrix(p->x, DTYPE_F32, tokens, DIM);
    call.in[1] = matrix(p->w, DTYPE_F32, VOCAB, DIM);
    call.in[2] = vector(p->labels, DTYPE_I32, tokens);
    call.out[0] = matrix(stats, DTYPE_F32, tokens, 12);
    kern_call loss = call;
    loss.code = OP_HEAD_LOSS;
    loss.in[3] = matrix(stats, DTYPE_F32, tokens, 12);
    loss.out[0] = vector(p->loss, DTYPE_F32, tokens);
    loss.out[1] = matrix(terms, DTYPE_F32, tokens, (int64_t)DIM * 4);
    loss.out[2] = matrix(p->dw, DTYPE_F32, VOCAB, DIM);
    loss.workspace_bytes =
        max_i64(cpu_head_stats_workspace(&call, 1), cpu_head_loss_workspace(&loss, 1));
    call.workspace = loss.workspace = aligned_alloc(64, (size_t)loss.workspace_bytes);
    assert_int_equal(cpu_head_stats(context, &call), ST_OK);
    if (!kept) memset(call.workspace, 0xFF, (size_t)loss.workspace_bytes);
    assert_int_equal(cpu_head_loss(context, &loss), ST_OK);
    for (int64_t n = 0; n < tokens; n++) {
        for (int64_t d = 0; d < DIM; d++) {
            const float *t = &terms[n * DIM * 4 + d];
            p->dx[n * DIM + d] = (t[0] + t[DIM]) + (t[DIM * 2] + t[DIM * 3]);
        }
    }
    free(loss.workspace);
}

// One chunk, and two: kept logits and recomputed logits give the same bits.
static void logits_that_stay_change_no_bit(void **state)
{
    (void)state;
    kern_pool *pool = NULL;
    assert_int_equal(kern_pool_create(2, &pool), ST_OK);
    void *scratch = aligned_alloc(4096, 2 * (size_t)KERN_SCRATCH_BYTES);
    kern_pool_scratch_set(pool, scratch);
    const kern_context context = {.pool = pool, .level = kern_level_of_machine()};
    const int64_t counts[] = {60, TOKENS};
    problem *kept = problem_make(), *again = problem_make();
    for (int i = 0; i < 2; i++) {
        run_in_shards(kept, &context, counts[i], true);
        run_in_shards(again, &context, counts[i], false);
        assert_memory_equal(kept->loss, again->loss, sizeof(kept->loss));
        assert_memory_equal(kept->dx, again->dx, sizeof(kept->dx));
        assert_memory_equal(kept->dw, again->dw, sizeof(kept->dw));
        token_check(kept, 0);
        token_check(kept, counts[i] - 1);
    }
    kern_pool_destroy(pool);
    free(scratch);
    free(kept);
    free(again);
}

static void a_label_outside_is_refused(void **state)
{
    (void)state;
    problem *p = problem_make();
    p->labels[1] = VOCAB;
    kern_call call = {.code = OP_HEAD_LOSS};
    call.in[0] = matrix(p->x, DTYPE_F32, 2, DIM);
    call.in[1] = matrix(p->w, DTYPE_F32, VOCAB, DIM);
    call.in[2] = vector(p->labels, DTYPE_I32, 2);
    call.out[0] = vector(p->loss, DTYPE_F32, 2);
    assert_int_equal(cpu_head_loss(&(kern_context){.level = KERN_SCALAR}, &call), ST_DATA);
    assert_non_null(strstr(error_last()->text, "row 1 has label 140001"));
    free(p);
}

// If 1 + 2 z lse is near zero or below, no common factor can be taken out of a row.
static void a_strong_z_loss_keeps_its_gradient(void **state)
{
    (void)state;
    enum { SMALL = 4, WORDS = 5, WIDE = 8 };
    kern_pool *pool = NULL;
    assert_int_equal(kern_pool_create(1, &pool), ST_OK);
    float x[SMALL * WIDE], w[WORDS * WIDE], loss[SMALL], dx[SMALL * WIDE], dw[WORDS * WIDE];
    static step_block step = {.device = {.loss_scale = 1.0}};
    int32_t labels[SMALL] = {0, 1, 2, 4};
    for (int i = 0; i < SMALL * WIDE; i++) x[i] = 1.0f + (float)(i % 3) * 0.1f;
    for (int i = 0; i < WORDS * WIDE; i++) w[i] = -1.0f - (float)(i % 5) * 0.05f; // lse is about -8
    kern_call call = {.code = OP_HEAD_LOSS, .step = &step, .loss_divisor = 1.0};
    call.attrs.z_loss = 0.0625f; // the weight is about 0
    call.in[0] = matrix(x, DTYPE_F32, SMALL, WIDE);
    call.in[1] = matrix(w, DTYPE_F32, WORDS, WIDE);
    call.in[2] = vector(labels, DTYPE_I32, SMALL);
    call.out[0] = vector(loss, DTYPE_F32, SMALL);
    call.out[1] = matrix(dx, DTYPE_F32, SMALL, WIDE);
    call.out[2] = matrix(dw, DTYPE_F32, WORDS, WIDE);
    call.workspace_bytes = cpu_head_loss_workspace(&call, 1);
    call.workspace = aligned_alloc(64, (size_t)call.workspace_bytes);
    const kern_context context = {.pool = pool, .level = kern_level_of_machine()};
    assert_int_equal(cpu_head_loss(&context, &call), ST_OK);
    double wanted_dw[WORDS * WIDE] = {0};
    for (int n = 0; n < SMALL; n++) {
        double logits[WORDS] = {0}, sum = 0.0, wanted[WIDE] = {0};
        for (int v = 0; v < WORDS; v++) {
            for (int d = 0; d < WIDE; d++) {
                logits[v] += (double)x[n * WIDE + d] * (double)w[v * WIDE + d];
            }
            sum += exp(logits[v]);
        }
        const double lse = log(sum), weight = 1.0 + 0.125 * lse;
        assert_true(fabs(weight) < 0.5);
        for (int v = 0; v < WORDS; v++) {
            const double g = exp(logits[v] - lse) * weight - (v == labels[n] ? 1.0 : 0.0);
            for (int d = 0; d < WIDE; d++) {
                wanted[d] += g * (double)w[v * WIDE + d];
                wanted_dw[v * WIDE + d] += g * (double)x[n * WIDE + d];
            }
        }
        for (int d = 0; d < WIDE; d++) {
            assert_true(fabs((double)dx[n * WIDE + d] - wanted[d]) < 1e-5);
        }
    }
    for (int i = 0; i < WORDS * WIDE; i++) {
        assert_true(fabs((double)dw[i] - wanted_dw[i]) < 1e-5);
    }
    free(call.workspace);
    kern_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_threads_and_levels_change_no_bit),
        cmocka_unit_test(a_strong_z_loss_keeps_its_gradient),
        cmocka_unit_test(logits_that_stay_change_no_bit),
        cmocka_unit_test(a_label_outside_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
