// Choices of ranks for experts: never worse, only between slots of one number, each expert once,
// and near the best of all choices where these can be counted.
#include "base/rng.h"
#include "train/rebalance.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { MOST = 64 };

static void start(const rebalance_case *c, int32_t *expert_of)
{
    for (int64_t s = 0; s < c->experts; s++) expert_of[s] = (int32_t)s;
}

// Checks that expert_of is a permutation that keeps each expert's number.
static void numbers_are_kept(const rebalance_case *c, const int32_t *expert_of)
{
    const int64_t own = c->experts / c->ranks;
    bool seen[MOST] = {false};
    for (int64_t s = 0; s < c->experts; s++) {
        assert_in_range(expert_of[s], 0, c->experts - 1);
        assert_false(seen[expert_of[s]]);
        assert_int_equal(expert_of[s] % own, s % own);
        seen[expert_of[s]] = true;
    }
}

static void the_example_of_the_header(void **state)
{
    (void)state;
    const int64_t load[] = {9, 8, 1, 4, 1, 1};
    const rebalance_case c = {.load = load, .experts = 6, .ranks = 2};
    int32_t expert_of[6];
    start(&c, expert_of);
    assert_int_equal(rebalance_most(&c, expert_of), 18);
    assert_int_equal(rebalance_choose(&c, expert_of), 2);
    assert_int_equal(rebalance_most(&c, expert_of), 13);
    numbers_are_kept(&c, expert_of);
    assert_int_equal(rebalance_choose(&c, expert_of), 0); // it stays
}

static void even_loads_move_nothing(void **state)
{
    (void)state;
    const int64_t even[] = {5, 5, 5, 5, 5, 5, 5, 5}, none[8] = {0};
    const int64_t near[] = {100, 101, 100, 100}; // less than 2% to gain
    int32_t expert_of[8];
    const rebalance_case cases[] = {{even, 8, 4}, {none, 8, 2}, {near, 4, 2}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        start(&cases[i], expert_of);
        assert_int_equal(rebalance_choose(&cases[i], expert_of), 0);
        for (int32_t s = 0; s < cases[i].experts; s++) assert_int_equal(expert_of[s], s);
    }
}

// The best choice for two ranks: each number either exchanges its two experts or not.
static int64_t best_of_two(const rebalance_case *c)
{
    const int64_t own = c->experts / 2;
    int64_t best = INT64_MAX;
    for (int64_t swaps = 0; swaps < INT64_C(1) << own; swaps++) {
        int64_t sums[2] = {0, 0};
        for (int64_t s = 0; s < c->experts; s++) {
            sums[(s / own) ^ (swaps >> (s % own) & 1)] += c->load[s];
        }
        best = min_i64(best, max_i64(sums[0], sums[1]));
    }
    return best;
}

static void random_loads(void **state)
{
    (void)state;
    double worst = 0.0;
    for (uint64_t trial = 0; trial < 2000; trial++) {
        int64_t load[MOST], all = 0;
        int32_t expert_of[MOST];
        const int64_t ranks = 2 << trial % 3, own = 1 + (int64_t)(trial % 8);
        const rebalance_case c = {.load = load, .experts = ranks * own, .ranks = ranks};
        for (int64_t e = 0; e < c.experts; e++) {
            const double u = (double)rng_uniform(rng_word(3, (uint32_t)e, trial));
            load[e] = (int64_t)(1000.0 * (trial % 2 == 0 ? u : u * u * u * u));
            all += load[e];
        }
        start(&c, expert_of);
        for (int again = 0; again < 3; again++) { // from any places
            const int64_t before = rebalance_most(&c, expert_of);
            const int64_t moved = rebalance_choose(&c, expert_of);
            const int64_t after = rebalance_most(&c, expert_of);
            numbers_are_kept(&c, expert_of);
            assert_true(moved == 0 ? after == before : after < before);
            assert_true(after * ranks >= all);
            for (int64_t e = 0; e < c.experts && again < 2; e++) load[e] = load[e] * 7 % 997;
            all = 0;
            for (int64_t e = 0; e < c.experts; e++) all += load[e];
        }
        if (ranks != 2) continue;
        const int64_t best = best_of_two(&c);
        const double more = (double)(rebalance_most(&c, expert_of) - best);
        if (best > 0 && own > 2) worst = worst < more / (double)best ? more / (double)best : worst;
    }
    assert_true(worst < 0.35);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_example_of_the_header),
                                       cmocka_unit_test(even_loads_move_nothing),
                                       cmocka_unit_test(random_loads)};
    return cmocka_run_group_tests_name("rebalance", tests, NULL, NULL);
}
