// Contexts: hints, the queries of plans, and the calls that a device runs in its contexts.
#include "kernels/kernels_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static arena *a;

static kern_context *context_of(const char *backend, int threads, const char *level)
{
    const kern_hint hint = {.threads = threads, .level = level};
    kern_context *c = NULL;
    assert_int_equal(kern_context_create(a, backend, &hint, &c), ST_OK);
    return c;
}

static void hints_are_taken(void **state)
{
    (void)state;
    const kern_hint strange = {.threads = 1, .level = "abacus"}, plain = {.threads = 1};
    kern_context *c = NULL;
    assert_int_equal(kern_context_create(a, "cpu", &strange, &c), ST_UNSUPPORTED);
    assert_int_equal(kern_context_create(a, "abacus", &plain, &c), ST_UNSUPPORTED);
    error_clear();
    c = context_of("cpu", 3, "scalar");
    assert_int_equal(kern_device_kernels.threads(c), 3);
    assert_string_equal(kern_device_kernels.level(c), "scalar");
    assert_int_equal(kern_scratch_bytes(c), 3 * KERN_SCRATCH_BYTES);
    c = context_of("cpu", 100000, NULL);
    assert_int_equal(kern_device_kernels.threads(c), KERN_MAX_THREADS);
    assert_string_equal(kern_device_kernels.level(c), kern_level_name(kern_level_fastest()));
    assert_true(kern_device_kernels.threads(context_of("ref", 0, NULL)) >= 1);
}

// The default level exists on this machine and is at least a unit for bf16 if there is one.
static void the_fastest_level_is_there(void **state)
{
    (void)state;
    const kern_level machine = kern_level_of_machine(), fastest = kern_level_fastest();
    assert_true(fastest <= machine);
    if (machine == KERN_AVX512_BF16) {
        assert_true(fastest >= KERN_AVX512);
    } else {
        assert_int_equal(fastest, machine);
    }
}

// A plan may be for a machine with higher levels than this one; a device here uses the levels that
// exist.
static void a_device_uses_what_is_there(void **state)
{
    (void)state;
    kern_context *open = NULL;
    const kern_context *c = context_of("cpu", 2, "amx");
    assert_int_equal(c->level, KERN_AMX);
    assert_int_equal(kern_context_open(c, 0, &open), ST_OK);
    assert_true(open->level <= kern_level_of_machine());
    assert_int_equal(kern_context_threads(open), 2);
    kern_context_close(open);
    assert_int_equal(kern_context_open(c, 1, &open), ST_OK);
    assert_int_equal(kern_context_threads(open), 1);
    kern_context_close(open);
    kern_context_close(NULL);
}

// A call needs the bytes that its plan was told.
static void plans_and_calls_agree(void **state)
{
    (void)state;
    static float x[64 * 48];
    kern_call call = {.code = OP_LAYERNORM_DW};
    const kern_context *c = context_of("cpu", 2, NULL);
    kern_context *open = NULL;
    call.in[0] = call.in[1] = (kern_tensor){
        .data = x, .type = DTYPE_F32, .ndim = 2, .dims = {64, 48}, .strides = {48, 1}};
    assert_true(kern_workspace_bytes(c, &call) > 0);
    assert_int_equal(kern_context_open(c, 0, &open), ST_OK);
    assert_int_equal(kern_workspace_bytes(c, &call), kern_workspace_bytes(open, &call));
    kern_context_close(open);
}

static void a_missing_kernel_is_reported_by_the_device(void **state)
{
    (void)state;
    static const kern_backend empty = {.name = "empty"};
    const kern_context none = {.backend = &empty, .threads = 1};
    const device_api *const apis[] = {&device_cpu, &device_shadow};
    for (int i = 0; i < COUNT_OF(apis); i++) {
        const device_api *api = apis[i];
        const device_config config = {
            .h = host_real(), .run = &kern_device_kernels, .kernels = &none};
        device *d = NULL;
        device_stream *stream = NULL;
        void *memory = NULL;
        bool posted = false;
        assert_int_equal(api->create(&config, &d), ST_OK);
        assert_int_equal(api->stream_create(d, "compute", 0, &stream), ST_OK);
        assert_int_equal(api->alloc(d, 4096, &memory), ST_OK);
        kern_call call = {.code = OP_ADD};
        call.in[0] = (kern_tensor){.data = memory, .ndim = 1, .dims = {4}, .strides = {1}};
        call.in[1] = call.out[0] = call.in[0];
        call.out[0].data = (float *)memory + 16;
        status st = api->launch(stream, &call, &posted);
        if (st == ST_OK) st = api->sync(d);
        assert_int_equal(st, ST_UNSUPPORTED);
        error_clear();
        api->destroy(d);
    }
}

static int open_arena(void **state)
{
    (void)state;
    return arena_create("contexts", 0, &a) == ST_OK ? 0 : -1;
}

static int close_arena(void **state)
{
    (void)state;
    arena_destroy(a);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hints_are_taken),
        cmocka_unit_test(the_fastest_level_is_there),
        cmocka_unit_test(a_device_uses_what_is_there),
        cmocka_unit_test(plans_and_calls_agree),
        cmocka_unit_test(a_missing_kernel_is_reported_by_the_device),
    };
    return cmocka_run_group_tests(tests, open_arena, close_arena);
}
