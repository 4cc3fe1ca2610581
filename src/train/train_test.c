// Whole runs of a tiny model: the same weights for every way to run them, resumed as straight, and
// the folder that is left behind.
#include "base/test_paths.h"
#include "train/train.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct seen {
    int64_t steps, saved;
    double first_loss, last_loss;
    int64_t warned;
    int64_t stop_after; // asks to stop after this step; 0: never
} seen;

static void on_step(void *context, const obs_record *r)
{
    seen *s = context;
    if (s->steps == 0) s->first_loss = r->loss;
    s->last_loss = r->loss;
    s->steps = r->step;
}

static void on_saved(void *context, int64_t step, int64_t steps, int64_t bytes, double seconds,
                     const char *path)
{
    seen *s = context;
    (void)step, (void)steps, (void)bytes, (void)seconds, (void)path;
    s->saved++;
}

static void on_said(void *context, log_level level, const char *line)
{
    seen *s = context;
    if (level >= LOG_WARN && line[0] != '\0') s->warned++;
}

static int on_stop(void *context)
{
    const seen *s = context;
    return s->stop_after > 0 && s->steps >= s->stop_after ? 1 : 0;
}

static char folder[64]; // of this test program
static char text_path[128];

enum { MAX_OVERRIDES = 40 };
typedef struct overrides {
    char items[MAX_OVERRIDES][256];
    const char *list[MAX_OVERRIDES];
    int64_t count;
} overrides;

static void add(overrides *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(overrides *o, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    assert_true(o->count < MAX_OVERRIDES);
    (void)vsnprintf(o->items[o->count], sizeof(o->items[0]), format, args);
    o->list[o->count] = o->items[o->count];
    o->count++;
    va_end(args);
}

// A run with these settings on top of the tiny ones. Returns its status; the digest goes to `out`.
static status run_with(const char *name, const char *const *more, int count, const char *resume,
                       seen *watch, hash128 *out)
{
    overrides o = {.count = 0};
    add(&o, "run.dir=%s/%s", folder, name);
    add(&o, "data.train=%s", text_path);
    add(&o, "data.tokenizer=bytes");
    add(&o, "model.arch=llama");
    add(&o, "model.layers=2");
    add(&o, "model.dim=32");
    add(&o, "model.heads=4");
    add(&o, "model.kv_heads=2");
    add(&o, "model.ffn_dim=48");
    add(&o, "train.seq=32");
    add(&o, "train.global_batch=8");
    add(&o, "train.steps=6");
    add(&o, "optimizer.lr=3e-3");
    add(&o, "schedule.warmup=2");
    for (int i = 0; i < count; i++) add(&o, "%s", more[i]);
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    run_config r;
    config *c = NULL;
    memset(&r, 0, sizeof(r));
    status st = run_config_load(host_real(), a, NULL, o.list, o.count, &r, &c);
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
    const train_watcher watcher = {.context = watch,
                                   .step = on_step,
                                   .saved = on_saved,
                                   .said = on_said,
                                   .stop_asked = on_stop};
    train_outcome outcome;
    st = train_run(host_real(), a, &r, c, NULL, resume, &watcher, &outcome);
    if (st != ST_OK && st != ST_STOPPED) print_error("%s: %s\n", name, error_last()->text);
    if ((st == ST_OK || st == ST_STOPPED) && out != NULL) {
        assert_non_null(outcome.checkpoint);
        assert_int_equal(ckpt_digest(host_real(), a, outcome.checkpoint, out), ST_OK);
    }
    arena_destroy(a);
    return st;
}

static hash128 digest_of(const char *name, const char *const *more, int count)
{
    seen watch = {0};
    hash128 out = {0, 0};
    assert_int_equal(run_with(name, more, count, "none", &watch, &out), ST_OK);
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
        };
        for (int i = 0; i < COUNT_OF(others); i++) {
            const char *const more[] = {"determinism=strict", precision,    "model.dropout=0.1",
                                        others[i][0],         others[i][1], others[i][2]};
            (void)snprintf(name, sizeof(name), "%s-%d", precisions[p], i);
            assert_same(digest_of(name, more, 6), want);
        }
    }
}

static void resumed_is_straight(void **state)
{
    (void)state;
    static const char *const more[] = {"determinism=strict", "model.dropout=0.1", "eval.every=2",
                                       "eval.batches=2", "checkpoint.every=2"};
    const hash128 straight = digest_of("straight", more, 5);
    seen watch = {.stop_after = 3};
    hash128 out = {0, 0};
    assert_int_equal(run_with("resumed", more, 5, "auto", &watch, &out), ST_STOPPED);
    assert_true(watch.steps >= 3 && watch.steps < 6);
    watch.stop_after = 0;
    assert_int_equal(run_with("resumed", more, 5, "auto", &watch, &out), ST_OK);
    assert_int_equal(watch.steps, 6);
    assert_same(out, straight);
    // Once more: it is finished, nothing changes.
    assert_int_equal(run_with("resumed", more, 5, "auto", &watch, &out), ST_OK);
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
                   "%s/fallback/checkpoints/step-0000006/state-00000-of-00001.safetensors", folder);
    damage(path);
    seen watch = {0};
    hash128 out = {0, 0};
    assert_int_equal(run_with("fallback", more, 2, "auto", &watch, &out), ST_OK);
    assert_int_equal(watch.steps, 6); // from step 4 on
    assert_true(watch.warned > 0);
    assert_same(out, straight);
}

static void every_precision_and_optimizer_learns(void **state)
{
    (void)state;
    static const char *const runs[][4] = {
        {"train.precision=fp16", "optimizer.name=adamw", "train.recompute=full"},
        {"train.precision=bf16", "optimizer.name=muon", "train.recompute=selective"},
        {"train.precision=fp32", "optimizer.name=muon", "model.arch=qwen3"},
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

// Transient bytes of one sequence: linear in its length, for attention keeps no matrix of scores.
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
        train_plans plans;
        const train_options options = {.threads = 2, .device = "cpu", .backend = "cpu"};
        memset(&r, 0, sizeof(r));
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        assert_int_equal(run_config_load(host_real(), a, NULL, list, COUNT_OF(list), &r, &c),
                         ST_OK);
        assert_int_equal(model_spec_from_config(host_real(), a, &r, &spec), ST_OK);
        assert_int_equal(train_assemble(a, &r, &spec, &options, &plans), ST_OK);
        bytes[i] = plans.all[0]->transient_bytes;
        arena_destroy(a);
    }
    const double first = (double)(bytes[1] - bytes[0]), second = (double)(bytes[2] - bytes[1]);
    assert_true(second < 2.1 * first); // twice as many tokens more
}

// A sequence of 8,192 positions trains.
static void a_long_sequence_trains(void **state)
{
    (void)state;
    static const char *const more[] = {
        "train.seq=8192",   "train.global_batch=1", "train.steps=2",
        "model.dim=16",     "model.ffn_dim=16",     "model.heads=1",
        "model.kv_heads=1", "data.valid=0",         "schedule.warmup=0"};
    seen watch = {0};
    assert_int_equal(run_with("long", more, COUNT_OF(more), "none", &watch, NULL), ST_OK);
    assert_int_equal(watch.steps, 2);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const char *const more[] = {"memory.limit=1MiB"};
    seen watch = {0};
    assert_int_equal(run_with("small", more, 1, "none", &watch, NULL), ST_DOES_NOT_FIT);
    assert_non_null(strstr(error_last()->text, "where the bytes go"));
    assert_int_equal(watch.steps, 0);
}

static int make_text(void **state)
{
    (void)state;
    assert_non_null(test_scratch(folder));
    (void)snprintf(text_path, sizeof(text_path), "%s/text.txt", folder);
    char prose[24000];
    int64_t n = 0;
    static const char *const words[] = {"the ", "ship ",  "rows ", "on ",
                                        "and ", "three ", "banks "};
    for (uint32_t i = 1; n + 8 < (int64_t)sizeof(prose); i = i * 1664525u + 1013904223u) {
        const char *w = words[(i >> 16) % 7];
        memcpy(prose + n, w, strlen(w));
        n += (int64_t)strlen(w);
    }
    return host_write_all(host_real(), text_path, prose, n) == ST_OK ? 0 : -1;
}

static int remove_text(void **state)
{
    (void)state;
    test_scratch_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strict_has_one_digest),
        cmocka_unit_test(resumed_is_straight),
        cmocka_unit_test(every_precision_and_optimizer_learns),
        cmocka_unit_test(a_ramp_changes_the_batch),
        cmocka_unit_test(a_damaged_checkpoint_falls_back),
        cmocka_unit_test(memory_is_linear_in_the_sequence),
        cmocka_unit_test(a_long_sequence_trains),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, make_text, remove_text);
}
