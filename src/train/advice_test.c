// Settings that are rarely meant, and losses above that of guessing.
#include "train/advice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

// More ranks than cores, of one thread each: no number of threads helps.
static void threads_that_cannot_be_fewer_are_not_advised(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        arena *a = NULL;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        run_config r = {0};
        text lines = {.a = a};
        r.train.steps = 100;
        r.kernels.threads = threads;
        const train_facts facts = {.threads = threads, .ranks = 3, .cores = 2};
        assert_int_equal(train_advice(&r, &facts, &lines), ST_OK);
        assert_non_null(lines.bytes);
        assert_int_equal(strstr(lines.bytes, "take kernels.threads=1\n") != NULL, threads == 2);
        assert_int_equal(strstr(lines.bytes, "take fewer ranks\n") != NULL, threads == 1);
        arena_destroy(a);
    }
}

static void settings_are_told_of(void **state)
{
    (void)state;
    static const char *const keys[] = {"schedule.warmup", "train.steps", "kernels.threads",
                                       "train.precision"};
    enum { CASES = 1 << COUNT_OF(keys) }; // every set of mistakes
    for (int set = 0; set < CASES; set++) {
        arena *a = NULL;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        run_config r = {0};
        text lines = {.a = a};
        r.train.steps = 100;
        r.train.seq = 10;
        r.train.global_batch = 10;
        r.optimizer.lr = 1e-3;
        r.schedule.warmup = (set & 1) != 0 ? 101 : 100;
        r.kernels.threads = 4;
        const train_facts facts = {.tokens = (set & 2) != 0 ? 99 : 100,
                                   .threads = 4,
                                   .ranks = 2,
                                   .cores = (set & 4) != 0 ? 7 : 8,
                                   .rounds_fp8 = true};
        r.train.precision = (set & 8) != 0 ? RUN_FP8 : RUN_BF16;
        assert_int_equal(train_advice(&r, &facts, &lines), ST_OK);
        int count = 0;
        for (int k = 0; k < COUNT_OF(keys); k++) {
            char key[64];
            (void)snprintf(key, sizeof(key), "%s = ", keys[k]);
            const bool told = lines.bytes != NULL && strstr(lines.bytes, key) == lines.bytes;
            const char *at = lines.bytes;
            bool found = told;
            while (!found && at != NULL && (at = strchr(at, '\n')) != NULL) {
                at++;
                found = strncmp(at, key, strlen(key)) == 0;
            }
            assert_int_equal(found, (set >> k & 1) != 0);
            count += found;
        }
        int ends = 0;
        for (int64_t i = 0; i < lines.length; i++) ends += lines.bytes[i] == '\n';
        assert_int_equal(ends, count);
        arena_destroy(a);
    }
}

static int64_t told_after(const double *losses, int64_t count)
{
    train_guessing g = {0};
    for (int64_t i = 0; i < count; i++) {
        if (train_guessing_see(&g, 257, losses[i], i + 1 == count)) {
            assert_false(train_guessing_see(&g, 257, 1e9, true)); // once
            return i + 1;
        }
    }
    return 0;
}

static void a_diverging_loss_is_told_of(void **state)
{
    (void)state;
    static const double sound[] = {6.3, 6.28, 6.31, 6.2, 5.9, 5.0}; // untrained, above ln 257
    static const double spike[] = {5.6, 5.2, 30.0, 6.0, 5.0, 4.0, 3.0};
    static const double bad[] = {5.6, 9.0, 20.0, 18.0, 30.0, 25.0};
    static const double late[] = {3.0, 2.5, 5.7, 5.8, 5.9, 6.0, 6.0};
    static const double shorter[] = {5.6, 9.0};
    assert_int_equal(told_after(sound, COUNT_OF(sound)), 0);
    assert_int_equal(told_after(spike, COUNT_OF(spike)), 0);
    assert_int_equal(told_after(bad, COUNT_OF(bad)), 5);
    assert_int_equal(told_after(late, COUNT_OF(late)), 6);
    assert_int_equal(told_after(shorter, COUNT_OF(shorter)), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_told_of),
        cmocka_unit_test(threads_that_cannot_be_fewer_are_not_advised),
        cmocka_unit_test(a_diverging_loss_is_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
