// A tiny job on a device without data or a run, for tests of checkpoints: state to save and load.
#ifndef TRAIN_TEST_JOB_H
#define TRAIN_TEST_JOB_H

#include "base/fault.h"
#include "base/test_paths.h"
#include "train/job.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct test_job {
    arena *a;
    run_config r;
    decoder_spec spec;
    train_options options;
    train_plans plans;
    train_job job;
    char folder[64];
} test_job;

static inline void assert_ok(status st)
{
    if (st != ST_OK) print_error("%s: %s\n", status_name(st), error_last()->text);
    assert_int_equal(st, ST_OK);
}

// In memory where there is a place for it: these tests sync thousands of times.
static inline void test_job_folder(char folder[64])
{
    (void)snprintf(folder, 64, "/dev/shm/trireme-test-XXXXXX");
    if (mkdtemp(folder) == NULL) assert_non_null(test_scratch(folder));
}

static inline void test_job_make(test_job *t, const char *precision)
{
    char set_precision[64];
    (void)snprintf(set_precision, sizeof(set_precision), "train.precision=%s", precision);
    const char *const list[] = {"data.train=x",     "train.seq=8",         "train.global_batch=1",
                                "model.dim=8",      "model.layers=1",      "model.heads=1",
                                "model.vocab=257",  "model.ffn_dim=8",     "kernels.threads=1",
                                "train.steps=1000", "checkpoint.every=10", set_precision};
    config *c = NULL;
    memset(t, 0, sizeof(*t));
    test_job_folder(t->folder);
    assert_ok(arena_create("test", 0, &t->a));
    assert_ok(run_config_load(host_real(), t->a, NULL, list, COUNT_OF(list), &t->r, &c));
    assert_ok(model_spec_from_config(host_real(), t->a, &t->r, &t->spec));
    t->options = (train_options){.threads = 1, .device = "cpu", .backend = "ref", .snapshot = true};
    assert_ok(train_assemble(t->a, &t->r, &t->spec, &t->options, &t->plans));
    assert_ok(train_job_create(host_real(), t->a, &t->plans, &t->options, NULL, NULL, &t->job));
    assert_ok(train_job_weights(&t->job, t->a));
}

static inline void test_job_drop(test_job *t)
{
    train_job_destroy(&t->job);
    arena_destroy(t->a);
    test_scratch_remove(t->folder);
}

// Another generation: every weight moved by `by`.
static inline void test_job_move(test_job *t, float by)
{
    const op_model *m = t->plans.model;
    for (int64_t w = 0; w < m->weight_count; w++) {
        const int64_t count = m->weights[w].rows * m->weights[w].columns;
        float *values = malloc((size_t)count * sizeof(float));
        assert_non_null(values);
        assert_ok(ckpt_weight_get(&t->job.state, w, values));
        for (int64_t i = 0; i < count; i++) values[i] += by;
        assert_ok(ckpt_weight_put(&t->job.state, w, values));
        free(values);
    }
}

static const ckpt_extra test_extras[] = {{"config.json", "{\"a\": 1}\n"},
                                         {"config.resolved.yaml", "train:\n  steps: 7\n"}};

static inline ckpt_order test_order(int64_t step)
{
    return (ckpt_order){.info = {.step = step,
                                 .sequences = 8 * step,
                                 .tokens = 64 * step,
                                 .seed = 1,
                                 .val_loss = 2.5,
                                 .best_val_loss = (double)NAN,
                                 .numerics = "cpu ref"},
                        .extras = test_extras,
                        .extra_count = COUNT_OF(test_extras),
                        .keep = {.keep = 3}};
}

static inline ckpt_saver *test_saver(test_job *t, bool async, int64_t file_bytes)
{
    ckpt_saver *s = NULL;
    const ckpt_saver_config c = {
        .state = &t->job.state, .folder = t->folder, .async = async, .file_bytes = file_bytes};
    assert_ok(ckpt_saver_create(&c, &s));
    return s;
}

// Saves step `step` and waits; gives the folder's path.
static inline void test_save(test_job *t, int64_t step, int64_t file_bytes, char path[4096])
{
    ckpt_saver *s = test_saver(t, false, file_bytes);
    ckpt_saved *r = NULL;
    const ckpt_order order = test_order(step);
    assert_ok(ckpt_saver_begin(s, &order));
    assert_true(ckpt_saver_result(s, true, &r));
    if (r->st != ST_OK) print_error("%s\n", r->error.text);
    assert_int_equal(r->st, ST_OK);
    assert_int_equal(r->after, ST_OK);
    memcpy(path, r->path, CKPT_PATH_BYTES);
    ckpt_saver_destroy(s);
}

static inline int64_t open_files(void)
{
    int64_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir) != NULL) count++;
    closedir(dir);
    return count;
}

#endif
