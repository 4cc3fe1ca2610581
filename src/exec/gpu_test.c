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

// A codec computes on the host, in pinned memory: the same gradients give the bits of a CPU.
static void codecs_have_the_bits_of_the_cpu(void **state)
{
    static const struct {
        int layout;
        const char *codec;
    } rows[] = {{0, "int8"}, {2, "topk"}, {4, "onebit"}, {0, "fp8"}, {2, "bf16"}};
    static reference one;
    (void)state;
    reference_make(&one, false, false, SHARDS, 1);
    for (int i = 0; i < COUNT_OF(rows); i++) {
        trial on_cpu = layouts[rows[i].layout];
        if (part_of(TRIALS_PART) > 1 && i != 1) continue; // by day one with residuals
        if (on_cpu.zero > 1) on_cpu.once = true;
        on_cpu.codec = rows[i].codec;
        on_cpu.shards = SHARDS;
        on_cpu.cp_shards = 1;
        trial on_gpu = on_cpu;
        trial_run(&on_cpu, &one);
        (void)gpu_trial_run(&on_gpu, (uint64_t)i + 5, &one);
        assert_true(on_cpu.worst[0] > 2e-4); // the codec has lost something
        for (int r = 0; r < on_cpu.pp * on_cpu.dp; r++) {
            assert_memory_equal(on_cpu.loss[r], on_gpu.loss[r], sizeof(on_cpu.loss[r]));
            assert_memory_equal(&on_cpu.worst[r], &on_gpu.worst[r], sizeof(on_cpu.worst[r]));
        }
    }
    reference_free(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_have_the_bits_of_one),
        cmocka_unit_test(codecs_have_the_bits_of_the_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
