// Text: numbers for people, strict parsing with round trips, suggestions, UTF-8.
#include "base/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void texts_grow(void **state)
{
    (void)state;
    text t = {0};
    assert_int_equal(arena_create("test", 0, &t.a), ST_OK);
    for (int i = 0; i < 3000; i++) assert_int_equal(text_add(&t, "%d,", i % 10), ST_OK);
    assert_int_equal(t.length, 6000);
    assert_int_equal(strlen(t.bytes), 6000);
    assert_int_equal(text_add_bytes(&t, "a\0b", 3), ST_OK);
    assert_int_equal(t.length, 6003);
    assert_memory_equal(t.bytes + 5998, "9,a\0b", 6);
    assert_int_equal(text_add_bytes(&t, NULL, 0), ST_OK);
    arena_destroy(t.a);
}

static void json_is_escaped(void **state)
{
    (void)state;
    const char *const cases[][2] = {
        {"", "\"\""},
        {"plain", "\"plain\""},
        {"a\"b\\c\n\t\r", "\"a\\\"b\\\\c\\n\\t\\r\""},
        {"\x01\x1f\x7f", "\"\\u0001\\u001f\\u007f\""},
        {"h\xC3\xA9 \xF0\x9F\x98\x80", "\"h\xC3\xA9 \xF0\x9F\x98\x80\""},
        {"\xFFx\xC3", "\"\xEF\xBF\xBDx\xEF\xBF\xBD\""},
        {"\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
    };
    arena *a;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        text t = {.a = a};
        assert_int_equal(text_add_json(&t, cases[i][0]), ST_OK);
        assert_string_equal(t.bytes, cases[i][1]);
    }
    arena_destroy(a);
}

static void sizes_for_people(void **state)
{
    (void)state;
    char b[32];
    assert_string_equal(text_bytes_human(0, b), "0 B");
    assert_string_equal(text_bytes_human(37, b), "37 B");
    assert_string_equal(text_bytes_human(1023, b), "1023 B");
    assert_string_equal(text_bytes_human(1024, b), "1.00 KiB");
    assert_string_equal(text_bytes_human(INT64_C(1342177280), b), "1.25 GiB");
    assert_string_equal(text_bytes_human(10 << 20, b), "10.0 MiB");
    assert_string_equal(text_bytes_human((1 << 30) - 1, b), "1.00 GiB");
    assert_string_equal(text_bytes_human(INT64_MAX, b), "8.00 EiB");
    assert_string_equal(text_bytes_human(-2048, b), "-2.00 KiB");
    assert_string_equal(text_count_human(950, b), "950");
    assert_string_equal(text_count_human(41234, b), "41.2k");
    assert_string_equal(text_count_human(3.1e6, b), "3.1M");
    assert_string_equal(text_count_human(999.7, b), "1.0k");
    assert_string_equal(text_count_human(999960, b), "1.0M");
    assert_string_equal(text_count_human(0.25, b), "0.25");
    assert_string_equal(text_duration_human(12.4, b), "12.4s");
    assert_string_equal(text_duration_human(3 * 3600 + 31 * 60 + 10, b), "3h31m");
    assert_string_equal(text_duration_human(245, b), "4m05s");
    assert_string_equal(text_duration_human(59.96, b), "1m00s");
    assert_string_equal(text_duration_human(3599.7, b), "1h00m");
    assert_string_equal(text_duration_human(2 * 86400 + 3 * 3600, b), "2d03h");
    assert_string_equal(text_duration_human(0.0124, b), "12.4ms");
    assert_string_equal(text_duration_human(3e-6, b), "3.00us");
    assert_string_equal(text_duration_human((double)INFINITY, b), "?");
    assert_true(strlen(text_duration_human(1e300, b)) < 32);
    assert_true(strlen(text_count_human(-1.7e308, b)) < 32);
}

static void suggestions(void **state)
{
    (void)state;
    const char *const words[] = {"optimizer.lr",  "train.steps", "train.seq_len",
                                 "model.dropout", "LR",          "lr"};
    const int64_t n = COUNT_OF(words);
    assert_string_equal(text_nearest("train.step", words, n), "train.steps");
    assert_string_equal(text_nearest("train.setps", words, n),
                        "train.steps"); // two letters swapped
    assert_string_equal(text_nearest("Train.Steps", words, n), "train.steps");
    assert_string_equal(text_nearest("optimiser.lr", words, n), "optimizer.lr");
    assert_string_equal(text_nearest("lr", words, n), "lr"); // the case decides
    assert_string_equal(text_nearest("LR", words, n), "LR");
    assert_string_equal(text_nearest("Optim", words, n), "optimizer.lr");
    assert_string_equal(text_nearest("train", words, n), "train.steps");
    assert_null(text_nearest("mo", words, n)); // too short a beginning
    assert_null(text_nearest("completely.different", words, n));
    assert_null(text_nearest("x", words, n));
    assert_null(text_nearest("", words, n));
    assert_null(text_nearest("lr", words, 0));
    char longest[200];
    memset(longest, 'a', sizeof(longest));
    longest[199] = '\0';
    assert_null(text_nearest(longest, words, n));
}

static void integers_good(void **state)
{
    (void)state;
    const struct {
        const char *in;
        int64_t out;
    } cases[] = {
        {"0", 0},
        {"-0", 0},
        {"+7", 7},
        {"007", 7},
        {"4194304", 4194304},
        {"4_194_304", 4194304},
        {"4e6", 4000000},
        {"4E+6", 4000000},
        {"1.5e3", 1500},
        {"15e-1k", 1500},
        {"2.50k", 2500},
        {"0.5KiB", 512},
        {"1k", 1000},
        {"3M", 3000000},
        {"2G", 2000000000},
        {"1K", 1000},
        {"1B", 1000000000},
        {"1.5B", 1500000000},
        {"1KiB", 1024},
        {"4MiB", 4194304},
        {"1GiB", 1073741824},
        {"0e999", 0},
        {"1000e-3", 1},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
    };
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        int64_t out = 42;
        if (!text_parse_i64(cases[i].in, &out) || out != cases[i].out) {
            fail_msg("\"%s\" gives %lld", cases[i].in, (long long)out);
        }
    }
}

static void integers_bad(void **state)
{
    (void)state;
    const char *const cases[] = {"",
                                 " 1",
                                 "1 ",
                                 "-",
                                 "+",
                                 "--1",
                                 "1.5",
                                 "1e",
                                 "1e-1",
                                 "_1",
                                 "1_",
                                 "1__0",
                                 "1_k",
                                 "0x10",
                                 "1kk",
                                 "1kib",
                                 "1,000",
                                 "1.",
                                 ".e3",
                                 "1e9999",
                                 "1e19",
                                 "10e18",
                                 "nan",
                                 "inf",
                                 "1e 3",
                                 "1.2.3",
                                 "9223372036854775808",
                                 "-9223372036854775809",
                                 "9e18k",
                                 "99999999999999999999",
                                 "1\n",
                                 "\xD9\xA1",
                                 "1e0x"};
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        int64_t out = 42;
        if (text_parse_i64(cases[i], &out) || out != 42) fail_msg("\"%s\" was taken", cases[i]);
    }
}

static void reals(void **state)
{
    (void)state;
    const char *const good[] = {"0", "3e-4", ".5", "5.", "-1.25E+3", "+1", "1e308", "1e-320"};
    const char *const bad[] = {"",   "inf", "nan", "-inf", "1e400", "0x1p3", " 1",  "1 ",
                               "1e", ".",   "--1", "1,5",  "1d3",   "e5",    "1_0", "infinity"};
    for (int64_t i = 0; i < COUNT_OF(good); i++) {
        double out = 42;
        assert_true(text_parse_f64(good[i], &out));
        assert_true(out == strtod(good[i], NULL));
    }
    for (int64_t i = 0; i < COUNT_OF(bad); i++) {
        double out = 42;
        if (text_parse_f64(bad[i], &out)) fail_msg("\"%s\" was taken", bad[i]);
    }
}

// Compares with a decoder that follows the definition: all sequences of up to three bytes of an
// alphabet that holds every boundary value.
static bool dull_utf8(const unsigned char *s, int n)
{
    for (int i = 0; i < n;) {
        const int length = s[i] < 0x80       ? 1
                           : s[i] >> 5 == 6  ? 2
                           : s[i] >> 4 == 14 ? 3
                           : s[i] >> 3 == 30 ? 4
                                             : 0;
        if (length == 0 || i + length > n) return false;
        uint32_t c = length == 1 ? s[i] : s[i] & (0x7fU >> length);
        for (int k = 1; k < length; k++) {
            if (s[i + k] >> 6 != 2) return false;
            c = c << 6 | (s[i + k] & 0x3fU);
        }
        static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        if (c < least[length] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return false;
        i += length;
    }
    return true;
}

static void utf8_meets_definition(void **state)
{
    (void)state;
    static const unsigned char alphabet[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                             0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE,
                                             0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
    const int n = (int)COUNT_OF(alphabet);
    int valid = 0;
    for (int code = 0; code < n * n * n * n; code++) {
        const unsigned char s[4] = {alphabet[code % n], alphabet[code / n % n],
                                    alphabet[code / n / n % n], alphabet[code / n / n / n]};
        for (int length = 1; length <= 4; length++) {
            const bool want = dull_utf8(s, length);
            valid += want;
            assert_int_equal(text_is_utf8((const char *)s, length), want);
        }
    }
    assert_true(valid > 1000);
    assert_true(text_is_utf8(NULL, 0));
}

static void counts_and_plurals(void **state)
{
    (void)state;
    char buffer[32];
    assert_string_equal(text_grouped(0, buffer), "0");
    assert_string_equal(text_grouped(999, buffer), "999");
    assert_string_equal(text_grouped(-123456, buffer), "-123,456");
    assert_string_equal(text_grouped(INT64_MIN, buffer), "-9,223,372,036,854,775,808");
    assert_string_equal(text_plural(1, "es"), "");
    assert_string_equal(text_plural(0, "es"), "es");
}

static void names_are_found_as_people_write_them(void **state)
{
    (void)state;
    static const char *const names[] = {"llama3.1-8b", "llama3-8b", "h100", "a_b", "a-b"};
    const struct {
        const char *word;
        int64_t found;
    } cases[] = {{"llama3.1-8b", 0}, {"Llama-3.1-8B", 0}, {"LLAMA3_8B", 1}, {"H100", 2}, {"a-b", 4},
                 {"A-B", -1},        {"llama318b", -1},   {"h", -1},        {"", -1}};
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(text_find_name(cases[i].word, names, COUNT_OF(names)), cases[i].found);
    }
}

static void nearest_few_and_quotes(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2-1.5b", "gpt2-124m", "gpt3-175b", "tiny", "opt-175b"};
    arena *a;
    const char *quoted = NULL;
    assert_int_equal(arena_create("names", 0, &a), ST_OK);
    text t = {.a = a};
    assert_int_equal(text_add_nearest(&t, "gpt2", names, COUNT_OF(names)), ST_OK);
    assert_string_equal(t.bytes, "; did you mean gpt2-1.5b, gpt2-124m or tiny?");
    t.length = 0;
    assert_int_equal(text_add_nearest(&t, "tinny", names + 3, 1), ST_OK);
    assert_string_equal(t.bytes, "; did you mean tiny?");
    t.length = 0;
    assert_int_equal(text_add_nearest(&t, "x", names, 0), ST_OK);
    assert_int_equal(t.length, 0);
    const char *const words[][2] = {{"runs/a=1", "runs/a=1"},
                                    {"my runs/a", "'my runs/a'"},
                                    {"it's", "'it'\\''s'"},
                                    {"~x", "'~x'"},
                                    {"", "''"},
                                    {"a*.txt", "'a*.txt'"}};
    for (int64_t i = 0; i < COUNT_OF(words); i++) {
        assert_int_equal(text_quote(a, words[i][0], &quoted), ST_OK);
        assert_string_equal(quoted, words[i][1]);
    }
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_as_people_write_them),
        cmocka_unit_test(nearest_few_and_quotes),
        cmocka_unit_test(counts_and_plurals),
        cmocka_unit_test(texts_grow),
        cmocka_unit_test(json_is_escaped),
        cmocka_unit_test(sizes_for_people),
        cmocka_unit_test(suggestions),
        cmocka_unit_test(integers_good),
        cmocka_unit_test(integers_bad),
        cmocka_unit_test(reals),
        cmocka_unit_test(utf8_meets_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
