// The words about a GPU whose driver tells everything, a part, or next to nothing.
#include "cli/gpu_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const nvml_state all_known = {.clock_mhz = 900,
                                     .clock_most_mhz = 1980,
                                     .memory_clock_mhz = 2600,
                                     .power_mw = 92499,
                                     .power_cap_mw = 700000,
                                     .temperature_c = 41,
                                     .ecc_on = 1,
                                     .ecc_corrected = 3,
                                     .pcie_generation = 5,
                                     .pcie_width = 16,
                                     .pcie_width_most = 16,
                                     .links = 4};

static void check(const nvml_state *s, const char *want)
{
    arena *a;
    assert_int_equal(arena_create("text", 0, &a), ST_OK);
    text got = {.a = a}, wrong = {.a = a};
    bool is_broken = true;
    assert_int_equal(cli_gpu_text(s, &got), ST_OK);
    assert_string_equal(got.bytes, want);
    assert_int_equal(cli_gpu_wrong(s, &wrong, &is_broken), ST_OK);
    assert_int_equal(wrong.length, 0);
    assert_false(is_broken);
    arena_destroy(a);
}

static void test_all_is_known(void **state)
{
    (void)state;
    check(&all_known, "41 C, 92 of 700 W, 900 of 1980 MHz, memory 2600 MHz, PCIe 5 x16, 4 NVLinks, "
                      "ECC on: 3 corrected and 0 uncorrected errors, throttled: no");
}

// A process in a container may see the state of ECC and the power, but not the errors and limits.
static void test_unknown_numbers_are_left_out(void **state)
{
    (void)state;
    nvml_state s = all_known;
    s.power_cap_mw = s.clock_most_mhz = s.memory_clock_mhz = s.pcie_width = -1;
    s.ecc_corrected = s.ecc_uncorrected = s.throttle = -1;
    check(&s, "41 C, 92 W, 900 MHz, 4 NVLinks, ECC on, throttled: not known");
    s.power_mw = -1;
    s.power_cap_mw = 700000;
    check(&s, "41 C, 900 MHz, 4 NVLinks, ECC on, throttled: not known");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_is_known),
        cmocka_unit_test(test_unknown_numbers_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
