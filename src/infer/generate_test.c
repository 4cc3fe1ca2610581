// Generation against the reference's continuations, and against itself: chunks, cache, seeds.
#include "infer/infer.h"

#include "fixtures/base/test_paths.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_IDS = 64 };
static const char *const cases[] = {"gpt2", "llama_gqa"};

typedef struct golden {
    char folder[1100];
    int32_t prompt[MAX_IDS], ids[MAX_IDS];
    int64_t prompt_count, id_count;
} golden;

static int64_t list_read(const json *list, int32_t out[MAX_IDS])
{
    const int64_t count = min_i64(json_count(list), MAX_IDS);
    for (int64_t i = 0; i < count; i++) out[i] = (int32_t)json_int(json_at(list, i), -1);
    return count;
}

static bool golden_read(const char *name, golden *g)
{
    char models[1024], path[1200];
    json *root = NULL;
    file_info info;
    snprintf(g->folder, sizeof(g->folder), "%s/%s", test_shared("golden/models", models), name);
    snprintf(path, sizeof(path), "%s/generation.json", g->folder);
    if (host_real()->api->path_info(host_real(), path, &info) != ST_OK ||
        info.kind != FILE_KIND_REGULAR) {
        printf("%s is not there: skipped\n", path);
        return false;
    }
    assert_int_equal(json_read(host_real(), path, 1 << 20, &root), ST_OK);
    g->prompt_count = list_read(json_get(root, "prompt"), g->prompt);
    g->id_count = list_read(json_get(root, "ids"), g->ids);
    json_free(root);
    return true;
}

static void check(status st)
{
    if (st != ST_OK) printf("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
}

static void continued(const golden *g, const infer_options *options, const infer_sampling *sampling,
                      int32_t *out)
{
    arena *a = NULL;
    infer *e = NULL;
    check(arena_create("test", 0, &a));
    check(infer_open(host_real(), a, g->folder, options, &e));
    int32_t id = 0;
    check(infer_begin(e, sampling, g->prompt, g->prompt_count, &id));
    for (int64_t i = 0; i < g->id_count; i++) {
        out[i] = id;
        assert_int_equal(infer_length(e, 0), g->prompt_count + i);
        if (i + 1 < g->id_count) check(infer_next(e, id, &id));
    }
    infer_close(e);
    arena_destroy(a);
}

static void test_greedy_equals_reference(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    static const int64_t chunks[] = {0, 1, 4, 9};
    const infer_sampling greedy = {.temperature = 0.0};
    for (int c = 0; c < COUNT_OF(cases); c++) {
        golden g;
        if (!golden_read(cases[c], &g)) skip();
        for (int b = 0; b < COUNT_OF(backends); b++) {
            for (int k = 0; k < COUNT_OF(chunks); k++) {
                int32_t out[MAX_IDS];
                const infer_options options = {.threads = 2,
                                               .backend = backends[b],
                                               .compute = DTYPE_F32,
                                               .context = g.prompt_count + g.id_count,
                                               .chunk = chunks[k]};
                continued(&g, &options, &greedy, out);
                assert_memory_equal(out, g.ids, (size_t)g.id_count * sizeof(*out));
            }
        }
    }
}

static void test_shadow_device(void **state)
{
    (void)state;
    golden g;
    int32_t out[MAX_IDS];
    if (!golden_read("llama_gqa", &g)) skip();
    const infer_options options = {.threads = 1,
                                   .device = "shadow",
                                   .backend = "ref",
                                   .compute = DTYPE_F32,
                                   .context = g.prompt_count + g.id_count};
    continued(&g, &options, &(infer_sampling){.temperature = 0.0}, out);
    assert_memory_equal(out, g.ids, (size_t)g.id_count * sizeof(*out));
}

// The same seed gives the same text for every chunk; another seed gives another text.
static void test_seed_decides(void **state)
{
    (void)state;
    golden g;
    int32_t first[MAX_IDS], again[MAX_IDS], other[MAX_IDS];
    if (!golden_read("llama_gqa", &g)) skip();
    infer_options options = {
        .threads = 1, .compute = DTYPE_F32, .context = g.prompt_count + g.id_count};
    infer_sampling sampling = {.temperature = 2.0, .seed = 0x123456789abcdefULL};
    continued(&g, &options, &sampling, first);
    options.chunk = 2;
    continued(&g, &options, &sampling, again);
    assert_memory_equal(first, again, (size_t)g.id_count * sizeof(*first));
    sampling.seed ^= 1ULL << 40;
    continued(&g, &options, &sampling, other);
    assert_memory_not_equal(first, other, (size_t)g.id_count * sizeof(*first));
    // Filters that leave one token are greedy.
    sampling.top_k = 1;
    continued(&g, &options, &sampling, other);
    assert_memory_equal(other, g.ids, (size_t)g.id_count * sizeof(*other));
    sampling.top_k = 0;
    sampling.min_p = 1.0;
    continued(&g, &options, &sampling, other);
    assert_memory_equal(other, g.ids, (size_t)g.id_count * sizeof(*other));
}

// A token through the cache gives the logits of the whole text in one prefill.
static void test_cache_equals_prefill(void **state)
{
    (void)state;
    golden g;
    if (!golden_read("gpt2", &g)) skip();
    arena *a = NULL;
    infer *e = NULL;
    int32_t id = 0;
    check(arena_create("test", 0, &a));
    const infer_options options = {
        .threads = 2, .compute = DTYPE_F32, .context = MAX_IDS, .logits = true};
    check(infer_open(host_real(), a, g.folder, &options, &e));
    const int64_t vocab = infer_spec(e)->vocab;
    float *one = NULL, *all = NULL;
    check(arena_new(a, vocab, &one));
    check(arena_new(a, vocab, &all));
    const infer_sampling greedy = {.temperature = 0.0};
    check(infer_begin(e, &greedy, g.prompt, 3, &id));
    for (int64_t i = 3; i < g.prompt_count; i++) check(infer_next(e, g.prompt[i], &id));
    check(infer_logits(e, 0, one));
    check(infer_begin(e, &greedy, g.prompt, g.prompt_count, &id));
    check(infer_logits(e, 0, all));
    for (int64_t v = 0; v < vocab; v++) assert_true(fabsf(one[v] - all[v]) < 1e-4f);
    infer_close(e);
    arena_destroy(a);
}

static void test_refuses_a_prompt_without_space(void **state)
{
    (void)state;
    golden g;
    if (!golden_read("gpt2", &g)) skip();
    arena *a = NULL;
    infer *e = NULL;
    int32_t id = 0;
    const infer_sampling greedy = {.temperature = 0.0};
    check(arena_create("test", 0, &a));
    infer_options options = {.threads = 1, .compute = DTYPE_F32, .context = 65};
    assert_int_equal(infer_open(host_real(), a, g.folder, &options, &e), ST_CONFIG_RANGE);
    options.context = 4;
    check(infer_open(host_real(), a, g.folder, &options, &e));
    assert_int_equal(infer_begin(e, &greedy, g.prompt, 5, &id), ST_CONFIG_RANGE);
    assert_int_equal(infer_begin(e, &greedy, g.prompt, 0, &id), ST_DATA);
    assert_int_equal(infer_begin(e, &greedy, (const int32_t[]){257}, 1, &id), ST_DATA);
    check(infer_begin(e, &greedy, g.prompt, 3, &id));
    assert_int_equal(infer_next(e, -1, &id), ST_DATA);
    check(infer_next(e, 1, &id));
    assert_int_equal(infer_next(e, 1, &id), ST_CONFIG_RANGE);
    infer_close(e);
    options.memory_limit_bytes = 1000;
    assert_int_equal(infer_open(host_real(), a, g.folder, &options, &e), ST_DOES_NOT_FIT);
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_equals_reference),
        cmocka_unit_test(test_shadow_device),
        cmocka_unit_test(test_seed_decides),
        cmocka_unit_test(test_cache_equals_prefill),
        cmocka_unit_test(test_refuses_a_prompt_without_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
