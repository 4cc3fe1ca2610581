// Windows that differ in one quantity, the formula by hand, damaged files.
#include "serve/drift.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int setup(void **state)
{
    arena *a = NULL;
    if (arena_create("test", 0, &a) != ST_OK) return -1;
    *state = a;
    return 0;
}

static int teardown(void **state)
{
    arena_destroy(*state);
    return 0;
}

static drift_window window_of(int64_t answers, int64_t first, double nats, const char *said)
{
    drift_window w = {0};
    for (int64_t i = 0; i < answers; i++) {
        const int64_t tokens = first + i * 37 % 101;
        const drift_answer a = {tokens, tokens, nats + 0.01 * (double)(i % 50), said,
                                (int64_t)strlen(said)};
        drift_add(&w, &a);
    }
    return w;
}

static void the_same_is_no_drift(void **state)
{
    (void)state;
    const drift_window w = window_of(400, 1, 1.0, "yes"), v = window_of(150, 1, 1.0, "yes");
    for (int of = 0; of < DRIFT_COUNT; of++) assert_true(drift_index(&v, &w, (drift_of)of) < 0.1);
}

static void each_quantity_is_seen(void **state)
{
    (void)state;
    const drift_window w = window_of(400, 1, 1.0, "yes");
    const drift_window longer = window_of(200, 900, 1.0, "yes");
    const drift_window unlikely = window_of(200, 1, 5.0, "yes");
    const drift_window refusing = window_of(200, 1, 1.0, "I\xE2\x80\x99m sorry, but no.");
    assert_true(drift_index(&longer, &w, DRIFT_PROMPT_TOKENS) > drift_alert);
    assert_true(drift_index(&longer, &w, DRIFT_ANSWER_TOKENS) > drift_alert);
    assert_true(drift_index(&longer, &w, DRIFT_NATS) < drift_alert);
    assert_true(drift_index(&unlikely, &w, DRIFT_NATS) > drift_alert);
    assert_true(drift_index(&unlikely, &w, DRIFT_PROMPT_TOKENS) < drift_alert);
    assert_true(drift_index(&refusing, &w, DRIFT_REFUSALS) > drift_alert);
    assert_true(drift_index(&refusing, &w, DRIFT_NATS) < drift_alert);
}

static void the_index_is_the_formula(void **state)
{
    (void)state;
    drift_window w = {.answers = 400}, v = {.answers = 200};
    w.counts[DRIFT_REFUSALS][0] = 300;
    w.counts[DRIFT_REFUSALS][1] = 100;
    v.counts[DRIFT_REFUSALS][0] = 180;
    v.counts[DRIFT_REFUSALS][1] = 20;
    const double p = 20.5 / 201, q = 100.5 / 401;
    const double sum = (p - q) * log(p / q) + (q - p) * log((1 - p) / (1 - q));
    const double got = drift_index(&v, &w, DRIFT_REFUSALS);
    assert_true(fabs(got - (sum - 1.0 / 200 - 1.0 / 400)) < 1e-12);
}

static void refusals(void **state)
{
    (void)state;
    static const char *const yes[] = {"I cannot do that.", "Well, I CAN'T help with this",
                                      "As an AI, no"};
    static const char *const no[] = {"Certainly.", "", "You cannot divide by zero"};
    for (int64_t i = 0; i < COUNT_OF(yes); i++) {
        assert_true(drift_is_refusal(yes[i], (int64_t)strlen(yes[i])));
        assert_false(drift_is_refusal(no[i], (int64_t)strlen(no[i])));
    }
    assert_true(drift_is_refusal("\0I cannot", 9));
}

static void a_file_is_read_as_it_was_written(void **state)
{
    const drift_window w = window_of(77, 1, 1.0, "I cannot");
    drift_window back;
    text t = {.a = *state};
    assert_int_equal(drift_text(&w, &t), ST_OK);
    assert_int_equal(drift_read(t.bytes, t.length, "file", &back), ST_OK);
    assert_memory_equal(&w, &back, sizeof(w));
}

// A file that is cut is refused; one with another digit too, unless its sums still agree.
static void hostile_files(void **state)
{
    const drift_window w = window_of(30, 1, 1.0, "yes");
    drift_window back;
    text t = {.a = *state};
    char *changed = NULL;
    assert_int_equal(drift_text(&w, &t), ST_OK);
    assert_int_equal(arena_new(*state, t.length, &changed), ST_OK);
    for (int64_t i = 0; i < t.length; i++) {
        memcpy(changed, t.bytes, (size_t)t.length);
        changed[i] = changed[i] == '7' ? '8' : '7';
        status st = drift_read(changed, t.length, "file", &back);
        assert_true(st == ST_OK || st == ST_DAMAGED);
        st = drift_read(t.bytes, i, "file", &back);
        assert_true(st == ST_DAMAGED || i == t.length - 1); // without the last line end
        error_clear();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_is_no_drift),
        cmocka_unit_test(each_quantity_is_seen),
        cmocka_unit_test(the_index_is_the_formula),
        cmocka_unit_test(refusals),
        cmocka_unit_test_setup_teardown(a_file_is_read_as_it_was_written, setup, teardown),
        cmocka_unit_test_setup_teardown(hostile_files, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
