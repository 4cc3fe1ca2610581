// Tests, as a table, what of an answer counts and when it equals a target: the filters and the
// exact_match of lm-evaluation-harness's GSM8K, and the edges of both.
#include "infer/answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const char *ignored[] = {",", "\\$", "(?s).*#### ", "\\.$"};

// GSM8K's rules: strict, flexible.
static const answer_spec gsm8k = {.what = "gsm8k",
                                  .extract = "#### (\\-?[0-9\\.\\,]+)",
                                  .extract_last = "(-?[$0-9.,]{2,})|(-?[0-9]+)",
                                  .ignore = {.items = ignored, .count = COUNT_OF(ignored)},
                                  .ignore_case = true};

static const struct {
    const char *answer, *target, *first, *last;
    bool is_right, is_right_last;
} rows[] = {
    {"It is 3.\n#### 18", "9 * 2\n#### 18", "18", "18", true, true},
    {"#### 70,000 or so", "#### 70000", "70,000", "70,000", true, true},
    {"#### 5. Then #### 6", "#### 5", "5.", "6", true, false},
    {"the answer is $1,250.", "#### 1250", "[invalid]", "$1,250.", false, true},
    {"#### -7", "#### -7", "-7", "-7", true, true},
    {"no number", "#### 1", "[invalid]", "[invalid]", false, false},
    {"", "#### 1", "[invalid]", "[invalid]", false, false},
    {"7", "#### 7", "[invalid]", "7", false, true},
    {"\xff\xfe 12 \xc3", "#### 12", "[invalid]", "12", false, true},
};

static void gsm8k_rules(void **state)
{
    arena *a = NULL;
    answer_rules *r = NULL;
    (void)state;
    assert_int_equal(arena_create("test", 1 << 20, &a), ST_OK);
    assert_int_equal(answer_rules_open(a, &gsm8k, &r), ST_OK);
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const answer_text answer = {rows[i].answer, (int64_t)strlen(rows[i].answer)};
        const answer_text target = {rows[i].target, (int64_t)strlen(rows[i].target)};
        const char *const wanted[] = {rows[i].first, rows[i].last};
        const bool rights[] = {rows[i].is_right, rows[i].is_right_last};
        for (int part = ANSWER_FIRST; part <= ANSWER_LAST; part++) {
            answer_text found;
            bool is_equal = false;
            assert_int_equal(answer_extract(r, (answer_part)part, answer, &found), ST_OK);
            assert_int_equal(found.count, strlen(wanted[part]));
            assert_memory_equal(found.bytes, wanted[part], (size_t)found.count);
            assert_int_equal(answer_equal(r, a, found, target, &is_equal), ST_OK);
            assert_int_equal(is_equal, rights[part]);
        }
    }
    answer_rules_close(r);
    arena_destroy(a);
}

static bool equal_by(answer_spec spec, const char *a, const char *b)
{
    arena *m = NULL;
    answer_rules *r = NULL;
    bool is_equal = false;
    const answer_text x = {a, (int64_t)strlen(a)}, y = {b, (int64_t)strlen(b)};
    spec.what = "test";
    assert_int_equal(arena_create("test", 1 << 20, &m), ST_OK);
    assert_int_equal(answer_rules_open(m, &spec, &r), ST_OK);
    assert_int_equal(answer_equal(r, m, x, y, &is_equal), ST_OK);
    answer_rules_close(r);
    arena_destroy(m);
    return is_equal;
}

static void what_is_ignored(void **state)
{
    (void)state;
    assert_true(equal_by((answer_spec){.ignore_case = true}, "PARIS \xc3\x89", "paris \xc3\xa9"));
    assert_false(equal_by((answer_spec){.ignore_case = false}, "Paris", "paris"));
    assert_true(equal_by((answer_spec){.ignore_punctuation = true}, "a, b!", "a b"));
    assert_true(equal_by((answer_spec){.ignore_numbers = true}, "v1", "v2"));
    assert_false(equal_by((answer_spec){.ignore_numbers = true}, "v1", "w1"));
    assert_true(equal_by((answer_spec){.what = NULL}, "", ""));
    const char *empty[] = {"x*"}; // matches of no length
    const answer_spec spec = {.ignore = {.items = empty, .count = 1}};
    assert_true(equal_by(spec, "a\xc3\xa9xxb",
                         "a\xc3\xa9"
                         "b"));
}

static void bad_expressions(void **state)
{
    arena *a = NULL;
    answer_rules *r = NULL;
    (void)state;
    assert_int_equal(arena_create("test", 1 << 20, &a), ST_OK);
    assert_int_equal(answer_rules_open(a, &(answer_spec){.what = "t", .extract = "(("}, &r),
                     ST_CONFIG);
    // An expression that would take years ends in an error.
    assert_int_equal(answer_rules_open(a, &(answer_spec){.what = "t", .extract = "(a+)+$"}, &r),
                     ST_OK);
    const char *hard = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab";
    answer_text found;
    assert_int_equal(
        answer_extract(r, ANSWER_FIRST, (answer_text){hard, (int64_t)strlen(hard)}, &found),
        ST_DATA);
    answer_rules_close(r);
    error_clear();
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gsm8k_rules),
        cmocka_unit_test(what_is_ignored),
        cmocka_unit_test(bad_expressions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
