// Each call of a save, a load or a pruning fails once, or fails from then on. The status must be
// clean, nothing may leak, the older checkpoints must stay intact, and the next save must work.
#include "fixtures/train/test_job.h"

#include "checkpoint/manifest.h"

#include <stdlib.h>

enum { HITS_AT_MOST = 20000 };

static status verify(const char *path)
{
    arena *a = NULL;
    assert_ok(arena_create("test", 0, &a));
    text report = {.a = a};
    const status st = ckpt_verify(host_real(), a, path, &report);
    arena_destroy(a);
    return st;
}

static bool stands(const char *path)
{
    file_info info;
    assert_ok(host_real()->api->path_info(host_real(), path, &info));
    return info.kind != FILE_KIND_NONE;
}

typedef struct trial {
    test_job t;
    ckpt_saver *savers[2]; // one saves in the calling thread, one in a thread of its own
    char first[4096];
    int64_t step, files, failed, hits;
} trial;

static void trial_begin(trial *x)
{
    memset(x, 0, sizeof(*x));
    test_job_make(&x->t, "bf16");
    test_save(&x->t, 8, 0, x->first);
    x->savers[0] = test_saver(&x->t, false, 9000);
    x->savers[1] = test_saver(&x->t, true, 9000);
    x->step = 10;
    x->files = open_files();
}

static void trial_end(trial *x)
{
    ckpt_saver_destroy(x->savers[0]);
    ckpt_saver_destroy(x->savers[1]);
    test_job_drop(&x->t);
}

// Saves the next step with injected faults. NULL: the copy of the state failed.
static const ckpt_saved *save(trial *x, int which, const char *faults)
{
    ckpt_saved *r = NULL;
    ckpt_order order = test_order(++x->step);
    order.is_best = x->step % 2 == 0;
    order.keep = (ckpt_keep){.keep = 2, .keep_every = 8};
    assert_ok(fault_arm(faults));
    const status st = ckpt_saver_begin(x->savers[which], &order);
    if (st == ST_OK) assert_true(ckpt_saver_result(x->savers[which], true, &r));
    x->hits = fault_hits("*");
    if (faults != NULL && faults[0] != '*') {
        char name[64];
        (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(faults, "="), faults);
        x->hits = fault_hits(name);
    }
    assert_ok(fault_arm(NULL));
    error_clear();
    return r;
}

static void assert_next_save_works(trial *x, int which)
{
    const ckpt_saved *r = save(x, which, NULL);
    assert_non_null(r);
    if (r->st != ST_OK) print_error("%s\n", r->error.text);
    assert_int_equal(r->st, ST_OK);
    assert_int_equal(r->after, ST_OK);
    assert_int_equal(verify(r->path), ST_OK);
    assert_int_equal(verify(x->first), ST_OK);
    assert_int_equal(open_files(), x->files);
}

static void check_outcome(trial *x, const ckpt_saved *r, bool once)
{
    if (r == NULL) {
        x->failed++;
    } else if (r->st != ST_OK) {
        x->failed++;
        assert_true(r->error.text[0] != '\0');
        if (once) assert_false(stands(r->path)); // a failed save frees its disk space
    } else {
        assert_int_equal(verify(r->path), ST_OK);
        if (r->after != ST_OK) assert_true(r->error.text[0] != '\0');
    }
    assert_int_equal(verify(x->first), ST_OK);
    assert_int_equal(open_files(), x->files);
}

// Fails the k-th hit of every fault point of the host, for every k, and a sample of allocations.
static void each_call_of_a_save_fails_once(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t stride;
    } points[] = {{"host.open", 1},   {"host.read", 5},  {"host.write", 1},  {"host.sync", 1},
                  {"host.forget", 1}, {"host.mkdir", 1}, {"host.rename", 1}, {"host.remove", 1},
                  {"host.list", 1},   {"host.link", 1},  {"arena.alloc", 83}};
    static trial x;
    trial_begin(&x);
    for (int i = 0; i < 3; i++) assert_next_save_works(&x, 0); // gives pruning something to remove
    for (int i = 0; i < COUNT_OF(points); i++) {
        const int64_t before = x.failed, stride = points[i].stride;
        int64_t k = 1;
        for (; k < HITS_AT_MOST; k += stride) {
            char faults[64];
            const int which = (int)(k / stride % 2);
            (void)snprintf(faults, sizeof(faults), "%s=%lld%s", points[i].name, (long long)k,
                           k % 3 == 0 ? ":DISK_FULL" : "");
            const ckpt_saved *r = save(&x, which, faults);
            check_outcome(&x, r, true);
            if (x.hits < k) break; // there are only x.hits hits
            assert_next_save_works(&x, 1 - which);
        }
        print_message("%s: %lld hits, %lld cost the checkpoint\n", points[i].name,
                      (long long)x.hits, (long long)(x.failed - before));
        assert_true(k > stride && k < HITS_AT_MOST);
    }
    assert_next_save_works(&x, 0);
    trial_end(&x);
}

// Fails the k-th call and all later ones, like a lost disk. The next save removes the leftovers.
static void a_disk_that_stays_broken(void **state)
{
    (void)state;
    static const char *const kinds[] = {"write", "sync", "rename", "remove", "open", "list"};
    static trial x;
    trial_begin(&x);
    for (int64_t k = 0; k < 60; k++) {
        char faults[64];
        const int which = (int)(k % 2);
        (void)snprintf(faults, sizeof(faults), "host.%s=%lld+", kinds[k % 6],
                       (long long)(k / 6 + 1));
        check_outcome(&x, save(&x, which, faults), false);
        assert_next_save_works(&x, which);
    }
    trial_end(&x);
}

// Lists each stage by name, so that none is missing.
static void each_stage_has_its_point(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool costs_it; // true: the fault costs the checkpoint; false: only work after it
    } points[] = {{"checkpoint.folder", true},       {"checkpoint.state", true},
                  {"checkpoint.sync", true},         {"checkpoint.extra", true},
                  {"checkpoint.folder_sync", true},  {"checkpoint.manifest_tmp", true},
                  {"checkpoint.manifest", true},     {"checkpoint.durable", true},
                  {"checkpoint.readback", true},     {"checkpoint.latest", false},
                  {"checkpoint.best", false},        {"checkpoint.prune_rename", false},
                  {"checkpoint.prune_unlink", false}};
    static trial x;
    trial_begin(&x);
    for (int i = 0; i < 4; i++) assert_next_save_works(&x, i % 2); // pruning has work
    for (int i = 0; i < COUNT_OF(points); i++) {
        char faults[64];
        (void)snprintf(faults, sizeof(faults), "%s=1", points[i].name);
        while (x.step % 8 != 3) assert_next_save_works(&x, 0); // the next is a best one, and prunes
        const ckpt_saved *r = save(&x, i % 2, faults);
        assert_non_null(r);
        if ((r->st != ST_OK) != points[i].costs_it) print_error("%s\n", points[i].name);
        assert_int_equal(r->st != ST_OK, points[i].costs_it);
        assert_int_equal(r->after != ST_OK, !points[i].costs_it);
        check_outcome(&x, r, true);
        assert_next_save_works(&x, 1 - i % 2);
    }
    trial_end(&x);
}

static void each_call_of_a_load_fails_once(void **state)
{
    (void)state;
    static trial x;
    ckpt_info info;
    hash128 want, have;
    int64_t k = 1;
    trial_begin(&x);
    assert_ok(ckpt_digest(host_real(), x.t.a, x.first, &want));
    for (; k < HITS_AT_MOST; k += k < 100 ? 1 : 61) { // most of them are allocations
        char faults[64];
        (void)snprintf(faults, sizeof(faults), "*=%lld", (long long)k);
        assert_ok(fault_arm(faults));
        const status st = ckpt_load(&x.t.job.state, x.t.a, x.first, k % 2 == 0, &info);
        const int64_t hits = fault_hits("*");
        assert_ok(fault_arm(NULL));
        if (st != ST_OK) assert_true(error_last()->text[0] != '\0');
        assert_int_equal(open_files(), x.files);
        if (st == ST_OK && hits < k) break;
    }
    assert_true(k > 10 && k < HITS_AT_MOST);
    assert_ok(ckpt_load(&x.t.job.state, x.t.a, x.first, false, &info));
    const ckpt_saved *r = save(&x, 0, NULL);
    assert_int_equal(r->st, ST_OK);
    assert_ok(ckpt_digest(host_real(), x.t.a, r->path, &have));
    assert_true(want.high == have.high && want.low == have.low);
    trial_end(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_of_a_save_fails_once),
        cmocka_unit_test(a_disk_that_stays_broken),
        cmocka_unit_test(each_stage_has_its_point),
        cmocka_unit_test(each_call_of_a_load_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
