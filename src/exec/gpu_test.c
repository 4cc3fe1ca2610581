// Trains on device cuda over a driver without a GPU (fixtures/exec/test_gpu.h): ranks are threads,
// each with streams that complete late. Every layout has the bits of one rank on the CPU. The host
// cannot touch the arena: collectives and read-backs travel through pinned memory. Collectives wait
// for functions of the host, so steps are posted call by call; replay_test.c has the graphs.
#include "fixtures/exec/test_gpu.h"

static void trials_on_gpu(const trial *rows, int count, uint64_t seed, bool strict)
{
    static reference one;
    reference_make(&one, strict, false, SHARDS, 1);
    for (int i = 0; i < count; i++) {
        trial t = rows[i];
        if (part_of(TRIALS_PART) > 1 && i == 2) continue; // by day peer_test.c has such a layout
        t.strict = strict;
        assert_true(gpu_trial_run(&t, seed, &one).launches > 100);
        assert_int_equal(t.counts.replayed, 0);
        assert_true(t.counts.refused > 0);
        assert_string_equal(t.counts.why, "its collectives wait for functions of the host");
    }
    reference_free(&one);
}

static const trial layouts[] = {
    {.pp = 1, .dp = 2, .micro_batch = 4},
    {.pp = 2, .dp = 1, .schedule = "1f1b", .micro_batch = 4},
    {.zero = 1, .pp = 1, .dp = 2, .micro_batch = 8},
    {.zero = 3, .pp = 1, .dp = 2, .micro_batch = 2},
    {.zero = 2, .pp = 2, .dp = 2, .schedule = "zb-h1", .micro_batch = 2},
};

static void ranks_have_the_bits_of_one(void **state)
{
    (void)state;
    trials_on_gpu(layouts, COUNT_OF(layouts), 7, true);
    trials_on_gpu(layouts, 1, 8, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_have_the_bits_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
