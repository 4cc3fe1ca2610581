// Trains with pipelines: ranks are threads over shared memory, with every schedule, alone and with
// dp. In strict order the weights and moments of every stage have the bits of a run on one rank; in
// fast order they are close.
#include "fixtures/exec/test_trials.h"

enum { SHARDS = 8 };

static const trial layouts[] = {
    {.schedule = "gpipe", .pp = 2, .dp = 1, .micro_batch = 4},
    {.schedule = "1f1b", .pp = 2, .dp = 1, .micro_batch = 2},
    {.schedule = "1f1b", .pp = 4, .dp = 1, .micro_batch = 1, .recompute = RECOMPUTE_FULL},
    {.schedule = "1f1b", .pp = 3, .dp = 2, .micro_batch = 2, .stages = {2, 5, 1}},
    {.schedule = "interleaved", .pp = 2, .dp = 1, .chunks = 2, .micro_batch = 2},
    {.schedule = "interleaved", .pp = 2, .dp = 2, .chunks = 4, .micro_batch = 1},
    {.schedule = "zb-h1", .pp = 4, .dp = 1, .micro_batch = 2},
    {.schedule = "zb-h1", .pp = 2, .dp = 3, .micro_batch = 1, .recompute = RECOMPUTE_SELECTIVE},
    {.schedule = "zb-h2", .pp = 4, .dp = 1, .micro_batch = 1},
    {.schedule = "zb-v", .pp = 2, .dp = 2, .micro_batch = 1},
    {.schedule = "zb-v", .pp = 4, .dp = 1, .micro_batch = 2},
    {.schedule = "dualpipe", .pp = 2, .dp = 1, .micro_batch = 2},
    {.schedule = "dualpipe", .pp = 4, .dp = 2, .micro_batch = 1},
    {.schedule = "dualpipe-v", .pp = 2, .dp = 1, .micro_batch = 2},
    {.schedule = "dualpipe-v", .pp = 4, .dp = 1, .micro_batch = 1},
};

static void strict_has_the_bits_of_one_rank(void **state)
{
    (void)state;
    trials_run(layouts, COUNT_OF(layouts), 4, true, false, SHARDS, 1);
    trials_run(layouts, COUNT_OF(layouts), 4, true, true, SHARDS, 1);
}

static void fast_is_near(void **state)
{
    (void)state;
    trials_run(layouts, COUNT_OF(layouts), 4, false, false, SHARDS, 1);
    trials_run(layouts, COUNT_OF(layouts), 4, false, true, SHARDS, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strict_has_the_bits_of_one_rank),
        cmocka_unit_test(fast_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
