// Every operation of the CUDA backend over all samples, in the emulator: its bits are the same in
// every schedule, and the second run of a schedule repeats the first.
#include "fixtures/kernels/sample_values.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { SCHEDULES = 2 };

static sample_memory *run(arena *a, const sample *s, backend_run *cuda, uint64_t schedule,
                          bool strict)
{
    sample_memory *m = sample_memory_create(a, s, 0);
    cuda->emulator.schedule = schedule;
    sample_fill(m, 1, true);
    const status st = sample_run(m, cuda, true, strict);
    if (st == ST_UNSUPPORTED) return NULL;
    must(st);
    return m;
}

static bool same_bits(const sample_memory *a, const sample_memory *b)
{
    for (int64_t t = 0; t < a->of->program->tensor_count; t++) {
        const sample_buffer *x = &a->buffers[t], *y = &b->buffers[t];
        if (x->base != NULL && memcmp(x->base, y->base, (size_t)x->bytes) != 0) return false;
    }
    return memcmp(&a->step, &b->step, sizeof(a->step)) == 0;
}

// Attention has kernels of its own on GPUs of compute capability 9.0.
static bool is_of_sm90(int code)
{
    return code == OP_ATTENTION || code == OP_ATTENTION_BWD;
}

static void test_schedules(void **state)
{
    (void)state;
    backend_run cuda;
    backend_run_init(&cuda, &kern_backend_cuda, KERN_SCALAR, 1);
    int64_t compared = 0, differ = 0;
    for (int i = 0; i < 3 * OP_CODE_COUNT; i++) {
        const int code = i % OP_CODE_COUNT;
        const bool strict = i / OP_CODE_COUNT == 1, sm90 = i / OP_CODE_COUNT == 2;
        if (strict && op_kind_of((op_code)code)->accumulates == 0) continue;
        if (sm90 && !is_of_sm90(code)) continue;
        if (sm90) cuda_emulator_sm90(&cuda.emulator);
        for (int v = 0; kern_backend_cuda.run[code] != NULL && v < op_sample_count((op_code)code);
             v += sm90     ? 12
                  : strict ? 4
                           : 1) {
            arena *a;
            sample s;
            assert_int_equal(arena_create("schedules", 0, &a), ST_OK);
            sample_open(a, (op_code)code, v, &s);
            const sample_memory *first = sample_is_big(&s) ? NULL : run(a, &s, &cuda, 0, strict);
            for (uint64_t k = 1; first != NULL && k <= SCHEDULES; k++) {
                compared++;
                if (same_bits(first, run(a, &s, &cuda, k, strict))) continue;
                differ++;
                print_error("%s, variant %d: other bits in schedule %d\n", s.kind->name, v, (int)k);
            }
            arena_destroy(a);
        }
    }
    print_message("%lld runs compared, %lld launches\n", (long long)compared,
                  (long long)cuda.emulator.launches);
    backend_runs_deinit(&cuda, 1);
    assert_true(compared > 0);
    assert_int_equal(differ, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
