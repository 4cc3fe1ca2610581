// The executor against itself: strict runs of a small model must end in the same bits for every
// micro-batch, recompute policy, device and number of threads; and memory is what the plan says.
#include "exec/exec.h"
#include "fixtures/plan/plan_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Counts the allocations of this process, where the C library lets a program replace malloc.
#if defined(__has_feature)
#    if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#        define SANITIZED 1
#    endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define SANITIZED 1
#endif
static _Atomic(int64_t) allocations;
#ifndef SANITIZED
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes)
{
    allocations++;
    return __libc_calloc(count, bytes);
}
void *realloc(void *memory, size_t bytes)
{
    allocations++;
    return __libc_realloc(memory, bytes);
}
#endif

enum { SEQ = 12, SEQUENCES = 8, VOCAB = 37, STEPS = 4 };

typedef struct setup {
    int64_t micro_batch;
    op_recompute recompute;
    const device_api *device;
    const char *backend;
    int threads;
    uint64_t seed;                    // of the shadow's order
    bool strict, tied, poison, apart; // apart: nothing is fused
    int32_t shards;
    float dropout;
} setup;

typedef struct result {
    uint64_t bits; // of all weights and states
    double loss[STEPS], norm[STEPS];
    int64_t arena_bytes, touched_bytes, live_bytes, run_bytes, poisoned_bytes;
    int64_t allocations; // between the second step and the last
} result;

static void weights_init(exec *e, const plan_table *run)
{
    for (int64_t i = 0; i < run->count; i++) {
        const plan_tensor *t = &run->tensors[i];
        if (t->role != ROLE_WEIGHT && t->role != ROLE_STATE) continue;
        const int64_t count = t->bytes / 4;
        float *values = calloc((size_t)count, sizeof(float));
        assert_non_null(values);
        for (int64_t k = 0; k < count && t->role == ROLE_WEIGHT; k++) {
            const uint32_t word = (uint32_t)(k * 2654435761u) ^ (uint32_t)(i * 40503);
            values[k] = t->ndim == 1 ? 1.0f : ((float)(word % 2001) - 1000.0f) * 3e-4f;
        }
        assert_int_equal(exec_write(e, i, 0, values, t->bytes), ST_OK);
        free(values);
    }
    step_block *block = calloc(1, sizeof(*block));
    assert_non_null(block);
    step_device_init(&block->device, 1.0);
    assert_int_equal(exec_write(e, plan_table_find(run, "step"), 0, block, sizeof(*block)), ST_OK);
    free(block);
}

static uint64_t state_bits(exec *e, const plan_table *run)
{
    uint64_t bits = 14695981039346656037u;
    for (int64_t i = 0; i < run->count; i++) {
        const plan_tensor *t = &run->tensors[i];
        if (t->role != ROLE_WEIGHT && t->role != ROLE_STATE) continue;
        const int64_t bytes = t->dims[0] * (t->ndim == 2 ? t->dims[1] : 1) * 4;
        unsigned char *values = malloc((size_t)bytes);
        assert_non_null(values);
        assert_int_equal(exec_read(e, i, 0, values, bytes), ST_OK);
        for (int64_t k = 0; k < bytes; k++) bits = (bits ^ values[k]) * 1099511628211u;
        free(values);
    }
    return bits;
}

static void steps_run(exec *e, const plan *p, result *out)
{
    int32_t ids[SEQUENCES * SEQ], labels[SEQUENCES * SEQ];
    step_device *d = malloc(sizeof(*d));
    assert_non_null(d);
    int64_t before = 0;
    for (int s = 0; s < STEPS; s++) {
        if (s == 2) before = allocations; // each of the two slots has had its first step
        for (int i = 0; i < SEQUENCES * SEQ; i++) {
            ids[i] = (i * 7 + s * 3) % VOCAB;
            labels[i] = i % 11 == 5 ? -1 : (i * 5 + s) % VOCAB;
        }
        exec_input input = {
            .host = {.step = s + 1, .seed = 5, .lr = 1e-2, .sequences = SEQUENCES},
            .settings = {.clip = 1.0},
            .batch = {{"ids", ids, sizeof(ids)}, {"labels", labels, sizeof(labels)}},
            .batch_count = 2};
        assert_int_equal(exec_begin(e, p, &input), ST_OK);
        assert_int_equal(exec_finish(e), ST_OK);
        int64_t step = 0;
        bool any = false;
        assert_int_equal(exec_results(e, d, &step, &any), ST_OK);
        assert_true(any);
        assert_int_equal(step, s + 1);
        out->loss[s] = d->loss;
        out->norm[s] = d->grad_norm;
    }
    out->allocations = allocations - before;
    free(d);
}

static result run_setup(const setup *s)
{
    result out = {0};
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    const plan_sample_config config = {.layers = 2,
                                       .dim = 16,
                                       .ffn = 24,
                                       .heads = 2,
                                       .vocab = VOCAB,
                                       .tied = s->tied,
                                       .dropout = s->dropout,
                                       .recompute = s->recompute};
    op_model *m = NULL;
    op_program *const *optimizer = NULL;
    assert_int_equal(plan_sample_model(a, &config, &m), ST_OK);
    assert_int_equal(plan_sample_optimizer(a, m, &optimizer), ST_OK);
    plan_table run = {.a = a};
    const kern_hint hint = {.threads = s->threads};
    kern_context *kernels = NULL;
    assert_int_equal(kern_context_create(a, s->backend, &hint, &kernels), ST_OK);
    exec_workspace_context workspace = {.kernels = kernels, .strict = s->strict};
    const plan_request request = {.model = m,
                                  .sequences = SEQUENCES,
                                  .micro_batch = s->micro_batch,
                                  .seq = SEQ,
                                  .strict = s->strict,
                                  .shards = s->shards,
                                  .poison = s->poison,
                                  .optimizer = optimizer,
                                  .scratch_bytes = kern_scratch_bytes(kernels),
                                  .workspace = exec_workspace,
                                  .fuses = s->apart ? NULL : exec_fuses,
                                  .workspace_context = &workspace};
    plan *p = NULL;
    const status st = plan_create(a, &request, &run, &p);
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
    plan_table_place(&run);
    const plan *plans[] = {p};
    const exec_config wanted = {.api = s->device,
                                .device = {.h = host_real(),
                                           .run = &kern_device_kernels,
                                           .kernels = kernels,
                                           .seed = s->seed},
                                .run = &run,
                                .plans = plans,
                                .plan_count = 1};
    exec *e = NULL;
    assert_int_equal(exec_create(&wanted, &e), ST_OK);
    weights_init(e, &run);
    steps_run(e, p, &out);
    out.bits = state_bits(e, &run);
    out.arena_bytes = exec_arena_bytes(e);
    out.touched_bytes = exec_touched_bytes(e);
    out.poisoned_bytes = exec_poisoned_bytes(e);
    out.live_bytes = p->live_bytes;
    out.run_bytes = run.run_bytes;
    exec_destroy(e);
    arena_destroy(a);
    return out;
}

static setup base_setup(void)
{
    return (setup){.micro_batch = 8,
                   .device = &device_cpu,
                   .backend = "cpu",
                   .threads = 1,
                   .strict = true,
                   .tied = true,
                   .shards = 8,
                   .dropout = 0.1f};
}

static void it_learns(void **state)
{
    (void)state;
    setup s = base_setup();
    s.dropout = 0.0f;
    const result r = run_setup(&s);
    assert_true(r.loss[0] > 3.0 && r.loss[0] < 4.5); // ln 37 = 3.61
    assert_true(r.loss[STEPS - 1] < r.loss[0]);
    for (int i = 0; i < STEPS; i++) assert_true(r.norm[i] > 0.0);
}

static void same_bits_for_micro_batches(void **state)
{
    (void)state;
    setup s = base_setup();
    const result whole = run_setup(&s);
    for (int64_t mb = 1; mb <= 4; mb *= 2) {
        s.micro_batch = mb;
        const result r = run_setup(&s);
        assert_memory_equal(r.loss, whole.loss, sizeof(r.loss));
        assert_memory_equal(r.norm, whole.norm, sizeof(r.norm));
        assert_true(r.bits == whole.bits);
    }
    s.shards = 5; // uneven shards, cut through micro-batches
    s.micro_batch = 8;
    const result five = run_setup(&s);
    s.micro_batch = 2;
    assert_true(run_setup(&s).bits == five.bits);
    s.shards = 12; // more shards than sequences
    const result twelve = run_setup(&s);
    s.micro_batch = 8;
    assert_true(run_setup(&s).bits == twelve.bits);
}

static void same_bits_for_recompute_threads_and_devices(void **state)
{
    (void)state;
    setup s = base_setup();
    const result plain = run_setup(&s);
    for (int policy = RECOMPUTE_SELECTIVE; policy <= RECOMPUTE_FULL; policy++) {
        s.recompute = (op_recompute)policy;
        s.micro_batch = 4;
        assert_true(run_setup(&s).bits == plain.bits);
    }
    s = base_setup();
    s.threads = 2;
    assert_true(run_setup(&s).bits == plain.bits);
    s.device = &device_shadow;
    for (s.seed = 1; s.seed <= 3; s.seed++) {
        s.micro_batch = s.seed == 3 ? 2 : 8;
        assert_true(run_setup(&s).bits == plain.bits);
    }
    s = base_setup();
    s.apart = true;
    s.poison = true;
    assert_true(run_setup(&s).bits == plain.bits);
    s.apart = false;
    assert_true(run_setup(&s).bits == plain.bits);
    s = base_setup();
    s.backend = "ref";
    const result ref = run_setup(&s);
    s.micro_batch = 1;
    s.device = &device_shadow;
    s.recompute = RECOMPUTE_FULL;
    assert_true(run_setup(&s).bits == ref.bits);
    for (int i = 0; i < STEPS; i++) {
        assert_true(ref.loss[i] - plain.loss[i] < 1e-4 && plain.loss[i] - ref.loss[i] < 1e-4);
    }
}

static void fast_mode_agrees_closely(void **state)
{
    (void)state;
    setup s = base_setup();
    const result strict = run_setup(&s);
    s.strict = false;
    const result fast = run_setup(&s);
    s.micro_batch = 2;
    const result small = run_setup(&s);
    for (int i = 0; i < STEPS; i++) {
        assert_true(strict.loss[i] - fast.loss[i] < 1e-4 && fast.loss[i] - strict.loss[i] < 1e-4);
        assert_true(small.loss[i] - fast.loss[i] < 1e-4 && fast.loss[i] - small.loss[i] < 1e-4);
    }
}

static void memory_is_what_the_plan_says(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        setup s = base_setup();
        s.micro_batch = 1 << (i % 4);
        s.recompute = (op_recompute)(i % 3);
        s.strict = i % 2 == 0;
        s.tied = i % 3 != 0;
        const result r = run_setup(&s);
        assert_int_equal(r.touched_bytes, r.arena_bytes);
        const double bound = (double)(r.run_bytes + r.live_bytes);
        assert_true((double)r.arena_bytes <= 1.05 * bound);
        assert_true((double)r.arena_bytes >= bound);
    }
}

static void no_step_allocates(void **state)
{
    (void)state;
#ifdef SANITIZED
    print_message("SKIP: the sanitizer's allocator cannot be counted\n");
    skip();
#endif
    setup s = base_setup();
    s.threads = 2;
    assert_int_equal(run_setup(&s).allocations, 0);
    s.micro_batch = 2;
    s.device = &device_shadow;
    assert_int_equal(run_setup(&s).allocations, 0);
    assert_true(allocations > 0); // they are counted
}

static void poisoned_bytes_find_no_reader(void **state)
{
    (void)state;
    for (int i = 0; i < 18; i++) {
        setup s = base_setup();
        s.micro_batch = 1 << (i % 4);
        s.recompute = (op_recompute)(i % 3);
        s.strict = i % 2 == 0;
        s.device = i % 5 == 4 ? &device_shadow : &device_cpu;
        const result clean = run_setup(&s);
        assert_int_equal(clean.poisoned_bytes, 0);
        s.poison = true;
        const result poisoned = run_setup(&s);
        assert_true(poisoned.poisoned_bytes > 0);
        assert_true(poisoned.bits == clean.bits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_learns),
        cmocka_unit_test(same_bits_for_micro_batches),
        cmocka_unit_test(same_bits_for_recompute_threads_and_devices),
        cmocka_unit_test(fast_mode_agrees_closely),
        cmocka_unit_test(memory_is_what_the_plan_says),
        cmocka_unit_test(no_step_allocates),
        cmocka_unit_test(poisoned_bytes_find_no_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
