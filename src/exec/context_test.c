// Trains with context parallelism: ranks are threads that have some positions of every sequence,
// alone, with dp, with pipelines and with ZeRO. In strict order, also where ranks have different
// numbers of shards of a sequence, weights and moments have the same bits; in fast order they are
// close.
#include "fixtures/exec/test_trials.h"

enum { SHARDS = 4, CP_SHARDS = 4 };

static const trial layouts[] = {
    {.pp = 1, .dp = 1, .cp = 2, .micro_batch = 4},
    {.pp = 1, .dp = 1, .cp = 4, .micro_batch = 1, .recompute = RECOMPUTE_FULL},
    {.pp = 1, .dp = 1, .cp = 1, .micro_batch = 2, .recompute = RECOMPUTE_SELECTIVE},
    {.pp = 1, .dp = 2, .cp = 2, .micro_batch = 2},
    {.pp = 1, .dp = 2, .cp = 4, .micro_batch = 4},
    {.pp = 1, .dp = 4, .cp = 2, .zero = 1, .micro_batch = 4},
    {.pp = 1, .dp = 1, .cp = 4, .zero = 3, .micro_batch = 4},
    {.pp = 1, .dp = 4, .cp = 2, .zero = 2, .zero_group = 2, .micro_batch = 2},
    {.pp = 1, .dp = 2, .cp = 2, .zero = 3, .micro_batch = 2},
    {.schedule = "1f1b", .pp = 2, .dp = 1, .cp = 2, .micro_batch = 2},
    {.schedule = "1f1b", .pp = 2, .dp = 1, .cp = 4, .micro_batch = 4},
    {.schedule = "zb-h1", .pp = 2, .dp = 2, .cp = 2, .micro_batch = 1},
    {.schedule = "dualpipe", .pp = 2, .dp = 1, .cp = 2, .micro_batch = 2},
};

static void strict_has_the_bits_of_one_rank(void **state)
{
    (void)state;
    trials_run(layouts, COUNT_OF(layouts), 4, true, false, SHARDS, CP_SHARDS);
    trials_run(layouts, COUNT_OF(layouts), 4, true, true, SHARDS, CP_SHARDS);
}

static void fast_is_near(void **state)
{
    (void)state;
    trials_run(layouts, COUNT_OF(layouts), 4, false, false, SHARDS, CP_SHARDS);
    trials_run(layouts, COUNT_OF(layouts), 4, false, true, SHARDS, CP_SHARDS);
}

// Heads distributed over ranks, alone and with positions gathered or in a ring over the rest; fewer
// key heads than ranks, where several ranks have the same one.
static const trial head_layouts[] = {
    {.pp = 1, .dp = 1, .cp = 2, .cp_heads = 2, .micro_batch = 4},
    {.pp = 1, .dp = 1, .cp = 4, .cp_heads = 2, .micro_batch = 2, .recompute = RECOMPUTE_FULL},
    {.pp = 1, .dp = 1, .cp = 4, .cp_heads = 4, .micro_batch = 1},
    {.pp = 1, .dp = 2, .cp = 2, .cp_heads = 2, .zero = 3, .micro_batch = 2},
    {.schedule = "1f1b", .pp = 2, .dp = 1, .cp = 4, .cp_heads = 2, .micro_batch = 2},
    {.pp = 1, .dp = 1, .cp = 2, .cp_heads = 2, .turns = 2, .micro_batch = 2},
};
static const trial ring_layouts[] = {
    {.pp = 1, .dp = 1, .cp = 2, .ring = true, .micro_batch = 4},
    {.pp = 1, .dp = 1, .cp = 4, .ring = true, .micro_batch = 2, .recompute = RECOMPUTE_SELECTIVE},
    {.pp = 1, .dp = 1, .cp = 4, .cp_heads = 2, .ring = true, .micro_batch = 1},
    {.pp = 1, .dp = 2, .cp = 2, .ring = true, .zero = 1, .micro_batch = 2},
    {.schedule = "zb-h1", .pp = 2, .dp = 1, .cp = 4, .ring = true, .micro_batch = 2},
    {.pp = 1, .dp = 1, .cp = 2, .ring = true, .turns = 2, .micro_batch = 4},
    {.pp = 1, .dp = 2, .cp = 2, .turns = 2, .micro_batch = 4}, // gathered
};

// The quick suite runs each layout in one of these turns; a layout that strict order refuses moves
// to the next one.
static void run_list(const trial *list, int count, const trial *like, int turn, int turns)
{
    static reference one;
    reference_like(&one, like);
    for (int i = 0; i < count; i++) {
        static trial t;
        const bool is_sum = list[i].cp_heads > 0 && like->kv_heads % list[i].cp_heads != 0;
        if (part_skips(TRIALS_PART, i, count, turn, turns)) continue;
        if (like->strict && (is_sum || list[i].turns > 1)) continue;
        t = list[i];
        t.strict = like->strict;
        t.tied = like->tied;
        t.shards = like->shards;
        t.cp_shards = like->cp_shards;
        t.heads = like->heads;
        t.kv_heads = like->kv_heads;
        trial_run(&t, &one);
    }
    reference_free(&one);
}

static void heads_are_distributed(void **state)
{
    (void)state;
    static const trial likes[] = {
        {.kv_heads = 4, .strict = true}, {.kv_heads = 2}, {.kv_heads = 1}};
    for (int i = 0; i < COUNT_OF(likes); i++) {
        trial like = likes[i];
        like.shards = SHARDS;
        like.cp_shards = CP_SHARDS;
        like.heads = 4;
        run_list(head_layouts, COUNT_OF(head_layouts), &like, i, COUNT_OF(likes));
    }
}

static void keys_travel_in_a_ring(void **state)
{
    (void)state;
    const trial like = {.shards = SHARDS, .cp_shards = 1, .heads = 4, .kv_heads = 2};
    run_list(ring_layouts, COUNT_OF(ring_layouts), &like, 0, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strict_has_the_bits_of_one_rank),
        cmocka_unit_test(fast_is_near),
        cmocka_unit_test(heads_are_distributed),
        cmocka_unit_test(keys_travel_in_a_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
