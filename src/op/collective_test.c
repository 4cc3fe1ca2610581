// Every operation and reduction has a unique name, and an operation is found by its name.
#include "op/collective.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_operations_are_read_back(void **state)
{
    (void)state;
    for (int i = 0; i < COLLECTIVE_COUNT; i++) {
        op_collective op = COLLECTIVE_COUNT;
        assert_true(op_collective_parse(op_collective_name((op_collective)i), &op));
        assert_int_equal(op, i);
    }
}

static void test_unknown_names_and_numbers(void **state)
{
    (void)state;
    op_collective op = COLLECTIVE_BARRIER;
    assert_false(op_collective_parse("", &op));
    assert_false(op_collective_parse("all_reduces", &op));
    assert_int_equal(op, COLLECTIVE_BARRIER);
    assert_string_equal(op_collective_name(COLLECTIVE_COUNT), "?");
    assert_string_equal(op_reduction_name(REDUCTION_COUNT), "?");
}

static void test_reductions_differ(void **state)
{
    (void)state;
    for (int i = 0; i < REDUCTION_COUNT; i++) {
        assert_string_not_equal(op_reduction_name((op_reduction)i), "?");
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(op_reduction_name((op_reduction)i),
                                    op_reduction_name((op_reduction)k));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations_are_read_back),
        cmocka_unit_test(test_unknown_names_and_numbers),
        cmocka_unit_test(test_reductions_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
