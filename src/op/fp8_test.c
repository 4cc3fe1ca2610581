// Rounding to 8 bits against the casts of base/types.h, and the factors of blocks.
#include "op/fp8.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static float widened(uint8_t code, fp8_format format)
{
    return format == FP8_E4M3 ? f32_from_f8e4m3(code) : f32_from_f8e5m2(code);
}

static uint8_t narrowed(float x, fp8_format format)
{
    return format == FP8_E4M3 ? f8e4m3_from_f32(x, ROUND_NEAREST_EVEN, OVERFLOW_SATURATE, 0)
                              : f8e5m2_from_f32(x, ROUND_NEAREST_EVEN, OVERFLOW_SATURATE, 0);
}

static void check_nearest(uint32_t bits, fp8_format format)
{
    const float x = fp8_float_of(bits), got = fp8_nearest(x, format);
    if (!isfinite(x)) {
        assert_true(isnan(got) && isnan(widened(fp8_code(got, format), format)));
        return;
    }
    const uint8_t want = narrowed(x, format);
    if (fp8_bits_of(got) != fp8_bits_of(widened(want, format)) || fp8_code(got, format) != want) {
        fail_msg("0x%08x: code 0x%x, expected 0x%x", bits, fp8_code(got, format), want);
    }
}

// All numbers of 8 bits, the points halfway between neighbours, and what lies next to those.
static void codes_and_halves(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        const fp8_format format = (fp8_format)f;
        for (uint32_t i = 0; i < 256; i++) {
            const float x = widened((uint8_t)i, format);
            check_nearest(fp8_bits_of(x), format);
            if (!isfinite(x)) continue;
            assert_true(fp8_bits_of(fp8_nearest(x, format)) == fp8_bits_of(x));
            assert_int_equal(fp8_code(x, format), i);
            const float next = widened((uint8_t)(i + 1), format);
            const uint32_t half = fp8_bits_of(isfinite(next) ? (x + next) / 2 : x);
            for (uint32_t d = 0; d < 5; d++) check_nearest(half + d - 2, format);
        }
    }
}

static void every_high_half(void **state)
{
    static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        for (int k = 0; k < COUNT_OF(low); k++) {
            check_nearest(i << 16 | low[k], FP8_E4M3);
            check_nearest(i << 16 | low[k], FP8_E5M2);
        }
    }
}

// The factor brings the largest magnitude to the upper half, and never beyond the largest number.
static void factors(void **state)
{
    (void)state;
    for (uint32_t i = 1; i < 0x7f80; i++) {
        const float most = fp8_float_of(i << 16);
        for (int f = 0; f < 2; f++) {
            const double top = f == FP8_E4M3 ? 448.0 : 57344.0;
            const int k = fp8_exponent(most, (fp8_format)f, FP8_EXPONENT_MOST);
            const double scaled = ldexp((double)most, k);
            assert_true(scaled <= top);
            assert_true(scaled > top / 2 || k == FP8_EXPONENT_MOST);
            assert_true((double)fp8_power(k) == ldexp(1.0, k));
        }
    }
    assert_int_equal(fp8_exponent(0.0f, FP8_E4M3, 100), 0);
    assert_int_equal(fp8_exponent(INFINITY, FP8_E4M3, 100), 0);
    assert_int_equal(fp8_exponent(-NAN, FP8_E4M3, 100), 0);
    assert_int_equal(fp8_exponent(-448.0f, FP8_E4M3, 100), 0);
}

// A rounded number is one of bf16, so a product of such numbers as bf16 loses nothing.
static void numbers_of_bf16(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x7f80; i++) {
        const float x = fp8_float_of(i << 16);
        for (int away = 0; away < 12; away++) {
            const float most = ldexpf(x, away);
            if (most >= 0x1p127f) continue; // such a number may become an infinity
            const int k = fp8_exponent(most, FP8_E4M3, FP8_EXPONENT_MOST);
            const float got = fp8_rounded(x, k, FP8_E4M3);
            assert_true(f32_from_bf16(bf16_from_f32(got)) == got);
            assert_true((double)fabsf(got - x) <=
                        fmax((double)x / 16, ldexp(1.0, -10 - k))); // half of a last place
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_and_halves),
        cmocka_unit_test(every_high_half),
        cmocka_unit_test(factors),
        cmocka_unit_test(numbers_of_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
