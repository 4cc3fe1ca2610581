// Files of other programs: SentencePiece models and tiktoken ranks, made here byte by byte, files
// of the reference, and damaged ones.
#include "base/format/json.h"
#include "data/tokenizer.h"
#include "fixtures/base/test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static char folder[64];

static void write_file(const char *name, const void *bytes, int64_t count, char path[128])
{
    snprintf(path, 128, "%s/%s", folder, name);
    assert_int_equal(host_write_all(host_real(), path, bytes, count), ST_OK);
}

static void expect_ids(data_tokenizer *t, const char *text, int flags, const char *wanted)
{
    char got[256] = "";
    data_ids ids = {0};
    assert_int_equal(data_tokenizer_encode(t, text, (int64_t)strlen(text), flags, &ids), ST_OK);
    for (int64_t i = 0; i < ids.count; i++) {
        const size_t used = strlen(got);
        snprintf(got + used, sizeof(got) - used, i == 0 ? "%d" : " %d", ids.items[i]);
    }
    if (strcmp(got, wanted) != 0) fail_msg("\"%s\": %s, expected %s", text, got, wanted);
    data_ids_deinit(&ids);
}

static void expect_text(data_tokenizer *t, const int32_t *ids, int64_t count, const char *wanted)
{
    data_bytes out = {0};
    assert_int_equal(data_tokenizer_decode(t, ids, count, 0, &out), ST_OK);
    assert_int_equal(out.count, strlen(wanted));
    assert_memory_equal(out.items, wanted, (size_t)out.count);
    data_bytes_deinit(&out);
}

// ---- SentencePiece ------------------------------------------------------------------------------

static int64_t put_bytes(char *out, int field, const void *bytes, int64_t count)
{
    out[0] = (char)(field << 3 | 2);
    out[1] = (char)count;
    memcpy(out + 2, bytes, (size_t)count);
    return count + 2;
}

// A piece: field 1 is its text, 2 its score, 3 its kind.
static int64_t put_piece(char *out, const char *text, float score, int kind)
{
    char piece[64];
    int64_t n = put_bytes(piece, 1, text, (int64_t)strlen(text));
    piece[n++] = 2 << 3 | 5;
    memcpy(piece + n, &score, 4);
    n += 4;
    piece[n++] = 3 << 3;
    piece[n++] = (char)kind;
    return put_bytes(out, 1, piece, n);
}

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };
enum { UNIGRAM = 1, BPE = 2 };

// Llama's form: "ab" is made before "bc", which has the lower score.
static int64_t make_model(char *out, int model, int kind_of_last)
{
    const char trainer[] = {
        3 << 3, (char)model, (char)(35 << 3 | 0x80), 2, 1, (char)(40 << 3 & 0x7f) | (char)0x80, 2,
        0};
    const char normalizer[] = {3 << 3, 1, 4 << 3, 0};
    int64_t n = put_piece(out, "<unk>", 0, UNKNOWN);
    n += put_piece(out + n, "</s>", 0, CONTROL);
    n += put_piece(out + n, "<0x41>", 0, BYTE);
    n += put_piece(out + n, "ab", -1, NORMAL);
    n += put_piece(out + n, "bc", -2, NORMAL);
    n += put_piece(out + n, "\u2581a", -3, NORMAL);
    n += put_piece(out + n, "\u2581", -4, NORMAL);
    n += put_piece(out + n, "a", -5, NORMAL);
    n += put_piece(out + n, "b", -6, NORMAL);
    n += put_piece(out + n, "c", -7, NORMAL);
    n += put_piece(out + n, "xy", 0, kind_of_last);
    n += put_bytes(out + n, 2, trainer, sizeof(trainer));
    return n + put_bytes(out + n, 3, normalizer, sizeof(normalizer));
}

static void test_sentencepiece(void **state)
{
    (void)state;
    char model[1024], path[128];
    arena *a = NULL;
    data_tokenizer *t = NULL;
    static const int32_t ids[] = {6, 3, 2, 10};
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    write_file("tokenizer.model", model, make_model(model, BPE, USER), path);
    if (data_tokenizer_open(host_real(), a, path, &t) != ST_OK) fail_msg("%s", error_last()->text);
    expect_ids(t, "abc", 0, "6 3 9");
    expect_ids(t, "bc a", 0, "6 4 5");
    expect_ids(t, "A", 0, "6 2");
    expect_ids(t, "a?", 0, "5 0");
    expect_ids(t, "axyb", 0, "5 10 6 8"); // the prefix stands before each stretch
    expect_ids(t, "a</s>", DATA_ENCODE_SPECIAL, "5 1");
    expect_text(t, ids, COUNT_OF(ids), "abAxy");
    assert_int_equal(data_tokenizer_eot(t), 1);
    data_tokenizer_close(t);
    write_file("tokenizer.model", model, make_model(model, UNIGRAM, NORMAL), path);
    if (data_tokenizer_open(host_real(), a, folder, &t) != ST_OK)
        fail_msg("%s", error_last()->text);
    expect_ids(t, "abc", 0, "5 4"); // -5; the merges above are -12
    data_tokenizer_close(t);
    arena_destroy(a);
}

static void expect_failure(const char *path, status wanted, const char *words)
{
    arena *a = NULL;
    data_tokenizer *t = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    error_clear();
    assert_int_equal(data_tokenizer_open(host_real(), a, path, &t), wanted);
    if (strstr(error_last()->text, words) == NULL) fail_msg("%s", error_last()->text);
    arena_destroy(a);
}

static void test_damaged_models(void **state)
{
    (void)state;
    char model[1024], path[128];
    const int64_t count = make_model(model, BPE, NORMAL);
    for (int64_t n = 8; n < count; n++) {
        arena *a = NULL;
        data_tokenizer *t = NULL;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        write_file("tokenizer.model", model, n, path);
        const status st = data_tokenizer_open(host_real(), a, path, &t);
        assert_true(st == ST_OK || st == ST_DAMAGED || st == ST_UNSUPPORTED);
        if (st == ST_OK) data_tokenizer_close(t);
        arena_destroy(a);
    }
    write_file("tokenizer.model", model, make_model(model, 3, NORMAL), path);
    expect_failure(path, ST_UNSUPPORTED, "words or characters");
    write_file("tokenizer.model", model, make_model(model, BPE, UNUSED), path);
    expect_failure(path, ST_UNSUPPORTED, "UNUSED");
}

// ---- tiktoken -----------------------------------------------------------------------------------

// a, b, c, ab, bc, abc: of the pairs in "abcb" ab has the lowest rank.
static const char ranks[] = "YQ== 0\nYg== 1\nYw== 2\nYWI= 3\nYmM= 4\r\nIA== 5\nICA= 6\n";
static const char settings[] = "{\"pattern\": \"[a-c]{1,3}+| +$| \", \"special_tokens\": "
                               "{\"<|endoftext|>\": 9}}";

static void test_tiktoken(void **state)
{
    (void)state;
    char path[128], other[128];
    arena *a = NULL;
    data_tokenizer *t = NULL;
    static const int32_t ids[] = {3, 2, 9};
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    write_file("small.tiktoken", ranks, sizeof(ranks) - 1, path);
    write_file("small.json", settings, sizeof(settings) - 1, other);
    if (data_tokenizer_open(host_real(), a, path, &t) != ST_OK) fail_msg("%s", error_last()->text);
    expect_ids(t, "abcbc", 0, "3 2 4"); // words abc, bc
    expect_ids(t, "a  ", 0, "0 6");
    expect_ids(t, "  a", 0, "5 5 0");
    expect_ids(t, "a-b", 0, "0 1"); // no match: dropped, as tiktoken does
    expect_ids(t, "a<|endoftext|>", DATA_ENCODE_SPECIAL, "0 9");
    expect_text(t, ids, COUNT_OF(ids), "abc<|endoftext|>");
    assert_int_equal(data_tokenizer_eot(t), 9);
    data_tokenizer_close(t);
    arena_destroy(a);
}

static void test_damaged_ranks(void **state)
{
    (void)state;
    static const struct {
        const char *content;
        status wanted;
        const char *words;
    } rows[] = {
        {"YQ== 0\nY!== 1\n", ST_DAMAGED, ":2: no base64"},
        {"YQ== 0\nYg== x\n", ST_DAMAGED, ":2: no rank"},
        {"YQ== 0\nYg==\n", ST_DAMAGED, ":2: no token"},
        {"YQ== 0\nYg== 0\n", ST_DAMAGED, "another token"},
        {"YQ== 0\nYg== 4000000\n", ST_DAMAGED, "far beyond"},
    };
    char path[128], other[128];
    write_file("bad.json", settings, sizeof(settings) - 1, other);
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        write_file("bad.tiktoken", rows[i].content, (int64_t)strlen(rows[i].content), path);
        expect_failure(path, rows[i].wanted, rows[i].words);
    }
    write_file("alone.tiktoken", ranks, sizeof(ranks) - 1, path);
    expect_failure(path, ST_UNSUPPORTED, "put alone.json next to it");
    write_file("cl100k_base.tiktoken", ranks, sizeof(ranks) - 1, path);
    expect_failure(path, ST_DAMAGED, "published file of this name has 100256");
    write_file("bad.json", "{}", 2, other);
    write_file("bad.tiktoken", ranks, sizeof(ranks) - 1, path);
    expect_failure(path, ST_DAMAGED, "no text `pattern`");
}

// ---- vocab.json and merges.txt ------------------------------------------------------------------

// A letter for each byte is not needed where a text holds only these.
static void test_two_files(void **state)
{
    (void)state;
    static const char vocab[] = "{\"a\": 0, \"b\": 1, \"ab\": 2}", merges[] = "#version\na b\n";
    static const char chat[] = "{\"tokenizer_class\": \"GPT2Tokenizer\", \"eos_token\": \"<e>\", "
                               "\"added_tokens_decoder\": {\"5\": {\"content\": \"<e>\", "
                               "\"special\": true}, \"3\": {\"content\": \"<t>\"}}}";
    static const char other[] = "{\"tokenizer_class\": \"OtherTokenizer\"}";
    static const char qwen[] = "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"eos_token\": \"<e>\", "
                               "\"added_tokens_decoder\": {\"7\": {\"content\": \"<e>\", "
                               "\"special\": true, \"lstrip\": true}}}";
    static const char qwen_vocab[] =
        "{\"a\": 0, \"b\": 1, \"ab\": 2, \"1\": 3, \"\u00c3\": 4, "
        "\"\u00a9\": 5, \"\u00c3\u00a9\": 6, \"11\": 8, \"\u0120\": 9}";
    static const char qwen_merges[] = "#version\na b\n\u00c3 \u00a9\n1 1\n";
    static const char clip[] = "{\"tokenizer_class\": \"CLIPTokenizer\"}";
    static const char clip_vocab[] =
        "{\"a\": 0, \"b\": 1, \"b</w>\": 2, \"a</w>\": 3, \"ab</w>\": 4}";
    static const char clip_merges[] = "#version\na b</w>\n";
    char path[128], config[128];
    arena *a = NULL;
    data_tokenizer *t = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    write_file("merges.txt", merges, sizeof(merges) - 1, path);
    write_file("vocab.json", vocab, sizeof(vocab) - 1, path);
    write_file("tokenizer_config.json", chat, sizeof(chat) - 1, config);
    if (data_tokenizer_open(host_real(), a, path, &t) != ST_OK) fail_msg("%s", error_last()->text);
    expect_ids(t, "ab<t>a", 0, "2 3 0");
    expect_ids(t, "a<e>", DATA_ENCODE_SPECIAL, "0 5");
    assert_int_equal(data_tokenizer_eot(t), 5);
    data_tokenizer_close(t);
    write_file("tokenizer_config.json", other, sizeof(other) - 1, config);
    expect_failure(path, ST_UNSUPPORTED, "OtherTokenizer");
    // Qwen 2 splits off each digit and composes characters.
    write_file("tokenizer_config.json", qwen, sizeof(qwen) - 1, config);
    write_file("merges.txt", qwen_merges, sizeof(qwen_merges) - 1, path);
    write_file("vocab.json", qwen_vocab, sizeof(qwen_vocab) - 1, path);
    if (data_tokenizer_open(host_real(), a, path, &t) != ST_OK) fail_msg("%s", error_last()->text);
    expect_ids(t, "ab11e\u0301 <e>", DATA_ENCODE_SPECIAL, "2 3 3 6 7");
    assert_int_equal(data_tokenizer_eot(t), 7);
    data_tokenizer_close(t);
    // CLIP ends words with a suffix, and has no capitals and no blanks.
    write_file("tokenizer_config.json", clip, sizeof(clip) - 1, config);
    write_file("merges.txt", clip_merges, sizeof(clip_merges) - 1, path);
    write_file("vocab.json", clip_vocab, sizeof(clip_vocab) - 1, path);
    if (data_tokenizer_open(host_real(), a, path, &t) != ST_OK) fail_msg("%s", error_last()->text);
    expect_ids(t, "AB  bab", 0, "4 1 4");
    data_tokenizer_close(t);
    write_file("merges.txt", "ab\n", 3, path);
    expect_failure(path, ST_DAMAGED, "merges.txt:1: two tokens");
    assert_int_equal(remove(config), 0);
    arena_destroy(a);
}

// ---- the reference's files ----------------------------------------------------------------------

static int64_t differences(data_tokenizer *x, data_tokenizer *y, const char *cases)
{
    FILE *f = fopen(cases, "r");
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes = 0;
    int64_t different = 0;
    assert_non_null(f);
    while ((bytes = getline(&line, &capacity, f)) > 0) {
        json *root = NULL;
        data_ids ids[2] = {{0}, {0}};
        assert_int_equal(json_parse(line, bytes, "case", &root), ST_OK);
        const json *text = json_get(root, "text");
        for (int i = 0; i < 2; i++) {
            assert_int_equal(data_tokenizer_encode(i == 0 ? x : y, json_text(text, ""),
                                                   json_text_bytes(text), 0, &ids[i]),
                             ST_OK);
        }
        different += ids[0].count != ids[1].count ||
                     (ids[0].count > 0 && memcmp(ids[0].items, ids[1].items,
                                                 (size_t)ids[0].count * sizeof(int32_t)) != 0);
        for (int i = 0; i < 2; i++) data_ids_deinit(&ids[i]);
        json_free(root);
    }
    free(line);
    (void)fclose(f);
    return different;
}

// The model gives the ids of the tokenizer.json that the reference made of it.
static void test_golden(void **state)
{
    (void)state;
    static const char *const names[] = {"llama2", "unigram"};
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        char where[128], path[1024], cases[1100];
        file_info info;
        arena *a = NULL;
        data_tokenizer *x = NULL, *y = NULL;
        snprintf(where, sizeof(where), "golden/tokenizers/%s", names[i]);
        (void)test_shared(where, path);
        assert_int_equal(host_real()->api->path_info(host_real(), path, &info), ST_OK);
        if (info.kind == FILE_KIND_NONE) skip();
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        assert_int_equal(data_tokenizer_open(host_real(), a, path, &x), ST_OK);
        snprintf(cases, sizeof(cases), "%s/tokenizer.model", path);
        assert_int_equal(data_tokenizer_open(host_real(), a, cases, &y), ST_OK);
        snprintf(cases, sizeof(cases), "%s/cases.jsonl", path);
        const int64_t different = differences(x, y, cases);
        if (different > 0) fail_msg("%s: %lld cases differ", names[i], (long long)different);
        data_tokenizer_close(x);
        data_tokenizer_close(y);
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
        cmocka_unit_test(test_sentencepiece), cmocka_unit_test(test_damaged_models),
        cmocka_unit_test(test_tiktoken),      cmocka_unit_test(test_damaged_ranks),
        cmocka_unit_test(test_two_files),     cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
