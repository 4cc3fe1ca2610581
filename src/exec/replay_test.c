// Steps that are captured and replayed as graphs, on device cuda over a driver without a GPU, which
// runs a graph's work in another legal order each time: the bits are those of one rank on the CPU.
#define TRIAL_STEPS 6
#include "fixtures/exec/test_gpu.h"

static const trial one_rank[] = {
    {.pp = 1, .dp = 1, .micro_batch = 4},
    {.pp = 1, .dp = 1, .micro_batch = 2, .recompute = RECOMPUTE_FULL},
};

// One step prepares the kernels, the next two are captured, one for each slot, all later ones are
// launches. The evaluation is the first of its plan.
static void steps_are_replayed(void **state)
{
    (void)state;
    static reference one;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        const bool strict = seed == 1;
        reference_make(&one, strict, false, SHARDS, 1);
        for (int i = 0; i < COUNT_OF(one_rank); i++) {
            trial t = one_rank[i];
            t.strict = strict;
            const fake_driver_counts counts = gpu_trial_run(&t, seed, &one);
            assert_int_equal(t.counts.prepared, 2);
            assert_int_equal(t.counts.replayed, STEPS - 1);
            assert_int_equal(t.counts.refused, 0);
            assert_int_equal(counts.graph_launches, STEPS - 1);
            assert_int_equal(counts.changed_arguments, 0);
        }
        reference_free(&one);
    }
}

// A planted mistake: the arguments of a step's launches tell its number, so a graph would repeat an
// old one.
static void arguments_that_change_are_found(void **state)
{
    (void)state;
    static reference one;
    reference_make(&one, true, false, SHARDS, 1);
    trial t = one_rank[0];
    t.strict = true;
    gpu_args_tell_step = true;
    assert_true(gpu_trial_run(&t, 3, &one).changed_arguments > 0);
    gpu_args_tell_step = false;
    reference_free(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_replayed),
        cmocka_unit_test(arguments_that_change_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
