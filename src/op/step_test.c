// Exact sums against sums that cannot round, and the decision against trajectories by hand.
#include "op/step.h"

#include "base/rng.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const double infinity = (double)INFINITY, nan_value = (double)NAN;

static double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static double sum_of(const double *x, int64_t n)
{
    exact_sum s;
    exact_zero(&s);
    for (int64_t i = 0; i < n; i++) exact_add(&s, x[i]);
    return exact_value(&s);
}

static uint64_t word64(uint64_t stream, uint64_t i)
{
    return (uint64_t)rng_word(7, stream, 2 * i) << 32 | rng_word(7, stream, 2 * i + 1);
}

// Any finite double; all exponents are equally likely.
static double any_double(uint64_t stream, uint64_t i)
{
    const double x = double_of(word64(stream, i));
    return isfinite(x) ? x : 1.0;
}

static void assert_same(double got, double expected)
{
    if (memcmp(&got, &expected, sizeof(got)) != 0) print_error("%a, expected %a\n", got, expected);
    assert_memory_equal(&got, &expected, sizeof(got));
}

static void test_one_value(void **state)
{
    (void)state;
    const double special[] = {0.0,        1.0,    -1.0,    DBL_MIN,  0x1p-1074,
                              -0x1p-1074, 1e-310, DBL_MAX, -DBL_MAX, 0x1.fffffffffffffp-1022,
                              3.0,        0x1p52};
    for (int64_t i = 0; i < COUNT_OF(special); i++) assert_same(sum_of(&special[i], 1), special[i]);
    for (uint64_t i = 0; i < 20000; i++) {
        const double x = any_double(1, i);
        assert_same(sum_of(&x, 1), x == 0.0 ? 0.0 : x);
    }
}

// Two addends: the processor's sum is the correctly rounded one.
static void test_two_values(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        double x[2] = {any_double(2, i), any_double(3, i)};
        if (i % 2 == 0) { // of like size, where rounding matters
            x[1] = ldexp(x[0], (int)(rng_word(7, 4, i) % 60)) * (1.0 + 1e-9 * (double)(i % 97));
            if (!isfinite(x[1])) x[1] = 3.0;
        }
        if (rng_word(7, 5, i) % 2 == 0) x[1] = -x[1];
        const double expected = x[0] + x[1];
        if (isfinite(expected)) {
            assert_same(sum_of(x, 2), expected == 0.0 ? 0.0 : expected);
        } else {
            assert_same(sum_of(x, 2), expected); // beyond the range: infinite with its sign
        }
    }
}

// Many addends within 60 bits of one another: a sum of 128-bit integers is exact, and its rounding
// to nearest even is done by hand.
__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

static double round_integer(uint128 v, int exponent)
{
    int bits = 0;
    for (int i = 0; i < 128; i++) {
        if ((v >> i & 1) != 0) bits = i + 1;
    }
    const int cut = bits > 53 ? bits - 53 : 0;
    uint128 head = v >> cut;
    if (cut > 0) {
        const uint128 rest = v & (((uint128)1 << cut) - 1), half = (uint128)1 << (cut - 1);
        if (rest > half || (rest == half && (head & 1) != 0)) head++;
    }
    return ldexp((double)(uint64_t)head, cut + exponent);
}

static void test_many_values(void **state)
{
    (void)state;
    enum { N = 300 };
    double x[N];
    for (uint64_t trial = 0; trial < 300; trial++) {
        const int base = (int)(rng_word(7, 6, trial) % 1800) - 1000;
        int128 total = 0;
        for (uint64_t i = 0; i < N; i++) {
            const uint64_t w = word64(7, trial * N + i);
            const int shift = (int)(w % 60);
            const int64_t mantissa = (int64_t)(w >> 11) * ((w >> 8 & 1) != 0 ? 1 : -1);
            x[i] = ldexp((double)mantissa, base + shift);
            total += (int128)mantissa * ((int128)1 << shift);
        }
        const bool negative = total < 0;
        const double magnitude = round_integer((uint128)(negative ? -total : total), base);
        assert_same(sum_of(x, N), negative ? -magnitude : magnitude);
    }
}

static void test_ties(void **state)
{
    (void)state;
    const double up[] = {0x1.0000000000001p0, 0x1p-53}; // odd + half: up to even
    const double down[] = {1.0, 0x1p-53};               // even + half: stays
    const double sticky[] = {1.0, 0x1p-53, 0x1p-1074};  // a hair more than half: up
    const double carry[] = {0x1.fffffffffffffp0, 0x1p-53};
    const double over[] = {DBL_MAX, 0x1p970};  // a tie beyond the range
    const double under[] = {DBL_MAX, 0x1p969}; // a quarter: stays
    assert_same(sum_of(up, 2), 0x1.0000000000002p0);
    assert_same(sum_of(down, 2), 1.0);
    assert_same(sum_of(sticky, 3), 0x1.0000000000001p0);
    assert_same(sum_of(carry, 2), 2.0);
    assert_true(isinf(sum_of(over, 2)));
    assert_same(sum_of(under, 2), DBL_MAX);
}

static void test_cancellation(void **state)
{
    (void)state;
    const double x[] = {1e308, 1.0, -1e308, 1e-300, -1.0, 1e308, 1e308, -1e308, -1e308};
    assert_same(sum_of(x, COUNT_OF(x)), 1e-300);
    const double zero[] = {1e308, -3.5, 3.5, -1e308};
    assert_same(sum_of(zero, 4), 0.0);
}

// The words themselves are equal for every order and every tree of merges.
static void test_permutations(void **state)
{
    (void)state;
    enum { N = 500 };
    exact_sum forward, shuffled, parts[7], merged;
    exact_zero(&forward);
    exact_zero(&shuffled);
    exact_zero(&merged);
    for (int k = 0; k < 7; k++) exact_zero(&parts[k]);
    for (int64_t i = 0; i < N; i++) {
        exact_add(&forward, any_double(8, (uint64_t)i));
        exact_add(&shuffled, any_double(8, (uint64_t)rng_permute(1, 2, N, i)));
        exact_add(&parts[rng_word(7, 9, (uint64_t)i) % 7], any_double(8, (uint64_t)i));
    }
    for (int k = 6; k >= 0; k--) exact_merge(&merged, &parts[k]);
    assert_memory_equal(&forward, &shuffled, sizeof(forward));
    assert_memory_equal(&forward, &merged, sizeof(forward));
    assert_same(exact_value(&forward), exact_value(&merged));
}

static void test_not_finite(void **state)
{
    (void)state;
    const double infinite[] = {1.0, infinity}, nan[] = {nan_value, 1.0};
    assert_true(isnan(sum_of(infinite, 2)));
    assert_true(isnan(sum_of(nan, 2)));
    exact_sum a, b;
    exact_zero(&a);
    exact_zero(&b);
    exact_add(&b, -infinity);
    exact_merge(&a, &b);
    assert_true(isnan(exact_value(&a)));
}

// Many additions, of both signs, before carries move.
static void test_many_additions(void **state)
{
    (void)state;
    exact_sum s;
    exact_zero(&s);
    const int64_t n = 1 << 20;
    for (int64_t i = 0; i < n; i++) exact_add(&s, -0x1.fffffffffffffp-1);
    assert_same(exact_value(&s), -0x1.fffffffffffffp-1 * 0x1p20);
    for (int doubling = 0; doubling < 10; doubling++) { // as by 2^30 additions
        const exact_sum copy = s;
        exact_merge(&s, &copy);
    }
    assert_same(exact_value(&s), -0x1.fffffffffffffp-1 * 0x1p30);
}

// ---- the decision -------------------------------------------------------------------------------

static step_block block(void)
{
    step_block b;
    memset(&b, 0, sizeof(b));
    step_device_init(&b.device, 1.0);
    b.settings.loss_divisor = 8.0;
    b.settings.nan = NAN_SKIP;
    b.settings.spike = SPIKE_OFF;
    return b;
}

// One step whose accumulated gradients have this norm.
static void step(step_block *b, double accumulated_norm, double loss_sum, int64_t tokens)
{
    step_device *d = &b->device;
    b->host.step++;
    exact_zero(&d->loss_sum);
    exact_zero(&d->norm_sum);
    exact_add(&d->loss_sum, loss_sum);
    exact_add(&d->norm_sum, accumulated_norm * accumulated_norm);
    d->tokens = tokens;
    step_decide(b);
}

static void test_mean_and_clip(void **state)
{
    (void)state;
    step_block b = block();
    // Gradients of sum / 8; 4 of 8 tokens count: the true gradient is twice what was accumulated.
    step(&b, 3.0, 10.0, 4);
    assert_same(b.device.loss, 2.5);
    assert_same(b.device.grad_norm, 6.0);
    assert_same(b.device.grad_factor, 2.0);
    assert_int_equal(b.device.skip, 0);
    assert_int_equal(b.device.applied, 1);
    b.settings.clip = 1.0;
    step(&b, 3.0, 10.0, 4);
    assert_same(b.device.grad_factor, 2.0 * (1.0 / (6.0 + 1e-6)));
    assert_same(b.device.grad_norm, 6.0); // before clipping
    step(&b, 0.25, 10.0, 4);              // below the clip
    assert_same(b.device.grad_factor, 2.0);
    step(&b, 0.0, 10.0, 4);
    assert_same(b.device.grad_factor, 2.0);
    assert_int_equal(b.device.applied, 4);
}

static void test_no_tokens(void **state)
{
    (void)state;
    step_block b = block();
    b.settings.nan = NAN_STOP;
    step(&b, 0.0, 0.0, 0);
    assert_true(isnan(b.device.loss));
    assert_int_equal(b.device.skip, 1);
    assert_int_equal(b.device.halt, 0);
    assert_int_equal(b.device.applied, 0);
    assert_int_equal(b.device.skipped, 1);
    assert_int_equal(b.device.history_count, 0);
    assert_same(b.device.grad_norm, 0.0);
}

static void test_nan_policies(void **state)
{
    (void)state;
    for (int loss_bad = 0; loss_bad < 2; loss_bad++) {
        const double norm = loss_bad != 0 ? 1.0 : nan_value, loss = loss_bad != 0 ? infinity : 1.0;
        step_block b = block();
        b.settings.clip = 1.0;
        b.settings.nan = NAN_COUNT;
        step(&b, norm, loss, 8);
        assert_int_equal(b.device.skip, 0);
        assert_int_equal(b.device.applied, 1);
        assert_true(isfinite(b.device.grad_factor));
        b.settings.nan = NAN_SKIP;
        step(&b, norm, loss, 8);
        assert_int_equal(b.device.skip, 1);
        assert_int_equal(b.device.halt, 0);
        step(&b, 1.0, 1.0, 8);
        assert_int_equal(b.device.skip, 0);
        b.settings.nan = NAN_STOP;
        step(&b, norm, loss, 8);
        assert_int_equal(b.device.skip, 1);
        assert_int_equal(b.device.halt, 1);
        assert_int_equal(b.device.applied, 2);
        assert_int_equal(b.device.skipped, 2);
    }
}

// While halted only the values of the step itself change, however many steps follow.
static void test_halt(void **state)
{
    (void)state;
    step_block b = block();
    b.settings.nan = NAN_STOP;
    step(&b, 1.0, 1.0, 8);
    step(&b, nan_value, 1.0, 8);
    const step_device was = b.device;
    step(&b, 2.0, 5.0, 8);
    step(&b, nan_value, 5.0, 8);
    step(&b, 3.0, 4.0, 8);
    assert_int_equal(b.device.skip, 1);
    assert_same(b.device.grad_norm, 3.0);
    assert_memory_equal(&b.device, &was, offsetof(step_device, tokens));
    b.device.halt = 0; // the host acted
    step(&b, 3.0, 4.0, 8);
    assert_int_equal(b.device.skip, 0);
    assert_int_equal(b.device.applied, 2);
}

static void test_loss_scale(void **state)
{
    (void)state;
    step_block b = block();
    step_device *d = &b.device;
    step_device_init(d, 1024.0);
    b.settings.loss_scaling = true;
    b.settings.nan = NAN_COUNT; // an overflow is skipped all the same
    b.settings.scale_window = 3;
    b.settings.scale_hysteresis = 2;
    b.settings.scale_floor = 300.0;
    // o: overflow. The number is the scale of the next step.
    static const struct {
        char kind;
        double scale;
        int64_t left, good;
    } expected[] = {
        {'.', 1024, 2, 1}, {'.', 1024, 2, 2}, {'.', 2048, 2, 0}, // window
        {'o', 2048, 1, 0}, {'.', 2048, 1, 1}, {'o', 1024, 0, 0}, // hysteresis used up
        {'o', 512, 0, 0},  {'o', 300, 0, 0},  {'o', 300, 0, 0},  // at every one; the floor
        {'.', 300, 0, 1},  {'.', 300, 0, 2},  {'.', 600, 2, 0},  // growth gives it back
        {'o', 600, 1, 0},  {'.', 600, 1, 1},
    };
    int64_t applied = 0;
    for (int64_t i = 0; i < COUNT_OF(expected); i++) {
        const double scale = d->loss_scale;
        const bool overflow = expected[i].kind == 'o';
        step(&b, overflow ? infinity : 2.0 * scale, 8.0, 8);
        applied += overflow ? 0 : 1;
        assert_int_equal(d->skip, overflow ? 1 : 0);
        assert_int_equal(d->applied, applied);
        assert_int_equal(d->skipped, i + 1 - applied);
        assert_int_equal(d->halt, 0);
        assert_same(d->loss_scale, expected[i].scale);
        assert_int_equal(d->scale_hysteresis_left, expected[i].left);
        assert_int_equal(d->scale_good_steps, expected[i].good);
        if (!overflow) {
            assert_same(d->grad_norm, 2.0); // of the true gradient
            assert_same(d->grad_factor, 1.0 / scale);
        }
    }
    assert_int_equal(d->history_count, applied);
}

// NAN_STOP halts only if a lower scale cannot help.
static void test_loss_scale_and_stop(void **state)
{
    (void)state;
    step_block b = block();
    step_device_init(&b.device, 64.0);
    b.settings.loss_scaling = true;
    b.settings.nan = NAN_STOP;
    b.settings.scale_window = 100;
    b.settings.scale_hysteresis = 1;
    b.settings.scale_floor = 32.0;
    step(&b, nan_value, 1.0, 8);
    assert_int_equal(b.device.halt, 0);
    assert_same(b.device.loss_scale, 32.0);
    step(&b, nan_value, 1.0, 8);
    assert_int_equal(b.device.halt, 1);
    step_device_init(&b.device, 64.0);
    step(&b, nan_value, nan_value, 8);
    assert_int_equal(b.device.halt, 1);
    // A floor above the scale does not raise it.
    step_device_init(&b.device, 16.0);
    b.settings.nan = NAN_SKIP;
    step(&b, nan_value, 1.0, 8);
    assert_same(b.device.loss_scale, 16.0);
}

static void test_spikes(void **state)
{
    (void)state;
    step_block b = block();
    b.settings.spike = SPIKE_SKIP;
    b.settings.spike_threshold = 3.0;
    b.settings.spike_warmup = 4;
    step(&b, 100.0, 1.0, 8); // warm-up: whatever comes is applied
    step(&b, 1.0, 1.0, 8);
    step(&b, 2.0, 1.0, 8);
    step(&b, 4.0, 1.0, 8);
    assert_int_equal(b.device.applied, 4);
    step(&b, 9.0, 1.0, 8); // median of 1 2 4 100 is 3: not above three times it
    assert_int_equal(b.device.skip, 0);
    step(&b, 9.5, 1.0, 8); // of 1 2 4 9: 3
    assert_int_equal(b.device.skip, 1);
    step(&b, 20.0, 1.0, 8); // of 2 4 9 9.5: 6.5, above
    assert_int_equal(b.device.skip, 1);
    step(&b, 20.0, 1.0, 8); // of 4 9 9.5 20: 9.25; the median follows a lasting change
    assert_int_equal(b.device.skip, 0);
    step(&b, nan_value, 1.0, 8); // never enters the ring
    assert_int_equal(b.device.history_count, 8);
    b.settings.spike = SPIKE_COUNT;
    step(&b, 1e6, 1.0, 8);
    assert_int_equal(b.device.skip, 0);
    b.settings.spike = SPIKE_STOP;
    step(&b, 1e6, 1.0, 8);
    assert_int_equal(b.device.skip, 1);
    assert_int_equal(b.device.halt, 1);
}

// The ring wraps.
static void test_history(void **state)
{
    (void)state;
    step_block b = block();
    b.settings.spike = SPIKE_SKIP;
    b.settings.spike_threshold = 1.5;
    b.settings.spike_warmup = STEP_HISTORY;
    for (int i = 0; i < STEP_HISTORY; i++) step(&b, 1000.0, 1.0, 8);
    for (int i = 0; i < STEP_HISTORY; i++) step(&b, 10.0, 1.0, 8);
    assert_int_equal(b.device.skipped, 0);
    step(&b, 15.5, 1.0, 8);
    assert_int_equal(b.device.skip, 1);
    step(&b, 14.5, 1.0, 8);
    assert_int_equal(b.device.skip, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_value),     cmocka_unit_test(test_two_values),
        cmocka_unit_test(test_many_values),   cmocka_unit_test(test_ties),
        cmocka_unit_test(test_cancellation),  cmocka_unit_test(test_permutations),
        cmocka_unit_test(test_not_finite),    cmocka_unit_test(test_many_additions),
        cmocka_unit_test(test_mean_and_clip), cmocka_unit_test(test_no_tokens),
        cmocka_unit_test(test_nan_policies),  cmocka_unit_test(test_halt),
        cmocka_unit_test(test_loss_scale),    cmocka_unit_test(test_loss_scale_and_stop),
        cmocka_unit_test(test_spikes),        cmocka_unit_test(test_history),
    };
    return cmocka_run_group_tests_name("step", tests, NULL, NULL);
}
