// sdc.digests: a bit that flips in the summed gradient of one rank is found in the same step and
// named with rank and tensor, as is one in what a rank alone holds at rest. Runs without a fault
// are left alone in every layout.
#include "base/fault.h"
#include "fixtures/base/test_part.h"
#include "fixtures/train/test_ranks.h"

enum { STEPS = 6, FLIPS = 4 };

static int config_of(const char **out, const char *a, const char *b, const char *c, const char *d)
{
    const char *const all[] = {"determinism=strict",
                               "kernels.threads=1",
                               "train.micro_batch=1",
                               "sdc.digests=1",
                               a,
                               b,
                               c,
                               d};
    int n = 0;
    for (int i = 0; i < COUNT_OF(all); i++) {
        if (all[i] != NULL) out[n++] = all[i];
    }
    return n;
}

static void a_flip_in_a_gradient_is_named(void **state)
{
    (void)state;
    const char *list[8];
    const int n = config_of(list, "layout.dp=3", NULL, NULL, NULL);
    int64_t hits = 0;
    assert_int_equal(fault_arm("train.gradient.1=0"), ST_OK);
    assert_int_equal(ranks_run("calm", list, n, 3, "auto", 0, NULL), ST_OK);
    hits = fault_hits("train.gradient.1");
    assert_true(hits > 0 && hits % STEPS == 0);
    for (int i = 0; i < FLIPS; i++) {
        const int64_t rank = i % 3, hit = 1 + i * (hits - 1) / (FLIPS - 1);
        char name[32], fault[64], found[64], step[48];
        (void)snprintf(name, sizeof(name), "flip-%d", i);
        (void)snprintf(fault, sizeof(fault), "train.gradient.%lld=%lld", (long long)rank,
                       (long long)hit);
        (void)snprintf(found, sizeof(found), "of rank %lld differs from that of 2 ranks",
                       (long long)rank);
        (void)snprintf(step, sizeof(step), "step %lld: gradient/",
                       (long long)(1 + (hit - 1) / (hits / STEPS)));
        assert_int_equal(fault_arm(fault), ST_OK);
        assert_int_equal(ranks_run(name, list, n, 3, "auto", 0, NULL), ST_CORRUPT);
        assert_non_null(strstr(rank_runs[0].error, found));
        assert_non_null(strstr(rank_runs[0].error, step));
        assert_int_equal(rank_runs[0].outcome.wrong, rank);
    }
    assert_int_equal(fault_arm(NULL), ST_OK);
}

// The sum of a gradient that one rank alone has is compared with what it was.
static void a_flip_in_a_sum_of_one_rank_is_named(void **state)
{
    (void)state;
    static const char *const stages[] = {"layout.zero=1", "layout.zero=3"};
    for (int i = 0; i < COUNT_OF(stages); i++) {
        const char *list[8];
        const int n = config_of(list, "layout.dp=2", stages[i], "train.steps=2", NULL);
        assert_int_equal(fault_arm("train.gradient.1=3"), ST_OK);
        assert_int_equal(ranks_run(stages[i], list, n, 2, "auto", 0, NULL), ST_CORRUPT);
        assert_non_null(strstr(rank_runs[0].error, "step 1: gradient/layers.0.attn.q"));
        assert_non_null(strstr(rank_runs[0].error, " of rank 1 has changed since it was written"));
        assert_int_equal(rank_runs[0].outcome.wrong, 1);
    }
    assert_int_equal(fault_arm(NULL), ST_OK);
}

// Each row of rank 1 that is hashed at rest changes once, and is named.
static void rest_is_watched(const char *zero, const char *numerics, const char *order,
                            const char *wanted, int64_t trials)
{
    const char *list[9];
    const int n = config_of(list, "layout.dp=2", zero, numerics, "train.steps=3");
    list[n] = order;
    bool seen[4] = {false}; // weights, master weights, moments, residuals
    assert_int_equal(fault_arm("train.rest.1=0"), ST_OK);
    assert_int_equal(ranks_run(zero, list, n + 1, 2, "auto", 0, NULL), ST_OK);
    const int64_t hits = fault_hits("train.rest.1");
    assert_true(hits > 0);
    if (part_of(TRIALS_PART) != 1) trials = 2;
    for (int64_t hit = 1; hit <= hits; hit += 1 + hits / trials) {
        char fault[64], name[48];
        (void)snprintf(fault, sizeof(fault), "train.rest.1=%lld", (long long)hit);
        (void)snprintf(name, sizeof(name), "%.20s-%lld", zero, (long long)hit);
        assert_int_equal(fault_arm(fault), ST_OK);
        const status st = ranks_run(name, list, n + 1, 2, "auto", 0, NULL);
        const char *error = rank_runs[0].error;
        if (st != ST_CORRUPT) print_error("%s %s: status %d, %s\n", zero, fault, st, error);
        assert_int_equal(st, ST_CORRUPT);
        assert_non_null(strstr(error, "of rank 1 has changed since it was written"));
        assert_int_equal(rank_runs[0].outcome.wrong, 1);
        const bool is_moment = strstr(error, ": m.") != NULL || strstr(error, ": v.") != NULL;
        const bool is_residual = strstr(error, ": feedback.") != NULL;
        seen[strstr(error, ": master.") != NULL ? 1 : is_moment ? 2 : is_residual ? 3 : 0] = true;
    }
    for (int i = 0; i < 4 && part_of(TRIALS_PART) == 1; i++) {
        assert_int_equal(seen[i], wanted[i] == '1');
    }
    assert_int_equal(fault_arm(NULL), ST_OK);
}

static void a_flip_at_rest_is_named(void **state)
{
    (void)state;
    static const char strict[] = "determinism=strict", fast[] = "determinism=fast";
    rest_is_watched("layout.zero=3", "train.precision=bf16", strict, "1110", 16);
    rest_is_watched("layout.zero=1", NULL, strict, "1010", 16);
    rest_is_watched("comm.compression.mode=topk", "comm.compression.warmup=1", fast, "1011", 48);
}

static void no_false_alarm_in_any_layout(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *keys[9];
    } layouts[] = {
        {4, {"layout.dp=2", "layout.tp=2", "determinism.tp_shards=2"}},
        {4, {"layout.dp=2", "layout.pp=2", "layout.zero=1", "model.tied=yes"}},
        {4, {"layout.dp=2", "layout.tp=2", "layout.sp=yes", "determinism.tp_shards=2"}},
        {2, {"layout.dp=2", "optimizer.name=muon", "train.batch_ramp=0=4,2=6,4=8"}},
        {2,
         {"layout.dp=2", "layout.zero=3", "train.precision=bf16", "optimizer.clip=0.01",
          "train.freeze=layers.0.*"}},
        {2, {"layout.dp=2", "layout.zero=2", "train.precision=fp8", "train.seq=128"}},
        {4,
         {"layout.dp=4", "layout.ep=2", "layout.zero=3", "moe.rebalance=1", "model.experts=4",
          "model.experts_per_token=2", "model.expert_ffn_dim=8", "model.ffn_dim=0"}},
        // At night.
        {2,
         {"layout.dp=2", "layout.zero=1", "optimizer.name=muon", "train.batch_ramp=0=4,2=6,4=8"}},
        {2,
         {"layout.dp=2", "layout.zero=3", "policy.spike=skip", "policy.spike.threshold=1.01",
          "policy.spike.warmup=1"}},
        {2,
         {"layout.pp=2", "layout.schedule=interleaved", "model.layers=4", "train.precision=bf16"}},
        {4,
         {"layout.pp=2", "layout.dp=2", "layout.schedule=zb-v", "model.layers=4", "layout.zero=2"}},
        {4,
         {"layout.cp=2", "determinism.cp_shards=2", "layout.dp=2", "layout.zero=1",
          "train.freeze=embed.*"}},
        {4,
         {"layout.tp=2", "determinism.tp_shards=2", "layout.dp=2", "layout.zero=3",
          "train.precision=bf16"}},
        {2,
         {"layout.dp=2", "comm.compression.mode=topk", "comm.compression.warmup=2",
          "determinism=fast"}},
        {4,
         {"layout.dp=2", "layout.pp=2", "layout.zero=1", "comm.compression.mode=onebit",
          "comm.compression.warmup=0", "determinism=fast"}},
    };
    enum { BY_DAY = 7 };
    for (int i = 0; i < (part_of(TRIALS_PART) == 1 ? COUNT_OF(layouts) : BY_DAY); i++) {
        const char *list[13], *const *k = layouts[i].keys;
        char name[32];
        int n = config_of(list, k[0], k[1], k[2], k[3]);
        for (int j = 4; j < COUNT_OF(layouts[i].keys) && k[j] != NULL; j++) list[n++] = k[j];
        (void)snprintf(name, sizeof(name), "layout-%d", i);
        const status st = ranks_run(name, list, n, layouts[i].ranks, "auto", 0, NULL);
        if (st != ST_OK) print_error("%s: %s\n", name, rank_runs[0].error);
        assert_int_equal(st, ST_OK);
    }
    // The root of the tree over the tensors does not depend on the layout, but on the values.
    const char *const one[] = {"determinism=strict", "kernels.threads=1", "train.micro_batch=1",
                               "determinism.tp_shards=2"};
    run_seen seen = {0};
    assert_int_equal(test_run("one", one, COUNT_OF(one), "auto", &seen, NULL), ST_OK);
    assert_same(root_of("layout-0", STEPS), root_of("one", STEPS));
    assert_same(root_of("layout-2", STEPS), root_of("one", STEPS));
    assert_true(root_of("layout-3", STEPS).low != root_of("one", STEPS).low);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flip_in_a_gradient_is_named),
        cmocka_unit_test(a_flip_in_a_sum_of_one_rank_is_named),
        cmocka_unit_test(a_flip_at_rest_is_named),
        cmocka_unit_test(no_false_alarm_in_any_layout),
    };
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
