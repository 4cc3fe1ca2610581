// Stop texts against a simple reference: the whole text, searched at its end.
#include "infer/continuation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct bench {
    arena *a;
    data_tokenizer *bytes;
} bench;

static void check(status st)
{
    if (st != ST_OK) printf("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
}

static int setup(void **state)
{
    static bench b;
    check(arena_create("test", 0, &b.a));
    check(data_tokenizer_open(host_real(), b.a, "bytes", &b.bytes));
    *state = &b;
    return 0;
}

static int teardown(void **state)
{
    const bench *b = *state;
    data_tokenizer_close(b->bytes);
    arena_destroy(b->a);
    return 0;
}

// Adds the bytes one by one, like the worst possible tokenizer. Text that was shown must never
// change.
static void bytes_push(const bench *b, infer_continuation *c, const char *bytes, int64_t count)
{
    char shown[256] = {0};
    int64_t shown_count = 0;
    for (int64_t i = 0; i < count && !c->stopped; i++) {
        check(infer_continuation_add(c, b->bytes, (unsigned char)bytes[i]));
        assert_true(c->certain >= shown_count && c->certain <= c->text.count);
        assert_memory_equal(c->text.items, shown, (size_t)shown_count);
        assert_true(c->certain < (int64_t)sizeof(shown));
        shown_count = c->certain;
        if (shown_count > 0) memcpy(shown, c->text.items, (size_t)shown_count);
    }
    check(infer_continuation_end(c));
    assert_int_equal(c->certain, c->text.count);
    assert_memory_equal(c->text.items, shown, (size_t)shown_count);
}

static void expect(const bench *b, const char *const *stops, int64_t count, const char *text,
                   const char *expected, bool stopped)
{
    infer_continuation c = {.stops = stops, .stop_count = count};
    bytes_push(b, &c, text, (int64_t)strlen(text));
    assert_int_equal(c.text.count, strlen(expected));
    assert_memory_equal(c.text.items, expected, strlen(expected));
    assert_int_equal(c.stopped, stopped);
    infer_continuation_deinit(&c);
}

static void test_examples(void **state)
{
    const bench *b = *state;
    const char *const one[] = {"\n\n"}, *const two[] = {"abc", "bc"}, *const self[] = {"aab"};
    const char *const wide[] = {"\xc3\xa9!"};
    expect(b, one, 1, "a\nb\n\nc", "a\nb", true);
    expect(b, one, 1, "a\n", "a\n", false);
    expect(b, two, 2, "xabcd", "x", true);
    expect(b, two, 2, "xbcd", "x", true);
    expect(b, self, 1, "aaab", "a", true);
    expect(b, wide, 1, "caf\xc3\xa9\xc3\xa9!", "caf\xc3\xa9", true);
    expect(b, NULL, 0, "z\xe2\x82", "z\xef\xbf\xbd", false); // incomplete at the end
    expect(b, NULL, 0, "\xe2\x82\xac", "\xe2\x82\xac", false);
}

static uint64_t random_next(uint64_t *state)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return *state >> 33;
}

static void test_against_search(void **state)
{
    const bench *b = *state;
    uint64_t seed = 3;
    for (int round = 0; round < 3000; round++) {
        char text[40] = {0}, stop[2][6] = {{0}};
        const char *const stops[] = {stop[0], stop[1]};
        const int64_t length = (int64_t)(random_next(&seed) % 38);
        for (int64_t i = 0; i < length; i++) text[i] = (char)('a' + random_next(&seed) % 2);
        for (int s = 0; s < 2; s++) {
            const int64_t n = 1 + (int64_t)(random_next(&seed) % 5);
            for (int64_t i = 0; i < n; i++) stop[s][i] = (char)('a' + random_next(&seed) % 2);
        }
        // The first stop text to end is found first; the cut is at the earliest beginning of one at
        // that point.
        int64_t end = length, begin = length;
        bool met = false;
        for (int64_t n = 1; n <= length && !met; n++) {
            for (int s = 0; s < 2; s++) {
                const int64_t m = (int64_t)strlen(stop[s]);
                if (n < m || memcmp(text + n - m, stop[s], (size_t)m) != 0) continue;
                met = true;
                end = n;
                begin = min_i64(begin, n - m);
            }
        }
        assert_true(begin <= end);
        char expected[40] = {0};
        memcpy(expected, text, (size_t)begin);
        expect(b, stops, 2, text, expected, met);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_against_search),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
