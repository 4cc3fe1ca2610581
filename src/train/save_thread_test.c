// Saving while training continues: the checkpoint has the state at the time of the copy, and
// consecutive saves and the end of the saver wait for each other. The thread sanitizer runs this
// test.
#include "fixtures/train/test_job.h"

static hash128 digest_of(const char *path)
{
    arena *a = NULL;
    hash128 out;
    assert_ok(arena_create("test", 0, &a));
    assert_ok(ckpt_digest(host_real(), a, path, &out));
    arena_destroy(a);
    return out;
}

static bool same(hash128 a, hash128 b)
{
    return a.high == b.high && a.low == b.low;
}

static void the_copy_is_saved(void **state)
{
    (void)state;
    test_job t;
    char path[4096];
    ckpt_saved *r = NULL;
    test_job_make(&t, "bf16");
    ckpt_saver *s = test_saver(&t, true, 5000);
    for (int64_t step = 10; step < 15; step++) {
        const ckpt_order order = test_order(step);
        test_save(&t, 1000 + step, 0, path); // the same state, saved synchronously
        const hash128 want = digest_of(path);
        assert_ok(ckpt_saver_begin(s, &order));
        for (int i = 0; i < 20; i++) test_job_move(&t, 0.125f); // training continues
        while (!ckpt_saver_result(s, step % 2 == 0, &r)) test_job_move(&t, 0.125f);
        assert_int_equal(r->st, ST_OK);
        assert_int_equal(r->step, step);
        assert_true(r->stall_s <= r->seconds);
        assert_true(same(digest_of(r->path), want));
        assert_false(ckpt_saver_result(s, true, &r)); // each result is returned once
    }
    ckpt_saver_destroy(s);
    test_job_drop(&t);
}

static void the_end_waits_for_a_save(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        test_job t;
        char path[200];
        test_job_make(&t, "fp32");
        ckpt_saver *s = test_saver(&t, true, 0);
        if (i > 0) { // 0: no save was begun
            const ckpt_order order = test_order(i);
            assert_ok(ckpt_saver_begin(s, &order));
        }
        ckpt_saver_destroy(s);
        (void)snprintf(path, sizeof(path), "%s/step-%07d", t.folder, i);
        if (i > 0) (void)digest_of(path); // durable and complete
        test_job_drop(&t);
    }
}

static void a_failed_save_can_be_repeated(void **state)
{
    (void)state;
    test_job t;
    ckpt_saved *r = NULL;
    test_job_make(&t, "fp32");
    ckpt_saver *s = test_saver(&t, true, 0);
    ckpt_order order = test_order(10);
    assert_ok(fault_arm("checkpoint.manifest=1:DISK_FULL"));
    assert_ok(ckpt_saver_begin(s, &order));
    assert_true(ckpt_saver_result(s, true, &r));
    assert_ok(fault_arm(NULL));
    assert_int_equal(r->st, ST_DISK_FULL);
    assert_int_equal(r->error.code, ST_DISK_FULL);
    assert_true(r->error.text[0] != '\0' && r->free_bytes >= 0);
    assert_ok(ckpt_saver_begin(s, &order)); // saves the same step again
    assert_true(ckpt_saver_result(s, true, &r));
    assert_int_equal(r->st, ST_OK);
    ckpt_saver_destroy(s);
    test_job_drop(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_copy_is_saved),
        cmocka_unit_test(the_end_waits_for_a_save),
        cmocka_unit_test(a_failed_save_can_be_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
