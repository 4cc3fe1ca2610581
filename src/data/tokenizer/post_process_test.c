// Post-processors and the rarer steps of a tokenizer.json: bytes as characters, affixes of BPE,
// decoders. The wanted answers are those of Hugging Face tokenizers 0.23.3.
#include "data/tokenizer/family.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

typedef struct form {
    const char *normalizer, *splitter, *processor, *decoder, *options, *merges, *limits;
} form;

#define VOCAB                                                                                       \
    "{\"?\": 0, \"a\": 1, \"b\": 2, \"ab\": 3, \"##b\": 4, \"##a\": 5, \"a##\": 6, \"\u2581\": 7, " \
    "\"\u0120\": 8, \"\u00c3\": 9, \"\u00a9\": 10, \"\u00c3\u00a9\": 11, \"<pad>\": 12, "           \
    "\"|\": 13, \"b</w>\": 14, \"a</w>\": 15, \"[A]\": 16, \"[B]\": 17, \"\u00e9\": 18, "           \
    "\"##ab\": 19, \"\u0120a\": 20}"
#define MERGES "[[\"a\", \"b\"], [\"\u00c3\", \"\u00a9\"], [\"\u0120\", \"a\"]]"
#define BYTES  "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}"

static const char *or_null(const char *text)
{
    return text != NULL ? text : "null";
}

static status open_form(arena *a, form f, data_tokenizer **out)
{
    char *all = NULL;
    assert_int_equal(
        arena_format(a, &all,
                     "{%s \"normalizer\": %s, \"pre_tokenizer\": %s, \"post_processor\": %s, "
                     "\"decoder\": %s, \"model\": {\"type\": \"BPE\", \"unk_token\": \"?\"%s, "
                     "\"vocab\": " VOCAB ", \"merges\": %s}}",
                     f.limits != NULL ? f.limits : "", or_null(f.normalizer), or_null(f.splitter),
                     or_null(f.processor), or_null(f.decoder), f.options != NULL ? f.options : "",
                     f.merges != NULL ? f.merges : MERGES),
        ST_OK);
    return data_tokenizer_open_text(a, "file", all, (int64_t)strlen(all), out);
}

typedef struct answer {
    form f;
    const char *text;
    int flags, count;
    int32_t ids[12];
} answer;

static void check_answer(const answer *row)
{
    arena *a = NULL;
    data_tokenizer *t = NULL, *copy = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    if (open_form(a, row->f, &t) != ST_OK) fail_msg("%s", error_last()->text);
    assert_int_equal(data_tokenizer_clone(t, a, &copy), ST_OK);
    for (int k = 0; k < 2; k++) {
        data_ids ids = {0};
        data_tokenizer *which = k == 0 ? t : copy;
        const int64_t bytes = (int64_t)strlen(row->text);
        assert_int_equal(data_tokenizer_encode(which, row->text, bytes, row->flags, &ids), ST_OK);
        assert_int_equal(ids.count, row->count);
        assert_memory_equal(ids.items, row->ids, (size_t)row->count * 4);
        data_ids_deinit(&ids);
    }
    data_tokenizer_close(copy);
    data_tokenizer_close(t);
    arena_destroy(a);
}

#define PREFIX ", \"continuing_subword_prefix\": \"##\""

static void test_encoding(void **state)
{
    (void)state;
    static const char joined[] = "[[\"a\", \"##b\"]]";
    static const char letters[] = "{\"type\": \"Sequence\", \"pretokenizers\": [" BYTES
                                  ", {\"type\": \"FixedLength\", \"length\": 1}]}";
    static const answer rows[] = {
        {{.options = PREFIX, .merges = joined}, "abab", 0, 3, {3, 5, 4}},
        {{.options = PREFIX, .merges = joined}, "b", 0, 1, {2}},
        {{.splitter = BYTES}, "\u00e9 a", 0, 2, {11, 20}},
        {{.normalizer = "{\"type\": \"ByteLevel\"}"}, "ab \u00e9", 0, 3, {3, 8, 11}},
        {{.splitter = letters}, "ab \u00e9", 0, 5, {1, 2, 8, 9, 10}},
        {{.splitter = "{\"type\": \"FixedLength\", \"length\": 2}"},
         "aabab",
         0,
         5,
         {1, 1, 2, 1, 2}},
        {{.splitter = "{\"type\": \"UnicodeScripts\"}"}, "  a", 0, 1, {1}},
        {{.splitter = "{\"type\": \"UnicodeScripts\"}"}, " ", 0, 0, {0}},
        {{.splitter = "{\"type\": \"UnicodeScripts\"}"}, "a b", 0, 3, {1, 0, 2}},
        {{.splitter = "{\"type\": \"UnicodeScripts\"}", .options = ", \"fuse_unk\": true"},
         "a\u044f bab\u30fc\u754c",
         0,
         5,
         {1, 0, 2, 3, 0}},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) check_answer(&rows[i]);
}

// ---- post-processors ----------------------------------------------------------------------------

#define BERT        "{\"type\": \"BertProcessing\", \"sep\": [\"[B]\", 17], \"cls\": [\"[A]\", 16]}"
#define ROBERTA     "{\"type\": \"RobertaProcessing\", \"sep\": [\"[B]\", 17], \"cls\": [\"[A]\", 16]}"
#define TEXT(name)  "{\"Sequence\": {\"id\": \"" name "\", \"type_id\": 0}}"
#define TOKEN(name) "{\"SpecialToken\": {\"id\": \"" name "\", \"type_id\": 0}}"
#define TEMPLATE(single)                                                               \
    "{\"type\": \"TemplateProcessing\", \"single\": [" single                          \
    "], \"pair\": [" TEXT("A") ", " TOKEN("[B]") ", " TEXT(                            \
        "B") "], \"special_tokens\": {\"[A]\": {\"id\": \"[A]\", \"ids\": [16, 17]}, " \
             "\"[B]\": {\"id\": \"[B]\", \"ids\": [17]}}}"
#define SEQUENCE(steps) "{\"type\": \"Sequence\", \"processors\": [" steps "]}"
#define ENDS            TEMPLATE(TEXT("A") ", " TOKEN("[B]"))

static void test_processors(void **state)
{
    (void)state;
    static const char twice[] = TEMPLATE(TOKEN("[A]") ", " TEXT("A") ", " TEXT("A"));
    static const answer rows[] = {
        {{.processor = BERT}, "ab", DATA_ENCODE_ADD, 3, {16, 3, 17}},
        {{.processor = BERT}, "ab", 0, 1, {3}},
        {{.processor = BERT}, "", DATA_ENCODE_ADD, 2, {16, 17}},
        {{.processor = ROBERTA}, "ab", DATA_ENCODE_ADD, 3, {16, 3, 17}},
        {{.processor = BYTES}, "ab", DATA_ENCODE_ADD, 1, {3}},
        {{.processor = twice}, "ab", DATA_ENCODE_ADD, 4, {16, 17, 3, 3}},
        {{.processor = twice}, "ab", 0, 2, {3, 3}},
        {{.processor = SEQUENCE(ENDS ", " ROBERTA)},
         "ab",
         DATA_ENCODE_ADD,
         6,
         {16, 3, 17, 17, 17, 17}},
        {{.processor = SEQUENCE(ENDS ", " BYTES ", " ENDS)}, "ab", DATA_ENCODE_ADD, 3, {3, 17, 17}},
        {{.processor = SEQUENCE(SEQUENCE(BERT))}, "ab", DATA_ENCODE_ADD, 3, {16, 3, 17}},
        {{.processor = SEQUENCE("")}, "ab", DATA_ENCODE_ADD, 1, {3}},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) check_answer(&rows[i]);
}

// ---- truncation and padding ---------------------------------------------------------------------

#define CUT(more)  "\"truncation\": {" more "\"stride\": 0}, "
#define FILL(more) "\"padding\": {" more "\"pad_id\": 12}, "
#define FIXED      "\"strategy\": {\"Fixed\": 6}, "
#define LEFT       "\"direction\": \"Left\", "
#define MULTIPLE   "\"pad_to_multiple_of\": 4, "

static void test_limits(void **state)
{
    (void)state;
    enum { ADD = DATA_ENCODE_ADD, CUTS = DATA_ENCODE_TRUNCATE, FILLS = DATA_ENCODE_PAD };
    static const answer rows[] = {
        {{.limits = CUT("\"max_length\": 4, ")}, "babbaa", 0, 5, {2, 3, 2, 1, 1}},
        {{.limits = CUT("\"max_length\": 4, ")}, "babbaa", CUTS, 4, {2, 3, 2, 1}},
        {{.limits = CUT("\"max_length\": 4, ")}, "babbaa", CUTS | ADD, 4, {16, 2, 3, 17}},
        {{.limits = CUT(LEFT "\"max_length\": 4, ")}, "babbaa", CUTS, 4, {3, 2, 1, 1}},
        {{.limits = CUT(LEFT "\"max_length\": 4, ")}, "babbaa", CUTS | ADD, 4, {16, 1, 1, 17}},
        {{.limits = CUT("\"max_length\": 2, ")}, "babbaa", CUTS | ADD, 2, {16, 17}},
        {{.limits = FILL(FIXED)}, "babbaa", 0, 5, {2, 3, 2, 1, 1}},
        {{.limits = FILL(FIXED)}, "babbaa", FILLS, 6, {2, 3, 2, 1, 1, 12}},
        {{.limits = FILL(FIXED)}, "babbaa", FILLS | ADD, 7, {16, 2, 3, 2, 1, 1, 17}},
        {{.limits = FILL(FIXED LEFT)}, "babbaa", FILLS, 6, {12, 2, 3, 2, 1, 1}},
        {{.limits = CUT("\"max_length\": 3, ") FILL(FIXED MULTIPLE)},
         "babbaa",
         CUTS | FILLS | ADD,
         8,
         {16, 2, 17, 12, 12, 12, 12, 12}},
        {{.limits = CUT("\"max_length\": 2, ") FILL(LEFT MULTIPLE)},
         "babbaa",
         CUTS | FILLS | ADD,
         4,
         {12, 12, 16, 17}},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        answer row = rows[i];
        row.f.processor = BERT;
        check_answer(&row);
    }
}

static void test_refused_limits(void **state)
{
    (void)state;
    static const struct {
        const char *limits, *words;
        bool opens;
    } rows[] = {
        {CUT("\"max_length\": -1, "), "`max_length`", false},
        {CUT("\"strategy\": \"Any\", "), "\"Any\"", false},
        {CUT("\"direction\": \"Up\", "), "\"Up\"", false},
        {FILL("\"strategy\": {\"Fixed\": 1e30}, "), "`Fixed`", false},
        {FILL("\"strategy\": \"Any\", "), "\"Any\"", false},
        {CUT("\"max_length\": 1, "), "no place", true},
        {CUT("\"max_length\": 3, \"strategy\": \"OnlySecond\", "), "second", true},
        {"\"truncation\": {\"max_length\": 3, \"stride\": 2}, ", "stride", true},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        arena *a = NULL;
        data_tokenizer *t = NULL;
        data_ids ids = {0};
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        error_clear();
        const status st = open_form(a, (form){.limits = rows[i].limits, .processor = BERT}, &t);
        assert_int_equal(st == ST_OK, rows[i].opens);
        if (st == ST_OK) {
            const int flags = DATA_ENCODE_ADD | DATA_ENCODE_TRUNCATE;
            assert_int_equal(data_tokenizer_encode(t, "babbaa", 6, flags, &ids), ST_DATA);
            assert_non_null(data_tokenizer_unapplied(t, 0));
            assert_null(data_tokenizer_unapplied(t, DATA_ENCODE_TRUNCATE));
        }
        if (strstr(error_last()->text, rows[i].words) == NULL) {
            fail_msg("\"%s\" lacks \"%s\"", error_last()->text, rows[i].words);
        }
        data_ids_deinit(&ids);
        data_tokenizer_close(t);
        arena_destroy(a);
    }
}

static void test_refused(void **state)
{
    (void)state;
    char deep[2048] = "", many[4096] = "{\"type\": \"Sequence\", \"processors\": [" BERT;
    for (int i = 0; i < 20; i++) strcat(deep, "{\"type\": \"Sequence\", \"processors\": [");
    strcat(deep, BERT);
    for (int i = 0; i < 20; i++) strcat(deep, "]}");
    // Each step doubles the texts.
    for (int i = 0; i < 3; i++)
        strcat(many, ", " TEMPLATE(TEXT("A") ", " TEXT("A") ", " TEXT("A")));
    strcat(many, "]}");
    const struct {
        const char *processor, *words;
        status wanted;
    } rows[] = {
        {"{\"type\": \"Other\"}", "`Other`", ST_UNSUPPORTED},
        {"7", "`?`", ST_UNSUPPORTED},
        {"{\"type\": \"BertProcessing\", \"sep\": [\"[B]\", 17]}", "without an id", ST_DAMAGED},
        {"{\"type\": \"BertProcessing\", \"sep\": [\"\", 17], \"cls\": [\"\", 1e9]}", "beyond",
         ST_DAMAGED},
        {TEMPLATE(TOKEN("[C]")), "[C]", ST_DAMAGED},
        {TEMPLATE(TEXT("B")), "neither", ST_DAMAGED},
        {TEMPLATE("7"), "neither", ST_DAMAGED},
        {"{\"type\": \"TemplateProcessing\"}", "without its parts", ST_DAMAGED},
        {"{\"type\": \"Sequence\"}", "without `processors`", ST_DAMAGED},
        {deep, "too deep", ST_DAMAGED},
        {many, "more than two texts", ST_UNSUPPORTED},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        arena *a = NULL;
        data_tokenizer *t = NULL;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        error_clear();
        assert_int_equal(open_form(a, (form){.processor = rows[i].processor}, &t), rows[i].wanted);
        if (strstr(error_last()->text, rows[i].words) == NULL) fail_msg("%s", error_last()->text);
        arena_destroy(a);
    }
}

// ---- decoders -----------------------------------------------------------------------------------

#define DECODERS(steps) "{\"type\": \"Sequence\", \"decoders\": [" steps "]}"
#define FUSE            "{\"type\": \"Fuse\"}"
#define SUFFIX          "{\"type\": \"BPEDecoder\", \"suffix\": \"</w>\"}"
#define STRIP(letter) \
    "{\"type\": \"Strip\", \"content\": \"" letter "\", \"start\": 0, \"stop\": 1}"
#define CTC(cleanup)                                                                  \
    "{\"type\": \"CTC\", \"pad_token\": \"<pad>\", \"word_delimiter_token\": \"|\", " \
    "\"cleanup\": " cleanup "}"
#define METASPACE \
    "{\"type\": \"Metaspace\", \"replacement\": \"\u2581\", \"prepend_scheme\": \"always\"}"

static void test_decoders(void **state)
{
    (void)state;
    static const struct {
        const char *decoder;
        int32_t ids[8];
        int count;
        const char *text;
    } rows[] = {
        {SUFFIX, {1, 14, 15, 14}, 4, "ab a b"},
        {CTC("true"), {1, 1, 12, 1, 13, 13, 2, 2}, 8, "aa b"},
        {CTC("false"), {1, 12, 12, 13, 2}, 5, "a|b"},
        {BYTES, {9, 10, 20, 18}, 4, "\u00e9 a\ufffd"},
        {DECODERS(BYTES ", " STRIP("a")), {9, 10, 1, 1}, 4, "\u00e9a"},
        {DECODERS(STRIP("b")), {3, 3}, 2, "aa"},
        {DECODERS(
             FUSE
             ", {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a+b\"}, \"content\": \"-\"}"),
         {1, 1, 3, 2},
         4,
         "-b"},
        {DECODERS(FUSE ", " METASPACE), {7, 1, 7, 2}, 4, "ab"},
        {DECODERS(
             SUFFIX
             ", " FUSE
             ", {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"_\"}"),
         {14, 15, 14},
         3,
         "b_a_b"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        arena *a = NULL;
        data_tokenizer *t = NULL;
        data_bytes got = {0};
        data_decoder d = {.pending_count = 0};
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        if (open_form(a, (form){.decoder = rows[i].decoder}, &t) != ST_OK) {
            fail_msg("%s", error_last()->text);
        }
        for (int k = 0; k < rows[i].count; k++) {
            assert_int_equal(data_decoder_next(&d, t, rows[i].ids[k], 0, &got), ST_OK);
        }
        assert_int_equal(data_decoder_end(&d, &got), ST_OK);
        assert_int_equal(got.count, strlen(rows[i].text));
        assert_memory_equal(got.items, rows[i].text, (size_t)got.count);
        data_bytes_deinit(&got);
        data_tokenizer_close(t);
        arena_destroy(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encoding), cmocka_unit_test(test_processors),
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_refused_limits),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_decoders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
