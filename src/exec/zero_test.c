// Trains with ZeRO: ranks are threads over shared memory, with every stage, alone, in groups and in
// pipelines. In strict order the weights and moments of every rank have the bits of a run on one
// rank; in fast order they are close.
#include "fixtures/exec/test_trials.h"

enum { SHARDS = 8 };

static const trial layouts[] = {
    {.zero = 1, .pp = 1, .dp = 4, .zero_group = 2, .micro_batch = 2},
    {.zero = 2, .pp = 1, .dp = 2, .micro_batch = 8},
    {.zero = 2, .pp = 1, .dp = 4, .micro_batch = 1, .recompute = RECOMPUTE_FULL},
    {.zero = 2, .pp = 1, .dp = 4, .zero_group = 2, .micro_batch = 2},
    {.zero = 3, .pp = 1, .dp = 2, .micro_batch = 2},
    {.zero = 3, .pp = 1, .dp = 4, .micro_batch = 4, .recompute = RECOMPUTE_SELECTIVE},
    {.zero = 3, .pp = 1, .dp = 8, .zero_group = 4, .micro_batch = 1},
    {.zero = 1, .pp = 2, .dp = 4, .zero_group = 2, .schedule = "1f1b", .micro_batch = 2},
    {.zero = 2, .pp = 2, .dp = 2, .schedule = "1f1b", .micro_batch = 2},
    {.zero = 2, .pp = 2, .dp = 2, .schedule = "zb-h1", .micro_batch = 1},
    {.zero = 2, .pp = 2, .dp = 2, .schedule = "dualpipe", .micro_batch = 1},
    {.zero = 2, .pp = 2, .dp = 4, .zero_group = 2, .schedule = "zb-v", .micro_batch = 1},
    {.zero = 3, .pp = 2, .dp = 2, .schedule = "gpipe", .micro_batch = 4},
    {.zero = 3, .pp = 2, .dp = 2, .schedule = "interleaved", .chunks = 4, .micro_batch = 2},
    {.zero = 3, .pp = 4, .dp = 2, .schedule = "zb-h2", .micro_batch = 1},
    {.zero = 3, .pp = 2, .dp = 2, .schedule = "dualpipe-v", .micro_batch = 2},
    {.zero = 3,
     .pp = 2,
     .dp = 4,
     .zero_group = 2,
     .schedule = "1f1b",
     .micro_batch = 1,
     .recompute = RECOMPUTE_FULL},
    {.zero = 3, .once = true, .pp = 1, .dp = 4, .micro_batch = 1},
    {.zero = 3, .once = true, .pp = 1, .dp = 4, .zero_group = 2, .micro_batch = 2},
    {.zero = 3, .once = true, .pp = 2, .dp = 2, .schedule = "zb-h1", .micro_batch = 1},
    {.zero = 3, .once = true, .pp = 2, .dp = 2, .schedule = "dualpipe-v", .micro_batch = 1},
};

// In strict order one of three ranks has fewer shards, so fewer micro-batches.
static const trial uneven[] = {
    {.zero = 2, .pp = 1, .dp = 3, .micro_batch = 2},
    {.zero = 3, .pp = 1, .dp = 3, .micro_batch = 2},
    {.zero = 3, .pp = 1, .dp = 6, .zero_group = 3, .micro_batch = 1},
};

static void strict_has_the_bits_of_one_rank(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        trials_run(layouts, COUNT_OF(layouts), 4, true, tied != 0, SHARDS, 1);
        trials_run(uneven, COUNT_OF(uneven), 2, true, tied != 0, SHARDS, 1);
    }
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
