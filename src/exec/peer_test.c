// Ranks whose GPUs read each other's memory (comm/peer.h), without GPUs: the driver of tests runs
// work late, and the sums are the kernel's own text in the emulator. Every layout has the bits that
// the same collectives have through the host's memory.
#include "fixtures/exec/test_gpu.h"

static const trial layouts[] = {
    {.pp = 1, .dp = 2, .micro_batch = 4},
    {.pp = 2, .dp = 1, .schedule = "1f1b", .micro_batch = 4},
    {.zero = 3, .pp = 1, .dp = 2, .micro_batch = 8},
    {.zero = 2, .pp = 2, .dp = 2, .schedule = "zb-h1", .micro_batch = 4},
};

// By day each layout in one of the orders.
static void trials_have_equal_bits(const trial *rows, int count, bool strict)
{
    static reference one;
    reference_make(&one, strict, false, SHARDS, 1);
    for (int i = 0; i < count; i++) {
        trial through_host = rows[i], direct = rows[i];
        if (part_skips(TRIALS_PART, i, count, strict ? 1 : 0, 2)) continue;
        through_host.strict = direct.strict = strict;
        direct.peer = true;
        const int64_t before = gpu_peer_sums;
        (void)gpu_trial_run(&direct, (uint64_t)i + 11, &one);
        assert_true(gpu_peer_sums > before);
        if (strict) continue; // the bits are those of one rank
        (void)gpu_trial_run(&through_host, 3, &one);
        for (int r = 0; r < rows[i].pp * rows[i].dp; r++) {
            assert_memory_equal(direct.loss[r], through_host.loss[r], sizeof(direct.loss[r]));
            assert_memory_equal(&direct.worst[r], &through_host.worst[r], sizeof(direct.worst[r]));
        }
    }
    reference_free(&one);
}

static void layouts_have_the_bits_of_host_memory(void **state)
{
    (void)state;
    trials_have_equal_bits(layouts, COUNT_OF(layouts), false);
}

static void strict_sums_do_too(void **state)
{
    (void)state;
    trials_have_equal_bits(layouts, COUNT_OF(layouts), true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_have_the_bits_of_host_memory),
        cmocka_unit_test(strict_sums_do_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
