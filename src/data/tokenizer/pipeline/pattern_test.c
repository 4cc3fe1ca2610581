// Matches of expressions in both syntaxes. The wanted parts are those of Hugging Face tokenizers
// 0.23.3 (Oniguruma) and of the regex crate behind tiktoken 0.14.0 (Rust).
#include "data/tokenizer/pipeline/pattern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct pattern_case {
    const char *expression, *text, *parts; // with `~` between the parts, matches in angle brackets
} pattern_case;

static void check_parts(pattern_syntax syntax, const pattern_case *row)
{
    pattern p = {.literal = NULL};
    pieces list = {0};
    char got[512] = "";
    const int64_t count = (int64_t)strlen(row->text);
    if (pattern_regex(syntax, "file", row->expression, (int64_t)strlen(row->expression), &p) !=
        ST_OK) {
        fail_msg("%s", error_last()->text);
    }
    assert_int_equal(pattern_pieces(&p, row->text, count, &list), ST_OK);
    for (int64_t i = 0; i < list.count; i++) {
        const piece *one = &list.items[i];
        const size_t used = strlen(got);
        (void)snprintf(got + used, sizeof(got) - used, one->is_match ? "%s<%.*s>" : "%s%.*s",
                       i > 0 ? "~" : "", (int)(one->end - one->begin), row->text + one->begin);
    }
    if (strcmp(got, row->parts) != 0) {
        fail_msg("%s: \"%s\", expected \"%s\"", row->expression, got, row->parts);
    }
    pieces_deinit(&list);
    pattern_close(&p);
}

static void test_oniguruma(void **state)
{
    (void)state;
    static const pattern_case rows[] = {
        {"\\w+", "a_1 \u00e9\u0301-b", "<a_1>~ ~<\u00e9\u0301>~-~<b>"},
        {"\\W", "a b", "a~< >~b"},
        {"\\w+", "a\u00b2-", "<a\u00b2>~-"},
        {"[\\w]+|[[:word:]]", "a\u00b2\u00bd-", "<a>~\u00b2\u00bd-"},
        {"[^\\w]", "a\u00bd", "a~<\u00bd>"},
        {"\\p{Word}+", "a\u00b2-", "<a\u00b2>~-"},
        {"\\d", "1\u0663\u00b2", "<1>~<\u0663>~\u00b2"},
        {"\\D+", "1ab2", "1~<ab>~2"},
        {"\\h+", "xFf0g", "x~<Ff0>~g"},
        {"\\p{Lu}\\p{Ll}*", "AbCDe", "<Ab>~<C>~<De>"},
        {"\\p{^Lu}+", "AbcD", "A~<bc>~D"},
        {"\\P{Lu}+", "AbcD", "A~<bc>~D"},
        {"\\p{Lm}|\\p{Lt}", "\u02b0a\u01c5", "<\u02b0>~a~<\u01c5>"},
        {"\\p{uppercase letter}", "aB", "a~<B>"},
        {"\\p{Han}+", "a\u4f60\u597d\u3042", "a~<\u4f60\u597d>~\u3042"},
        {"[\\p{L}&&[^\\p{Han}]]+", "a\u4f60b", "<a>~\u4f60~<b>"},
        {"[[ab][^\\x00-c]]+", "abcd", "<ab>~c~<d>"},
        {"[^(\\s|[.,])]+", "ab.c (d", "<ab>~.~<c>~ (~<d>"},
        {"[[:alnum:]]+|[[:^punct:]]", "a1- b", "<a1>~-~< >~<b>"},
        {"[^\\S\\n]", " \na", "< >~\na"},
        {"\\bb", "ab b", "ab ~<b>"},
        {"\\Bb", "ab b", "a~<b>~ b"},
        {"^a", "a\na", "<a>~\n~<a>"},
        {"^", "a\n", "<>~a\n"},
        {"a$", "a\na", "<a>~\n~<a>"},
        {"\\Aa|a\\z", "aaa", "<a>~a~<a>"},
        {"a\\Z", "aa\n", "a~<a>~\n"},
        {"a{2}+", "aaaaa", "<aaaa>~a"},
        {"a{2}?b", "aab", "<aab>"},
        {"a{2}?c|.", "ac", "<a>~<c>"},
        {"a{1,2}?", "aa", "<a>~<a>"},
        {"a{,2}", "aaa", "<aa>~<a>"},
        {"(?i:[sd])", "S\u017fd", "<S>~<\u017f>~<d>"},
        {"(?i)ab|c", "ABC", "<AB>~<C>"},
        {"\\x41|\\u00e9|\\x{1F600}", "A\u00e9\U0001F600", "<A>~<\u00e9>~<\U0001F600>"},
        {"(?:ab){2}+", "ababa", "<abab>~a"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) check_parts(PATTERN_ONIGURUMA, &rows[i]);
}

static void test_rust(void **state)
{
    (void)state;
    static const pattern_case rows[] = {
        {"\\pL", "a1", "<a>~1"},          {"a{1,3}+a|a", "aaaa", "<aaaa>"},
        {"a{1,3}+b|a", "aaab", "<aaab>"}, {"\\s++$|\\s", " \n b  ", "< >~<\n>~< >~b~<  >"},
        {"^a", "a\na", "<a>~\na"},        {"'(?i:[sdmt]|ll|ve|re)", "a'S'Ll", "a~<'S>~<'Ll>"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) check_parts(PATTERN_RUST, &rows[i]);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"[]", "empty class"},
        {"[a", "without end"},
        {"[a&&b]", "empty set"},
        {"[a-\\d]", "this range"},
        {"[\\d-a]", "a dash between"},
        {"[[[[[[[[[a]]]]]]]]]", "deep a nest of classes"},
        {"[[:abc:]]", "this class"},
        {"(a", "without end"},
        {"a)", "without `(`"},
        {"(?m:a)", "this group"},
        {"a(?i)b", "this group"},
        {"(?i:\\p{L})", "regard to case"},
        {"(?i:[\u00e9])", "regard to case"},
        {"\\p{Emoji}", "this property"},
        {"\\p{", "property without end"},
        {"\\pL", "property without braces"},
        {"\\xff", "this code point"},
        {"\\x{110000}", "this code point"},
        {"\\u12", "this code point"},
        {"\\x{41", "this code point"},
        {"\\1", "this escape"},
        {"\\G", "this escape"},
        {"\\K", "this escape"},
        {"a{}", "this brace"},
        {"{2}", "this brace"},
        {"a{999999999}", "large a count"},
        {"}", "bracket alone"},
        {"*", "cannot be compiled"},
        {"a{70000}", "cannot be compiled"},
        {"[b-a]", "this range"},
        {"", "0 bytes"},
        {"a\\", "backslash at the end"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        pattern p = {.literal = NULL};
        error_clear();
        assert_int_equal(
            pattern_regex(PATTERN_ONIGURUMA, "file", rows[i][0], (int64_t)strlen(rows[i][0]), &p),
            ST_UNSUPPORTED);
        if (strstr(error_last()->text, rows[i][1]) == NULL) {
            fail_msg("%s: \"%s\" lacks \"%s\"", rows[i][0], error_last()->text, rows[i][1]);
        }
        pattern_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oniguruma),
        cmocka_unit_test(test_rust),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
