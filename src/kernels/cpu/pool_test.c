// The pool runs every task once, for all counts, pauses between jobs and numbers of threads.
#include "kernels/cpu/pool.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_TASKS = 1000 };

typedef struct job {
    _Atomic(int) runs[MAX_TASKS];
    _Atomic(int) threads_seen[KERN_MAX_THREADS];
    int64_t plain; // written by task 0 only: the pool must order it before kern_parallel returns
} job;

static void task(void *context, int64_t index, int thread)
{
    job *j = context;
    atomic_fetch_add(&j->runs[index], 1);
    atomic_fetch_add(&j->threads_seen[thread], 1);
    if (index == 0) j->plain++;
}

static void run_job(kern_pool *pool, job *j, int64_t count)
{
    for (int i = 0; i < MAX_TASKS; i++) atomic_store(&j->runs[i], 0);
    const int64_t plain = j->plain;
    kern_parallel(pool, count, task, j);
    for (int i = 0; i < MAX_TASKS; i++) {
        assert_int_equal(atomic_load(&j->runs[i]), i < count ? 1 : 0);
    }
    assert_int_equal(j->plain - plain, count > 0);
}

static void every_task_runs_once(void **state)
{
    (void)state;
    static job j;
    for (int threads = 1; threads <= 5; threads++) {
        kern_pool *pool;
        assert_int_equal(kern_pool_create(threads, &pool), ST_OK);
        assert_int_equal(kern_pool_threads(pool), threads);
        for (int64_t count = 0; count < 300; count++) run_job(pool, &j, count * count % MAX_TASKS);
        kern_pool_destroy(pool);
    }
    run_job(NULL, &j, 17);
    assert_int_equal(kern_pool_threads(NULL), 1);
}

// After a pause the workers sleep: the next job must wake them, or run without them.
static void sleepers_wake(void **state)
{
    (void)state;
    static job j;
    kern_pool *pool;
    assert_int_equal(kern_pool_create(3, &pool), ST_OK);
    for (int i = 0; i < 40; i++) {
        const struct timespec pause = {.tv_nsec = (i % 4) * 100 * 1000};
        (void)nanosleep(&pause, NULL);
        run_job(pool, &j, 1 + i * 7 % 50);
    }
    kern_pool_destroy(pool);
}

// Waits until all threads have a task: one that gave its own back could take another's.
static void rendezvous_task(void *context, int64_t index, int thread)
{
    job *j = context;
    task(j, index, thread);
    for (int i = 0; i < 3; i++) {
        while (atomic_load(&j->threads_seen[i]) == 0) (void)usleep(100);
    }
}

static void all_threads_take_part(void **state)
{
    (void)state;
    static job j;
    kern_pool *pool;
    assert_int_equal(kern_pool_create(3, &pool), ST_OK);
    kern_parallel(pool, 30, rendezvous_task, &j); // returns only then
    for (int i = 0; i < 3; i++) assert_true(atomic_load(&j.threads_seen[i]) > 0);
    kern_pool_destroy(pool);
}

// Task 0 is the first of thread 0's share and ends last, so other threads must run the rest of its
// share.
typedef struct held_up {
    job j;
    _Atomic(int) done;
    int others;
} held_up;

static void held_up_task(void *context, int64_t index, int thread)
{
    held_up *h = context;
    task(&h->j, index, thread);
    while (index == 0 && atomic_load(&h->done) < h->others) (void)usleep(100);
    if (index != 0) atomic_fetch_add(&h->done, 1);
}

static void shares_of_a_slow_thread_are_taken(void **state)
{
    (void)state;
    static held_up h;
    for (int threads = 2; threads <= 4; threads++) {
        kern_pool *pool;
        assert_int_equal(kern_pool_create(threads, &pool), ST_OK);
        for (int count = 2; count < 200; count += 33) {
            memset(&h, 0, sizeof(h));
            h.others = count - 1;
            kern_parallel(pool, count, held_up_task, &h);
            for (int i = 0; i < count; i++) assert_int_equal(atomic_load(&h.j.runs[i]), 1);
        }
        kern_pool_destroy(pool);
    }
}

static void leader_has_its_places_back(void **state)
{
    (void)state;
    static job j;
    cpu_set_t before, after;
    for (int threads = 1; threads <= 2 * kern_core_count(); threads++) {
        kern_pool *pool;
        assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
        assert_int_equal(kern_pool_create(threads, &pool), ST_OK);
        kern_pool_lead(pool);
        kern_pool_lead(pool); // twice is once
        run_job(pool, &j, 40);
        kern_pool_destroy(pool);
        assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
        assert_true(CPU_EQUAL(&before, &after));
        if (threads >= 4) break;
    }
    kern_pool_lead(NULL);
}

static void create_and_destroy_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        kern_pool *pool;
        assert_int_equal(kern_pool_create(4, &pool), ST_OK);
        kern_pool_destroy(pool);
    }
    kern_pool_destroy(NULL);
}

static void scratch_is_per_thread(void **state)
{
    (void)state;
    kern_pool *pool;
    assert_int_equal(kern_pool_create(2, &pool), ST_OK);
    assert_null(kern_pool_scratch(pool, 0));
    assert_null(kern_pool_scratch(NULL, 0));
    char *memory = aligned_alloc(64, 2 * (size_t)KERN_SCRATCH_BYTES);
    kern_pool_scratch_set(pool, memory);
    assert_ptr_equal(kern_pool_scratch(pool, 0), memory);
    assert_ptr_equal(kern_pool_scratch(pool, 1), memory + KERN_SCRATCH_BYTES);
    kern_pool_destroy(pool);
    free(memory);
}

static void nested_task(void *context, int64_t index, int thread)
{
    (void)index;
    (void)thread;
    kern_pool **pool = context;
    kern_parallel(*pool, 1, nested_task, context);
}
static void nesting_is_caught(void **state)
{
    (void)state;
    kern_pool *pool;
    assert_int_equal(kern_pool_create(1, &pool), ST_OK);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)fclose(stderr); // the panic's text is expected
        kern_parallel(pool, 1, nested_task, &pool);
        _exit(0);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_false(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    kern_pool_destroy(pool);
}

static void machine_has_a_level(void **state)
{
    (void)state;
    const kern_level level = kern_level_of_machine();
    assert_true(level >= KERN_SCALAR && level < KERN_LEVEL_COUNT);
    assert_string_equal(kern_level_name(KERN_AVX2), "avx2");
    print_message("level of this machine: %s, cores: %d\n", kern_level_name(level),
                  kern_core_count());
    assert_true(kern_core_count() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(sleepers_wake),
        cmocka_unit_test(all_threads_take_part),
        cmocka_unit_test(create_and_destroy_at_once),
        cmocka_unit_test(scratch_is_per_thread),
        cmocka_unit_test(nesting_is_caught),
        cmocka_unit_test(shares_of_a_slow_thread_are_taken),
        cmocka_unit_test(leader_has_its_places_back),
        cmocka_unit_test(machine_has_a_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
