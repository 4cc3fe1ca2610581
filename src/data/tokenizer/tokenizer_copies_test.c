// Copies of tokenizers for other threads, places where texts may be cut, and models that published
// files seldom have.
#include "data/tokenizer.h"
#include "fixtures/base/test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static char folder[64];

static data_tokenizer *open_json(arena *a, const char *content)
{
    char path[128];
    data_tokenizer *t = NULL;
    snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
    assert_int_equal(host_write_all(host_real(), path, content, (int64_t)strlen(content)), ST_OK);
    if (data_tokenizer_open(host_real(), a, path, &t) != ST_OK) fail_msg("%s", error_last()->text);
    return t;
}

static void encode(data_tokenizer *t, const char *text, int64_t bytes, int flags, data_ids *ids)
{
    if (data_tokenizer_encode(t, text, bytes, flags, ids) != ST_OK)
        fail_msg("%s", error_last()->text);
}

static void expect_ids(data_tokenizer *t, const char *text, const char *wanted)
{
    char got[256] = "";
    data_ids ids = {0};
    encode(t, text, (int64_t)strlen(text), 0, &ids);
    for (int64_t i = 0; i < ids.count; i++) {
        const size_t used = strlen(got);
        snprintf(got + used, sizeof(got) - used, i == 0 ? "%d" : " %d", ids.items[i]);
    }
    if (strcmp(got, wanted) != 0) fail_msg("\"%s\": %s, expected %s", text, got, wanted);
    data_ids_deinit(&ids);
}

// ---- models -------------------------------------------------------------------------------------

static void test_word_level(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    data_tokenizer *t = open_json(
        a,
        "{\"added_tokens\": [], \"normalizer\": {\"type\": \"Nmt\"}, \"pre_tokenizer\": {\"type\": "
        "\"CharDelimiterSplit\", \"delimiter\": \" \"}, \"decoder\": null, \"model\": {\"type\": "
        "\"WordLevel\", \"unk_token\": \"?\", \"vocab\": {\"?\": 0, \"a\": 1, \"bc\": 2}}}");
    expect_ids(t, "bc  a b", "2 1 0");
    expect_ids(t,
               "b\x01"
               "c\u200ba\n?",
               "2 1 0");
    data_tokenizer_close(t);
    arena_destroy(a);
}

// The last character of a word has the suffix.
static void test_suffix(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    data_tokenizer *t = open_json(
        a,
        "{\"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": {\"type\": "
        "\"WhitespaceSplit\"}, \"decoder\": {\"type\": \"Fuse\"}, \"model\": {\"type\": \"BPE\", "
        "\"end_of_word_suffix\": \"</w>\", \"unk_token\": \"?\", \"vocab\": {\"?\": 0, \"a\": 1, "
        "\"b\": 2, \"a</w>\": 3, \"b</w>\": 4, \"ab</w>\": 5, \"aab</w>\": 6}, \"merges\": "
        "[\"a b</w>\", \"a ab</w>\"]}}");
    expect_ids(t, "aab ab b a", "6 5 4 3");
    expect_ids(t, "ba bb", "2 3 2 4");
    expect_ids(t, "ac", "1 0");
    data_tokenizer_close(t);
    arena_destroy(a);
}

// ---- copies and cuts ----------------------------------------------------------------------------

static const char *const names[] = {"gpt2", "llama3", "qwen2", "llama2", "unigram", "wordpiece"};

static data_tokenizer *open_golden(arena *a, const char *name)
{
    char where[128], path[1024];
    file_info info;
    data_tokenizer *t = NULL;
    snprintf(where, sizeof(where), "golden/tokenizers/%s", name);
    (void)test_shared(where, path);
    assert_int_equal(host_real()->api->path_info(host_real(), path, &info), ST_OK);
    if (info.kind == FILE_KIND_NONE) return NULL;
    if (data_tokenizer_open(host_real(), a, path, &t) != ST_OK) fail_msg("%s", error_last()->text);
    return t;
}

static const char *const parts[] = {
    "The",  " quick", " ",       "  ",    "\n",         "\t",           "don't",
    "'s",   "!",      "...",     "12345", "\u00e9",     "\u4f60\u597d", "<|endoftext|>",
    "</s>", "\u3000", "a\u0301", "\r\n",  "HTTPServer", "\u00bd"};

static int64_t random_text(uint32_t *random, char *out, int64_t capacity)
{
    int64_t n = 0;
    for (int i = 0; i < 30; i++) {
        *random = *random * 1664525u + 1013904223u;
        const char *part = parts[(*random >> 16) % COUNT_OF(parts)];
        const int64_t bytes = (int64_t)strlen(part);
        if (n + bytes > capacity) break;
        memcpy(out + n, part, (size_t)bytes);
        n += bytes;
    }
    return n;
}

static void expect_equal(const data_ids *x, const data_ids *y, const char *name)
{
    if (x->count == y->count &&
        (x->count == 0 || memcmp(x->items, y->items, (size_t)x->count * sizeof(int32_t)) == 0)) {
        return;
    }
    fail_msg("%s: %lld and %lld ids differ", name, (long long)x->count, (long long)y->count);
}

// The ids of the parts of a text that is cut wherever the tokenizer allows it.
static void encode_cut(data_tokenizer *t, const char *text, int64_t count, data_ids *ids)
{
    int64_t begin = 0;
    const int cuts = data_tokenizer_cuts(t);
    for (int64_t at = 1; at <= count; at++) {
        const char c = text[at - 1];
        const bool is_space = at < count && text[at] == ' ' && c > ' ';
        const bool is_place = cuts == DATA_CUT_WORDS
                                  ? is_space && c < 0x7f
                                  : is_space || (at < count && text[at] == '\t' && c > ' ');
        if (!is_place && at < count) continue;
        const int flags =
            (begin > 0 ? DATA_ENCODE_CONTINUES : 0) | (at < count ? DATA_ENCODE_GOES_ON : 0);
        encode(t, text + begin, at - begin, flags, ids);
        begin = at;
    }
}

static void test_copies(void **state)
{
    (void)state;
    uint32_t random = 1;
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        arena *a = NULL;
        data_tokenizer *copy = NULL;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        data_tokenizer *t = open_golden(a, names[i]);
        if (t == NULL) {
            arena_destroy(a);
            skip();
        }
        assert_int_equal(data_tokenizer_clone(t, a, &copy), ST_OK);
        for (int k = 0; k < 300; k++) {
            char text[1024];
            data_ids x = {0}, y = {0}, z = {0};
            const int64_t count = random_text(&random, text, sizeof(text));
            encode(t, text, count, 0, &x);
            encode(copy, text, count, 0, &y);
            expect_equal(&x, &y, names[i]);
            if (data_tokenizer_cuts(t) != 0) {
                encode_cut(t, text, count, &z);
                expect_equal(&x, &z, names[i]);
            }
            data_ids_deinit(&x);
            data_ids_deinit(&y);
            data_ids_deinit(&z);
        }
        assert_int_not_equal(data_tokenizer_cuts(t), 0);
        data_tokenizer_close(copy);
        data_tokenizer_close(t);
        arena_destroy(a);
    }
}

static int make_folder(void **state)
{
    (void)state;
    return test_scratch(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    (void)state;
    test_scratch_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_word_level),
        cmocka_unit_test(test_suffix),
        cmocka_unit_test(test_copies),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
