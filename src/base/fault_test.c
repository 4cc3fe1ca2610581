// Fault points: which hits fail, counting, bad plans, many threads.
#include "base/fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

// Builds a text of 0 and 1: one digit per hit of "a", 1 where the point failed.
static void pattern(const char *plan, const char *want)
{
    assert_int_equal(fault_arm(plan), ST_OK);
    for (size_t i = 0; i < strlen(want); i++) {
        assert_int_equal(fault_point("a") != ST_OK, want[i] == '1');
    }
    assert_int_equal(fault_arm(NULL), ST_OK);
}

static void plans_pick_hits(void **state)
{
    (void)state;
    pattern(NULL, "0000");
    pattern("", "0000");
    pattern("a=0", "0000");
    pattern("a=1", "1000");
    pattern("a=3", "0010");
    pattern("a=3+", "0011");
    pattern("*=2", "0100");
    pattern("*=2+", "0111");
    pattern("a=1,a=4,b=2", "1001");
    pattern("b=1+", "0000");
}

static void counts(void **state)
{
    (void)state;
    assert_int_equal(fault_point("a"), ST_OK);
    assert_int_equal(fault_hits("a"), 0); // nothing is armed
    assert_int_equal(fault_arm("x=0"), ST_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(fault_point("a"), ST_OK);
    assert_int_equal(fault_point("b"), ST_OK);
    assert_int_equal(fault_hits("a"), 3);
    assert_int_equal(fault_hits("b"), 1);
    assert_int_equal(fault_hits("c"), 0);
    assert_int_equal(fault_hits("*"), 4);
    assert_int_equal(fault_arm(NULL), ST_OK);
    assert_int_equal(fault_hits("*"), 0);
}

static void codes(void **state)
{
    (void)state;
    assert_int_equal(fault_arm("a=1,b=1:DISK_FULL,c=1+:PEER_LOST"), ST_OK);
    assert_int_equal(fault_point("a"), ST_IO);
    assert_string_equal(error_last()->text, "fault point a fails at hit 1, as the fault plan says");
    assert_int_equal(fault_point("b"), ST_DISK_FULL);
    assert_int_equal(fault_point("c"), ST_PEER_LOST);
    assert_int_equal(fault_point("c"), ST_PEER_LOST);
    assert_int_equal(fault_arm(NULL), ST_OK);
}

static void bad_plans_change_nothing(void **state)
{
    (void)state;
    const char *const bad[] = {
        "a",
        "=1",
        "a=",
        "a=x",
        "a=-1",
        "a=1x",
        "a=1+x",
        "a=1:NONSENSE",
        "a=1:OK",
        "a=1,,",
        ",",
        "a=99999999999999999999",
        "0123456789012345678901234567890123456789012345678901234567890123456789=1"};
    assert_int_equal(fault_arm("a=1"), ST_OK);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (fault_arm(bad[i]) != ST_USAGE) fail_msg("\"%s\" was accepted", bad[i]);
    }
    assert_int_equal(fault_point("a"), ST_IO);
    assert_int_equal(fault_arm(NULL), ST_OK);
}

static _Atomic int64_t failures;

static void *hit_many(void *unused)
{
    (void)unused;
    for (int i = 0; i < 5000; i++) {
        if (fault_point("t") != ST_OK) atomic_fetch_add(&failures, 1);
    }
    return NULL;
}

static void counts_are_exact_with_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    assert_int_equal(fault_arm("t=777,t=12345"), ST_OK);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, hit_many, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&failures), 2);
    assert_int_equal(fault_hits("t"), 20000);
    assert_int_equal(fault_arm(NULL), ST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_pick_hits),
        cmocka_unit_test(counts),
        cmocka_unit_test(codes),
        cmocka_unit_test(bad_plans_change_nothing),
        cmocka_unit_test(counts_are_exact_with_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
