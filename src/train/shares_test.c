// Shares of slow ranks against all possible ones.
#include "base/rng.h"
#include "train/session.h"
#include "train/shares.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { RANKS_MAX = 4 };

// The shortest time of all ways to divide the parts.
static double best_time(int64_t parts, int64_t ranks, const double *slow, int64_t *shares,
                        int64_t at)
{
    if (at == ranks - 1) {
        shares[at] = parts;
        return train_shares_time(ranks, slow, shares);
    }
    double best = 1e30;
    for (int64_t n = 1; n <= parts - (ranks - 1 - at); n++) {
        shares[at] = n;
        const double time = best_time(parts - n, ranks, slow, shares, at + 1);
        if (time < best) best = time;
    }
    return best;
}

static void the_longest_share_is_the_shortest_possible(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 300; trial++) {
        const int64_t ranks = 1 + (int64_t)(rng_word(1, 0, trial) % RANKS_MAX);
        const int64_t parts = ranks + (int64_t)(rng_word(1, 1, trial) % 9);
        double slow[RANKS_MAX];
        int64_t shares[RANKS_MAX], tried[RANKS_MAX], all = 0;
        for (int64_t r = 0; r < ranks; r++) {
            slow[r] = 1.0 + (double)(rng_word(2, (uint32_t)r, trial) % 8) / 4.0;
        }
        train_shares_choose(parts, ranks, slow, shares);
        for (int64_t r = 0; r < ranks; r++) {
            assert_true(shares[r] >= 1);
            all += shares[r];
        }
        assert_int_equal(all, parts);
        assert_true(train_shares_time(ranks, slow, shares) <=
                    best_time(parts, ranks, slow, tried, 0) + 1e-9);
    }
}

// A rank of half the speed among eight, with 64 parts.
static void a_slow_rank_gets_half(void **state)
{
    (void)state;
    double slow[8];
    int64_t shares[8], even[8];
    for (int r = 0; r < 8; r++) {
        slow[r] = r == 3 ? 2.0 : 1.0;
        even[r] = 8;
    }
    train_shares_choose(64, 8, slow, shares);
    assert_int_equal(shares[3], 4);
    assert_true(train_shares_time(8, slow, shares) < 10.0);
    assert_true(train_shares_time(8, slow, even) > 15.0);
}

// After step 1 ranks compare times of its batch, of which the third rank has two of four sequences;
// of the six of step 2 each has two.
static void times_are_scaled_by_the_batch_of_their_step(void **state)
{
    (void)state;
    static const char *const list[] = {"data.train=x",        "model.preset=gpt2-tiny",
                                       "train.steps=4",       "train.batch_ramp=0=4,1=6",
                                       "train.micro_batch=1", "layout.dp=3"};
    arena *a = NULL;
    config *c = NULL;
    run_config r = {0};
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(run_config_load(host_real(), a, NULL, list, COUNT_OF(list), &r, &c), ST_OK);
    session s = {.r = &r, .step = 1};
    assert_true(session_shares_scale(&s, 0) == 4.0 / 3.0);
    assert_true(session_shares_scale(&s, 2) == 2.0 / 3.0);
    s.step = 2;
    assert_true(session_shares_scale(&s, 0) == 1.0);
    assert_true(session_shares_scale(&s, 2) == 1.0);
    arena_destroy(a);
}

// The first rank may find another slow rank before all have followed the first finding.
static void a_second_finding_leaves_the_first_as_it_is(void **state)
{
    (void)state;
    arena *a = NULL;
    struct session_kept *kept = NULL;
    run_config r = {.resilience = {.straggler = RUN_STRAGGLER_MOVE}};
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(session_kept_create(a, &kept), ST_OK);
    session s = {.r = &r, .move = {.rank = -1}};
    session_shares_use(&s, kept);
    session_shares_take(&s, 1, 1.5);
    session_shares_found(&s, &(straggler){.rank = 2, .cause = STRAGGLER_COMPUTE, .ratio = 3.0});
    assert_true(s.move.slow_rank == 1 && s.move.slow_ratio == 1.5);
    assert_true(s.move.rank == 2 && s.move.ratio == 3.0);
    arena_destroy(a);
}

// Two parts each are best for a rank that takes 1.3 times as long, and remain so if it is found
// again: the second ratio is not on top of the first.
static void a_move_that_gains_nothing_leaves_no_trace(void **state)
{
    (void)state;
    static const char *const list[] = {"data.train=x",
                                       "model.preset=gpt2-tiny",
                                       "train.steps=4",
                                       "train.global_batch=4",
                                       "train.micro_batch=1",
                                       "layout.dp=2",
                                       "resilience.straggler=move"};
    arena *a = NULL;
    config *c = NULL;
    struct session_kept *kept = NULL;
    run_config r = {0};
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(run_config_load(host_real(), a, NULL, list, COUNT_OF(list), &r, &c), ST_OK);
    assert_int_equal(session_kept_create(a, &kept), ST_OK);
    session s = {.a = a, .r = &r, .step = 1};
    session_shares_use(&s, kept);
    for (int i = 0; i < 2; i++) {
        session_shares_take(&s, 1, 1.3);
        assert_int_equal(session_shares_plan(&s), ST_OK);
        assert_false(s.move.is_due);
    }
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_share_is_the_shortest_possible),
        cmocka_unit_test(a_slow_rank_gets_half),
        cmocka_unit_test(times_are_scaled_by_the_batch_of_their_step),
        cmocka_unit_test(a_second_finding_leaves_the_first_as_it_is),
        cmocka_unit_test(a_move_that_gains_nothing_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
