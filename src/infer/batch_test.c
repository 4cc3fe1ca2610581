// Several sequences at once: in strict mode every sequence has, token by token and logit by logit,
// the bits that it has alone, whatever its slot, the other slots, the order, the threads and the
// chunk, whether its prompt was computed or taken from a slot that had it, and whether the cache
// has pages, also too few of them for all.
#include "infer/infer.h"

#include "fixtures/base/test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { PROMPTS = 7, PROMPT_MAX = 24, GROWN = 6, CONTEXT = 40 };

static void check(status st)
{
    if (st != ST_OK) printf("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
}

typedef struct bench {
    arena *a;
    char folder[1100];
    infer_prompt prompts[PROMPTS];
    int32_t ids[PROMPTS][PROMPT_MAX];
    // The result of each prompt alone.
    int64_t vocab;
    int32_t tokens[PROMPTS][GROWN];
    float *logits; // (PROMPTS, GROWN, vocab)
} bench;

static uint64_t random_next(uint64_t *state)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return *state >> 33;
}

// Prompts of 1 to PROMPT_MAX tokens; greedy and sampled ones, two that differ only in the seed.
static void prompts_make(bench *b)
{
    static const int64_t lengths[PROMPTS] = {5, 1, PROMPT_MAX, 9, 9, 16, 3};
    uint64_t state = 7;
    for (int i = 0; i < PROMPTS; i++) {
        for (int64_t t = 0; t < lengths[i]; t++)
            b->ids[i][t] = (int32_t)(random_next(&state) % 257);
        b->prompts[i] = (infer_prompt){
            .ids = b->ids[i],
            .count = lengths[i],
            .max_tokens = 1 + (i * 3) % GROWN,
            .sampling = {.temperature = i % 3 == 0 ? 0.0 : 1.5, .seed = (uint64_t)i << 34 | 5}};
    }
    memcpy(b->ids[4], b->ids[3], sizeof(b->ids[3]));
    b->prompts[3].sampling.temperature = b->prompts[4].sampling.temperature = 1.5;
    b->prompts[2].max_tokens = b->prompts[5].max_tokens = GROWN;
}

static bool folder_find(bench *b, const char *name)
{
    char models[1024], path[1200];
    file_info info;
    snprintf(b->folder, sizeof(b->folder), "%s/%s", test_shared("golden/models", models), name);
    snprintf(path, sizeof(path), "%s/config.json", b->folder);
    if (host_real()->api->path_info(host_real(), path, &info) == ST_OK &&
        info.kind == FILE_KIND_REGULAR) {
        return true;
    }
    printf("%s is not there: skipped\n", path);
    return false;
}

static infer *opened(bench *b, dtype compute, int64_t slots, int64_t cache, int threads,
                     int64_t chunk)
{
    infer *g = NULL;
    const infer_options options = {.threads = threads,
                                   .compute = compute,
                                   .context = CONTEXT,
                                   .chunk = chunk,
                                   .slots = slots,
                                   .cache = cache,
                                   .logits = true,
                                   .strict = true};
    check(infer_open(host_real(), b->a, b->folder, &options, &g));
    return g;
}

static float *logits_of(const bench *b, int64_t prompt, int64_t token)
{
    return b->logits + (prompt * GROWN + token) * b->vocab;
}

static void alone(bench *b, dtype compute)
{
    infer *g = opened(b, compute, 1, 0, 1, 0);
    b->vocab = infer_spec(g)->vocab;
    check(arena_new(b->a, PROMPTS * GROWN * b->vocab, &b->logits));
    for (int64_t i = 0; i < PROMPTS; i++) {
        const infer_prompt *p = &b->prompts[i];
        int32_t id = 0;
        check(infer_begin(g, &p->sampling, p->ids, p->count, &id));
        for (int64_t t = 0; t < GROWN; t++) {
            b->tokens[i][t] = id;
            check(infer_logits(g, 0, logits_of(b, i, t)));
            if (t + 1 < GROWN) check(infer_next(g, id, &id));
        }
    }
    infer_close(g);
}

typedef struct seat {
    int64_t prompt, drawn;
    int32_t id;
} seat;

static void compare(const bench *b, const infer *g, int64_t slot, const seat *s)
{
    float *got = NULL;
    assert_int_equal(s->id, b->tokens[s->prompt][s->drawn]);
    check(arena_new(b->a, b->vocab, &got));
    check(infer_logits(g, slot, got));
    assert_memory_equal(got, logits_of(b, s->prompt, s->drawn), (size_t)b->vocab * sizeof(float));
}

// Prompts in another order, in slots as they become free; each step runs some of the slots only.
static void side_by_side(bench *b, infer *g, uint64_t seed)
{
    enum { SLOTS_MAX = 8 };
    seat seats[SLOTS_MAX];
    infer_turn turns[SLOTS_MAX];
    uint64_t state = seed;
    const int64_t slots = infer_slots(g), first = (int64_t)(random_next(&state) % PROMPTS);
    int64_t entered = 0, done = 0;
    for (int64_t i = 0; i < slots; i++) seats[i] = (seat){.prompt = -1};
    while (done < PROMPTS) {
        int64_t n = 0;
        for (int64_t i = 0; i < slots; i++) {
            seat *s = &seats[i];
            if (s->prompt < 0 && entered < PROMPTS && random_next(&state) % 2 == 0) {
                const int64_t next = (first + entered * 3) % PROMPTS;
                const infer_prompt *p = &b->prompts[next];
                if (!infer_fits(g, p->ids, p->count)) continue;
                *s = (seat){.prompt = next};
                entered++;
                check(infer_slot_begin(g, i, &p->sampling, p->ids, p->count, &s->id));
                compare(b, g, i, s);
            } else if (s->prompt >= 0 && random_next(&state) % 4 != 0) {
                turns[n++] = (infer_turn){.slot = i, .id = s->id};
            }
        }
        if (n > 0) check(infer_slots_next(g, turns, n));
        for (int64_t k = 0; k < n; k++) {
            seat *s = &seats[turns[k].slot];
            assert_true(turns[k].next >= 0);
            s->id = turns[k].next;
            s->drawn++;
            compare(b, g, turns[k].slot, s);
            if (s->drawn + 1 < GROWN) continue;
            s->prompt = -1;
            done++;
            check(infer_slot_end(g, turns[k].slot));
        }
    }
}

typedef struct heard {
    const bench *b;
    int64_t count[PROMPTS], stop_after, all;
} heard;

static status hear(void *context, int64_t index, int32_t id, bool *ends)
{
    heard *h = context;
    assert_int_equal(id, h->b->tokens[index][h->count[index]]);
    h->count[index]++;
    h->all++;
    if (index == 5 && h->count[index] == 2) *ends = true; // ends it early
    return ST_OK;
}

static bool heard_enough(void *context)
{
    const heard *h = context;
    return h->stop_after > 0 && h->all >= h->stop_after;
}

static void list(const bench *b, infer *g)
{
    heard h = {.b = b};
    const infer_watcher watcher = {.context = &h, .drawn = hear, .stop = heard_enough};
    check(infer_run(g, b->prompts, PROMPTS, &watcher));
    for (int64_t i = 0; i < PROMPTS; i++) {
        assert_int_equal(h.count[i], i == 5 ? 2 : b->prompts[i].max_tokens);
    }
    heard few = {.b = b, .stop_after = 4};
    const infer_watcher stopping = {.context = &few, .drawn = hear, .stop = heard_enough};
    check(infer_run(g, b->prompts, PROMPTS, &stopping));
    assert_true(few.all >= 4 && few.all < 4 + infer_slots(g));
}

static void case_check(bench *b, dtype compute)
{
    static const int64_t slots[] = {1, 2, 3, 5, 3}, chunks[] = {0, 4, 7, 24, 4};
    static const int64_t caches[] = {0, 0, 64, 110, 1000};
    alone(b, compute);
    for (int k = 0; k < COUNT_OF(slots); k++) {
        infer *g = opened(b, compute, slots[k], caches[k], 1 + k % 3, chunks[k]);
        side_by_side(b, g, (uint64_t)k + 11);
        list(b, g);
        assert_true(infer_kept_tokens(g) >= b->prompts[4].count); // two prompts are equal
        assert_int_equal(infer_cache_counted(g).tokens, k < 3 ? caches[k] : k == 3 ? 96 : 144);
        infer_close(g);
    }
}

static void test_same_bits_side_by_side(void **state)
{
    (void)state;
    static const char *const cases[] = {"gpt2", "llama_gqa", "qwen3", "mistral_window"};
    for (int c = 0; c < COUNT_OF(cases); c++) {
        bench b = {0};
        if (!folder_find(&b, cases[c])) skip();
        prompts_make(&b);
        for (int type = DTYPE_F32; type <= DTYPE_BF16; type++) {
            check(arena_create("test", 0, &b.a));
            case_check(&b, (dtype)type);
            arena_destroy(b.a);
        }
    }
}

// ---- pages run out ------------------------------------------------------------------------------

enum { LONG = 70, LONG_CONTEXT = 96 };

typedef struct told {
    int32_t tokens[PROMPTS][LONG];
    int64_t count[PROMPTS];
} told;

static status tell(void *context, int64_t index, int32_t id, bool *ends)
{
    told *t = context;
    t->tokens[index][t->count[index]++] = id;
    *ends = false;
    return ST_OK;
}

static infer_cache list_long(bench *b, int64_t slots, int64_t cache, int64_t chunk, told *out,
                             int64_t *kept)
{
    infer *g = NULL;
    infer_prompt prompts[PROMPTS];
    infer_options options = {.threads = 1, .compute = DTYPE_BF16, .context = LONG_CONTEXT};
    const infer_watcher watcher = {.context = out, .drawn = tell};
    *out = (told){0};
    options.strict = options.logits = true;
    options.slots = slots;
    options.cache = cache;
    options.chunk = chunk;
    memcpy(prompts, b->prompts, sizeof(prompts));
    for (int i = 0; i < PROMPTS; i++) prompts[i].max_tokens = LONG - 3 * i;
    check(infer_open(host_real(), b->a, b->folder, &options, &g));
    check(infer_run(g, prompts, PROMPTS, &watcher));
    const infer_cache counted = infer_cache_counted(g);
    *kept = infer_kept_tokens(g);
    infer_close(g);
    return counted;
}

// Sequences that are put back draw what they would have drawn, and all end.
static void put_back_check(bench *b)
{
    told want, got;
    int64_t kept = 0;
    assert_int_equal(list_long(b, 1, 0, 0, &want, &kept).tokens, 0);
    const infer_cache few = list_long(b, 5, 112, 7, &got, &kept);
    assert_memory_equal(&got, &want, sizeof(got));
    assert_true(few.put_back > 0 && few.used <= few.tokens);
}

// A cache that is large enough puts none back, and one that is too small for one text is refused.
static void test_put_back(void **state)
{
    (void)state;
    static const char *const cases[] = {"llama_gqa", "mistral_window"};
    for (int c = 0; c < COUNT_OF(cases); c++) {
        bench b = {0};
        told want, got;
        int64_t kept = 0;
        infer *g = NULL;
        if (!folder_find(&b, cases[c])) skip();
        prompts_make(&b);
        check(arena_create("test", 0, &b.a));
        put_back_check(&b);
        (void)list_long(&b, 1, 0, 0, &want, &kept);
        assert_int_equal(list_long(&b, 5, 5 * LONG_CONTEXT, 0, &got, &kept).put_back, 0);
        assert_memory_equal(&got, &want, sizeof(got));
        const infer_options small = {.context = LONG_CONTEXT, .cache = LONG_CONTEXT - 1};
        assert_int_equal(infer_open(host_real(), b.a, b.folder, &small, &g), ST_CONFIG_RANGE);
        error_clear();
        arena_destroy(b.a);
    }
}

// Another sequence with the prompt of one that is over does not begin if its next token has no
// page: it was put back at once.
static void test_kept_pages_are_not_free_as_well(void **state)
{
    (void)state;
    bench b = {0};
    int32_t id = 0;
    if (!folder_find(&b, "llama_gqa")) skip();
    prompts_make(&b);
    check(arena_create("test", 0, &b.a));
    infer *g = opened(&b, DTYPE_F32, 2, 48, 1, 0);
    const infer_prompt *over = &b.prompts[2], *runs = &b.prompts[0], *other = &b.prompts[3];
    check(infer_slot_begin(g, 0, &over->sampling, over->ids, over->count, &id));
    check(infer_slot_end(g, 0));
    assert_int_equal(infer_cache_counted(g).used, 32);
    check(infer_slot_begin(g, 1, &runs->sampling, runs->ids, runs->count, &id));
    assert_false(infer_fits(g, over->ids, over->count));
    assert_true(infer_fits(g, other->ids, other->count)); // the kept ones give way
    check(infer_slot_end(g, 1));
    assert_true(infer_fits(g, over->ids, over->count));
    infer_close(g);
    arena_destroy(b.a);
}

// Prompts whose first 18 or 20 tokens are the same: of 15 to 20 the keys are taken over.
static void test_same_beginning(void **state)
{
    (void)state;
    bench b = {0};
    told want, got;
    int64_t none = 0, few = 0, many = 0;
    if (!folder_find(&b, "llama_gqa")) skip();
    prompts_make(&b);
    for (int i = 0; i < PROMPTS; i++) {
        memcpy(b.ids[i], b.ids[2], sizeof(b.ids[i]));
        b.prompts[i].count = PROMPT_MAX - i % 3;
        b.ids[i][18 + i % 2 * 2] = (int32_t)(i + 1);
    }
    check(arena_create("test", 0, &b.a));
    (void)list_long(&b, 1, 0, 4, &want, &none);
    assert_int_equal(list_long(&b, 3, 3 * LONG_CONTEXT, 4, &got, &many).put_back, 0);
    assert_memory_equal(&got, &want, sizeof(got));
    assert_true(list_long(&b, 5, 128, 4, &got, &few).put_back > 0);
    assert_memory_equal(&got, &want, sizeof(got));
    assert_true(none == 0 && few > 0);
    assert_int_equal(many, 15 + 18 + 20 + 15 + 18 + 16); // whole chunks are computed
    arena_destroy(b.a);
}

// ---- rotary tables that change with the length --------------------------------------------------

static void write_file(const char *path, const char *bytes)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(bytes, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static const char model_format[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_act\": \"silu\","
    " \"hidden_size\": 64, \"intermediate_size\": 112, \"num_attention_heads\": 4, \"head_dim\": 16,"
    " \"num_hidden_layers\": 2, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-5,"
    " \"tie_word_embeddings\": false, \"vocab_size\": 257, \"rope_theta\": 10000.0, %s}";

// The weights of llama_gqa with another configuration of rotary positions.
static void stretched(bench *b, const char *scratch, const char *rope)
{
    char path[1300], facts[2000], command[2700];
    snprintf(facts, sizeof(facts), model_format, rope);
    snprintf(path, sizeof(path), "%s/config.json", scratch);
    write_file(path, facts);
    snprintf(command, sizeof(command), "cp '%s/model.safetensors' '%s'", b->folder, scratch);
    assert_int_equal(system(command), 0);
    snprintf(b->folder, sizeof(b->folder), "%s", scratch);
}

// A sequence that grows token by token past a change of the table equals the same sequence
// processed at once.
static void equals_fresh(bench *b, int64_t boundary)
{
    infer *g = opened(b, DTYPE_F32, 2, 0, 1, 0);
    const infer_prompt *p = &b->prompts[5];
    int32_t words[CONTEXT], id = 0, other = 0;
    float *grown = NULL, *fresh = NULL;
    check(arena_new(b->a, b->vocab, &grown));
    check(arena_new(b->a, b->vocab, &fresh));
    memcpy(words, p->ids, (size_t)p->count * sizeof(*words));
    check(infer_slot_begin(g, 0, &p->sampling, words, boundary, &id));
    check(infer_next(g, words[boundary], &id));
    check(infer_logits(g, 0, grown));
    check(infer_slot_begin(g, 1, &p->sampling, words, boundary + 1, &other));
    check(infer_logits(g, 1, fresh));
    assert_memory_equal(grown, fresh, (size_t)b->vocab * sizeof(float));
    infer_close(g);
}

static void test_tables_of_each_text(void **state)
{
    (void)state;
    static const char *const ropes[] = {
        "\"max_position_embeddings\": 12, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4.0}",
        "\"max_position_embeddings\": 96, \"original_max_position_embeddings\": 12,"
        " \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1, 1, 1.5, 1, 2, 1, 1],"
        " \"long_factor\": [1, 2, 3, 4, 5, 6, 7, 8]}",
    };
    for (int r = 0; r < COUNT_OF(ropes); r++) {
        char buffer[64];
        bench b = {0};
        if (!folder_find(&b, "llama_gqa")) skip();
        char *scratch = test_scratch(buffer);
        assert_non_null(scratch);
        stretched(&b, scratch, ropes[r]);
        prompts_make(&b);
        check(arena_create("test", 0, &b.a));
        case_check(&b, DTYPE_F32);
        equals_fresh(&b, 12);
        put_back_check(&b);
        arena_destroy(b.a);
        test_scratch_remove(scratch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_side_by_side),
        cmocka_unit_test(test_put_back),
        cmocka_unit_test(test_kept_pages_are_not_free_as_well),
        cmocka_unit_test(test_same_beginning),
        cmocka_unit_test(test_tables_of_each_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
