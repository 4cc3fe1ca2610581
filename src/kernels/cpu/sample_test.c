// Choice of a token: the kernels of cpu and cuda, which sort only candidates that may be drawn,
// against `ref`, which sorts all.
#include "fixtures/kernels/backend_fixture.h"
#include "fixtures/kernels/tensor_fixture.h"
#include "kernels/cpu/pool.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEQUENCES = 3, VOCAB = 5003, PARAMS = 8 }; // three blocks, the last one not whole

typedef struct setting {
    float temperature, top_k, top_p, min_p;
} setting;

static const setting settings[] = {
    {0.0F, 0.0F, 0.0F, 0.0F},  {0.8F, 0.0F, 1.0F, 0.0F},    {1.0F, 1.0F, 0.0F, 0.0F},
    {1.0F, 40.0F, 0.0F, 0.0F}, {1.0F, 3000.0F, 0.0F, 0.0F}, {1.0F, 1e6F, 0.5F, 0.0F},
    {0.7F, 0.0F, 0.9F, 0.0F},  {1.5F, 0.0F, 0.999F, 0.0F},  {1.0F, 0.0F, 1e-6F, 0.0F},
    {1.0F, 0.0F, 0.0F, 0.05F}, {2.0F, 0.0F, 0.0F, 1e-5F},   {1.0F, 0.0F, 0.0F, 1.0F},
    {1.0F, 50.0F, 0.9F, 0.1F}, {3.0F, 0.0F, 0.95F, 1e-4F},  {100.0F, 0.0F, 0.99F, 0.0F},
};

typedef struct memory {
    float *logits, *params;
    int64_t draws[SEQUENCES];
    int32_t ids[SEQUENCES];
    int64_t vocab;
    dtype type;
    void *workspace;
} memory;

static kern_pool *pools[2]; // of 1 and 2 threads

static void run(const char *backend, int threads, memory *m)
{
    kern_context context = {.backend = kern_backend_find(backend),
                            .pool = pools[threads - 1],
                            .level = kern_level_of_machine()};
    kern_call call = {.code = OP_SAMPLE, .seq = 1};
    cuda_emulator emulator;
    cuda_emulator_init(&emulator, 0);
    if (context.backend->on_gpu) context.queue = &emulator.queue;
    call.in[0] = (kern_tensor){.data = m->logits, .type = m->type, .ndim = 2};
    call.in[1] = (kern_tensor){.data = m->params, .type = DTYPE_F32, .ndim = 2};
    call.in[2] = (kern_tensor){.data = m->draws, .type = DTYPE_I64, .ndim = 1};
    call.out[0] = (kern_tensor){.data = m->ids, .type = DTYPE_I32, .ndim = 1};
    kern_tensor *const all[] = {&call.in[0], &call.in[1], &call.in[2], &call.out[0]};
    const int64_t columns[] = {m->vocab, PARAMS, 1, 1};
    for (int i = 0; i < COUNT_OF(all); i++) {
        all[i]->dims[0] = SEQUENCES;
        all[i]->dims[1] = columns[i];
        all[i]->strides[0] = columns[i];
        all[i]->strides[1] = 1;
    }
    call.workspace_bytes = kern_workspace_bytes(&context, &call);
    void *space = aligned_alloc(64, (size_t)align_up(call.workspace_bytes, 64));
    assert_non_null(space);
    memset(space, 0xff, (size_t)call.workspace_bytes);
    call.workspace = space;
    assert_int_equal(kern_run(&context, &call), ST_OK);
    free(space);
}

static void memory_make(memory *m, int64_t vocab)
{
    *m = (memory){.vocab = vocab, .type = DTYPE_F32};
    m->logits = calloc((size_t)(SEQUENCES * vocab), sizeof(float));
    m->params = calloc((size_t)(SEQUENCES * PARAMS), sizeof(float));
    assert_non_null(m->logits);
    assert_non_null(m->params);
}

static void memory_free(memory *m)
{
    free(m->logits);
    free(m->params);
}

static void params_set(memory *m, const setting *s, uint32_t seed, int64_t draw)
{
    for (int64_t b = 0; b < SEQUENCES; b++) {
        const float values[4] = {s->temperature, s->top_k, s->top_p, s->min_p};
        memcpy(m->params + b * PARAMS, values, sizeof(values));
        memcpy(m->params + b * PARAMS + 4, &seed, sizeof(seed));
        m->draws[b] = draw + b;
    }
}

// Every setting, several draws, one and two threads.
static void compare(memory *m, int64_t draws)
{
    for (int s = 0; s < COUNT_OF(settings); s++) {
        for (int64_t d = 0; d < draws; d++) {
            int32_t want[SEQUENCES];
            params_set(m, &settings[s], (uint32_t)(s + 1), 10 * d);
            run("ref", 1, m);
            memcpy(want, m->ids, sizeof(want));
            for (int threads = 1; threads <= 2; threads++) {
                memset(m->ids, 0xff, sizeof(m->ids));
                run("cpu", threads, m);
                assert_memory_equal(m->ids, want, sizeof(want));
            }
            if (d > 0) continue; // emulation is slow
            run("cuda", 1, m);
            assert_memory_equal(m->ids, want, sizeof(want));
        }
    }
}

static void steep_and_flat_rows(void **state)
{
    (void)state;
    memory m;
    memory_make(&m, VOCAB);
    for (int64_t e = 0; e < SEQUENCES * VOCAB; e++) {
        const double u = test_uniform(1, 2, e);
        m.logits[e] = (float)(e / VOCAB == 0   ? 12.0 * u
                              : e / VOCAB == 1 ? 0.3 * u
                                               : 80.0 * u * u * u);
    }
    compare(&m, 6);
    memory_free(&m);
}

static void ties_and_no_numbers(void **state)
{
    (void)state;
    memory m;
    memory_make(&m, VOCAB);
    for (int64_t e = 0; e < SEQUENCES * VOCAB; e++) {
        const int64_t row = e / VOCAB;
        m.logits[e] = (float)(e % 7);                             // many equal
        if (row == 1) m.logits[e] = e % 3 == 0 ? -INFINITY : NAN; // nothing to draw
        if (row == 2 && e % 5 != 0) m.logits[e] = -INFINITY;
    }
    m.logits[2 * VOCAB + 5] = NAN;
    compare(&m, 3);
    memory_free(&m);
}

static void small_vocabularies(void **state)
{
    (void)state;
    for (int64_t vocab = 1; vocab <= 4; vocab++) {
        memory m;
        memory_make(&m, vocab);
        for (int64_t e = 0; e < SEQUENCES * vocab; e++) m.logits[e] = (float)test_uniform(3, 1, e);
        compare(&m, 4);
        memory_free(&m);
    }
}

static int pools_make(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) assert_int_equal(kern_pool_create(i + 1, &pools[i]), ST_OK);
    return 0;
}

static int pools_free(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) kern_pool_destroy(pools[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steep_and_flat_rows),
        cmocka_unit_test(ties_and_no_numbers),
        cmocka_unit_test(small_vocabularies),
    };
    return cmocka_run_group_tests(tests, pools_make, pools_free);
}
