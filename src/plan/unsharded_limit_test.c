// Tests unsharded_limit.c against a plain count over moments with other bytes, weights and
// gradients, and on plans of the ZeRO stages.
#include "fixtures/plan/verify_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOMENTS = 40 };

static int64_t dice(uint32_t *seed, int64_t most)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (int64_t)(*seed >> 8) % (most + 1);
}

// Draws bytes of others, gathered weights and unsharded gradients for each moment.
static void none_too_many_are_spared(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 500; seed++) {
        uint32_t at = seed;
        int64_t without[PLAN_UNSHARDED_COUNT] = {0}, unsharded[2] = {0}, held = 0, spared[2];
        const int64_t most[2] = {seed % 3 == 0 ? INT64_MAX : dice(&at, 60),
                                 seed % 5 == 0 ? INT64_MAX : dice(&at, 60)};
        for (int t = 0; t < MOMENTS; t++) {
            const int64_t o = dice(&at, 100), w = dice(&at, 80), g = dice(&at, 80);
            const int64_t sums[] = {o + w + g, o + g, o + w, o};
            if (sums[0] > without[0]) {
                unsharded[0] = w;
                unsharded[1] = g;
            }
            for (int i = 0; i < COUNT_OF(sums); i++) without[i] = max_i64(without[i], sums[i]);
            held = max_i64(held, o + min_i64(w, most[0]) + min_i64(g, most[1]));
        }
        plan_unsharded_spare(without, unsharded, most, spared);
        assert_true(spared[0] >= 0 && spared[0] <= unsharded[0]);
        assert_true(spared[1] >= 0 && spared[1] <= unsharded[1]);
        assert_true(without[0] - spared[0] - spared[1] >= held);
        if (most[0] == INT64_MAX && most[1] == INT64_MAX)
            assert_int_equal(spared[0] + spared[1], 0);
    }
}

static void plans_have_less_with_limits(void **state)
{
    (void)state;
    const plan_unsharded_limits none = {0}, few = {.weights = 1, .gradients = 1},
                                many = {.weights = INT64_C(1) << 40, .gradients = INT64_C(1) << 40};
    for (int32_t zero = 1; zero <= 3; zero++) {
        const sample_settings s = {
            .dp = 2, .zero = zero, .sequences = 8, .micro_batch = 1, .layers = 4};
        sample_job job;
        int64_t spared[PLAN_BYTES_COUNT];
        arena *a = NULL;
        assert_int_equal(arena_create("limits", 0, &a), ST_OK);
        assert_int_equal(sample_make(a, &s, &job), ST_OK);
        const plan *p = job.plans[0];
        assert_int_equal(p->live_without[0], p->live_bytes);
        for (int i = 1; i < PLAN_UNSHARDED_COUNT; i++) {
            assert_true(p->live_without[i] <= p->live_bytes);
        }
        plan_memory_spared(p, &few, spared);
        assert_true(zero < 3 || spared[PLAN_BYTES_WEIGHTS] > 0);
        assert_true(zero < 2 || spared[PLAN_BYTES_WEIGHTS] + spared[PLAN_BYTES_GRADIENTS] > 0);
        assert_true(zero > 1 || spared[PLAN_BYTES_WEIGHTS] + spared[PLAN_BYTES_GRADIENTS] == 0);
        assert_true(spared[PLAN_BYTES_WEIGHTS] <= p->unsharded_by_kind[PLAN_BYTES_WEIGHTS]);
        assert_true(spared[PLAN_BYTES_GRADIENTS] <= p->unsharded_by_kind[PLAN_BYTES_GRADIENTS]);
        assert_int_equal(spared[PLAN_BYTES_ACTIVATIONS], 0);
        plan_memory_spared(p, &none, spared);
        assert_int_equal(spared[PLAN_BYTES_WEIGHTS] + spared[PLAN_BYTES_GRADIENTS], 0);
        plan_memory_spared(p, &many, spared);
        assert_int_equal(spared[PLAN_BYTES_WEIGHTS] + spared[PLAN_BYTES_GRADIENTS], 0);
        arena_destroy(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_too_many_are_spared),
        cmocka_unit_test(plans_have_less_with_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
