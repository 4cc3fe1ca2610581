// Trained tokenizers: merges that follow from the rules, files of the reference trainer, and equal
// files for any number of threads.
#include "base/format/json.h"
#include "data/tokenizer.h"
#include "data/tokenizer_train.h"
#include "fixtures/base/test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static char folder[64];

static const char *in_folder(const char *name, char buffer[128])
{
    snprintf(buffer, 128, "%s/%s", folder, name);
    return buffer;
}

static const char *write_text(const char *name, const char *text, char buffer[128])
{
    assert_int_equal(
        host_write_all(host_real(), in_folder(name, buffer), text, (int64_t)strlen(text)), ST_OK);
    return buffer;
}

static json *train(const char *path, const data_train_options *o)
{
    char out[128];
    json *root = NULL;
    data_train_result r;
    if (data_tokenizer_train(host_real(), &path, 1, o, in_folder("out.json", out), &r) != ST_OK) {
        fail_msg("%s", error_last()->text);
    }
    assert_int_equal(json_read(host_real(), out, 1 << 24, &root), ST_OK);
    const json *model = json_get(root, "model");
    assert_int_equal(json_count(json_get(model, "vocab")), r.vocab_size);
    assert_int_equal(json_count(json_get(model, "merges")), r.merges);
    return root;
}

static void expect_merges(const json *root, const char *const *pairs, int64_t count)
{
    const json *merges = json_get(json_get(root, "model"), "merges");
    assert_int_equal(json_count(merges), count);
    for (int64_t i = 0; i < count; i++) {
        char got[64];
        snprintf(got, sizeof(got), "%s %s", json_text(json_at(json_at(merges, i), 0), "?"),
                 json_text(json_at(json_at(merges, i), 1), "?"));
        assert_string_equal(got, pairs[i]);
    }
}

static const char *const end_of_text[] = {"<|endoftext|>"};

// The words are aab, " aab" and " ab". Pairs: a b 3 times, a a twice, and so on; of the two that
// occur once in the end, the one with the lower id is first.
static void test_order(void **state)
{
    (void)state;
    static const char *const merges[] = {"a b", "a ab", "\u0120 ab", "\u0120 aab"};
    char path[128];
    data_train_options o = {.vocab_size = 1000,
                            .split = DATA_TRAIN_GPT2,
                            .special = end_of_text,
                            .special_count = 1,
                            .threads = 1};
    json *root = train(write_text("text.txt", "aab aab ab", path), &o);
    expect_merges(root, merges, 4);
    json_free(root);
    o.min_frequency = 2;
    root = train(path, &o);
    expect_merges(root, merges, 2);
    json_free(root);
    o.min_frequency = 0;
    o.vocab_size = 258;
    root = train(path, &o);
    expect_merges(root, merges, 1);
    json_free(root);
}

// "xyz" is made from x yz and from xy z; the second merge gives the same token.
static void test_same_token(void **state)
{
    (void)state;
    char path[128];
    const char *const text = "xyq xyq xyq xyq xyq yzq yzq yzq yzq xyz xyz xyz w";
    const data_train_options o = {.vocab_size = 1000, .pattern = "[^ ]+", .threads = 1};
    json *root = train(write_text("text.txt", text, path), &o);
    const json *vocab = json_get(json_get(root, "model"), "vocab");
    assert_true(json_int(json_get(vocab, "xyz"), -1) >= 256);
    assert_int_equal(json_int(json_get(vocab, "!"), -1), 0);
    json_free(root);
}

static void test_lines(void **state)
{
    (void)state;
    char path[128];
    static const char *const whole[] = {"\u010a \u010a"};
    data_train_options o = {.vocab_size = 300, .threads = 1};
    json *root = train(write_text("text.txt", "a\n\nb\n\nc", path), &o);
    expect_merges(root, NULL, 0); // a line break before a letter is a word of its own
    json_free(root);
    o.pattern = "\\n+";
    root = train(path, &o);
    expect_merges(root, whole, 1);
    json_free(root);
    o.by_line = true;
    root = train(path, &o);
    expect_merges(root, NULL, 0);
    json_free(root);
}

// ---- the reference's files ----------------------------------------------------------------------

static void expect_file(const json *root, const char *name)
{
    char where[160], path[1024];
    json *wanted = NULL;
    snprintf(where, sizeof(where), "golden/tokenizers/train/%s.json", name);
    assert_int_equal(json_read(host_real(), test_shared(where, path), 1 << 24, &wanted), ST_OK);
    const json *a = json_get(wanted, "model"), *b = json_get(root, "model");
    const json *merges = json_get(a, "merges"), *vocab = json_get(a, "vocab");
    assert_int_equal(json_count(json_get(b, "merges")), json_count(merges));
    for (int64_t i = 0; i < json_count(merges); i++) {
        for (int side = 0; side < 2; side++) {
            assert_string_equal(json_text(json_at(json_at(json_get(b, "merges"), i), side), ""),
                                json_text(json_at(json_at(merges, i), side), "?"));
        }
    }
    assert_int_equal(json_count(json_get(b, "vocab")), json_count(vocab));
    for (int64_t i = 0; i < json_count(vocab); i++) {
        const json *id = NULL;
        const char *key = json_key_at(vocab, i, &id);
        assert_int_equal(json_int(json_get(json_get(b, "vocab"), key), -1), json_int(id, -2));
    }
    json_free(wanted);
}

static void test_golden(void **state)
{
    (void)state;
    static const char *const two[] = {"<|endoftext|>", "<|pad|>"};
    static const struct {
        const char *name, *text;
        data_train_options o;
    } rows[] = {
        {"tinyshakespeare_1000",
         "tinyshakespeare.txt",
         {.vocab_size = 1000, .by_line = true, .threads = 2}},
        {"wikitext2_valid_500_whole", "wikitext2_valid.txt", {.vocab_size = 500, .threads = 2}},
        {"wikitext2_valid_600_llama3",
         "wikitext2_valid.txt",
         {.vocab_size = 600,
          .split = DATA_TRAIN_LLAMA3,
          .special = two,
          .special_count = 2,
          .min_frequency = 5,
          .by_line = true,
          .threads = 2}},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        char where[160], path[1024];
        file_info info;
        snprintf(where, sizeof(where), "data/%s", rows[i].text);
        (void)test_shared(where, path);
        assert_int_equal(host_real()->api->path_info(host_real(), path, &info), ST_OK);
        if (info.kind == FILE_KIND_NONE) skip();
        json *root = train(path, &rows[i].o);
        expect_file(root, rows[i].name);
        json_free(root);
    }
}

// ---- threads ------------------------------------------------------------------------------------

// Several megabytes, so that the texts are cut into pieces.
static void test_threads(void **state)
{
    (void)state;
    enum { BYTES = 5 << 20 };
    char path[128];
    char *text = malloc(BYTES + 1);
    uint32_t random = 1;
    assert_non_null(text);
    for (int64_t i = 0; i < BYTES; i++) {
        random = random * 1664525u + 1013904223u;
        text[i] = "abcdeeeeaaa  \nxyz1"[random >> 24 & 15];
    }
    text[BYTES] = 0;
    write_text("text.txt", text, path);
    free(text);
    data_train_options o = {.vocab_size = 700, .threads = 1};
    json *one = train(path, &o);
    o.threads = 3;
    json *three = train(path, &o);
    const json *a = json_get(json_get(one, "model"), "merges");
    const json *b = json_get(json_get(three, "model"), "merges");
    assert_int_equal(json_count(a), 700 - 256);
    for (int64_t i = 0; i < json_count(a); i++) {
        for (int side = 0; side < 2; side++) {
            assert_string_equal(json_text(json_at(json_at(a, i), side), ""),
                                json_text(json_at(json_at(b, i), side), "?"));
        }
    }
    json_free(one);
    json_free(three);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const twice[] = {"<a>", "<a>"}, *const empty[] = {""}, *const byte[] = {"a"};
    const struct {
        data_train_options o;
        status wanted;
        const char *words;
    } rows[] = {
        {{.vocab_size = 255, .threads = 1}, ST_USAGE, "expected 256"},
        {{.vocab_size = INT64_C(1) << 40, .threads = 1}, ST_USAGE, "expected 256"},
        {{.vocab_size = 300, .special = twice, .special_count = 2, .threads = 1},
         ST_USAGE,
         "given twice"},
        {{.vocab_size = 300, .special = empty, .special_count = 1, .threads = 1},
         ST_USAGE,
         "empty"},
        {{.vocab_size = 300, .special = byte, .special_count = 1, .threads = 1},
         ST_USAGE,
         "single byte"},
        {{.vocab_size = 300, .pattern = "(", .threads = 1}, ST_UNSUPPORTED, "without end"},
    };
    char path[128], out[128];
    const char *text = write_text("text.txt", "a", path);
    data_train_result r;
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        error_clear();
        assert_int_equal(
            data_tokenizer_train(host_real(), &text, 1, &rows[i].o, in_folder("no.json", out), &r),
            rows[i].wanted);
        if (strstr(error_last()->text, rows[i].words) == NULL) fail_msg("%s", error_last()->text);
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
        cmocka_unit_test(test_order),   cmocka_unit_test(test_same_token),
        cmocka_unit_test(test_lines),   cmocka_unit_test(test_golden),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
