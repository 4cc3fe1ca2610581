// sdc.abft: a bit that flips in a product of one rank, before gradients are summed, is repaired,
// and the run ends with the state of an undisturbed one; a fault that stays ends the session, and
// names the rank.
#include "base/fault.h"
#include "fixtures/base/test_part.h"
#include "fixtures/train/test_ranks.h"

enum { STEPS = 6, FLIPS = 6 };

static int config_of(const char **out, const char *share, const char *const keys[4])
{
    int n = 0;
    out[n++] = "determinism=strict";
    out[n++] = "kernels.threads=1";
    out[n++] = "train.micro_batch=1";
    out[n++] = "layout.dp=2";
    if (share != NULL) out[n++] = share;
    for (int i = 0; i < 4 && keys[i] != NULL; i++) out[n++] = keys[i];
    return n;
}

static bool is_same(hash128 a, hash128 b)
{
    return a.low == b.low && a.high == b.high;
}

static status run(const char *name, const char *share, const char *const keys[4])
{
    const char *list[12];
    const int n = config_of(list, share, keys);
    const status st = ranks_run(name, list, n, 2, "auto", 0, NULL);
    if (st != ST_OK && st != ST_CORRUPT) print_error("%s: %s\n", name, rank_runs[0].error);
    return st;
}

// Runs without a check, with one, and with flips in products of both ranks: all have one root, and
// without the check some of the flips change it.
static void flips_of(const char *name, const char *const keys[4])
{
    char calm[32], other[32], fault[64], who[16];
    int64_t seen = 0, changed = 0;
    (void)snprintf(calm, sizeof(calm), "%s-calm", name);
    assert_int_equal(run(calm, NULL, keys), ST_OK);
    const hash128 want = root_of(calm, STEPS);
    assert_int_equal(fault_arm("kernels.product.0=0,kernels.product.1=0"), ST_OK);
    (void)snprintf(other, sizeof(other), "%s-checked", name);
    assert_int_equal(run(other, "sdc.abft=1", keys), ST_OK);
    const int64_t products = fault_hits("kernels.product.1");
    assert_true(is_same(root_of(other, STEPS), want));
    assert_int_equal(metrics_with(other, "\"sdc\"", ""), 0);
    assert_true(products > 20 * STEPS);
    const int flips = part_of(TRIALS_PART) > 1 ? 2 : FLIPS;
    for (int i = 0; i < flips; i++) {
        const int64_t hit = 1 + (products - 1) * (2 * i + 1) / (2 * FLIPS);
        (void)snprintf(fault, sizeof(fault), "kernels.product.%d=%lld", i % 2, (long long)hit);
        (void)snprintf(who, sizeof(who), "\"rank\": %d,", i % 2);
        (void)snprintf(other, sizeof(other), "%s-blind-%d", name, i);
        assert_int_equal(fault_arm(fault), ST_OK);
        assert_int_equal(run(other, "sdc.abft=1e-300", keys), ST_OK);
        const bool matters = !is_same(root_of(other, STEPS), want);
        (void)snprintf(other, sizeof(other), "%s-flip-%d", name, i);
        assert_int_equal(fault_arm(fault), ST_OK);
        assert_int_equal(run(other, "sdc.abft=1", keys), ST_OK);
        const bool told = metrics_with(other, "\"cause\": \"abft\"", who) > 0;
        if (told) assert_true(is_same(root_of(other, STEPS), want));
        changed += matters;
        seen += told;
    }
    assert_int_equal(fault_arm(NULL), ST_OK);
    print_message("%s: %lld of %d flips changed the weights, %lld were repaired\n", name,
                  (long long)changed, flips, (long long)seen);
    assert_true(flips < FLIPS || seen >= FLIPS / 4);
}

static void a_flip_before_the_sum_is_repaired(void **state)
{
    (void)state;
    static const char *const fp32[4] = {"train.precision=fp32"};
    static const char *const bf16[4] = {"train.precision=bf16"};
    static const char *const fp8[4] = {"train.precision=fp8", "train.seq=128", "model.context=128"};
    static const char *const experts[4] = {"model.experts=4", "model.experts_per_token=2",
                                           "model.expert_ffn_dim=32", "model.ffn_dim=0"};
    flips_of("bf16", bf16);
    if (part_of(TRIALS_PART) > 1) return;
    flips_of("fp32", fp32);
    flips_of("fp8", fp8);
    flips_of("experts", experts);
}

static void a_fault_that_stays_names_its_rank(void **state)
{
    (void)state;
    static const char *const none[4] = {NULL};
    assert_int_equal(fault_arm("kernels.product.1=40+"), ST_OK);
    ranks_fail_alone = true;
    assert_int_equal(run("broken", "sdc.abft=1", none), ST_PEER_LOST);
    ranks_fail_alone = false;
    assert_int_equal(fault_arm(NULL), ST_OK);
    assert_int_equal(rank_runs[1].st, ST_CORRUPT);
    assert_int_equal(rank_runs[1].outcome.wrong, 1);
    assert_int_equal(rank_runs[0].outcome.wrong, -1);
    assert_non_null(strstr(rank_runs[1].error, "is wrong on rank 1, also when computed again"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flip_before_the_sum_is_repaired),
        cmocka_unit_test(a_fault_that_stays_names_its_rank),
    };
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
