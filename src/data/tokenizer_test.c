// Tokenizers against the reference's ids, against PCRE2, and against malicious files.
#include "base/format/json.h"
#include "base/rng.h"
#include "data/tokenizer.h"
#include "data/tokenizer/bpe.h"
#include "fixtures/base/test_paths.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static const char *shared_path(arena *a, const char *name)
{
    char path[1024];
    file_info info;
    assert_int_equal(host_real()->api->path_info(host_real(), test_shared(name, path), &info),
                     ST_OK);
    if (info.kind == FILE_KIND_NONE) {
        printf("skipped: %s is not there\n", path);
        arena_destroy(a); // skip does not return
        skip();
    }
    char *copy = NULL;
    assert_int_equal(arena_strdup(a, path, &copy), ST_OK);
    return copy;
}

static void check_ids(const json *wanted, const data_ids *got, const char *text)
{
    bool equal = json_count(wanted) == got->count;
    for (int64_t i = 0; equal && i < got->count; i++) {
        equal = json_int(json_at(wanted, i), -1) == got->items[i];
    }
    if (!equal) {
        for (int64_t i = 0; i < got->count; i++) print_error("%d ", got->items[i]);
        fail_msg("ids differ for %s", text);
    }
}

static void check_decoded(const data_tokenizer *t, const data_ids *ids, int flags,
                          const json *wanted)
{
    data_decoder d = {0};
    data_bytes got = {0};
    for (int64_t i = 0; i < ids->count; i++) {
        assert_int_equal(data_decoder_next(&d, t, ids->items[i], flags, &got), ST_OK);
        assert_int_equal(utf8_valid_prefix(got.items, got.count), got.count);
    }
    assert_int_equal(data_decoder_end(&d, &got), ST_OK);
    assert_int_equal(got.count, json_text_bytes(wanted));
    if (got.count > 0) assert_memory_equal(got.items, json_text(wanted, ""), (size_t)got.count);
    // The same by decoding whole and repairing.
    data_bytes whole = {0}, repaired = {0};
    assert_int_equal(data_tokenizer_decode(t, ids->items, ids->count, flags, &whole), ST_OK);
    assert_int_equal(utf8_repair(whole.items, whole.count, &repaired), ST_OK);
    assert_int_equal(repaired.count, got.count);
    if (got.count > 0) assert_memory_equal(got.items, repaired.items, (size_t)got.count);
    data_bytes_deinit(&got);
    data_bytes_deinit(&whole);
    data_bytes_deinit(&repaired);
}

static int64_t decode_base64(const char *text, uint8_t *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    int64_t count = 0;
    uint32_t bits = 0;
    int held = 0;
    for (; *text != 0 && *text != '='; text++) {
        bits = bits << 6 | (uint32_t)(strchr(digits, *text) - digits);
        held += 6;
        if (held >= 8) out[count++] = (uint8_t)(bits >> (held -= 8));
    }
    return count;
}

static void check_case(data_tokenizer *t, const json *line, int64_t *checked)
{
    const json *text = json_get(line, "text"), *raw = json_get(line, "bytes");
    data_ids ids = {0};
    const int64_t bytes = json_text_bytes(text);
    assert_int_equal(
        data_tokenizer_encode(t, json_text(text, ""), bytes, DATA_ENCODE_SPECIAL, &ids), ST_OK);
    check_ids(json_get(line, "ids"), &ids, json_text(text, ""));
    check_decoded(t, &ids, 0, json_get(line, "decoded"));
    if (json_get(line, "decoded_skip") != NULL) {
        check_decoded(t, &ids, DATA_DECODE_SKIP_SPECIAL, json_get(line, "decoded_skip"));
    }
    ids.count = 0;
    assert_int_equal(data_tokenizer_encode(t, json_text(text, ""), bytes, 0, &ids), ST_OK);
    const json *plain = json_get(line, "ids_plain");
    check_ids(plain != NULL ? plain : json_get(line, "ids"), &ids, json_text(text, ""));
    if (raw != NULL) {
        uint8_t buffer[256];
        const int64_t count = decode_base64(json_text(raw, ""), buffer);
        ids.count = 0;
        assert_int_equal(data_tokenizer_encode(t, (char *)buffer, count, 0, &ids), ST_OK);
        check_ids(json_get(line, "ids"), &ids, json_text(raw, ""));
    }
    data_ids_deinit(&ids);
    (*checked)++;
}

static void check_decode_case(data_tokenizer *t, const json *line, int64_t *checked)
{
    data_ids ids = {0};
    const json *list = json_get(line, "ids");
    for (int64_t i = 0; i < json_count(list); i++) {
        const int32_t id = (int32_t)json_int(json_at(list, i), -1);
        assert_int_equal(data_ids_add(&ids, &id, 1), ST_OK);
    }
    check_decoded(t, &ids, 0, json_get(line, "decoded"));
    check_decoded(t, &ids, DATA_DECODE_SKIP_SPECIAL, json_get(line, "decoded_skip"));
    data_ids_deinit(&ids);
    (*checked)++;
}

static void for_each_line(arena *a, const char *path, data_tokenizer *t,
                          void (*check)(data_tokenizer *, const json *, int64_t *),
                          int64_t *checked)
{
    char *text = NULL;
    int64_t bytes = 0;
    assert_int_equal(host_read_all(host_real(), a, path, 1 << 26, &text, &bytes), ST_OK);
    for (int64_t at = 0; at < bytes;) {
        const char *newline = memchr(text + at, '\n', (size_t)(bytes - at));
        const int64_t count = newline != NULL ? newline - (text + at) : bytes - at;
        json *line = NULL;
        assert_int_equal(json_parse(text + at, count, path, &line), ST_OK);
        check(t, line, checked);
        json_free(line);
        at += count + 1;
    }
}

static void test_golden(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    const char *paths[2] = {shared_path(a, "golden/tokenizers/gpt2"), shared_path(a, "data")};
    const char *cases = shared_path(a, "golden/tokenizers/gpt2/cases.jsonl");
    const char *decode = shared_path(a, "golden/tokenizers/gpt2/decode.jsonl");
    hash128 id[2];
    for (int i = 0; i < 2; i++) {
        data_tokenizer *t = NULL;
        const status st = data_tokenizer_open(host_real(), a, paths[i], &t);
        if (st != ST_OK) fail_msg("%s", error_last()->text);
        assert_int_equal(data_tokenizer_vocab_size(t), 50257);
        assert_int_equal(data_tokenizer_eot(t), 50256);
        assert_int_equal(data_tokenizer_find(t, "<|endoftext|>"), 50256);
        assert_int_equal(data_tokenizer_find(t, " the"), 262);
        assert_int_equal(data_tokenizer_cuts(t), DATA_CUT_BLANKS);
        int64_t checked = 0;
        for_each_line(a, cases, t, check_case, &checked);
        assert_true(checked > 700);
        for_each_line(a, decode, t, check_decode_case, &checked);
        id[i] = data_tokenizer_id(t);
        data_tokenizer_close(t);
    }
    // Both forms of one vocabulary make the same tokenizer.
    assert_memory_equal(&id[0], &id[1], sizeof(id[0]));
    arena_destroy(a);
}

// ---- the split against PCRE2 --------------------------------------------------------------------

static int64_t put_point(uint8_t *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (uint8_t)(0xc0 | c >> 6);
        out[1] = (uint8_t)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (uint8_t)(0xe0 | c >> 12);
        out[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        out[2] = (uint8_t)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | c >> 18);
    out[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
    out[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
    out[3] = (uint8_t)(0x80 | (c & 0x3f));
    return 4;
}

// Characters older than any PCRE2, of all classes.
static const uint32_t points[] = {
    ' ',   ' ',  ' ',  '\n',   '\t',  '\r',   0x85,   0xa0,   0x3000,  0x2003,  0x2028, '\'',
    '\'',  's',  't',  'r',    'e',   'v',    'm',    'l',    'd',     'S',     'a',    'Z',
    '0',   '9',  '.',  '!',    '-',   '_',    0,      0x7f,   0xe9,    0x3b1,   0x416,  0x4e2d,
    0x660, 0xb2, 0xbd, 0x2160, 0x301, 0x200d, 0x20ac, 0xfffd, 0x1f600, 0x1d400, 0x10000};

static void test_split_equals_pcre2(void **state)
{
    (void)state;
    static const char pattern[] =
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    int error = 0;
    PCRE2_SIZE where = 0;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP, &error, &where, NULL);
    assert_non_null(code);
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    pcre2_match_data *match = pcre2_match_data_create(4, NULL);
    uint8_t *classes = malloc(SPLIT_CLASS_POINTS);
    assert_non_null(classes);
    split_classes_fill(classes);
    for (uint64_t round = 0; round < 20000; round++) {
        uint8_t text[128];
        int64_t count = 0;
        const uint32_t length = rng_word(1, round, 0) % 24;
        for (uint32_t i = 0; i < length; i++) {
            const uint32_t pick = rng_word(1, round, i + 1) % (uint32_t)COUNT_OF(points);
            count += put_point(text + count, points[pick]);
        }
        for (int64_t at = 0; at < count;) {
            const int found = pcre2_match(code, text, (PCRE2_SIZE)count, (PCRE2_SIZE)at,
                                          PCRE2_ANCHORED, match, NULL);
            assert_true(found > 0);
            const int64_t end = (int64_t)pcre2_get_ovector_pointer(match)[1];
            assert_int_equal(split_gpt2_next(classes, text, count, at), end);
            at = end;
        }
    }
    free(classes);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
}

// ---- small vocabularies -------------------------------------------------------------------------

static char *write_file(arena *a, const char *name, const char *text, int64_t bytes)
{
    char *path = NULL;
    assert_int_equal(path_join(a, folder, name, &path), ST_OK);
    FILE *f = fopen(path, "wb"); // not host_write_all, whose syncs would take seconds
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, (size_t)bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
    return path;
}

// All 256 bytes with ids 0..255, then `more`, in the file's spelling.
static char *small_vocab(arena *a, const char *more)
{
    enum { CAPACITY = 8192 };
    char *out = NULL;
    assert_int_equal(arena_new(a, CAPACITY + (int64_t)strlen(more), &out), ST_OK);
    int next = 0, at = 0;
    for (int byte = 0; byte < 256; byte++) {
        const bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        const int point = prints ? byte : 256 + next++;
        at += snprintf(out + at, (size_t)(CAPACITY - at), "%s\"\\u%04x\": %d",
                       byte == 0 ? "{" : ", ", (unsigned)point, byte);
    }
    assert_true(at < CAPACITY);
    strcat(out, more);
    strcat(out, "}");
    return out;
}

typedef struct small {
    const char *more, *merges, *options, *split, *added;
} small;

static status open_small(arena *a, small s, data_tokenizer **out)
{
    if (s.split == NULL) s.split = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}";
    char *all = NULL;
    assert_int_equal(
        arena_format(a, &all,
                     "{\"added_tokens\": [%s], \"normalizer\": null, \"pre_tokenizer\": %s, "
                     "\"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\"%s, "
                     "\"vocab\": %s, \"merges\": %s}}",
                     s.added != NULL ? s.added : "", s.split, s.options != NULL ? s.options : "",
                     small_vocab(a, s.more != NULL ? s.more : ""),
                     s.merges != NULL ? s.merges : "[]"),
        ST_OK);
    const char *path = write_file(a, "tokenizer.json", all, (int64_t)strlen(all));
    return data_tokenizer_open(host_real(), a, path, out);
}

static void expect_ids(data_tokenizer *t, const char *text, int flags, const int32_t *wanted,
                       int64_t count)
{
    data_ids ids = {0};
    assert_int_equal(data_tokenizer_encode(t, text, (int64_t)strlen(text), flags, &ids), ST_OK);
    assert_int_equal(ids.count, count);
    assert_memory_equal(ids.items, wanted, (size_t)count * sizeof(*wanted));
    data_ids_deinit(&ids);
}

static void test_small_vocabularies(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    data_tokenizer *t = NULL;
    const small base = {.more = ", \"ab\": 256, \"abc\": 257, \"\\u0120a\": 258, \"<x>\": 260",
                        .merges = "[\"a b\", [\"ab\", \"c\"], \"\\u0120 a\"]"};
    assert_int_equal(open_small(a, base, &t), ST_OK);
    assert_int_equal(data_tokenizer_vocab_size(t), 261);
    assert_int_equal(data_tokenizer_eot(t), -1);
    expect_ids(t, "abcab ab", 0, (int32_t[]){257, 256, ' ', 256}, 4);
    expect_ids(t, "ac a", 0, (int32_t[]){'a', 'c', 258}, 3);
    const hash128 id = data_tokenizer_id(t);
    data_tokenizer_close(t);

    small s = base; // a whole word that no merge makes
    s.options = ", \"ignore_merges\": true";
    s.merges = "[]";
    assert_int_equal(open_small(a, s, &t), ST_OK);
    expect_ids(t, "abc abcd", 0, (int32_t[]){257, ' ', 'a', 'b', 'c', 'd'}, 6);
    const hash128 other = data_tokenizer_id(t);
    assert_true(id.low != other.low || id.high != other.high);
    data_tokenizer_close(t);

    s = base; // added tokens, special and not; the longest wins; a prefix blank
    s.split = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}]}";
    s.added = "{\"id\": 260, \"content\": \"<x>\", \"special\": false}, {\"id\": 261, \"content\": "
              "\"<x>>\", \"special\": true}, {\"id\": 262, \"content\": \"</s>\", \"special\": "
              "true}";
    assert_int_equal(open_small(a, s, &t), ST_OK);
    assert_int_equal(data_tokenizer_vocab_size(t), 263);
    assert_int_equal(data_tokenizer_eot(t), 262);
    assert_int_equal(data_tokenizer_cuts(t), 0);
    expect_ids(t, "ab<x>>", DATA_ENCODE_SPECIAL, (int32_t[]){' ', 256, 261}, 3);
    expect_ids(t, "ab<x>>", 0, (int32_t[]){' ', 256, 260, ' ', '>'}, 5);
    assert_int_equal(data_tokenizer_find(t, "<x>>"), 261);
    assert_int_equal(data_tokenizer_find(t, "none"), -1);
    data_tokenizer_close(t);

    // The reference numbers added tokens that the vocabulary lacks one after the other.
    s.added = "{\"id\": 260, \"content\": \"<x>\"}, {\"id\": 700, \"content\": \"<a>\"}, "
              "{\"id\": 300, \"content\": \"<b>\"}";
    assert_int_equal(open_small(a, s, &t), ST_OK);
    assert_int_equal(data_tokenizer_vocab_size(t), 263);
    assert_int_equal(data_tokenizer_find(t, "<a>"), 261);
    assert_int_equal(data_tokenizer_find(t, "<b>"), 262);
    data_tokenizer_close(t);

    // A file that calls its end of text an ordinary token: a text that spells the token must not
    // end there.
    s.added =
        "{\"id\": 260, \"content\": \"<x>\", \"special\": false}, {\"id\": 261, \"content\": \"</s>\", \"special\": false}";
    s.split = base.split;
    assert_int_equal(open_small(a, s, &t), ST_OK);
    assert_int_equal(data_tokenizer_eot(t), 261);
    expect_ids(t, "a</s>", 0, (int32_t[]){'a', '<', '/', 's', '>'}, 5);
    expect_ids(t, "a</s>", DATA_ENCODE_SPECIAL, (int32_t[]){'a', 261}, 2);
    data_tokenizer_close(t);
    arena_destroy(a);
}

// Long and short words use different code; both must do the same merges. Ranks that do not grow
// with length make the order matter.
static void test_long_words_equal_short(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    data_tokenizer *t = NULL;
    const small s = {.more = ", \"aa\": 256, \"aab\": 257, \"ba\": 258, \"baa\": 259, "
                             "\"aabba\": 260, \"aaaa\": 261",
                     .merges = "[\"aab ba\", \"b aa\", \"aa b\", \"aa aa\", \"b a\", \"a a\"]"};
    assert_int_equal(open_small(a, s, &t), ST_OK);
    for (uint64_t round = 0; round < 300; round++) {
        // A piece of up to 90 letters alone, and in the middle of a much longer word. The z's
        // around it do not merge.
        char word[400];
        const int64_t length = 1 + rng_word(2, round, 0) % 90;
        memset(word, 'z', sizeof(word));
        for (int64_t i = 0; i < length; i++) {
            word[200 + i] = rng_word(2, round, (uint64_t)i + 1) % 3 == 0 ? 'b' : 'a';
        }
        data_ids alone = {0}, inside = {0};
        assert_int_equal(bpe_encode_word(t->bpe, (uint8_t *)word + 200, length, &alone), ST_OK);
        assert_int_equal(data_tokenizer_encode(t, word, sizeof(word), 0, &inside), ST_OK);
        assert_int_equal(inside.count, 200 + alone.count + (200 - length));
        assert_memory_equal(inside.items + 200, alone.items, (size_t)alone.count * 4);
        data_ids_deinit(&alone);
        data_ids_deinit(&inside);
    }
    data_tokenizer_close(t);
    arena_destroy(a);
}

static void expect_refusal(arena *a, small s, status wanted, const char *words)
{
    data_tokenizer *t = NULL;
    error_clear();
    assert_int_equal(open_small(a, s, &t), wanted);
    if (strstr(error_last()->text, words) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", error_last()->text, words);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    const struct {
        small s;
        status wanted;
        const char *words;
    } rows[] = {
        {{.options = ", \"type\": \"WordPiece\""}, ST_DAMAGED, "type"}, // a duplicate key
        {{.options = ", \"dropout\": 0.1"}, ST_UNSUPPORTED, "dropout"},
        {{.split = "{\"type\": \"Metaspace\"}"}, ST_DAMAGED, "replacement"},
        {{.more = ", \"ab\": 255"}, ST_DAMAGED, "255"},
        {{.more = ", \"ab\": -2"}, ST_DAMAGED, "-2"},
        {{.more = ", \"ab\": 1e30"}, ST_DAMAGED, "\"ab\""},
        {{.more = ", \"ab\": 4194303"}, ST_DAMAGED, "4194303"},
        {{.more = ", \"ab\": \"x\""}, ST_DAMAGED, "\"ab\""},
        {{.merges = "[\"a b\"]"}, ST_DAMAGED, "merge 1 gives \"ab\""},
        {{.merges = "[\"ab\"]"}, ST_DAMAGED, "merge 1"},
        {{.merges = "[\"qq b\"]"}, ST_DAMAGED, "qq"},
        {{.merges = "[[\"a\"]]"}, ST_DAMAGED, "merge 1"},
        {{.merges = "7"}, ST_DAMAGED, "is not a list"},
        {{.added = "{\"id\": 300}"}, ST_DAMAGED, "content"},
        {{.added = "{\"id\": 65, \"content\": \"<x>\"}"}, ST_DAMAGED, "65"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        expect_refusal(a, rows[i].s, rows[i].wanted, rows[i].words);
    }
    data_tokenizer *t = NULL;
    const struct {
        const char *text;
        status wanted;
        const char *words;
    } files[] = {
        {"", ST_DAMAGED, ""},
        {"{}", ST_DAMAGED, "model"},
        {"[1]", ST_DAMAGED, "model"},
        {"{\"model\": {\"type\": \"Unigram\"}}", ST_DAMAGED, "vocabulary"},
        {"{\"model\": {\"type\": \"WordLists\"}}", ST_UNSUPPORTED, "WordLists"},
        {"{\"model\": {\"type\": \"BPE\"}, \"normalizer\": {\"type\": \"Nmz\"}}", ST_UNSUPPORTED,
         "Nmz"},
        {"{\"model\": {\"type\": \"BPE\"}, \"pre_tokenizer\": {\"type\": \"ByteLevel\"}}",
         ST_DAMAGED, "vocabulary"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"ab\": 0}, \"merges\": []}, "
         "\"pre_tokenizer\": {\"type\": \"ByteLevel\"}}",
         ST_UNSUPPORTED, "single byte"},
    };
    for (int64_t i = 0; i < COUNT_OF(files); i++) {
        const char *path =
            write_file(a, "tokenizer.json", files[i].text, (int64_t)strlen(files[i].text));
        error_clear();
        assert_int_equal(data_tokenizer_open(host_real(), a, path, &t), files[i].wanted);
        assert_non_null(strstr(error_last()->text, files[i].words));
    }
    assert_int_equal(data_tokenizer_open(host_real(), a, "/no/such/thing", &t), ST_NOT_FOUND);
    arena_destroy(a);
}

// A vocabulary of letters: the encoder refuses a text that holds other bytes, in words of any
// length.
static void test_letters(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    const char *spelt = "{\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": "
                        "{\"\\u010a\": 0, \"\\u0120\": 1, \"a\": 2, \"b\": 3}}, "
                        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                        "\"add_prefix_space\": false}}";
    const char *path = write_file(a, "tokenizer.json", spelt, (int64_t)strlen(spelt));
    data_tokenizer *t = NULL;
    assert_int_equal(data_tokenizer_open(host_real(), a, path, &t), ST_OK);
    assert_int_equal(data_tokenizer_vocab_size(t), 4);
    expect_ids(t, "ab ba\n", 0, (const int32_t[]){2, 3, 1, 3, 2, 0}, 6);
    char word[201];
    memset(word, 'a', 200);
    word[200] = 0;
    for (int64_t bytes = 1; bytes <= 200; bytes += 199) {
        data_ids ids = {0};
        word[bytes - 1] = 'c';
        assert_int_equal(data_tokenizer_encode(t, word, bytes, 0, &ids), ST_DATA);
        assert_non_null(strstr(error_last()->text, "0x63 (c)"));
        word[bytes - 1] = 'b';
        assert_int_equal(data_tokenizer_encode(t, word, bytes, 0, &ids), ST_OK);
        assert_int_equal(ids.count, bytes);
        data_ids_deinit(&ids);
    }
    data_tokenizer_close(t);
    arena_destroy(a);
}

static void test_two_files_and_their_damage(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    const char *vocab = small_vocab(a, ", \"ab\": 256, \"<|endoftext|>\": 257");
    (void)write_file(a, "x_vocab.json", vocab, (int64_t)strlen(vocab));
    const struct {
        const char *merges, *words; // words NULL: valid
    } rows[] = {
        {"#version: 0.2\na b\n", NULL}, {"a b\r\n\r\n", NULL}, {"a b", NULL},
        {"#version\na  b\n", ":2"},     {"a b\nab \n", ":2"},  {" a b\n", ":1"},
        {"a b\nabc\n", ":2"},           {"b a\n", "\"ba\""},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const char *path =
            write_file(a, "x_merges.txt", rows[i].merges, (int64_t)strlen(rows[i].merges));
        data_tokenizer *t = NULL;
        error_clear();
        const status st = data_tokenizer_open(host_real(), a, path, &t);
        if (rows[i].words != NULL) {
            assert_int_equal(st, ST_DAMAGED);
            assert_non_null(strstr(error_last()->text, rows[i].words));
            continue;
        }
        assert_int_equal(st, ST_OK);
        assert_int_equal(data_tokenizer_eot(t), 257);
        expect_ids(t, "ab<|endoftext|>", DATA_ENCODE_SPECIAL, (int32_t[]){256, 257}, 2);
        data_tokenizer_close(t);
    }
    arena_destroy(a);
}

static void test_bytes(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    data_tokenizer *t = NULL;
    assert_int_equal(data_tokenizer_open(host_real(), a, "bytes", &t), ST_OK);
    assert_int_equal(data_tokenizer_vocab_size(t), 257);
    assert_int_equal(data_tokenizer_eot(t), 256);
    assert_string_equal(data_tokenizer_name(t), "bytes");
    char text[256];
    for (int i = 0; i < 256; i++) text[i] = (char)(255 - i);
    data_ids ids = {0};
    data_bytes back = {0};
    assert_int_equal(data_tokenizer_encode(t, text, 256, 0, &ids), ST_OK);
    assert_int_equal(ids.count, 256);
    assert_int_equal(ids.items[0], 255);
    assert_int_equal(data_ids_add(&ids, (int32_t[]){256, -1, 9999}, 3), ST_OK);
    assert_int_equal(data_tokenizer_decode(t, ids.items, ids.count, 0, &back), ST_OK);
    assert_int_equal(back.count, 256);
    assert_memory_equal(back.items, text, 256);
    data_ids_deinit(&ids);
    data_bytes_deinit(&back);
    data_tokenizer_close(t);
    arena_destroy(a);
}

// A text that fills the cache many times still gives the same ids.
static void test_cache_overflow(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    data_tokenizer *t = NULL;
    const small s = {.more = ", \"12\": 256", .merges = "[\"1 2\"]"};
    assert_int_equal(open_small(a, s, &t), ST_OK);
    data_ids ids = {0};
    for (int i = 0; i < 120000; i++) {
        char word[16];
        const int n = snprintf(word, sizeof(word), "%d", 100000 + i);
        ids.count = 0;
        assert_int_equal(data_tokenizer_encode(t, word, n, 0, &ids), ST_OK);
        int64_t at = 0;
        for (int k = 0; k < n; k++) {
            const bool pair = word[k] == '1' && word[k + 1] == '2';
            assert_int_equal(ids.items[at++], pair ? 256 : word[k]);
            k += pair;
        }
        assert_int_equal(ids.count, at);
    }
    data_ids_deinit(&ids);
    data_tokenizer_close(t);
    arena_destroy(a);
}

static int make_folder(void **state)
{
    (void)state;
    return test_scratch(folder) != NULL ? 0 : -1;
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
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_split_equals_pcre2),
        cmocka_unit_test(test_small_vocabularies),
        cmocka_unit_test(test_long_words_equal_short),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_letters),
        cmocka_unit_test(test_two_files_and_their_damage),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_cache_overflow),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
