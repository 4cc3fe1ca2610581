// Several ranks give the result of one rank: ranks are threads of this process over shared memory.
// In strict order the digest of weights and optimizer state is the same for every number of ranks.
// The daily test runs each number of ranks, cut and mesh with some of the models.
#include "fixtures/base/test_part.h"
#include "fixtures/train/test_ranks.h"

// Settings under which any number of ranks must have the digest of one rank.
static const char *const kinds[][6] = {
    {"determinism=strict", "train.micro_batch=2"},
    {"determinism=strict", "model.dropout=0.1", "model.tied=yes", "train.micro_batch=1"},
    {"determinism=strict", "train.precision=bf16", "determinism.shards=6"},
    {"determinism=strict", "train.batch_ramp=0=4,2=6,4=8"},
    {"determinism=strict", "optimizer.name=muon", "eval.every=2", "eval.batches=2"},
    {"determinism=strict", "optimizer.name=lion", "train.precision=bf16"},
};

enum { DP_MAX = 4 };

// How the optimizer state is cut.
static const char *const cuts[] = {"layout.zero=0", "layout.zero=1", "layout.zero=3"};

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
        for (int i = 0; i < COUNT_OF(cuts) * (DP_MAX - 1); i++) {
            const int ranks = 2 + i / COUNT_OF(cuts), cut = i % COUNT_OF(cuts);
            const int all = COUNT_OF(cuts) * (DP_MAX - 1);
            if (part_skips(TRIALS_PART, i, all, kind, COUNT_OF(kinds))) continue;
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

// Options of a run work in all layouts: each is tried on two meshes in turn (one in the daily
// test).
static const char *const features[][4] = {
    {"train.precision=bf16", "train.recompute=selective"},
    {"train.precision=fp16"},
    {"optimizer.name=muon"}, // tp does not support it
    {"train.batch_ramp=0=4,1=6,3=8", "optimizer.clip=0.1"},
    {"train.precision=bf16", "precision.master=none", "optimizer.stochastic_rounding=yes"},
    {"model.dropout=0.2", "train.recompute=full", "train.z_loss=1e-3"},
    {"train.recompute=full", "train.recompute_layers=1", "eval.every=3", "eval.batches=2"},
    {"policy.spike=skip", "policy.spike.threshold=1.01", "policy.spike.warmup=1"},
    {"model.arch=mistral", "model.window=8", "eval.every=2", "eval.batches=2"},
    {"data.packing=plain", "train.precision=bf16", "precision.moments=bf16"},
};
static const struct {
    int ranks;
    bool by_tp;
    const char *keys[5];
} meshes[] = {
    {4, false, {"layout.pp=2", "layout.dp=2", "layout.zero=1"}},
    {4, true, {"layout.tp=2", "layout.pp=2", "layout.schedule=zb-h1"}},
    {2, false, {"layout.pp=2", "layout.schedule=interleaved"}},
    {8, true, {"layout.tp=2", "layout.pp=2", "layout.dp=2", "layout.zero=1"}},
    {6, false, {"layout.dp=3", "layout.pp=2", "layout.schedule=gpipe"}},
    {2, true, {"layout.tp=2", "layout.sp=yes"}},
};

static void features_are_the_same_in_every_layout(void **state)
{
    (void)state;
    int mesh = 0;
    for (int f = 0; f < COUNT_OF(features); f++) {
        const char *settings[20] = {"determinism=strict", "determinism.tp_shards=2",
                                    "model.layers=4",     "train.micro_batch=1",
                                    "kernels.threads=1",  "train.steps=4"};
        int n = 6;
        run_seen seen = {0};
        hash128 one, many;
        char name[32];
        const bool is_muon = strcmp(features[f][0], "optimizer.name=muon") == 0;
        for (int i = 0; i < 4 && features[f][i] != NULL; i++) settings[n++] = features[f][i];
        (void)snprintf(name, sizeof(name), "feature-%d", f);
        assert_int_equal(test_run(name, settings, n, "auto", &seen, &one), ST_OK);
        for (int k = 0; k < 2; k++) {
            if (part_skips(TRIALS_PART, k, 2, f, COUNT_OF(features))) continue;
            while (is_muon && meshes[mesh].by_tp) mesh = (mesh + 1) % COUNT_OF(meshes);
            int count = n;
            for (int i = 0; i < 5 && meshes[mesh].keys[i] != NULL; i++) {
                settings[count++] = meshes[mesh].keys[i];
            }
            (void)snprintf(name, sizeof(name), "feature-%d-%d", f, mesh);
            const status st =
                ranks_run(name, settings, count, meshes[mesh].ranks, "auto", 0, &many);
            if (st != ST_OK || one.high != many.high || one.low != many.low) {
                print_error("%s ... on mesh %d\n", features[f][0], mesh);
            }
            assert_int_equal(st, ST_OK);
            assert_same(one, many);
            assert_true(rank_runs[0].seen.last_loss == seen.last_loss); // to the bit
            const double val_loss = rank_runs[0].outcome.best_val_loss;
            assert_true(seen.validated == 0 || val_loss == seen.best_val_loss);
            mesh = (mesh + 1) % COUNT_OF(meshes);
        }
    }
}

// A signal to one rank stops the run; another number of ranks resumes it.
static void ranks_change_on_resume(void **state)
{
    (void)state;
    const char *const one[] = {"determinism=strict", "train.steps=12"};
    const char *const two[] = {"determinism=strict", "train.steps=12", "layout.dp=2",
                               "kernels.threads=1"};
    const char *const three[] = {"determinism=strict", "train.steps=12", "layout.dp=3",
                                 "kernels.threads=1", "layout.zero=1"};
    const char *const four[] = {"determinism=strict", "train.steps=12", "layout.dp=4",
                                "kernels.threads=1",  "layout.zero=3",  "layout.zero_group=2"};
    run_seen seen = {0};
    hash128 straight, changed;
    assert_int_equal(test_run("straight", one, 2, "auto", &seen, &straight), ST_OK);
    assert_int_equal(ranks_run("changed", two, 4, 2, "auto", 1, NULL), ST_STOPPED);
    assert_int_equal(ranks_run("changed", four, 6, 4, "auto", 2, NULL), ST_STOPPED);
    assert_int_equal(ranks_run("changed", three, 5, 3, "auto", 2, NULL), ST_STOPPED);
    seen = (run_seen){0};
    assert_int_equal(test_run("changed", one, 2, "auto", &seen, &changed), ST_OK);
    assert_same(straight, changed);
}

// Fast order gives other bits and nearly the same losses.
static void fast_ranks_are_near(void **state)
{
    (void)state;
    const char *const one[] = {"train.steps=6"};
    const char *const two[] = {"train.steps=6", "layout.dp=2", "kernels.threads=1"};
    run_seen seen = {0};
    assert_int_equal(test_run("fast-one", one, 1, "auto", &seen, NULL), ST_OK);
    const double loss = seen.last_loss;
    hash128 a, b;
    assert_int_equal(ranks_run("fast-two", two, 3, 2, "auto", 0, &a), ST_OK);
    assert_int_equal(ranks_run("fast-again", two, 3, 2, "auto", 0, &b), ST_OK);
    assert_same(a, b);
    static const char *const types[][2] = {{"train.precision=fp32", "precision.grads=fp32"},
                                           {"train.precision=bf16", "precision.grads=fp32"},
                                           {"train.precision=bf16", "precision.grads=bf16"}};
    for (int i = 0; i < 9; i++) {
        const char *zero = i % 3 == 0   ? "layout.zero=1"
                           : i % 3 == 1 ? "layout.zero=2"
                                        : "layout.zero=3";
        const char *const four[] = {"train.steps=6",       "layout.dp=4",  "kernels.threads=1",
                                    "train.micro_batch=1", zero,           types[i / 3][0],
                                    "layout.zero_group=2", "eval.every=3", "eval.batches=1",
                                    types[i / 3][1]};
        char name[32];
        if (part_skips(TRIALS_PART, i % 3, 3, i / 3, 3)) continue;
        (void)snprintf(name, sizeof(name), "fast-cut-%d", i);
        assert_int_equal(ranks_run(name, four, 10, 4, "auto", 0, NULL), ST_OK);
        assert_true(fabs(rank_runs[0].seen.last_loss - loss) < 0.02);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_is_one),
        cmocka_unit_test(features_are_the_same_in_every_layout),
        cmocka_unit_test(ranks_change_on_resume),
        cmocka_unit_test(fast_ranks_are_near),
    };
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
