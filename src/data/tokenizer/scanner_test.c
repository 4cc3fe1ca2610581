// The scanners against a regular expression engine on random text: equal words, whole and from
// every byte where a word begins.
#include "data/tokenizer/blocks.h"
#include "data/tokenizer/pipeline/pattern.h"
#include "data/tokenizer/scanner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t random_state = 12345;

static uint32_t random_below(uint32_t limit)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(random_state >> 8) * limit >> 24);
}

// Characters that decide between the alternatives, and any others.
static const char *const parts[] = {"a",
                                    "b",
                                    "Z",
                                    "Q",
                                    "the",
                                    "camelCase",
                                    "ABC",
                                    " ",
                                    "  ",
                                    "\n",
                                    "\r",
                                    "\t",
                                    "\u00a0",
                                    "\u3000",
                                    "\xc2\x85",
                                    "1",
                                    "23",
                                    "4567",
                                    "\u00bd",
                                    "\u0663",
                                    "'",
                                    "'s",
                                    "'S",
                                    "'ll",
                                    "'Re",
                                    "'\u017f",
                                    "'\u212a",
                                    "\u00e9",
                                    "e\u0301",
                                    "\u0301",
                                    "\u02b0",
                                    "\u00aa",
                                    "\u01c5",
                                    "\u4f60",
                                    "\u3042",
                                    ".",
                                    "-",
                                    "/",
                                    "//",
                                    "\u2014",
                                    "_",
                                    "\u0e01\u0e34",
                                    "\U0001f600",
                                    "\u200d",
                                    "\U000e0100",
                                    "\U00020000",
                                    "\u0410\u0431",
                                    "\U0010ffff",
                                    "\u2028",
                                    "lettersmorethansixteen"};

static int64_t random_text(char *out, int64_t capacity, uint32_t most, int ascii)
{
    int64_t n = 0;
    for (uint32_t i = random_below(most); i > 0; i--) {
        const char *part = parts[random_below(COUNT_OF(parts))];
        if ((uint8_t)part[0] >= 0x80 && random_below(100) < (uint32_t)ascii) continue;
        const int64_t bytes = (int64_t)strlen(part);
        if (n + bytes > capacity) break;
        memcpy(out + n, part, (size_t)bytes);
        n += bytes;
    }
    return n;
}

// Words of blocks are those of the scanner, from wherever one begins.
static void compare_block(const scanner *s, blocks_fn blocks, const uint8_t *text, int64_t count,
                          int64_t at)
{
    int64_t end = at;
    for (uint64_t starts = blocks(s, text + at); starts != 0; starts &= starts - 1) {
        const int64_t want = s->next(s, text, count, end), begin = end;
        end = at + __builtin_ctzll(starts);
        if (end == want) continue;
        fail_msg("\"%.*s\": a word of %lld bytes at %lld, expected %lld", BLOCK_READS,
                 (const char *)text + at, (long long)(end - begin), (long long)(begin - at),
                 (long long)(want - begin));
    }
}

static void compare_blocks(const scanner *s, int64_t texts)
{
    const blocks_fn blocks = blocks_for(s);
    for (int64_t k = 0; k < texts && blocks != NULL; k++) {
        char text[512];
        const int64_t count = random_text(text, sizeof(text), 200, k % 2 == 0 ? 100 : 90);
        for (int64_t at = 0; at + BLOCK_READS <= count;) {
            compare_block(s, blocks, (const uint8_t *)text, count, at);
            at = s->next(s, (const uint8_t *)text, count, at);
        }
    }
}

static void compare(const scanner *s, const pattern *p, int64_t texts)
{
    pieces list = {0};
    for (int64_t k = 0; k < texts; k++) {
        char text[1024];
        const int64_t count = random_text(text, sizeof(text), 40, 0);
        int64_t at = 0;
        assert_int_equal(pattern_pieces(p, text, count, &list), ST_OK);
        for (int64_t i = 0; i < list.count; i++) {
            assert_true(list.items[i].is_match);
            const int64_t end = s->next(s, (const uint8_t *)text, count, at);
            if (end != list.items[i].end) {
                fail_msg("\"%.*s\": a word of %lld bytes at %lld, expected %lld", (int)count, text,
                         (long long)(end - at), (long long)at, (long long)(list.items[i].end - at));
            }
            at = end;
        }
        assert_int_equal(at, count);
    }
    pieces_deinit(&list);
}

static void test_random_text(void **state)
{
    (void)state;
    uint8_t *classes = malloc(SPLIT_CLASS_POINTS), *cases = malloc(SPLIT_CLASS_POINTS);
    assert_true(classes != NULL && cases != NULL);
    split_classes_fill(classes);
    scanner_classes_fill(cases);
    const char *expression = NULL;
    for (int64_t i = 0; (expression = scanner_expression(i)) != NULL; i++) {
        const int64_t bytes = (int64_t)strlen(expression);
        // Possessive signs and `$` mean the same in both syntaxes here but for counts.
        const bool is_rust = strstr(expression, "++") != NULL;
        scanner s;
        pattern p;
        assert_true(scanner_find(expression, bytes, &s));
        s.classes = s.has_cases ? cases : classes;
        if (pattern_regex(is_rust ? PATTERN_RUST : PATTERN_ONIGURUMA, "scanner", expression, bytes,
                          &p) != ST_OK) {
            fail_msg("%s", error_last()->text);
        }
        compare(&s, &p, 6000);
        compare_blocks(&s, 4000);
        pattern_close(&p);
    }
    free(classes);
    free(cases);
}

static void test_unknown(void **state)
{
    (void)state;
    scanner s;
    assert_false(scanner_find("\\p{L}+", 6, &s));
    assert_false(scanner_find("", 0, &s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_text),
        cmocka_unit_test(test_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
