// Slow ranks are named within five spans, with the cause; noise names no rank.
#include "base/rng.h"
#include "train/straggler.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { RANKS = 8, MS = 1000000, PART = 5 * MS }; // a step of 20 parts is a span

static void step_make(straggler_times all[RANKS], uint64_t seed, int64_t step, double noise)
{
    for (uint64_t r = 0; r < RANKS; r++) {
        const double u = (double)rng_uniform(rng_word(seed, (uint32_t)step, r)) - 0.5;
        const int64_t compute = (int64_t)(10.0 * PART * (1.0 + noise * u));
        all[r] = (straggler_times){
            .compute = compute, .data = PART / 10, .network = 2 * PART, .disk = r == 0 ? PART : 0};
        all[r].step = 20 * PART;
    }
}

static void a_slow_rank_is_named(void **state)
{
    (void)state;
    for (int cause = 0; cause < STRAGGLER_CAUSES; cause++) {
        for (int slow = 0; slow < RANKS; slow++) {
            arena *a = NULL;
            stragglers *s = NULL;
            straggler found;
            straggler_times all[RANKS];
            assert_int_equal(arena_create("test", 0, &a), ST_OK);
            assert_int_equal(stragglers_create(a, RANKS, true, &s), ST_OK);
            int64_t named = -1;
            for (int64_t step = 0; step < 60; step++) {
                step_make(all, 7, step, 0.1);
                if (step >= 30) {
                    if (cause == STRAGGLER_COMPUTE) all[slow].compute = 15 * PART;
                    if (cause == STRAGGLER_DATA) all[slow].data = 6 * PART;
                    if (cause == STRAGGLER_DISK) all[slow].disk += 9 * PART;
                    for (int r = 0; r < RANKS && cause == STRAGGLER_NETWORK; r++) {
                        all[r].network = 9 * PART;
                    }
                }
                if (!stragglers_see(s, all, &found)) continue;
                assert_int_equal(named, -1); // once
                named = step;
                assert_int_equal(found.cause, cause);
                assert_int_equal(found.rank, cause == STRAGGLER_NETWORK ? -1 : slow);
                assert_true(found.ratio > 1.2);
            }
            assert_int_equal(named, 34); // the fifth slow step
            assert_int_equal(found.steps, STRAGGLER_SPANS);
            arena_destroy(a);
        }
    }
}

// 10,000 steps with 15% of noise and single delays of ten times.
static void noise_names_no_rank(void **state)
{
    (void)state;
    arena *a = NULL;
    stragglers *s = NULL;
    straggler found;
    straggler_times all[RANKS];
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(stragglers_create(a, RANKS, true, &s), ST_OK);
    for (int64_t step = 0; step < 10000; step++) {
        step_make(all, 3, step, 0.3);
        if (step % 7 == 0) all[step % RANKS].compute *= 10;
        assert_false(stragglers_see(s, all, &found));
    }
    arena_destroy(a);
}

// Stages of a pipeline differ; what is usual for a rank is not slow.
static void unequal_work_is_learned(void **state)
{
    (void)state;
    arena *a = NULL;
    stragglers *s = NULL;
    straggler found;
    straggler_times all[RANKS];
    int64_t named = -1;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(stragglers_create(a, RANKS, false, &s), ST_OK);
    for (int64_t step = 0; step < 100; step++) {
        step_make(all, 5, step, 0.05);
        all[2].compute *= 2;
        if (step >= 50) all[2].compute = all[2].compute * 3 / 2;
        if (stragglers_see(s, all, &found)) named = step * RANKS + found.rank;
    }
    assert_int_equal(named, 54 * RANKS + 2);
    arena_destroy(a);
}

// A rank that has the processor half of the time is whole in most of its short steps.
static void a_rank_that_stands_still_at_times_is_named(void **state)
{
    (void)state;
    for (int is_equal = 0; is_equal < 2; is_equal++) {
        arena *a = NULL;
        stragglers *s = NULL;
        straggler found = {.rank = -1};
        straggler_times all[RANKS];
        int64_t now = 0, slow_from = -1, named = -1;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        assert_int_equal(stragglers_create(a, RANKS, is_equal == 1, &s), ST_OK);
        for (int64_t step = 0; step < 2000 && named < 0; step++) {
            const bool stands = step >= 1000 && step % 5 == 0;
            if (step >= 1000 && slow_from < 0) slow_from = now;
            for (int r = 0; r < RANKS; r++) {
                const int64_t more = stands ? 20 * MS : 0;
                all[r] = (straggler_times){.step = 5 * MS + more,
                                           .compute = 4 * MS + (r == 3 ? more : 0),
                                           .network = MS + (r == 3 ? 0 : more)};
            }
            now += all[0].step;
            if (stragglers_see(s, all, &found)) named = now;
        }
        assert_int_equal(found.rank, 3);
        assert_int_equal(found.cause, STRAGGLER_COMPUTE);
        assert_true(named - slow_from < 8 * (int64_t)STRAGGLER_SPAN_NS);
        assert_true(found.steps > STRAGGLER_SPANS);
        arena_destroy(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_rank_is_named),
        cmocka_unit_test(noise_names_no_rank),
        cmocka_unit_test(unequal_work_is_learned),
        cmocka_unit_test(a_rank_that_stands_still_at_times_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
