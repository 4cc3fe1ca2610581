// checkpoint.scrub: a checkpoint that was damaged on the disk is found while training goes on, and
// rebuilt if there is another copy of it.
#include "fixtures/train/test_run.h"

// Changes a byte of the checkpoint's first state file.
static void damage(const char *run, int step)
{
    char path[256];
    (void)snprintf(path, sizeof(path),
                   "%s/%s/checkpoints/step-%07d/state-00000-of-00001.safetensors", test_folder, run,
                   step);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -5, SEEK_END), 0);
    const int byte = fgetc(f);
    assert_int_equal(fseek(f, -5, SEEK_END), 0);
    assert_int_equal(fputc(byte ^ 4, f), byte ^ 4);
    assert_int_equal(fclose(f), 0);
}

static status verify(const char *run, int step)
{
    arena *a = NULL;
    char path[256];
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    text report = {.a = a};
    (void)snprintf(path, sizeof(path), "%s/%s/checkpoints/step-%07d", test_folder, run, step);
    const status st = ckpt_verify(host_real(), a, path, &report);
    arena_destroy(a);
    return st;
}

static void a_damaged_checkpoint_is_found(void **state)
{
    (void)state;
    char tiers[160], durable[96];
    (void)snprintf(durable, sizeof(durable), "%s/store", test_folder);
    (void)snprintf(tiers, sizeof(tiers), "checkpoint.tiers=disk:2,durable:2:%s", durable);
    for (int has_copy = 0; has_copy < 2; has_copy++) {
        const char *name = has_copy ? "copied" : "alone";
        const char *list[] = {has_copy ? tiers : "checkpoint.every=2", "checkpoint.keep=9",
                              "train.steps=4", "checkpoint.scrub=0"};
        run_seen seen = {0};
        assert_int_equal(test_run(name, list, COUNT_OF(list), "auto", &seen, NULL), ST_OK);
        damage(name, 2);
        assert_int_equal(verify(name, 2), ST_DAMAGED);
        list[2] = "train.steps=8";
        list[3] = "checkpoint.scrub=1ns";
        assert_int_equal(test_run(name, list, COUNT_OF(list), "auto", &seen, NULL), ST_OK);
        const char *told = has_copy ? "of which 1 was rebuilt" : "of which 0 were rebuilt";
        assert_non_null(strstr(seen.said, "damaged on the disk"));
        assert_non_null(strstr(seen.said, told));
        assert_non_null(strstr(seen.said, "step-0000002"));
        assert_int_equal(verify(name, 2), has_copy ? ST_OK : ST_DAMAGED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_damaged_checkpoint_is_found)};
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
