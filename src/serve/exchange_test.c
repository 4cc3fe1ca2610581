// The connection's thread gets an answer as it comes, and a comment where it waits.
#include "serve/exchange.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { SHORT_NS = 1000000 };

static void expect(exchange *x, const char *want)
{
    char got[64];
    const int64_t n = exchange_take(x, SHORT_NS, got, (int64_t)sizeof(got));
    assert_int_equal(n, strlen(want));
    assert_memory_equal(got, want, (size_t)n);
}

// A stream whose first token takes long was closed without one, as a silent connection is.
static void test_a_stream_that_waits_is_not_silent(void **state)
{
    (void)state;
    exchange *x = NULL;
    assert_int_equal(exchange_create(&x), ST_OK);
    exchange_begin(x);
    expect(x, ": waiting\n\n");
    exchange_add(x, "data: 1\n\n", 9);
    expect(x, "data: 1\n\n");
    expect(x, ": waiting\n\n");
    exchange_end(x);
    expect(x, "");
    exchange_drop(x);
}

static void test_a_whole_answer(void **state)
{
    (void)state;
    bool streams = true;
    exchange *x = NULL;
    assert_int_equal(exchange_create(&x), ST_OK);
    exchange_answer(x, 404, "none", 4);
    assert_int_equal(exchange_wait(x, &streams), 404);
    assert_false(streams);
    expect(x, "none");
    expect(x, "");
    exchange_drop(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stream_that_waits_is_not_silent),
        cmocka_unit_test(test_a_whole_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
