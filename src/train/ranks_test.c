// Several ranks train what one trains: threads of this process as ranks, over shared memory. In strict
// order the digest of weights and optimizer is the same for every number of them.
#include "train/test_ranks.h"

// Settings under which any number of ranks must give the digest of one.
static const char *const kinds[][6] = {
    {"determinism=strict", "train.micro_batch=2"},
    {"determinism=strict", "model.dropout=0.1", "model.tied=yes", "train.micro_batch=1"},
    {"determinism=strict", "train.precision=bf16", "determinism.shards=6"},
    {"determinism=strict", "train.batch_ramp=0=4,2=6,4=8"},
    {"determinism=strict", "optimizer.name=muon", "eval.every=2", "eval.batches=2"},
};

enum { DP_MAX = 4 };

// And how the state is cut.
static const char *const cuts[] = {"layout.zero=0", "layout.zero=1"};

static int settings_of(int kind, const char **out)
{
    int n = 0;
    while (n < 6 && kinds[kind][n] != NULL) {
        out[n] = kinds[kind][n];
        n++;
    }
    return n;
}

static void any_number_of_ranks_is_one(void **state)
{
    (void)state;
    for (int kind = 0; kind < COUNT_OF(kinds); kind++) {
        const char *settings[12];
        const int n = settings_of(kind, settings);
        run_seen seen = {0};
        hash128 one, many;
        char name[32], dp[32];
        (void)snprintf(name, sizeof(name), "one-%d", kind);
        assert_int_equal(test_run(name, settings, n, "auto", &seen, &one), ST_OK);
        for (int i = 0; i < 2 * (DP_MAX - 1); i++) {
            const int ranks = 2 + i / 2, cut = i % 2;
            (void)snprintf(name, sizeof(name), "many-%d-%d-%d", kind, ranks, cut);
            (void)snprintf(dp, sizeof(dp), "layout.dp=%d", ranks);
            settings[n] = dp;
            settings[n + 1] = cuts[cut];
            settings[n + 2] = "kernels.threads=1";
            assert_int_equal(ranks_run(name, settings, n + 3, ranks, "auto", 0, &many), ST_OK);
            assert_same(one, many);
        }
    }
}

// Stopped by a signal to one rank, continued by another number of ranks.
static void ranks_change_on_resume(void **state)
{
    (void)state;
    const char *const one[] = {"determinism=strict"};
    const char *const two[] = {"determinism=strict", "layout.dp=2", "kernels.threads=1"};
    const char *const three[] = {"determinism=strict", "layout.dp=3", "kernels.threads=1",
                                 "layout.zero=1"};
    run_seen seen = {0};
    hash128 straight, changed;
    assert_int_equal(test_run("straight", one, 1, "auto", &seen, &straight), ST_OK);
    assert_int_equal(ranks_run("changed", two, 3, 2, "auto", 2, NULL), ST_STOPPED);
    assert_int_equal(ranks_run("changed", three, 4, 3, "auto", 4, NULL), ST_STOPPED);
    seen = (run_seen){0};
    assert_int_equal(test_run("changed", one, 1, "auto", &seen, &changed), ST_OK);
    assert_same(straight, changed);
}

// Fast order: other bits, the same losses.
static void fast_ranks_are_near(void **state)
{
    (void)state;
    const char *const one[] = {"train.steps=6"};
    const char *const two[] = {"train.steps=6", "layout.dp=2", "kernels.threads=1"};
    run_seen seen = {0};
    assert_int_equal(test_run("fast-one", one, 1, "auto", &seen, NULL), ST_OK);
    hash128 a, b;
    assert_int_equal(ranks_run("fast-two", two, 3, 2, "auto", 0, &a), ST_OK);
    assert_int_equal(ranks_run("fast-again", two, 3, 2, "auto", 0, &b), ST_OK);
    assert_same(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_is_one),
        cmocka_unit_test(ranks_change_on_resume),
        cmocka_unit_test(fast_ranks_are_near),
    };
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
