// Whole runs of a tiny model, for tests: a text to train on, settings on top of small ones, and what
// the run said.
#ifndef TRAIN_TEST_RUN_H
#define TRAIN_TEST_RUN_H

#include "base/test_paths.h"
#include "train/train.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct run_seen {
    int64_t steps, saved;
    double first_loss, last_loss;
    double losses[32]; // of the first steps
    int64_t warned;
    int64_t stop_after; // asks to stop after this step; 0: never
    int64_t validated;
    double best_val_loss;
    char said[4000]; // warnings and notes, a line each
} run_seen;

static inline void on_step(void *context, const obs_record *r)
{
    run_seen *s = context;
    if (s->steps == 0) s->first_loss = r->loss;
    s->last_loss = r->loss;
    if (r->step >= 1 && r->step <= COUNT_OF(s->losses)) s->losses[r->step - 1] = r->loss;
    s->steps = r->step;
}

static inline void on_saved(void *context, const train_saved *saved)
{
    run_seen *s = context;
    assert_true(saved->bytes > 0 && saved->stall_s >= 0.0);
    s->saved++;
}

static inline void on_said(void *context, log_level level, const char *line)
{
    run_seen *s = context;
    if (level >= LOG_WARN && line[0] != '\0') s->warned++;
    const size_t used = strlen(s->said);
    (void)snprintf(s->said + used, sizeof(s->said) - used, "%s\n", line);
}

static inline void on_validated(void *context, int64_t step, int64_t steps, double loss,
                                int64_t batches, double seconds, bool best)
{
    run_seen *s = context;
    (void)step, (void)steps, (void)loss, (void)batches, (void)seconds, (void)best;
    s->validated++;
}

static inline int on_stop(void *context, const char **why)
{
    const run_seen *s = context;
    *why = "SIGTERM";
    return s->stop_after > 0 && s->steps >= s->stop_after ? 1 : 0;
}

static char test_folder[64]; // of this test program
static char text_path[128];

enum { MAX_OVERRIDES = 48 };
typedef struct overrides {
    char items[MAX_OVERRIDES][256];
    const char *list[MAX_OVERRIDES];
    int64_t count;
} overrides;

static inline void add(overrides *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void add(overrides *o, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    assert_true(o->count < MAX_OVERRIDES);
    (void)vsnprintf(o->items[o->count], sizeof(o->items[0]), format, args);
    o->list[o->count] = o->items[o->count];
    o->count++;
    va_end(args);
}

// These settings on top of the tiny ones.
static inline void test_config(const char *name, const char *const *more, int count, arena *a,
                               run_config *r, config **c)
{
    overrides o = {.count = 0};
    add(&o, "run.dir=%s/%s", test_folder, name);
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
    memset(r, 0, sizeof(*r));
    const status st = run_config_load(host_real(), a, NULL, o.list, o.count, r, c);
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
}

// A run of it. Returns its status; the digest goes to `out`.
static inline status test_run(const char *name, const char *const *more, int count,
                              const char *resume, run_seen *watch, hash128 *out)
{
    arena *a = NULL;
    run_config r;
    config *c = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    test_config(name, more, count, a, &r, &c);
    const train_watcher watcher = {.context = watch,
                                   .step = on_step,
                                   .validated = on_validated,
                                   .saved = on_saved,
                                   .said = on_said,
                                   .stop_asked = on_stop};
    train_outcome outcome;
    const train_order order = {.r = &r, .c = c, .resume = resume, .watcher = &watcher};
    const status st = train_run(host_real(), a, &order, &outcome);
    watch->best_val_loss = outcome.best_val_loss;
    if (st != ST_OK && st != ST_STOPPED) print_error("%s: %s\n", name, error_last()->text);
    if ((st == ST_OK || st == ST_STOPPED) && out != NULL) {
        assert_non_null(outcome.checkpoint);
        assert_int_equal(ckpt_digest(host_real(), a, outcome.checkpoint, out), ST_OK);
    }
    arena_destroy(a);
    return st;
}

static inline int test_run_setup(void **state)
{
    (void)state;
    assert_non_null(test_scratch(test_folder));
    (void)snprintf(text_path, sizeof(text_path), "%s/text.txt", test_folder);
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

static inline int test_run_teardown(void **state)
{
    (void)state;
    test_scratch_remove(test_folder);
    return 0;
}

#endif
