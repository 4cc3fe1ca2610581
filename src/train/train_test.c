// Whole runs of a tiny model: the same weights for every way of running them, resumed or not, and
// the folder that a run leaves.
#include "fixtures/base/test_part.h"
#include "fixtures/train/test_run.h"

static hash128 digest_of(const char *name, const char *const *more, int count)
{
    run_seen watch = {0};
    hash128 out = {0, 0};
    assert_int_equal(test_run(name, more, count, "none", &watch, &out), ST_OK);
    assert_int_equal(watch.steps, 6);
    assert_true(watch.saved >= 1);
    assert_true(watch.last_loss < watch.first_loss);
    return out;
}

static void assert_same(hash128 a, hash128 b)
{
    assert_true(a.high == b.high && a.low == b.low);
}

static void strict_has_one_digest(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp32", "bf16"};
    for (int p = 0; p < 2; p++) {
        char precision[64], name[64];
        (void)snprintf(precision, sizeof(precision), "train.precision=%s", precisions[p]);
        const char *const first[] = {"determinism=strict", precision, "train.micro_batch=8",
                                     "kernels.threads=1", "model.dropout=0.1"};
        const hash128 want = digest_of("first", first, 5);
        static const char *const others[][3] = {
            {"train.micro_batch=1", "kernels.threads=2", "train.recompute=none"},
            {"train.micro_batch=2", "kernels.threads=2", "train.recompute=full"},
            {"train.micro_batch=4", "kernels.threads=1", "train.recompute=selective"},
            {"train.micro_batch=8", "kernels.threads=2", "kernels.device=shadow"},
            {"train.micro_batch=2", "kernels.device=shadow", "train.recompute=selective"},
            {"train.micro_batch=2", "train.recompute=full", "train.recompute_layers=1"},
        };
        for (int i = 0; i < COUNT_OF(others); i++) {
            const char *const more[] = {"determinism=strict", precision,    "model.dropout=0.1",
                                        others[i][0],         others[i][1], others[i][2]};
            if (part_skips(CASES_PART, i, COUNT_OF(others), p, 2)) continue;
            (void)snprintf(name, sizeof(name), "%s-%d", precisions[p], i);
            assert_same(digest_of(name, more, 6), want);
        }
    }
}

static void resumed_equals_uninterrupted(void **state)
{
    (void)state;
    static const char *const more[] = {"determinism=strict", "model.dropout=0.1", "eval.every=2",
                                       "eval.batches=2", "checkpoint.every=2"};
    const hash128 straight = digest_of("straight", more, 5);
    run_seen watch = {.stop_after = 3};
    hash128 out = {0, 0};
    assert_int_equal(test_run("resumed", more, 5, "auto", &watch, &out), ST_STOPPED);
    assert_true(watch.steps >= 3 && watch.steps < 6);
    watch.stop_after = 0;
    assert_int_equal(test_run("resumed", more, 5, "auto", &watch, &out), ST_OK);
    assert_int_equal(watch.steps, 6);
    assert_same(out, straight);
    // Another start finds a finished run and changes nothing.
    assert_int_equal(test_run("resumed", more, 5, "auto", &watch, &out), ST_OK);
    assert_same(out, straight);
}

// Flips one byte in the middle of a file.
static void damage(const char *path)
{
    arena *a = NULL;
    char *bytes = NULL;
    int64_t count = 0;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(host_read_all(host_real(), a, path, 1 << 26, &bytes, &count), ST_OK);
    bytes[count / 2] = (char)(bytes[count / 2] ^ 0x10);
    assert_int_equal(host_write_all(host_real(), path, bytes, count), ST_OK);
    arena_destroy(a);
}

static void a_damaged_checkpoint_falls_back(void **state)
{
    (void)state;
    static const char *const more[] = {"determinism=strict", "checkpoint.every=2"};
    char path[256];
    const hash128 straight = digest_of("fallback", more, 2);
    (void)snprintf(path, sizeof(path),
                   "%s/fallback/checkpoints/step-0000006/state-00000-of-00001.safetensors",
                   test_folder);
    damage(path);
    run_seen watch = {0};
    hash128 out = {0, 0};
    assert_int_equal(test_run("fallback", more, 2, "auto", &watch, &out), ST_OK);
    assert_int_equal(watch.steps, 6); // steps after step 4
    assert_true(watch.warned > 0);
    assert_same(out, straight);
}

// The folder of a run is moved away under it: the run says so and leaves a whole run where the
// folder was.
static void a_moved_folder_is_made_again(void **state)
{
    (void)state;
    static const char *const more[] = {"determinism=strict"};
    static const char *const files[] = {"run.json", "config.resolved.yaml", "metrics.jsonl",
                                        "STATUS", "checkpoints/step-0000006/manifest.json"};
    char from[128], to[128], path[256];
    (void)snprintf(from, sizeof(from), "%s/moved", test_folder);
    (void)snprintf(to, sizeof(to), "%s/moved-away", test_folder);
    run_seen watch = {.folder = from, .folder_moves_to = to};
    hash128 out = {0, 0};
    assert_int_equal(test_run("moved", more, 1, "none", &watch, &out), ST_OK);
    assert_non_null(strstr(watch.said, "was removed, moved or replaced"));
    assert_same(out, digest_of("stays", more, 1));
    for (int64_t i = 0; i < COUNT_OF(files); i++) {
        file_info info;
        (void)snprintf(path, sizeof(path), "%s/%s", from, files[i]);
        assert_int_equal(host_real()->api->path_info(host_real(), path, &info), ST_OK);
        assert_int_equal(info.kind, FILE_KIND_REGULAR);
    }
}

static void every_precision_and_optimizer_learns(void **state)
{
    (void)state;
    static const char *const runs[][4] = {
        {"train.precision=fp16", "optimizer.name=adamw", "train.recompute=full"},
        {"train.precision=bf16", "optimizer.name=muon", "train.recompute=selective"},
        {"train.precision=fp32", "optimizer.name=muon", "model.arch=qwen3"},
        {"train.precision=bf16", "optimizer.name=lion", "precision.moments=bf16"},
        {"train.precision=bf16", "precision.moments=bf16", "optimizer.stochastic_rounding=yes"},
        {"train.precision=bf16", "precision.grads=bf16", "model.arch=gpt2", "model.kv_heads=4"},
        {"train.precision=bf16", "precision.master=none", "optimizer.stochastic_rounding=yes"},
        {"train.precision=fp32", "data.packing=plain", "train.z_loss=1e-4"},
    };
    for (int i = 0; i < COUNT_OF(runs); i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "kinds-%d", i);
        (void)digest_of(name, runs[i], runs[i][3] == NULL ? 3 : 4);
    }
}

static void a_ramp_changes_the_batch(void **state)
{
    (void)state;
    static const char *const more[] = {"train.batch_ramp=0=2,2=4,4=8", "determinism=strict",
                                       "train.micro_batch=2"};
    static const char *const other[] = {"train.batch_ramp=0=2,2=4,4=8", "determinism=strict",
                                        "train.micro_batch=1"};
    assert_same(digest_of("ramp", more, 3), digest_of("ramp-1", other, 3));
}

// Transient bytes of one sequence grow linearly with its length, because attention stores no score
// matrix.
static void memory_is_linear_in_the_sequence(void **state)
{
    (void)state;
    int64_t bytes[3];
    for (int i = 0; i < 3; i++) {
        char seq[64];
        (void)snprintf(seq, sizeof(seq), "train.seq=%d", 2048 << i);
        const char *const list[] = {seq,
                                    "data.train=x",
                                    "train.global_batch=1",
                                    "model.dim=64",
                                    "model.layers=2",
                                    "model.heads=4",
                                    "model.vocab=257"};
        arena *a = NULL;
        run_config r;
        config *c = NULL;
        decoder_spec spec;
        assemble_plans plans;
        const assemble_options options = {.threads = 2, .device = "cpu", .backend = "cpu"};
        memset(&r, 0, sizeof(r));
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        assert_int_equal(run_config_load(host_real(), a, NULL, list, COUNT_OF(list), &r, &c),
                         ST_OK);
        assert_int_equal(model_spec_from_config(host_real(), a, &r, &spec), ST_OK);
        assert_int_equal(assemble_rank(a, &r, &spec, &options, &plans), ST_OK);
        bytes[i] = plans.all[0]->transient_bytes;
        arena_destroy(a);
    }
    const double first = (double)(bytes[1] - bytes[0]), second = (double)(bytes[2] - bytes[1]);
    assert_true(second < 2.1 * first); // growth for twice as many tokens
}

// A sequence of 8,192 positions trains; the daily test with sanitizers uses a shorter one.
static void a_long_sequence_trains(void **state)
{
    (void)state;
    const char *const more[] = {part_of(CASES_PART) > 1 ? "train.seq=2048" : "train.seq=8192",
                                "train.global_batch=1",
                                "train.steps=2",
                                "model.dim=16",
                                "model.ffn_dim=16",
                                "model.heads=1",
                                "model.kv_heads=1",
                                "data.valid=0",
                                "schedule.warmup=0"};
    run_seen watch = {0};
    assert_int_equal(test_run("long", more, COUNT_OF(more), "none", &watch, NULL), ST_OK);
    assert_int_equal(watch.steps, 2);
}

static void misfits_are_refused(void **state)
{
    (void)state;
    static const char *const more[] = {"memory.limit=1MiB"};
    run_seen watch = {0};
    assert_int_equal(test_run("small", more, 1, "none", &watch, NULL), ST_DOES_NOT_FIT);
    assert_non_null(strstr(error_last()->text, "where the bytes go"));
    assert_int_equal(watch.steps, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strict_has_one_digest),
        cmocka_unit_test(resumed_equals_uninterrupted),
        cmocka_unit_test(every_precision_and_optimizer_learns),
        cmocka_unit_test(a_ramp_changes_the_batch),
        cmocka_unit_test(a_damaged_checkpoint_falls_back),
        cmocka_unit_test(a_moved_folder_is_made_again),
        cmocka_unit_test(memory_is_linear_in_the_sequence),
        cmocka_unit_test(a_long_sequence_trains),
        cmocka_unit_test(misfits_are_refused),
    };
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
