// An interrupted and resumed run equals an uninterrupted one: weights, optimizer, data, random
// numbers, loss scale, batch ramp, evaluations, best checkpoint and metrics. Further tests damage
// the newest checkpoint, or all of them, or fill the disk.
#include "base/fault.h"
#include "fixtures/train/test_run.h"

#include <stdlib.h>
#include <unistd.h>

enum { SETTINGS_MAX = 12 };

static void assert_same(hash128 a, hash128 b)
{
    assert_true(a.high == b.high && a.low == b.low);
}

static void path_of(char out[512], const char *run, const char *name)
{
    (void)snprintf(out, 512, "%s/%s/%s", test_folder, run, name);
}

static bool stands(const char *run, const char *name)
{
    char path[512];
    path_of(path, run, name);
    return access(path, F_OK) == 0;
}

static void link_target(const char *run, const char *name, char out[256])
{
    char path[512];
    path_of(path, run, name);
    const ssize_t n = readlink(path, out, 255);
    assert_true(n > 0);
    out[n] = '\0';
}

// Leaves the folder as a crash before this save does.
static void remove_checkpoint(const char *run, const char *name)
{
    char command[600];
    assert_true(stands(run, name));
    (void)snprintf(command, sizeof(command), "rm -r '%s/%s/%s'", test_folder, run, name);
    assert_int_equal(system(command), 0);
}

// Flips one byte in the middle of a file.
static void damage(const char *run, const char *name)
{
    arena *a = NULL;
    char path[512], *bytes = NULL;
    int64_t count = 0;
    path_of(path, run, name);
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(host_read_all(host_real(), a, path, 1 << 26, &bytes, &count), ST_OK);
    bytes[count / 2] = (char)(bytes[count / 2] ^ 0x10);
    assert_int_equal(host_write_all(host_real(), path, bytes, count), ST_OK);
    arena_destroy(a);
}

// Reads metrics.jsonl without fields that depend on the clock: "time", "tokens_per_s", "mfu",
// "wait".
static char *metrics_of(arena *a, const char *run)
{
    char path[512], *all = NULL;
    int64_t count = 0;
    text t = {.a = a};
    path_of(path, run, "metrics.jsonl");
    assert_int_equal(host_read_all(host_real(), a, path, 1 << 20, &all, &count), ST_OK);
    for (char *line = strtok(all, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        const char *time = strstr(line, "\"time\""), *loss = strstr(line, "\"loss\"");
        char *rates = strstr(line, ", \"tokens_per_s\"");
        assert_true(time != NULL && loss != NULL && rates != NULL);
        *rates = '\0';
        assert_int_equal(text_add(&t, "%.*s%s\n", (int)(time - line), line, loss), ST_OK);
    }
    return t.bytes;
}

static void status_line(const char *run, char out[256])
{
    char path[512];
    path_of(path, run, "STATUS");
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(out, 256, f));
    (void)fclose(f);
}

// ---- exact --------------------------------------------------------------------------------------

static void one_way_is_resumed(const char *const *settings, int count, int number)
{
    char straight[32], cut[32], line[256], best[256], again[256];
    hash128 want, have;
    run_seen watch = {0}, first = {.stop_after = 5}, second = {0};
    arena *a = NULL;
    (void)snprintf(straight, sizeof(straight), "straight-%d", number);
    (void)snprintf(cut, sizeof(cut), "cut-%d", number);
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(test_run(straight, settings, count, "auto", &watch, &want), ST_OK);
    // The run stops after 5 or 6 steps and loses its last save: step 4 is the newest.
    assert_int_equal(test_run(cut, settings, count, "auto", &first, &have), ST_STOPPED);
    status_line(cut, line);
    assert_non_null(strstr(line, "stopped 75 SIGTERM in step "));
    const bool five = stands(cut, "checkpoints/step-0000005");
    remove_checkpoint(cut, five ? "checkpoints/step-0000005" : "checkpoints/step-0000006");
    assert_int_equal(test_run(cut, settings, count, "auto", &second, &have), ST_OK);
    assert_same(have, want);
    assert_string_equal(metrics_of(a, cut), metrics_of(a, straight));
    assert_int_equal(watch.validated, 4);  // 2, 4, 6, 8
    assert_int_equal(second.validated, 2); // 6, 8: none at the step where it resumes
    assert_true(second.best_val_loss == watch.best_val_loss);
    link_target(straight, "checkpoints/best", best);
    link_target(cut, "checkpoints/best", again);
    assert_string_equal(again, best);
    assert_true(stands(cut, "checkpoints/best/manifest.json"));
    arena_destroy(a);
}

static void resumed_equals_uninterrupted(void **state)
{
    (void)state;
    static const char *const ways[][SETTINGS_MAX] = {
        {"determinism=strict", "model.dropout=0.1", "train.precision=bf16"},
        {"model.dropout=0.2", "train.precision=fp16", "precision.loss_scale.window=2",
         "precision.loss_scale.initial=1024"},
        {"train.batch_ramp=0=2,3=4,6=8", "determinism=strict", "train.micro_batch=2"},
        {"optimizer.name=muon", "policy.spike=skip", "policy.spike.warmup=2"},
        {"optimizer.name=lion", "optimizer.lr=1e-4", "train.precision=bf16"},
        {"train.precision=bf16", "precision.master=none", "optimizer.stochastic_rounding=yes"},
        {"checkpoint.async=no", "precision.moments=bf16", "train.precision=bf16"},
    };
    for (int i = 0; i < COUNT_OF(ways); i++) {
        const char *all[SETTINGS_MAX + 8];
        int n = 0;
        for (; ways[i][n] != NULL; n++) all[n] = ways[i][n];
        all[n++] = "train.steps=8";
        all[n++] = "eval.every=2";
        all[n++] = "eval.batches=2";
        all[n++] = "checkpoint.every=2";
        all[n++] = "kernels.threads=1";
        one_way_is_resumed(all, n, i);
    }
}

// An early best checkpoint outlives later ones, over a restart too.
static void the_best_one_stays(void **state)
{
    (void)state;
    static const char *const more[] = {
        "optimizer.lr=1.0",   "schedule.warmup=0", "eval.every=2",   "eval.batches=1",
        "checkpoint.every=2", "checkpoint.keep=2", "train.steps=12", "kernels.threads=1"};
    char best[256], path[300];
    run_seen first = {.stop_after = 6}, second = {0};
    hash128 out;
    assert_int_equal(test_run("best", more, COUNT_OF(more), "auto", &first, &out), ST_STOPPED);
    link_target("best", "checkpoints/best", best);
    assert_int_equal(test_run("best", more, COUNT_OF(more), "auto", &second, &out), ST_OK);
    assert_true(second.best_val_loss <= first.best_val_loss);
    if (second.best_val_loss == first.best_val_loss) {
        (void)snprintf(path, sizeof(path), "checkpoints/%s/manifest.json", best);
        assert_true(stands("best", path));
    }
    assert_true(stands("best", "checkpoints/best/manifest.json"));
}

// ---- which one ----------------------------------------------------------------------------------

static const char *const four[] = {"determinism=strict", "checkpoint.every=2", "checkpoint.keep=4"};

static void older_checkpoints_resume_by_name(void **state)
{
    (void)state;
    run_seen watch = {0};
    hash128 want, out;
    assert_int_equal(test_run("older", four, 3, "auto", &watch, &want), ST_OK);
    assert_int_equal(test_run("older", four, 3, "step-0000002", &watch, &out), ST_OK);
    assert_same(out, want);
    assert_true(stands("older", "checkpoints/step-0000006.1/manifest.json"));
    assert_true(stands("older", "checkpoints/step-0000004/manifest.json"));
    // The new branch is the newest, though the old one has more steps.
    remove_checkpoint("older", "checkpoints/step-0000006.1");
    memset(&watch, 0, sizeof(watch));
    assert_int_equal(test_run("older", four, 3, "auto", &watch, &out), ST_OK);
    assert_same(out, want);
    assert_true(stands("older", "checkpoints/step-0000006.1/manifest.json"));
    assert_int_equal(test_run("older", four, 3, "step-0000003", &watch, NULL), ST_NOT_FOUND);
    assert_non_null(strstr(error_last()->text, "step-0000006.1"));
}

static void damaged_checkpoints_are_reported(void **state)
{
    (void)state;
    static const char state_file[] = "checkpoints/step-%07d/state-00000-of-00001.safetensors";
    char name[128];
    run_seen watch = {0};
    hash128 want, out;
    assert_int_equal(test_run("damaged", four, 3, "auto", &watch, &want), ST_OK);
    damage("damaged", "checkpoints/step-0000006/manifest.json");
    (void)snprintf(name, sizeof(name), state_file, 4);
    damage("damaged", name);
    assert_int_equal(test_run("damaged", four, 3, "step-0000004", &watch, NULL), ST_DAMAGED);
    assert_non_null(strstr(error_last()->text, "tensor "));
    assert_non_null(strstr(error_last()->text, "continue with: trireme train "));
    assert_non_null(strstr(error_last()->text, "--resume step-0000002"));
    assert_int_equal(test_run("damaged", four, 3, "auto", &watch, &out), ST_OK);
    assert_same(out, want);
    assert_non_null(strstr(watch.said, "step-0000006 cannot be used: "));
    assert_non_null(strstr(watch.said, "step-0000004 cannot be used: "));
    assert_non_null(strstr(watch.said, "continuing from step-0000002"));
    assert_true(stands("damaged", "checkpoints/step-0000006.1/manifest.json"));
    // No checkpoint is intact.
    static const char *const all[] = {"step-0000002/manifest.json", "step-0000004/manifest.json",
                                      "step-0000004.1/manifest.json",
                                      "step-0000006.1/manifest.json"};
    for (int i = 0; i < COUNT_OF(all); i++) {
        (void)snprintf(name, sizeof(name), "checkpoints/%s", all[i]);
        if (stands("damaged", name)) damage("damaged", name);
    }
    assert_int_equal(test_run("damaged", four, 3, "auto", &watch, NULL), ST_DAMAGED);
    assert_non_null(strstr(error_last()->text, "step-0000006.1: "));
    assert_non_null(strstr(error_last()->text, "step-0000002: "));
    assert_non_null(strstr(error_last()->text, "--resume none"));
}

static void remove_manifest(const char *run, const char *checkpoint)
{
    char path[512], name[128];
    (void)snprintf(name, sizeof(name), "checkpoints/%s/manifest.json", checkpoint);
    path_of(path, run, name);
    assert_int_equal(unlink(path), 0);
}

// The run goes on from an older checkpoint, and stops where there is none; it never removes state
// or begins anew by itself.
static void a_lost_manifest_is_reported(void **state)
{
    (void)state;
    static const char state_file[] = "checkpoints/step-0000006/state-00000-of-00001.safetensors";
    run_seen watch = {0};
    hash128 want, out;
    assert_int_equal(test_run("lost", four, 3, "auto", &watch, &want), ST_OK);
    remove_manifest("lost", "step-0000006");
    assert_int_equal(test_run("lost", four, 3, "auto", &watch, &out), ST_OK);
    assert_same(out, want);
    assert_int_equal(watch.trained, 2);
    assert_non_null(strstr(watch.said, "step-0000006 has lost its manifest.json"));
    assert_true(stands("lost", state_file));
    assert_true(stands("lost", "checkpoints/step-0000006.1/manifest.json"));
    remove_manifest("lost", "step-0000006.1");
    remove_manifest("lost", "step-0000004");
    remove_manifest("lost", "step-0000002");
    assert_int_equal(test_run("lost", four, 3, "auto", &watch, NULL), ST_DAMAGED);
    assert_non_null(strstr(error_last()->text, "step-0000006.1 has lost its manifest.json"));
    assert_non_null(strstr(error_last()->text, "--resume none"));
    assert_true(stands("lost", state_file));
    assert_int_equal(test_run("lost", four, 3, "step-0000004", &watch, NULL), ST_DAMAGED);
    assert_non_null(strstr(error_last()->text, "step-0000004 has lost its manifest.json"));
    assert_int_equal(test_run("lost", four, 3, "none", &watch, &out), ST_OK);
    assert_same(out, want);
    assert_true(stands("lost", state_file));
}

// ---- other settings -----------------------------------------------------------------------------

static void nothing_is_left_to_do(void **state)
{
    (void)state;
    static const char *const more[] = {"train.steps=4", "optimizer.lr=1e-3"};
    run_seen watch = {0};
    hash128 want, out;
    assert_int_equal(test_run("finished", more, 1, "auto", &watch, &want), ST_OK);
    assert_int_equal(watch.trained, 4);
    assert_int_equal(test_run("finished", more, 2, "auto", &watch, &out), ST_OK);
    assert_int_equal(watch.trained, 0);
    assert_same(out, want);
}

// A decayed rate does not rise again without a word, and does so where its own keys ask for it.
static void a_stretched_schedule_is_reported(void **state)
{
    (void)state;
    static const char *const more[] = {"train.steps=8", "optimizer.lr=1e-4"};
    run_seen watch = {0};
    hash128 out;
    assert_int_equal(test_run("stretched", more, 0, "auto", &watch, &out), ST_OK);
    assert_int_equal(test_run("stretched", more, 1, "auto", &watch, &out), ST_OK);
    assert_non_null(strstr(watch.said, "raises the learning rate from"));
    memset(&watch, 0, sizeof(watch));
    assert_int_equal(test_run("lowered", more, 0, "auto", &watch, &out), ST_OK);
    assert_int_equal(test_run("lowered", more, 2, "auto", &watch, &out), ST_OK);
    assert_null(strstr(watch.said, "raises the learning rate"));
}

// A run from before schedule.warmup_from existed goes on with the counting that it began with.
static void an_earlier_warmup_is_kept(void **state)
{
    (void)state;
    static const char *const more[] = {"schedule.warmup=6", "determinism=strict",
                                       "schedule.warmup_from=zero"};
    static const char key[] = "  warmup_from: ";
    run_seen watch = {0}, first = {.stop_after = 2};
    hash128 want, out;
    arena *a = NULL;
    char path[512], *yaml = NULL;
    int64_t bytes = 0;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(test_run("counted", more, 3, "auto", &watch, &want), ST_OK);
    assert_int_equal(test_run("earlier", more, 3, "auto", &first, &out), ST_STOPPED);
    path_of(path, "earlier", "config.resolved.yaml");
    assert_int_equal(host_read_all(host_real(), a, path, 1 << 20, &yaml, &bytes), ST_OK);
    char *line = strstr(yaml, key);
    assert_non_null(line);
    const char *next = strchr(line, '\n') + 1;
    memmove(line, next, strlen(next) + 1);
    assert_int_equal(host_write_all(host_real(), path, yaml, (int64_t)strlen(yaml)), ST_OK);
    assert_int_equal(test_run("earlier", more, 2, "auto", &watch, &out), ST_OK);
    assert_same(out, want);
    arena_destroy(a);
}

// A loss scale belongs to fp16: the run takes its own first one, or none.
static void precision_may_change(void **state)
{
    (void)state;
    static const char *const precisions[] = {"train.precision=fp32", "train.precision=fp16",
                                             "train.precision=bf16", "train.precision=fp16"};
    static const double scales[] = {1.0, 65536.0, 1.0, 65536.0};
    run_seen watch = {0};
    for (int i = 0; i < COUNT_OF(precisions); i++) {
        char steps[32];
        hash128 out;
        (void)snprintf(steps, sizeof(steps), "train.steps=%d", 3 * (i + 1));
        const char *const more[] = {steps, precisions[i]};
        assert_int_equal(test_run("precision", more, 2, "auto", &watch, &out), ST_OK);
        assert_int_equal(watch.trained, 3);
        assert_true(watch.loss_scale == scales[i]);
        assert_true(watch.last_loss < 6.0);
    }
    assert_non_null(strstr(watch.said, "train.precision = bf16, bf16 weights with an fp32 master"));
}

// ---- a disk that is full ------------------------------------------------------------------------

static void a_failed_save_costs_no_more(void **state)
{
    (void)state;
    static const char *const ways[] = {"checkpoint.async=yes", "checkpoint.async=no"};
    for (int i = 0; i < 2; i++) {
        const char *const more[] = {"determinism=strict", "checkpoint.every=2", ways[i]};
        run_seen watch = {0};
        hash128 want, out;
        char name[32];
        (void)snprintf(name, sizeof(name), "full-%d", i);
        assert_int_equal(test_run("roomy", more, 3, "none", &watch, &want), ST_OK);
        memset(&watch, 0, sizeof(watch));
        assert_int_equal(fault_arm("checkpoint.manifest=2:DISK_FULL"), ST_OK);
        assert_int_equal(test_run(name, more, 3, "none", &watch, &out), ST_OK);
        assert_int_equal(fault_arm(NULL), ST_OK);
        assert_same(out, want);
        assert_int_equal(watch.saved, 2);
        assert_int_equal(watch.warned, 1);
        assert_non_null(strstr(watch.said, "checkpoint of step 4 given up"));
        assert_non_null(strstr(watch.said, "(wanted "));
        assert_non_null(strstr(watch.said, "step-0000002 is safe"));
        assert_false(stands(name, "checkpoints/step-0000004"));
        // The disk stays full: the run ends, and its last complete checkpoint is intact.
        (void)snprintf(name, sizeof(name), "fuller-%d", i);
        memset(&watch, 0, sizeof(watch));
        assert_int_equal(fault_arm("checkpoint.state=2+:DISK_FULL"), ST_OK);
        assert_int_equal(test_run(name, more, 3, "none", &watch, NULL), ST_DISK_FULL);
        assert_int_equal(fault_arm(NULL), ST_OK);
        assert_non_null(strstr(error_last()->text, "checkpoint.state"));
        assert_int_equal(watch.steps, 6);
        assert_true(stands(name, "checkpoints/step-0000002/manifest.json"));
        assert_false(stands(name, "checkpoints/step-0000006"));
        assert_int_equal(test_run(name, more, 3, "auto", &watch, &out), ST_OK);
        assert_same(out, want);
    }
}

// When a run fails during a save, it waits for the save and names the checkpoint.
static void a_failing_run_names_the_safe_checkpoint(void **state)
{
    (void)state;
    static const char *const more[] = {"optimizer.lr=1000", "schedule.warmup=0",
                                       "policy.nan.mode=stop", "checkpoint.every=1"};
    char line[256], name[64];
    run_seen watch = {0};
    assert_int_equal(test_run("nan", more, 4, "none", &watch, NULL), ST_NUMERICS);
    assert_true(watch.saved > 0);
    const char *said = strstr(error_last()->text, "last good checkpoint: step-");
    assert_non_null(said);
    (void)snprintf(name, sizeof(name), "checkpoints/%.12s/manifest.json", strstr(said, "step-"));
    assert_true(stands("nan", name));
    status_line("nan", line);
    assert_non_null(strstr(line, "failed 6 "));
    assert_non_null(strstr(line, "last good checkpoint: step-"));
}

// Replaces the text by another of the same length: its sequences have other contents.
static void replaced_data_is_refused(void **state)
{
    (void)state;
    run_seen seen = {0};
    hash128 digest;
    const char *const first[] = {"checkpoint.every=3", "train.steps=3"};
    const char *const more[] = {"checkpoint.every=3", "train.steps=6"};
    assert_int_equal(test_run("replaced", first, 2, "auto", &seen, &digest), ST_OK);
    FILE *f = fopen(text_path, "r+");
    assert_non_null(f);
    const int before = fgetc(f);
    assert_int_equal(fseek(f, 0, SEEK_SET), 0);
    assert_int_equal(fputc(before ^ 1, f), before ^ 1);
    assert_int_equal(fclose(f), 0);
    const status st = test_run("replaced", more, 2, "auto", &seen, &digest);
    assert_int_equal(st, ST_CONFIG_FIXED);
    assert_non_null(strstr(error_last()->text, "data.train"));
    f = fopen(text_path, "r+");
    assert_non_null(f);
    assert_int_equal(fputc(before, f), before);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(test_run("replaced", more, 2, "auto", &seen, &digest), ST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumed_equals_uninterrupted),
        cmocka_unit_test(the_best_one_stays),
        cmocka_unit_test(older_checkpoints_resume_by_name),
        cmocka_unit_test(damaged_checkpoints_are_reported),
        cmocka_unit_test(a_lost_manifest_is_reported),
        cmocka_unit_test(nothing_is_left_to_do),
        cmocka_unit_test(a_stretched_schedule_is_reported),
        cmocka_unit_test(an_earlier_warmup_is_kept),
        cmocka_unit_test(precision_may_change),
        cmocka_unit_test(a_failed_save_costs_no_more),
        cmocka_unit_test(a_failing_run_names_the_safe_checkpoint),
        cmocka_unit_test(replaced_data_is_refused),
    };
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
