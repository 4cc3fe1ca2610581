// The pool calls every worker once, each on its own thread, and reports the first error to the
// caller.
#include "base/thread_pool.h"

#include "base/base.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include <cmocka.h>

enum { ITEMS = 1000 };

typedef struct job {
    atomic_int next, done[ITEMS], calls[THREAD_POOL_MAX];
    pthread_t caller;
    int32_t fails_from; // workers from here on; -1: none
    atomic_bool is_elsewhere;
} job;

static status job_work(void *context, int32_t worker)
{
    job *j = context;
    atomic_fetch_add(&j->calls[worker], 1);
    const bool is_caller = pthread_equal(pthread_self(), j->caller) != 0;
    if (is_caller != (worker == 0)) atomic_store(&j->is_elsewhere, true);
    if (j->fails_from >= 0 && worker >= j->fails_from) {
        return fail_at(__FILE__, __LINE__, ST_INTERNAL, "worker %d", (int)worker);
    }
    for (int i = atomic_fetch_add(&j->next, 1); i < ITEMS; i = atomic_fetch_add(&j->next, 1)) {
        atomic_fetch_add(&j->done[i], 1);
    }
    return ST_OK;
}

static void all_is_done_once(void **state)
{
    (void)state;
    for (int32_t workers = 1; workers <= THREAD_POOL_MAX + 4; workers++) {
        job j = {.caller = pthread_self(), .fails_from = -1};
        assert_int_equal(thread_pool_run(workers, job_work, &j), ST_OK);
        for (int i = 0; i < ITEMS; i++) assert_int_equal(atomic_load(&j.done[i]), 1);
        for (int i = 0; i < THREAD_POOL_MAX; i++) {
            assert_int_equal(atomic_load(&j.calls[i]), i < workers ? 1 : 0);
        }
        assert_false(atomic_load(&j.is_elsewhere));
    }
}

static void first_error_is_told(void **state)
{
    (void)state;
    for (int32_t from = 0; from < 4; from++) {
        job j = {.caller = pthread_self(), .fails_from = from};
        char want[32];
        error_clear();
        (void)snprintf(want, sizeof(want), "worker %d", from);
        assert_int_equal(thread_pool_run(4, job_work, &j), ST_INTERNAL);
        assert_string_equal(error_last()->text, want);
    }
    error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_is_done_once),
                                       cmocka_unit_test(first_error_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
