// The table's rows are complete and distinct, the record survives any text, panic runs its hook.
#include "base/base.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

// cmocka has a macro `fail` of its own.
#define record_failure(code, ...) fail_at(__FILE__, __LINE__, (code), __VA_ARGS__)

static void table_is_whole(void **state)
{
    (void)state;
    for (int i = 0; i < STATUS_COUNT; i++) {
        const status s = (status)i;
        assert_true(strlen(status_sentence(s)) > 3 && strlen(status_name(s)) > 1);
        for (int j = 0; j < i; j++) assert_string_not_equal(status_code(s), status_code((status)j));
        assert_int_equal(status_blast_radius(s) == RADIUS_NONE, s == ST_OK);
        const int e = status_exit_code(s);
        assert_true(e == 75 || e == 76 || (e >= 0 && e <= 8));
        assert_int_equal(e == 0, s == ST_OK);
    }
    assert_string_equal(status_name((status)999), "INTERNAL"); // from a peer: any number
    assert_int_equal(status_exit_code((status)-1), 1);
}

static void fail_records(void **state)
{
    (void)state;
    assert_int_equal(record_failure(ST_DATA, "shard %d: got %s", 3, "x"), ST_DATA);
    const error_record *e = error_last();
    assert_int_equal(e->code, ST_DATA);
    assert_string_equal(e->file, "status_test.c"); // no folder of this machine
    assert_string_equal(e->text, "shard 3: got x");
    note("loading %s", "a");
    note("while starting");
    assert_string_equal(e->text, "shard 3: got x\nwhile loading a\nwhile starting");
    // The old text may be an argument of the new one.
    assert_int_equal(record_failure(ST_MODEL, "<%s>", e->text), ST_MODEL);
    assert_string_equal(e->text, "<shard 3: got x\nwhile loading a\nwhile starting>");
    error_clear();
    assert_int_equal(e->code, ST_OK);
    assert_string_equal(e->text, "");
    // TRY would take a record of success for a success.
    const status none = ST_OK;
    assert_int_equal(record_failure(none, "x"), ST_INTERNAL);
}

static void long_texts_are_cut_at_characters(void **state)
{
    (void)state;
    static char snowmen[6000];
    for (int shift = 0; shift < 3; shift++) {
        memset(snowmen, 'x', (size_t)shift);
        for (size_t i = (size_t)shift; i + 3 < sizeof(snowmen); i += 3) {
            memcpy(snowmen + i, "\xE2\x98\x83", 4);
        }
        assert_int_equal(record_failure(ST_IO, "%s", snowmen), ST_IO);
        const size_t length = strlen(error_last()->text);
        assert_true(length <= ERROR_TEXT_BYTES - 1 && length >= ERROR_TEXT_BYTES - 3);
        assert_int_equal((length - (size_t)shift) % 3, 0);
        note("%s", snowmen); // does not fit at all
        assert_true(strlen(error_last()->text) < ERROR_TEXT_BYTES);
    }
    assert_int_equal(record_failure(ST_IO, "a"), ST_IO);
    note("%s", snowmen);
    const size_t length = strlen(error_last()->text);
    assert_true(length <= ERROR_TEXT_BYTES - 1 && length >= ERROR_TEXT_BYTES - 3);
}

static void *fail_in_thread(void *out)
{
    (void)record_failure(ST_DEVICE, "stream %d", 2);
    error_take(out);
    return NULL;
}

static void records_are_per_thread_and_travel(void **state)
{
    (void)state;
    static error_record carried;
    pthread_t thread;
    assert_int_equal(record_failure(ST_IO, "mine"), ST_IO);
    assert_int_equal(pthread_create(&thread, NULL, fail_in_thread, &carried), 0);
    pthread_join(thread, NULL);
    assert_string_equal(error_last()->text, "mine");
    assert_int_equal(error_put(&carried), ST_DEVICE);
    assert_string_equal(error_last()->text, "stream 2");
}

static void hook(void *context)
{
    const ssize_t n = write(*(const int *)context, "h", 1);
    if (n == 1) panic_at("x/y.c", 1, "a panic inside the hook does not run it again");
}

static void panic_runs_hook_and_aborts(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO);
        panic_hook_set(hook, &ends[1]);
        ASSERT(ends[0] < 0);
        _exit(0);
    }
    close(ends[1]);
    int result;
    char got[4];
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGABRT);
    assert_int_equal(read(ends[0], got, sizeof(got)), 1);
    close(ends[0]);
}

static status first_fails(int *calls)
{
    (*calls)++;
    return record_failure(ST_TIMEOUT, "no");
}

static status through_try(int *calls)
{
    TRY(first_fails(calls));
    TRY(first_fails(calls));
    return ST_OK;
}

static void try_returns_the_first(void **state)
{
    (void)state;
    int calls = 0;
    assert_int_equal(through_try(&calls), ST_TIMEOUT);
    assert_int_equal(calls, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_whole),
        cmocka_unit_test(fail_records),
        cmocka_unit_test(long_texts_are_cut_at_characters),
        cmocka_unit_test(records_are_per_thread_and_travel),
        cmocka_unit_test(panic_runs_hook_and_aborts),
        cmocka_unit_test(try_returns_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
