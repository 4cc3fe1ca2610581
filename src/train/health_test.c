// Trends of a GPU's health: what is found, when, and that it is found once.
#include "train/health.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const nvml_state well = {.ecc_corrected = 5, .ecc_uncorrected = 2, .throttle = 0x4};

static void errors_count_from_the_first_look(void **state)
{
    (void)state;
    health h = {0};
    nvml_state s = well;
    assert_int_equal(health_see(&h, &s), 0); // those of earlier runs
    s.ecc_corrected = 5 + HEALTH_CORRECTED - 1;
    assert_int_equal(health_see(&h, &s), 0);
    s.ecc_corrected++;
    assert_int_equal(health_see(&h, &s), 1u << HEALTH_TREND);
    assert_int_equal(health_see(&h, &s), 0); // once
    s.ecc_uncorrected++;
    assert_int_equal(health_see(&h, &s), 1u << HEALTH_UNCORRECTED);
}

// A driver that does not tell its counts at first tells those of earlier runs later.
static void counts_that_come_late_are_of_earlier_runs(void **state)
{
    (void)state;
    health h = {0};
    nvml_state s = well;
    s.ecc_corrected = s.ecc_uncorrected = -1;
    assert_int_equal(health_see(&h, &s), 0);
    s.ecc_corrected = 1000;
    s.ecc_uncorrected = 2;
    assert_int_equal(health_see(&h, &s), 0);
    s.ecc_uncorrected = -1;
    assert_int_equal(health_see(&h, &s), 0);
    s.ecc_uncorrected = 3;
    s.ecc_corrected = 1000 + HEALTH_CORRECTED;
    assert_int_equal(health_see(&h, &s), 1u << HEALTH_UNCORRECTED | 1u << HEALTH_TREND);
}

static void rows_are_found_at_once(void **state)
{
    (void)state;
    health h = {0};
    nvml_state s = well;
    s.rows_pending = 1;
    assert_int_equal(health_see(&h, &s), 1u << HEALTH_ROWS);
    s.rows_failed = 1;
    assert_int_equal(health_see(&h, &s), 0);
}

static void throttling_must_last(void **state)
{
    (void)state;
    health h = {0};
    nvml_state hot = well;
    hot.throttle = 0x40;
    for (int i = 1; i < HEALTH_LOOKS; i++) assert_int_equal(health_see(&h, &hot), 0);
    assert_int_equal(health_see(&h, &well), 0); // a power cap is the owner's
    for (int i = 1; i < HEALTH_LOOKS; i++) assert_int_equal(health_see(&h, &hot), 0);
    assert_int_equal(health_see(&h, &hot), 1u << HEALTH_THROTTLED);
}

static void what_is_not_known_is_no_finding(void **state)
{
    (void)state;
    health h = {0};
    const nvml_state unknown = {.ecc_corrected = -1,
                                .ecc_uncorrected = -1,
                                .rows_pending = -1,
                                .rows_failed = -1,
                                .throttle = -1};
    for (int i = 0; i < 2 * HEALTH_LOOKS; i++) assert_int_equal(health_see(&h, &unknown), 0);
}

static void a_machine_has_the_same_trends(void **state)
{
    (void)state;
    health h = {0};
    host_errors e = {.memory_corrected = 7, .memory_uncorrected = -1, .throttled = 50, .links = 9};
    assert_int_equal(health_see_machine(&h, &e), 0);
    e.links += HEALTH_CORRECTED - 1;
    assert_int_equal(health_see_machine(&h, &e), 0);
    e.links++;
    e.memory_corrected += HEALTH_CORRECTED;
    assert_int_equal(health_see_machine(&h, &e), 1u << HEALTH_LINKS | 1u << HEALTH_TREND);
    assert_int_equal(health_see_machine(&h, &e), 0); // once
    for (int i = 1; i < HEALTH_LOOKS; i++) {
        e.throttled++;
        assert_int_equal(health_see_machine(&h, &e), 0);
    }
    e.throttled++;
    assert_int_equal(health_see_machine(&h, &e), 1u << HEALTH_THROTTLED);
    const host_errors none = {-1, -1, -1, -1};
    h = (health){0};
    for (int i = 0; i < 2 * HEALTH_LOOKS; i++) assert_int_equal(health_see_machine(&h, &none), 0);
}

static void a_cause_says_what_is_failing(void **state)
{
    (void)state;
    char all[HEALTH_PARTS * HEALTH_FINDINGS][HEALTH_CAUSE_BYTES];
    for (int i = 0; i < HEALTH_PARTS * HEALTH_FINDINGS; i++) {
        health_cause((health_part)(i / HEALTH_FINDINGS), (health_finding)(i % HEALTH_FINDINGS),
                     all[i]);
        for (int k = 0; k < i; k++) assert_string_not_equal(all[i], all[k]);
    }
    assert_string_equal(all[HEALTH_TREND], "GPU: corrected memory errors");
    assert_string_equal(all[HEALTH_FINDINGS + HEALTH_TREND], "machine: corrected memory errors");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_count_from_the_first_look),
        cmocka_unit_test(counts_that_come_late_are_of_earlier_runs),
        cmocka_unit_test(rows_are_found_at_once),
        cmocka_unit_test(throttling_must_last),
        cmocka_unit_test(a_machine_has_the_same_trends),
        cmocka_unit_test(a_cause_says_what_is_failing),
        cmocka_unit_test(what_is_not_known_is_no_finding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
