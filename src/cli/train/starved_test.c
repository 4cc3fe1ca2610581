// Which ranks that stand still have an excuse.
#include "cli/train/starved.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { BEAT = 100000000, LIMIT = 560000000 };

// How many beats a rank that stands still is excused, at most `most`. share: of a processor that it
// gets, in percent.
static int beats_excused(bool is_runnable, int share, int most)
{
    starved s = {0};
    int64_t now = 1, cpu = 0;
    int excused = 0;
    cli_starved_see(&s, 7, now, cpu, true);
    for (int i = 0; i < most; i++) {
        now += BEAT;
        cpu += (int64_t)BEAT * share / 100;
        cli_starved_see(&s, 7, now, cpu, is_runnable);
        excused += cli_starved_is_excused(&s, LIMIT);
    }
    return excused;
}

static void a_rank_without_a_processor_is_excused(void **state)
{
    (void)state;
    assert_int_equal(beats_excused(true, 2, 200), 199); // from its second beat on
}

static void a_rank_that_spins_is_not(void **state)
{
    (void)state;
    assert_int_equal(beats_excused(true, 100, 200), 0);
    assert_true(beats_excused(true, 25, 200) <= 24); // it takes four times as long to know
}

static void a_rank_that_sleeps_is_not(void **state)
{
    (void)state;
    assert_int_equal(beats_excused(false, 0, 200), 0);
}

static void progress_begins_anew(void **state)
{
    (void)state;
    starved s = {0};
    cli_starved_see(&s, 1, 1, 0, true);
    cli_starved_see(&s, 1, 1 + 9 * (int64_t)BEAT, 0, true);
    assert_true(cli_starved_is_excused(&s, LIMIT));
    cli_starved_see(&s, 2, 1 + 10 * (int64_t)BEAT, 0, true);
    assert_false(cli_starved_is_excused(&s, LIMIT)); // it needs none
    assert_int_equal(s.stood, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_without_a_processor_is_excused),
        cmocka_unit_test(a_rank_that_spins_is_not),
        cmocka_unit_test(a_rank_that_sleeps_is_not),
        cmocka_unit_test(progress_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
