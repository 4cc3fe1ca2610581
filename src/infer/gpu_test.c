// Generation and scoring on device cuda without a GPU: the driver of the tests runs the
// kernels' own text in the emulator, late and in a drawn order. Tokens are those of the CPU,
// logits within bounds; steps are graphs whose arguments do not depend on the step, no copy
// between them takes memory that is not pinned, and the GPU gives the bytes that the plans have.
#include "infer/evaluate.h"

#include "fixtures/base/test_paths.h"
#include "fixtures/device/fake_driver.h"
#include "fixtures/kernels/cuda_driven.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { PROMPTS = 4, PROMPT_MAX = 11, GROWN = 5, CONTEXT = 36, VOCAB_MAX = 300, PAGE_BYTES = 4096 };

static cuda_driver driver;
static uint64_t schedule;

static status kernel_run(void *context, const cuda_launch *l)
{
    (void)context;
    return cuda_emulate(l, schedule++);
}

static void driver_begin(uint64_t seed)
{
    const fake_driver_config fake = {.seed = seed,
                                     .memory_bytes = 1 << 28,
                                     .gpus = 1,
                                     .run = kernel_run,
                                     .args_bytes = cuda_driven_args_bytes};
    schedule = seed;
    fake_driver_begin(&fake, &driver);
}

static void driver_end(void)
{
    assert_int_equal(fake_driver_look().live, 0);
    assert_null(fake_driver_end());
}

static void check(status st)
{
    if (st != ST_OK) printf("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
}

static bool folder_find(const char *name, char folder[1100])
{
    char models[1024], path[1200];
    file_info info;
    snprintf(folder, 1100, "%s/%s", test_shared("golden/models", models), name);
    snprintf(path, sizeof(path), "%s/config.json", folder);
    if (host_real()->api->path_info(host_real(), path, &info) == ST_OK &&
        info.kind == FILE_KIND_REGULAR) {
        return true;
    }
    printf("%s is not there: skipped\n", path);
    return false;
}

static infer_options options_of(bool on_gpu, dtype type)
{
    return (infer_options){.threads = 1,
                           .device = on_gpu ? "cuda" : "cpu",
                           .driver = on_gpu ? &driver : NULL,
                           .compute = type,
                           .context = CONTEXT,
                           .chunk = 4,
                           .logits = true,
                           .memory_limit_bytes = 1 << 27};
}

static const int32_t prompt[PROMPT_MAX] = {72, 101, 108, 108, 111, 32, 119, 111, 114, 108, 100};

typedef struct grown {
    int32_t ids[GROWN];
    float logits[GROWN][VOCAB_MAX];
    int64_t vocab;
} grown;

// Continues `from` by `ids`, or by what is drawn; NULL: the latter.
static void grow(infer *g, const infer_sampling *sampling, const int32_t *from, int64_t count,
                 const int32_t *ids, grown *out)
{
    int32_t id = 0;
    out->vocab = infer_spec(g)->vocab;
    assert_true(out->vocab <= VOCAB_MAX);
    check(infer_begin(g, sampling, from, count, &id));
    for (int i = 0; i < GROWN; i++) {
        out->ids[i] = id;
        check(infer_logits(g, 0, out->logits[i]));
        if (i + 1 < GROWN) check(infer_next(g, ids != NULL ? ids[i] : id, &id));
    }
}

static double difference(const grown *a, const grown *b)
{
    double worst = 0.0;
    for (int i = 0; i < GROWN; i++) {
        for (int64_t v = 0; v < a->vocab; v++) {
            worst = fmax(worst, fabs((double)a->logits[i][v] - (double)b->logits[i][v]));
        }
    }
    return worst;
}

static infer *opened(arena *a, const char *folder, const infer_options *options)
{
    infer *g = NULL;
    check(infer_open(host_real(), a, folder, options, &g));
    return g;
}

// The same prompt twice, so that later steps are graphs.
static void compare(const char *name, dtype type, double bound, uint64_t seed)
{
    static const infer_sampling ways[] = {{.temperature = 0.0},
                                          {.temperature = 1.3, .top_p = 0.9, .seed = 11}};
    char folder[1100];
    if (!folder_find(name, folder)) skip();
    arena *a = NULL;
    static grown own, its;
    check(arena_create("test", 0, &a));
    driver_begin(seed);
    infer_options options = options_of(false, type);
    infer *cpu = opened(a, folder, &options);
    options = options_of(true, type);
    infer *gpu = opened(a, folder, &options);
    const fake_driver_counts before = fake_driver_look();
    for (int i = 0; i < COUNT_OF(ways); i++) {
        grow(cpu, &ways[i], prompt, PROMPT_MAX, NULL, &own);
        grow(gpu, &ways[i], prompt, PROMPT_MAX, own.ids, &its);
        assert_true(difference(&own, &its) <= bound);
        if (type == DTYPE_F32) assert_memory_equal(own.ids, its.ids, sizeof(own.ids));
    }
    const fake_driver_counts after = fake_driver_look();
    assert_int_equal(after.pageable_copies, before.pageable_copies);
    assert_int_equal(after.changed_arguments, 0);
    assert_true(after.graph_launches >= GROWN);
    // The GPU gave what was planned, and all of it was used.
    assert_int_equal(after.bytes, align_up(infer_peak_bytes(gpu), PAGE_BYTES) + PAGE_BYTES);
    options.memory_limit_bytes = infer_peak_bytes(gpu);
    infer_close(gpu);
    gpu = opened(a, folder, &options);
    infer_close(gpu);
    options.memory_limit_bytes--;
    assert_int_equal(infer_open(host_real(), a, folder, &options, &gpu), ST_DOES_NOT_FIT);
    infer_close(cpu);
    driver_end();
    arena_destroy(a);
}

static void one_sequence_is_that_of_the_cpu(void **state)
{
    (void)state;
    compare("gpt2", DTYPE_F32, 1e-5, 1);
    compare("llama_gqa", DTYPE_F32, 1e-5, 2);
    compare("llama_gqa", DTYPE_BF16, 0.1, 3);
}

// ---- several ------------------------------------------------------------------------------------
typedef struct texts {
    int32_t ids[PROMPTS][GROWN];
    int64_t counts[PROMPTS];
} texts;

static status drawn(void *context, int64_t index, int32_t id, bool *ends)
{
    texts *t = context;
    t->ids[index][t->counts[index]++] = id;
    *ends = false;
    return ST_OK;
}

static void run(arena *a, const char *folder, const infer_options *options, texts *out)
{
    infer_prompt prompts[PROMPTS];
    const infer_watcher watcher = {.context = out, .drawn = drawn};
    infer *g = opened(a, folder, options);
    *out = (texts){.counts = {0}};
    for (int i = 0; i < PROMPTS; i++) {
        prompts[i] =
            (infer_prompt){.ids = prompt,
                           .count = i == 1 ? 5 : PROMPT_MAX,
                           .max_tokens = GROWN - i % 2,
                           .sampling = {.temperature = i == 2 ? 0.0 : 1.0, .seed = (uint64_t)i}};
    }
    check(infer_run(g, prompts, PROMPTS, &watcher));
    infer_close(g);
}

static void several_sequences_too(void **state)
{
    (void)state;
    char folder[1100];
    arena *a = NULL;
    texts own, its;
    if (!folder_find("llama_gqa", folder)) skip();
    check(arena_create("test", 0, &a));
    infer_options options = options_of(false, DTYPE_F32);
    run(a, folder, &options, &own);
    for (int paged = 0; paged < 2; paged++) {
        driver_begin(4 + (uint64_t)paged);
        options = options_of(true, DTYPE_F32);
        options.slots = 3;
        options.cache = paged != 0 ? 64 : 0; // too few pages for three at once
        run(a, folder, &options, &its);
        assert_memory_equal(&own, &its, sizeof(own));
        // The prefill plans of slots have one graph each, which differ by their rows of the cache.
        if (paged != 0) assert_int_equal(fake_driver_look().changed_arguments, 0);
        driver_end();
    }
    arena_destroy(a);
}

static void losses_are_those_of_the_cpu(void **state)
{
    (void)state;
    char folder[1100];
    arena *a = NULL;
    float losses[2][PROMPT_MAX] = {{0.0F}};
    if (!folder_find("gpt2", folder)) skip();
    check(arena_create("test", 0, &a));
    driver_begin(6);
    for (int gpu = 0; gpu < 2; gpu++) {
        infer_scorer *s = NULL;
        infer_score score = {.tokens = 0};
        infer_options options = options_of(gpu != 0, DTYPE_F32);
        options.context = PROMPT_MAX - 1;
        exact_zero(&score.nats);
        check(infer_scorer_open(host_real(), a, folder, &options, false, &s));
        infer_scorer_row(s, 0, prompt, prompt + 1, PROMPT_MAX - 1);
        check(infer_scorer_run(s, 1, &score, losses[gpu]));
        assert_int_equal(score.tokens, PROMPT_MAX - 1);
        infer_scorer_close(s);
    }
    for (int t = 0; t < PROMPT_MAX - 1; t++) {
        assert_true(losses[0][t] > 0.0F && fabsf(losses[0][t] - losses[1][t]) < 1e-5F);
    }
    driver_end();
    arena_destroy(a);
}

// Bits do not depend on the number of slots and on pages, of which there are too few for all.
static void strict_order_is_that_of_one(void **state)
{
    (void)state;
    char folder[1100];
    arena *a = NULL;
    texts one, its;
    if (!folder_find("llama_gqa", folder)) skip();
    check(arena_create("test", 0, &a));
    for (int k = 0; k < 2; k++) {
        driver_begin(7 + (uint64_t)k);
        infer_options options = options_of(true, DTYPE_F32);
        options.strict = true;
        options.cache = k == 0 ? 0 : 48;
        options.slots = k == 0 ? 1 : 3;
        run(a, folder, &options, k == 0 ? &one : &its);
        driver_end();
    }
    assert_memory_equal(&one, &its, sizeof(one));
    arena_destroy(a);
}

// The logits of a prompt of more keys than the window of 16, whose first key moves with each query:
// by what the prompt is cut, and in fp32 by pages; with pages 16-bit types take another kernel.
static void strict_order_with_windows_too(void **state)
{
    (void)state;
    char folder[1100];
    arena *a = NULL;
    int32_t ids[CONTEXT - GROWN];
    static grown cut[2];
    if (!folder_find("mistral_window", folder)) skip();
    for (int i = 0; i < COUNT_OF(ids); i++) ids[i] = (i * 37 + 5) % 251;
    check(arena_create("test", 0, &a));
    for (int k = 0; k < 4; k++) {
        driver_begin(9 + (uint64_t)k);
        infer_options options = options_of(true, k < 2 ? DTYPE_F32 : DTYPE_BF16);
        options.strict = true;
        options.cache = k == 1 ? 48 : 0;
        options.chunk = k % 2 == 0 ? 4 : 13;
        infer *g = opened(a, folder, &options);
        cut[k % 2] = (grown){.vocab = 0};
        grow(g, &(infer_sampling){.temperature = 1.0, .seed = 3}, ids, COUNT_OF(ids), NULL,
             &cut[k % 2]);
        infer_close(g);
        driver_end();
        if (k % 2 == 1) assert_memory_equal(&cut[0], &cut[1], sizeof(cut[0]));
    }
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_sequence_is_that_of_the_cpu),
        cmocka_unit_test(several_sequences_too),
        cmocka_unit_test(losses_are_those_of_the_cpu),
        cmocka_unit_test(strict_order_is_that_of_one),
        cmocka_unit_test(strict_order_with_windows_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
