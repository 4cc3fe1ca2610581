// Context parallelism for real: ranks as threads that have some positions of every sequence, alone, with dp, with
// pipelines, with ZeRO. In strict order, where one rank has several shards of a sequence and another one, the
// weights and moments are the same to the bit; in fast order near them.
#include "exec/test_trial.h"

enum { CP_SHARDS = 4 };

static const trial layouts[] = {
    {.pp = 1, .dp = 1, .cp = 2, .micro_batch = 4},
    {.pp = 1, .dp = 1, .cp = 4, .micro_batch = 1, .recompute = RECOMPUTE_FULL},
    {.pp = 1, .dp = 1, .cp = 1, .micro_batch = 2, .recompute = RECOMPUTE_SELECTIVE},
    {.pp = 1, .dp = 2, .cp = 2, .micro_batch = 2},
    {.pp = 1, .dp = 2, .cp = 4, .micro_batch = 4},
    {.pp = 1, .dp = 4, .cp = 2, .zero = 1, .micro_batch = 4},
    {.pp = 1, .dp = 2, .cp = 2, .zero = 3, .micro_batch = 2},
    {.schedule = "1f1b", .pp = 2, .dp = 1, .cp = 2, .micro_batch = 2},
    {.schedule = "1f1b", .pp = 2, .dp = 1, .cp = 4, .micro_batch = 4},
    {.schedule = "zb-h1", .pp = 2, .dp = 2, .cp = 2, .micro_batch = 1},
    {.schedule = "dualpipe", .pp = 2, .dp = 1, .cp = 2, .micro_batch = 2},
};

static void run_all(bool strict, bool tied)
{
    static reference one;
    reference_of(&one, strict, tied, 4, CP_SHARDS);
    for (int i = 0; i < COUNT_OF(layouts); i++) {
        static trial t;
        t = layouts[i];
        t.strict = strict;
        t.tied = tied;
        t.shards = 4;
        t.cp_shards = CP_SHARDS;
        trial_run(&t, &one);
    }
    reference_free(&one);
}

static void strict_has_the_bits_of_one_rank(void **state)
{
    (void)state;
    run_all(true, false);
    run_all(true, true);
}

static void fast_is_near(void **state)
{
    (void)state;
    run_all(false, false);
    run_all(false, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strict_has_the_bits_of_one_rank),
        cmocka_unit_test(fast_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
