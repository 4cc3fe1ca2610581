// Replay of steps while a run trains: it changes no bit in any layout, a gradient that is computed
// wrong once or again and again is named with rank and tensor, and after a hit the step that is
// done again is replayed.
#include "base/fault.h"
#include "fixtures/base/test_part.h"
#include "fixtures/train/test_ranks.h"

enum { STEPS = 6, KEYS = 8 };

static int config_of(const char **out, const char *const keys[KEYS])
{
    int n = 0;
    out[n++] = "kernels.threads=1";
    out[n++] = "train.micro_batch=1";
    for (int i = 0; i < KEYS && keys[i] != NULL; i++) out[n++] = keys[i];
    return n;
}

static status run(const char *name, int ranks, const char *replay, const char *const keys[KEYS])
{
    const char *list[KEYS + 3];
    int n = config_of(list, keys);
    if (replay != NULL) list[n++] = replay;
    const status st = ranks_run(name, list, n, ranks, "auto", 0, NULL);
    if (st != ST_OK && st != ST_CORRUPT) print_error("%s: %s\n", name, rank_runs[0].error);
    return st;
}

// Every second step is replayed: the state is that of a run without, and nothing is found.
static void a_replay_changes_no_bit(void **state)
{
    (void)state;
    static const char others[] = "3 steps were computed again by the same ranks and by others";
    static const char same[] = "3 steps were computed again by the same ranks: ";
    static const struct {
        int ranks;
        const char *said, *keys[KEYS];
    } layouts[] = {
        {2, others, {"determinism=strict", "layout.dp=2", "model.tied=yes"}},
        {2, others, {"layout.dp=2", "model.dropout=0.1"}},
        {4,
         others,
         {"determinism=strict", "layout.dp=2", "layout.zero=3", "layout.tp=2",
          "determinism.tp_shards=2"}},
        {4, others, {"layout.dp=2", "layout.pp=2", "layout.zero=2"}},
        {1, same, {"layout.dp=1"}},
        {4,
         others,
         {"layout.dp=2", "layout.cp=2", "layout.zero=1", "determinism=strict",
          "determinism.cp_shards=2"}},
        {3, same, {"determinism=strict", "layout.dp=3", "determinism.shards=8"}},
        {2, others, {"layout.dp=2", "layout.zero=3", "train.precision=bf16"}},
        {2, others, {"layout.dp=2", "optimizer.name=muon", "train.batch_ramp=0=4,2=8"}},
        {2, others, {"layout.dp=2", "train.precision=fp8", "train.seq=128", "model.context=128"}},
        {2,
         same,
         {"layout.dp=2", "layout.ep=2", "model.experts=4", "model.experts_per_token=2",
          "model.ffn_dim=0"}},
        {2,
         others,
         {"layout.dp=2", "model.experts=4", "model.experts_per_token=2", "model.ffn_dim=0"}},
        {4,
         others, // groups of two ranks, each with the shares of the other group
         {"layout.dp=4", "layout.ep=2", "model.experts=4", "model.experts_per_token=2",
          "model.ffn_dim=0"}},
        {4,
         others,
         {"layout.dp=4", "layout.ep=2", "layout.zero=1", "determinism=strict", "model.experts=4",
          "model.experts_per_token=2", "model.ffn_dim=0", "moe.rebalance=2"}},
        {6,
         others,
         {"layout.dp=6", "layout.ep=2", "layout.zero=2", "train.global_batch=12", "model.experts=4",
          "model.experts_per_token=2", "model.ffn_dim=0"}},
    };
    const int count = part_of(TRIALS_PART) > 1 ? 2 : COUNT_OF(layouts);
    for (int i = 0; i < count; i++) {
        char name[32], calm[32];
        (void)snprintf(name, sizeof(name), "layout-%d", i);
        (void)snprintf(calm, sizeof(calm), "calm-%d", i);
        assert_int_equal(run(calm, layouts[i].ranks, NULL, layouts[i].keys), ST_OK);
        assert_int_equal(run(name, layouts[i].ranks, "sdc.replay=0.5", layouts[i].keys), ST_OK);
        assert_same(root_of(name, STEPS), root_of(calm, STEPS));
        if (strstr(rank_runs[0].seen.said, layouts[i].said) == NULL) {
            print_error("%s: %s\n", name, rank_runs[0].seen.said);
        }
        assert_non_null(strstr(rank_runs[0].seen.said, layouts[i].said));
        assert_int_equal(metrics_with(name, "\"sdc\"", ""), 0);
    }
}

// The hits of a fault point in one pass of one rank, when one step is replayed.
static int64_t hits_of_pass(const char *point, int ranks, const char *const keys[KEYS])
{
    char fault[64];
    (void)snprintf(fault, sizeof(fault), "%s=0", point);
    assert_int_equal(fault_arm(fault), ST_OK);
    assert_int_equal(run("count", ranks, "sdc.replay=0.17", keys), ST_OK); // step 6 alone
    const int64_t hits = fault_hits(point);
    assert_true(hits > 0 && hits % 3 == 0);
    return hits / 3;
}

// One flip in each pass: in the replays of the own and of another rank's share nothing is undone,
// and in the step itself the run ends with the rank.
static void a_gradient_that_is_wrong_once_is_named(void **state)
{
    (void)state;
    static const char *const keys[KEYS] = {"determinism=strict", "layout.dp=2"};
    const int64_t each = hits_of_pass("train.local.1", 2, keys);
    const hash128 want = root_of("count", STEPS);
    for (int pass = part_of(TRIALS_PART) > 1 ? 1 : 0; pass < 3; pass++) {
        char name[32], fault[64];
        (void)snprintf(name, sizeof(name), "once-%d", pass);
        (void)snprintf(fault, sizeof(fault), "train.local.1=%lld",
                       (long long)(each * pass + 1 + pass * each / 3));
        assert_int_equal(fault_arm(fault), ST_OK);
        const status st = run(name, 2, "sdc.replay=0.17", keys);
        assert_int_equal(st, pass == 2 ? ST_CORRUPT : ST_OK);
        assert_true(metrics_with(name, "\"event\": \"sdc\", \"rank\": 1,",
                                 "\"verdict\": \"once\", \"cause\": \"replay\"") > 0);
        assert_true(metrics_with(name, "\"step\": 6,", "\"tensor\": \"") > 0);
        if (pass < 2) assert_same(root_of(name, STEPS), want);
        if (pass < 2) continue;
        assert_int_equal(rank_runs[0].outcome.wrong, 1);
        assert_non_null(strstr(rank_runs[0].error, "step 6: rank 1 computed a wrong gradient of "));
    }
    assert_int_equal(fault_arm(NULL), ST_OK);
}

// The event of the finding is lost, and so are the records of the steps.
static void a_full_disk_ends_no_replayed_run(void **state)
{
    (void)state;
    static const char *const keys[KEYS] = {"determinism=strict", "layout.dp=2"};
    assert_int_equal(fault_arm("train.local.1=1,observe.append=3+:DISK_FULL"), ST_OK);
    assert_int_equal(run("full", 2, "sdc.replay=0.17", keys), ST_OK);
    assert_same(root_of("full", STEPS), root_of("count", STEPS));
    assert_non_null(strstr(rank_runs[0].seen.said, "computed a wrong gradient of"));
    assert_int_equal(metrics_with("full", "\"sdc\"", ""), 0);
    assert_int_equal(fault_arm(NULL), ST_OK);
}

static void a_gradient_that_is_always_wrong_is_named(void **state)
{
    (void)state;
    static const char *const three[KEYS] = {"layout.dp=3", "train.global_batch=6"};
    static const char *const two[KEYS] = {"layout.dp=2"};
    assert_int_equal(fault_arm("train.local.1=1+"), ST_OK);
    assert_int_equal(run("always", 3, "sdc.replay=0.5", three), ST_CORRUPT);
    assert_int_equal(rank_runs[0].outcome.wrong, 1);
    assert_non_null(strstr(rank_runs[0].error, "step 2: rank 1 computes a wrong gradient of "));
    assert_true(metrics_with("always", "\"rank\": 1,", "\"verdict\": \"always\"") > 0);
    assert_int_equal(run("undecided", 2, "sdc.replay=0.5", two), ST_CORRUPT);
    assert_int_equal(rank_runs[0].outcome.wrong, -1);
    assert_true(metrics_with("undecided", "\"event\": \"sdc\"", "\"verdict\": \"undecided\"") > 0);
    assert_int_equal(fault_arm(NULL), ST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replay_changes_no_bit),
        cmocka_unit_test(a_gradient_that_is_wrong_once_is_named),
        cmocka_unit_test(a_full_disk_ends_no_replayed_run),
        cmocka_unit_test(a_gradient_that_is_always_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
