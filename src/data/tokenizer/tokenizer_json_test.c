// The general form of a tokenizer.json: ids and texts of the reference library, small files whose
// ids follow from the rules, and hostile files.
#include "base/format/json.h"
#include "data/tokenizer.h"
#include "data/tokenizer/family.h"
#include "data/tokenizer/pipeline/pipeline.h"
#include "fixtures/base/test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[64];

// ---- the reference's cases ----------------------------------------------------------------------

static int64_t different; // of the current file

static void complain(const char *what, const json *line, const data_ids *ids)
{
    if (different++ >= 5) return;
    print_error("%s: \"%s\" (%s):", what, json_text(json_get(line, "text"), ""),
                json_text(json_get(line, "category"), ""));
    for (int64_t i = 0; i < min_i64(ids->count, 60); i++) print_error(" %d", ids->items[i]);
    print_error("\n");
}

static bool ids_equal(const json *wanted, const data_ids *got)
{
    bool equal = json_count(wanted) == got->count;
    for (int64_t i = 0; equal && i < got->count; i++) {
        equal = json_int(json_at(wanted, i), -1) == got->items[i];
    }
    return equal;
}

// By streaming, and whole: both must be the text.
static bool decodes_to(const data_tokenizer *t, const data_ids *ids, int flags, const json *wanted)
{
    data_decoder d = {.pending_count = 0};
    data_bytes got = {0}, whole = {0}, repaired = {0};
    for (int64_t i = 0; i < ids->count; i++) {
        assert_int_equal(data_decoder_next(&d, t, ids->items[i], flags, &got), ST_OK);
    }
    assert_int_equal(data_decoder_end(&d, &got), ST_OK);
    assert_int_equal(data_tokenizer_decode(t, ids->items, ids->count, flags, &whole), ST_OK);
    assert_int_equal(utf8_repair(whole.items, whole.count, &repaired), ST_OK);
    const int64_t bytes = json_text_bytes(wanted);
    const bool equal =
        got.count == bytes && repaired.count == bytes &&
        (bytes == 0 || (memcmp(got.items, json_text(wanted, ""), (size_t)bytes) == 0 &&
                        memcmp(repaired.items, got.items, (size_t)bytes) == 0));
    data_bytes_deinit(&got);
    data_bytes_deinit(&whole);
    data_bytes_deinit(&repaired);
    return equal;
}

static void check_line(data_tokenizer *t, const json *line)
{
    const json *text = json_get(line, "text"), *plain = json_get(line, "ids_plain");
    data_ids ids = {0};
    if (text == NULL) { // only ids to decode
        for (int64_t i = 0; i < json_count(json_get(line, "ids")); i++) {
            const int32_t id = (int32_t)json_int(json_at(json_get(line, "ids"), i), -1);
            assert_int_equal(data_ids_add(&ids, &id, 1), ST_OK);
        }
    } else {
        const char *bytes = json_text(text, "");
        const int64_t count = json_text_bytes(text);
        assert_int_equal(data_tokenizer_encode(t, bytes, count, 0, &ids), ST_OK);
        if (!ids_equal(plain != NULL ? plain : json_get(line, "ids"), &ids)) {
            complain("plain ids", line, &ids);
        }
        ids.count = 0;
        assert_int_equal(data_tokenizer_encode(t, bytes, count, DATA_ENCODE_SPECIAL, &ids), ST_OK);
        if (!ids_equal(json_get(line, "ids"), &ids)) complain("ids", line, &ids);
    }
    if (!decodes_to(t, &ids, 0, json_get(line, "decoded"))) complain("text", line, &ids);
    const json *skip = json_get(line, "decoded_skip");
    if (skip != NULL && !decodes_to(t, &ids, DATA_DECODE_SKIP_SPECIAL, skip)) {
        complain("text without special tokens", line, &ids);
    }
    data_ids_deinit(&ids);
}

static int64_t check_file(arena *a, data_tokenizer *t, const char *path)
{
    char *text = NULL;
    int64_t bytes = 0, lines = 0;
    assert_int_equal(host_read_all(host_real(), a, path, 1 << 26, &text, &bytes), ST_OK);
    for (int64_t at = 0; at < bytes; lines++) {
        const char *newline = memchr(text + at, '\n', (size_t)(bytes - at));
        const int64_t count = newline != NULL ? newline - (text + at) : bytes - at;
        json *line = NULL;
        assert_int_equal(json_parse(text + at, count, path, &line), ST_OK);
        check_line(t, line);
        json_free(line);
        at += count + 1;
    }
    return lines;
}

// The cases of one tokenizer of the reference library.
static void check_golden(const char *name)
{
    char where[128], path[1024], cases[1100];
    file_info info;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    snprintf(where, sizeof(where), "golden/tokenizers/%s", name);
    (void)test_shared(where, path);
    assert_int_equal(host_real()->api->path_info(host_real(), path, &info), ST_OK);
    if (info.kind == FILE_KIND_NONE) {
        printf("skipped: %s is not there\n", path);
        arena_destroy(a); // skip does not return
        skip();
    }
    data_tokenizer *t = NULL;
    if (data_tokenizer_open(host_real(), a, path, &t) != ST_OK) fail_msg("%s", error_last()->text);
    assert_string_equal(data_tokenizer_name(t), "pipeline");
    different = 0;
    snprintf(cases, sizeof(cases), "%s/cases.jsonl", path);
    assert_true(check_file(a, t, cases) > 700);
    snprintf(cases, sizeof(cases), "%s/decode.jsonl", path);
    assert_true(check_file(a, t, cases) > 90);
    if (different > 0) fail_msg("%s: %lld cases differ", name, (long long)different);
    data_tokenizer_close(t);
    arena_destroy(a);
}

static void test_golden_llama3(void **state)
{
    (void)state;
    check_golden("llama3");
}

static void test_golden_qwen2(void **state)
{
    (void)state;
    check_golden("qwen2");
}

static void test_golden_wordpiece(void **state)
{
    (void)state;
    check_golden("wordpiece");
}

static void test_golden_unigram(void **state)
{
    (void)state;
    check_golden("unigram");
}

static void test_golden_llama2(void **state)
{
    (void)state;
    check_golden("llama2");
}

// ---- small files, whose ids follow from the rules -----------------------------------------------

static status open_text(arena *a, const char *text, int64_t bytes, data_tokenizer **out)
{
    char *path = NULL;
    assert_int_equal(path_join(a, folder, "tokenizer.json", &path), ST_OK);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, (size_t)bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
    return data_tokenizer_open(host_real(), a, path, out);
}

typedef struct small {
    const char *normalizer, *splitter, *decoder, *added, *options;
} small;

// The vocabulary of all small files. Merges, in order: a- -a -- ab.
#define VOCAB                                                                               \
    "{\"a\": 0, \"-\": 1, \"a-\": 2, \"-a\": 3, \"--\": 4, \"b\": 5, \"ab\": 6, \"_\": 7, " \
    "\"?\": 8, \"<0xC3>\": 9, \"<0xA9>\": 10, \"\\u00e9\": 11, \"1\": 12, \" \": 13, \"<0x41>\": 14}"
#define MERGES "[\"a -\", \"- a\", [\"-\", \"-\"], \"a b\"]"

static status open_small(arena *a, small s, data_tokenizer **out)
{
    char *all = NULL;
    assert_int_equal(
        arena_format(a, &all,
                     "{\"added_tokens\": [%s], \"normalizer\": %s, \"pre_tokenizer\": %s, "
                     "\"decoder\": %s, \"model\": {\"type\": \"BPE\"%s, \"vocab\": " VOCAB
                     ", \"merges\": " MERGES "}}",
                     s.added != NULL ? s.added : "", s.normalizer != NULL ? s.normalizer : "null",
                     s.splitter != NULL ? s.splitter : "null",
                     s.decoder != NULL ? s.decoder : "{\"type\": \"Fuse\"}",
                     s.options != NULL ? s.options : ""),
        ST_OK);
    return open_text(a, all, (int64_t)strlen(all), out);
}

typedef struct small_case {
    small s;
    const char *text;
    int flags, count;
    int32_t ids[12];
} small_case;

static void check_small(const small_case *rows, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        arena *a = NULL;
        data_tokenizer *t = NULL;
        data_ids ids = {0};
        const small_case *row = &rows[i];
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        if (open_small(a, row->s, &t) != ST_OK) fail_msg("%s", error_last()->text);
        const int64_t bytes = (int64_t)strlen(row->text);
        assert_int_equal(data_tokenizer_encode(t, row->text, bytes, row->flags, &ids), ST_OK);
        bool equal = ids.count == row->count;
        for (int k = 0; equal && k < row->count; k++) equal = ids.items[k] == row->ids[k];
        for (int64_t k = 0; !equal && k < ids.count; k++) print_error("%d ", ids.items[k]);
        if (!equal) fail_msg("case %lld, \"%s\"", (long long)i, row->text);
        data_ids_deinit(&ids);
        data_tokenizer_close(t);
        arena_destroy(a);
    }
}

#define SPLIT(pattern, behaviour, more) \
    "{\"type\": \"Split\", \"pattern\": " pattern ", \"behavior\": \"" behaviour "\"" more "}"
#define DASH "{\"String\": \"-\"}"

static void test_splits(void **state)
{
    (void)state;
    static const char digits[] = "{\"type\": \"Digits\", \"individual_digits\": false}";
    static const char words[] = "{\"type\": \"WhitespaceSplit\"}";
    static const char both[] = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
                               "\"WhitespaceSplit\"}, " SPLIT(DASH, "Isolated", "") "]}";
    static const char marks[] = "{\"type\": \"Metaspace\", \"replacement\": \"_\", "
                                "\"prepend_scheme\": \"always\"}";
    static const char first[] = "{\"type\": \"Metaspace\", \"replacement\": \"_\", "
                                "\"prepend_scheme\": \"first\", \"split\": false}";
    static const char added[] = "{\"id\": 15, \"content\": \"c\", \"normalized\": false}";
    const small_case rows[] = {
        {{.splitter = NULL}, "a-a", 0, 2, {2, 0}},
        {{.splitter = SPLIT(DASH, "Isolated", "")}, "a-a", 0, 3, {0, 1, 0}},
        {{.splitter = SPLIT(DASH, "Removed", "")}, "a-a", 0, 2, {0, 0}},
        {{.splitter = SPLIT(DASH, "MergedWithPrevious", "")}, "-a-a", 0, 3, {1, 2, 0}},
        {{.splitter = SPLIT(DASH, "MergedWithNext", "")}, "a-a-", 0, 3, {0, 3, 1}},
        {{.splitter = SPLIT(DASH, "Isolated", "")}, "a--a", 0, 4, {0, 1, 1, 0}},
        {{.splitter = SPLIT(DASH, "Contiguous", "")}, "a--a", 0, 3, {0, 4, 0}},
        {{.splitter = SPLIT(DASH, "Removed", ", \"invert\": true")}, "a--a", 0, 2, {1, 1}},
        {{.splitter = SPLIT("{\"Regex\": \"-+\"}", "Isolated", "")}, "a--a", 0, 3, {0, 4, 0}},
        {{.splitter = SPLIT("{\"Regex\": \"\\\\p{L}+\"}", "Isolated", "")},
         "ab-a",
         0,
         3,
         {6, 1, 0}},
        {{.splitter = SPLIT("{\"Regex\": \"(?i:A)|[^a\\\\s]\"}", "Isolated", "")},
         "ab",
         0,
         2,
         {0, 5}},
        {{.splitter = SPLIT("{\"Regex\": \"[\\\\p{P}\\\\p{S}]\"}", "Removed", "")},
         "a-b",
         0,
         2,
         {0, 5}},
        {{.splitter = SPLIT("{\"Regex\": \"\\\\p{M}\"}", "Removed", "")}, "a\u0301-", 0, 2, {0, 1}},
        {{.splitter = digits}, "11a", 0, 3, {12, 12, 0}},
        {{.splitter = words}, " a-  a", 0, 2, {2, 0}},
        {{.splitter = both}, "a-a a", 0, 4, {0, 1, 0, 0}},
        {{.splitter = marks}, "a  b", 0, 5, {7, 0, 7, 7, 5}},
        {{.splitter = first, .added = added}, "aca", 0, 4, {7, 0, 15, 0}},
    };
    check_small(rows, COUNT_OF(rows));
}

static void test_normalizers(void **state)
{
    (void)state;
    static const char strip[] =
        "{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": false}";
    static const char prepend[] = "{\"type\": \"Prepend\", \"prepend\": \"_\"}";
    static const char blanks[] = "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \" {2,}\"}, "
                                 "\"content\": \"_\"}";
    static const char sequence[] =
        "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"_\"}, "
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"_\"}]}";
    const small_case rows[] = {
        {{.normalizer = "{\"type\": \"NFC\"}", .options = ", \"unk_token\": \"?\""},
         "e\xcc\x81",
         0,
         1,
         {11}},
        {{.normalizer = "{\"type\": \"NFD\"}", .options = ", \"unk_token\": \"?\""},
         "\xc3\xa9",
         0,
         2,
         {8, 8}},
        {{.normalizer = "{\"type\": \"NFKC\"}"}, "\xc2\xb9", 0, 1, {12}}, // superscript one
        {{.normalizer = strip}, "  a ", 0, 2, {0, 13}},
        {{.normalizer = prepend}, "a", 0, 2, {7, 0}},
        {{.normalizer = blanks}, "a  b a", 0, 5, {0, 7, 5, 13, 0}},
        {{.normalizer = sequence}, "a a", 0, 4, {7, 0, 7, 0}},
    };
    check_small(rows, COUNT_OF(rows));
}

static void test_unknown_characters(void **state)
{
    (void)state;
    const char *some = ", \"unk_token\": \"?\"",
               *fused = ", \"unk_token\": \"?\", \"fuse_unk\": true";
    const char *bytes = ", \"unk_token\": \"?\", \"byte_fallback\": true";
    const small_case rows[] = {
        {{.options = NULL}, "axb", 0, 1, {6}}, // without an unknown token they go away
        {{.options = some}, "axyb", 0, 4, {0, 8, 8, 5}},
        {{.options = fused}, "axyb", 0, 3, {0, 8, 5}},
        {{.options = bytes}, "A", 0, 1, {14}},
        {{.options = bytes}, "a\xc3\x83", 0, 2, {0, 8}}, // the token of 0x83 is missing
        {{.options = bytes}, "xA-", 0, 3, {14, 8, 1}},   // the reference's order
        {{.options = ", \"ignore_merges\": true"}, "a-a", 0, 2, {2, 0}},
    };
    check_small(rows, COUNT_OF(rows));
}

static void test_added_tokens(void **state)
{
    (void)state;
#define TOKEN(id, text, more) "{\"id\": " id ", \"content\": \"" text "\"" more "}"
    static const char normal[] = TOKEN("15", "A B", ", \"normalized\": true");
    static const char replace[] = "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
                                  "\"content\": \"_\"}";
    const int yes = DATA_ENCODE_SPECIAL;
    const small_case rows[] = {
        {{.added = TOKEN("15", "<x>", ", \"special\": true")}, "a<x>b", yes, 3, {0, 15, 5}},
        {{.added = TOKEN("15", "<x>", ", \"special\": true")}, "a<x>b", 0, 1, {6}},
        {{.added = TOKEN("15", "<x>", "")}, "a<x>b", 0, 3, {0, 15, 5}},
        {{.added = TOKEN("15", "<x>", ", \"lstrip\": true")}, "a  <x> b", 0, 4, {0, 15, 13, 5}},
        {{.added = TOKEN("15", "<x>", ", \"rstrip\": true")}, "a <x>  b", 0, 4, {0, 13, 15, 5}},
        {{.added = TOKEN("15", "<x>", "") ", " TOKEN("16", "<x>>", "")}, "<x>>", 0, 1, {16}},
        {{.added = normal, .normalizer = replace}, "aA B", 0, 2, {0, 15}},
        // A special token covers its characters even where it is text.
        {{.added = TOKEN("15", "<x>", ", \"special\": true") ", " TOKEN("16", "x",
                                                                        ", \"normalized\": false")},
         "<x>x",
         0,
         1,
         {16}},
    };
    check_small(rows, COUNT_OF(rows));
}

static void test_decoders(void **state)
{
    (void)state;
    static const char llama[] =
        "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
        "\"_\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": "
        "\"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}";
    const struct {
        const char *decoder;
        int flags, count;
        int32_t ids[6];
        const char *text;
    } rows[] = {
        {llama, 0, 5, {7, 0, 7, 9, 10}, "a \xc3\xa9"},
        {llama, DATA_DECODE_CONTINUES, 2, {7, 0}, " a"},
        {llama,
         0,
         3,
         {9, 14, 0},
         "\xef\xbf\xbd\xef\xbf\xbd"
         "a"}, // C3 41 is no UTF-8
        {llama, 0, 2, {0, 9}, "a\xef\xbf\xbd"},
        {"{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"always\"}",
         0,
         4,
         {7, 0, 7, 5},
         "a b"},
        {"{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"never\"}",
         0,
         2,
         {7, 0},
         " a"},
        {"{\"type\": \"Strip\", \"content\": \"-\", \"start\": 1, \"stop\": 0}",
         0,
         2,
         {4, 3},
         "-a"},
        {"null", 0, 3, {0, 5, 100}, "a b"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        arena *a = NULL;
        data_tokenizer *t = NULL;
        data_bytes got = {0}, streamed = {0};
        data_decoder d = {.pending_count = 0};
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        if (open_small(a, (small){.decoder = rows[i].decoder}, &t) != ST_OK) {
            fail_msg("%s", error_last()->text);
        }
        const int64_t count = rows[i].count, bytes = (int64_t)strlen(rows[i].text);
        assert_int_equal(data_tokenizer_decode(t, rows[i].ids, count, rows[i].flags, &got), ST_OK);
        for (int64_t k = 0; k < count; k++) {
            assert_int_equal(data_decoder_next(&d, t, rows[i].ids[k], rows[i].flags, &streamed),
                             ST_OK);
        }
        assert_int_equal(data_decoder_end(&d, &streamed), ST_OK);
        assert_int_equal(got.count, bytes);
        assert_memory_equal(got.items, rows[i].text, (size_t)bytes);
        assert_int_equal(streamed.count, bytes);
        assert_memory_equal(streamed.items, rows[i].text, (size_t)bytes);
        data_bytes_deinit(&got);
        data_bytes_deinit(&streamed);
        data_tokenizer_close(t);
        arena_destroy(a);
    }
}

// ---- the other models ---------------------------------------------------------------------------

static void check_text(data_tokenizer *t, const char *text, int count, const int32_t *wanted)
{
    data_ids ids = {0};
    assert_int_equal(data_tokenizer_encode(t, text, (int64_t)strlen(text), 0, &ids), ST_OK);
    bool equal = ids.count == count;
    for (int i = 0; equal && i < count; i++) equal = ids.items[i] == wanted[i];
    for (int64_t i = 0; !equal && i < ids.count; i++) print_error("%d ", ids.items[i]);
    if (!equal) fail_msg("\"%s\"", text);
    data_ids_deinit(&ids);
}

static void test_wordpiece(void **state)
{
    (void)state;
    static const char whole[] =
        "{\"normalizer\": {\"type\": \"BertNormalizer\"}, \"pre_tokenizer\": {\"type\": "
        "\"BertPreTokenizer\"}, \"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\", "
        "\"cleanup\": true}, \"model\": {\"type\": \"WordPiece\", \"unk_token\": \"?\", "
        "\"max_input_chars_per_word\": 5, \"vocab\": {\"?\": 0, \"a\": 1, \"##b\": 2, \"##a\": 3, "
        "\"ab\": 4, \",\": 5, \"##ab\": 6, \"\\u4e00\": 7}}}";
    arena *a = NULL;
    data_tokenizer *t = NULL;
    data_bytes text = {0};
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(open_text(a, whole, (int64_t)strlen(whole), &t), ST_OK);
    check_text(t, "ab", 1, (int32_t[]){4});
    check_text(t, "aab", 2, (int32_t[]){1, 6});
    check_text(t, "abz a", 2, (int32_t[]){0, 1}); // no tokens make up the first word
    check_text(t, "aaaaa aaaaaa", 6, (int32_t[]){1, 3, 3, 3, 3, 0});
    check_text(t, "\xc3\x81,b\x07", 3, (int32_t[]){1, 5, 0}); // an accent, a control character
    check_text(t,
               "a\xe4\xb8\x80"
               "a",
               3, (int32_t[]){1, 7, 1});
    assert_int_equal(data_tokenizer_decode(t, (int32_t[]){1, 2, 5, 4}, 4, 0, &text), ST_OK);
    assert_int_equal(text.count, 6);
    assert_memory_equal(text.items, "ab, ab", 6);
    data_bytes_deinit(&text);
    data_tokenizer_close(t);
    arena_destroy(a);
}

static void test_unigram(void **state)
{
    (void)state;
    static const char whole[] =
        "{\"decoder\": null, \"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"byte_fallback\": "
        "true, \"vocab\": [[\"?\", 0], [\"a\", -1.5], [\"ab\", -2], [\"b\", -2.5], [\"bb\", -5.0], "
        "[\"<0x41>\", -3.0]]}}";
    arena *a = NULL;
    data_tokenizer *t = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(open_text(a, whole, (int64_t)strlen(whole), &t), ST_OK);
    check_text(t, "ab", 1, (int32_t[]){2});         // -2, and -4 for a and b
    check_text(t, "aab", 2, (int32_t[]){1, 2});     // -3.5
    check_text(t, "bb", 1, (int32_t[]){4});         // of equal sums the token that begins first
    check_text(t, "axyb", 3, (int32_t[]){1, 0, 3}); // unknown neighbours are one token
    check_text(t, "aA", 2, (int32_t[]){1, 5});
    data_tokenizer_close(t);
    arena_destroy(a);
    static const char *const damage[][2] = {
        {"[[\"a\", 0], [\"a\", -1]]", "two tokens"},
        {"[[\"a\"]]", "no score"},
        {"[[7, 0]]", "has id -1"},
        {"[]", "no vocabulary"},
        {"[[\"a\", 0]]", "`unk_id` 3"},
    };
    for (int64_t i = 0; i < COUNT_OF(damage); i++) {
        char *file_text = NULL;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        assert_int_equal(arena_format(a, &file_text,
                                      "{\"model\": {\"type\": \"Unigram\", \"unk_id\": 3, "
                                      "\"vocab\": %s}}",
                                      damage[i][0]),
                         ST_OK);
        assert_int_equal(open_text(a, file_text, (int64_t)strlen(file_text), &t), ST_DAMAGED);
        if (strstr(error_last()->text, damage[i][1]) == NULL) fail_msg("%s", error_last()->text);
        arena_destroy(a);
    }
}

// A table with one entry: A becomes ab. The tree: unit 0 leads to 1 ^ 'A', whose leaf is at ^ 2.
static void test_precompiled(void **state)
{
    (void)state;
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    enum { UNITS = 0x44, BYTES = 4 + 4 * UNITS + 3 };
    uint8_t table[BYTES + 2] = {0};
    uint32_t units[UNITS] = {0};
    const uint32_t size = sizeof(units);
    char base64[2 * BYTES] = "", step[3 * BYTES];
    units[0] = 1 << 10;
    units[1 ^ 'A'] = 2 << 10 | 1 << 8 | 'A';
    units[1 ^ 'A' ^ 2] = 1u << 31; // the replacement begins at byte 0
    memcpy(table, &size, 4);
    memcpy(table + 4, units, sizeof(units));
    memcpy(table + 4 + sizeof(units), "ab", 3);
    int at = 0;
    for (int i = 0; i < BYTES; i += 3) {
        const uint32_t bits = (uint32_t)(table[i] << 16 | table[i + 1] << 8 | table[i + 2]);
        for (int k = 18; k >= 0; k -= 6) base64[at++] = digits[bits >> k & 63];
    }
    snprintf(step, sizeof(step), "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"%s\"}",
             base64);
    const small_case rows[] = {
        {{.normalizer = step}, "A-b", 0, 3, {6, 1, 5}},
        // With a mark it is one character of three bytes, of which the entry takes all.
        {{.normalizer = step}, "A\xcc\x81-", 0, 2, {6, 1}},
        {{.normalizer = "{\"type\": \"Lowercase\"}"}, "AB", 0, 1, {6}},
        {{.splitter = "{\"type\": \"Whitespace\"}"}, "ab-- a", 0, 3, {6, 4, 0}},
        {{.splitter = "{\"type\": \"Punctuation\"}"}, "a--b", 0, 4, {0, 1, 1, 5}},
        {{.added = TOKEN("15", "c", ", \"single_word\": true")}, "ac c", 0, 3, {0, 13, 15}},
    };
    check_small(rows, COUNT_OF(rows));
    static const char *const damage[][2] = {
        {"", "no size"}, {"!", "base64"}, {"/////w==", "beyond"}};
    for (int64_t i = 0; i < COUNT_OF(damage); i++) {
        snprintf(step, sizeof(step),
                 "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"%s\"}", damage[i][0]);
        arena *a = NULL;
        data_tokenizer *t = NULL;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        assert_int_equal(open_small(a, (small){.normalizer = step}, &t), ST_DAMAGED);
        if (strstr(error_last()->text, damage[i][1]) == NULL) fail_msg("%s", error_last()->text);
        arena_destroy(a);
    }
}

// ---- refusals and hostile files -----------------------------------------------------------------

static void expect_refusal(small s, status wanted, const char *words)
{
    arena *a = NULL;
    data_tokenizer *t = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    error_clear();
    assert_int_equal(open_small(a, s, &t), wanted);
    if (strstr(error_last()->text, words) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", error_last()->text, words);
    }
    arena_destroy(a);
}

static void test_refused_steps(void **state)
{
    (void)state;
    const struct {
        small s;
        status wanted;
        const char *words;
    } rows[] = {
        {{.normalizer = "{}"}, ST_UNSUPPORTED, "`?`"},
        {{.normalizer = "7"}, ST_DAMAGED, "no map"},
        {{.normalizer = "{\"type\": \"Sequence\"}"}, ST_DAMAGED, "no list"},
        {{.normalizer = "{\"type\": \"Prepend\"}"}, ST_DAMAGED, "`prepend`"},
        {{.splitter = SPLIT(DASH, "Other", "")}, ST_UNSUPPORTED, "Other"},
        {{.splitter = SPLIT("{}", "Isolated", "")}, ST_DAMAGED, "neither"},
        {{.decoder = "{\"type\": \"CTC\"}"}, ST_DAMAGED, "`pad_token`"},
        {{.decoder = "{\"type\": \"Other\"}"}, ST_UNSUPPORTED, "Other"},
        {{.added = TOKEN("15", "a", "")}, ST_DAMAGED, "has id 15, but 0"},
        {{.options = ", \"unk_token\": \"<unk>\""}, ST_DAMAGED, "<unk>"},
        {{.options = ", \"dropout\": 0.5"}, ST_UNSUPPORTED, "dropout"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        expect_refusal(rows[i].s, rows[i].wanted, rows[i].words);
    }
}

// A file that is cut at any place is refused; an expression that would try forever ends with an
// error; bytes that are no UTF-8 are replaced.
static void test_hostile(void **state)
{
    (void)state;
    static const char whole[] =
        "{\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": "
        "{\"Regex\": \"(a+)+[bc]\"}, \"behavior\": \"Isolated\"}, \"decoder\": {\"type\": \"Fuse\"}, "
        "\"model\": {\"type\": \"BPE\", \"vocab\": " VOCAB ", \"merges\": " MERGES "}}";
    arena *a = NULL;
    data_tokenizer *t = NULL;
    data_ids ids = {0};
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    for (int64_t bytes = 0; bytes < (int64_t)sizeof(whole) - 1; bytes += 7) {
        assert_int_equal(open_text(a, whole, bytes, &t), ST_DAMAGED);
    }
    assert_int_equal(open_text(a, whole, (int64_t)sizeof(whole) - 1, &t), ST_OK);
    assert_int_equal(data_tokenizer_encode(t, "aab\xff-\xc3", 6, 0, &ids), ST_OK);
    assert_int_equal(ids.count, 3); // a ab -
    char text[64];
    memset(text, 'a', sizeof(text));
    assert_int_equal(data_tokenizer_encode(t, text, sizeof(text), 0, &ids), ST_DATA);
    assert_non_null(strstr(error_last()->text, "regular expression"));
    data_ids_deinit(&ids);
    data_tokenizer_close(t);
    arena_destroy(a);
}

// Many marks in a row sort in n log n; a word of a hundred thousand characters merges in as much.
static void test_long_texts(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    arena *a = NULL;
    data_tokenizer *t = NULL;
    data_ids ids = {0};
    char *text = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(arena_new(a, 2 * COUNT, &text), ST_OK);
    assert_int_equal(open_small(a, (small){.normalizer = "{\"type\": \"NFC\"}"}, &t), ST_OK);
    for (int64_t i = 0; i < COUNT; i++)
        memcpy(text + 2 * i, i % 2 == 0 ? "\xcc\x81" : "\xcc\xa3", 2);
    assert_int_equal(data_tokenizer_encode(t, text, 2 * COUNT, 0, &ids), ST_OK);
    assert_int_equal(ids.count, 0);
    for (int64_t i = 0; i < COUNT; i++) memcpy(text + 2 * i, "a-", 2);
    assert_int_equal(data_tokenizer_encode(t, text, 2 * COUNT, 0, &ids), ST_OK);
    assert_int_equal(ids.count, COUNT);
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
        cmocka_unit_test(test_golden_llama3),  cmocka_unit_test(test_golden_qwen2),
        cmocka_unit_test(test_golden_llama2),  cmocka_unit_test(test_golden_wordpiece),
        cmocka_unit_test(test_golden_unigram), cmocka_unit_test(test_splits),
        cmocka_unit_test(test_normalizers),    cmocka_unit_test(test_unknown_characters),
        cmocka_unit_test(test_added_tokens),   cmocka_unit_test(test_decoders),
        cmocka_unit_test(test_wordpiece),      cmocka_unit_test(test_unigram),
        cmocka_unit_test(test_precompiled),    cmocka_unit_test(test_refused_steps),
        cmocka_unit_test(test_hostile),        cmocka_unit_test(test_long_texts),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
