// Context parallelism for real: ranks as threads that have some positions of every sequence, alone, with dp, with
// pipelines, with ZeRO. In strict order, where one rank has several shards of a sequence and another one, the
// weights and moments are the same to the bit; in fast order near them.
#include "exec/test_trial.h"

enum { SHARDS = 4, CP_SHARDS = 4 };

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

static void strict_has_the_bits_of_one_rank(void **state)
{
    (void)state;
    trials_run(layouts, COUNT_OF(layouts), true, false, SHARDS, CP_SHARDS);
    trials_run(layouts, COUNT_OF(layouts), true, true, SHARDS, CP_SHARDS);
}

static void fast_is_near(void **state)
{
    (void)state;
    trials_run(layouts, COUNT_OF(layouts), false, false, SHARDS, CP_SHARDS);
    trials_run(layouts, COUNT_OF(layouts), false, true, SHARDS, CP_SHARDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strict_has_the_bits_of_one_rank),
        cmocka_unit_test(fast_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
