// Threads that share the tasks of one kernel.
//
// One leader calls kern_parallel; the workers live as long as the pool. The leader opens a job by
// raising `generation` to an odd number and closes it by raising the number again:
//
//   leader  write the job | odd generation (open) | run tasks | even generation (closed) | wait for
//           active = 0
//   worker  see an odd generation | active += 1 | if the generation is still the same: run tasks |
//           active -= 1
//
// Every thread has a share, a range of consecutive tasks, and takes tasks from its front. So it
// walks through memory in order, and through the same part of memory in every kernel (which it
// touched first, on machines with several NUMA nodes). A thread whose share is empty steals single
// tasks from the back of the other shares, so a core that a neighbour slows down does fewer:
//
//   thread 0   0 1 2 3 4 >     < 9      | 10 11 12 > ..  thread 1, done with 10 .. 19, steals 9, 8
//
// The bits of a task do not depend on the thread that runs it. A share is one word, changed by
// compare and swap. The leader waits only for workers that joined: a worker that still sleeps when
// the last task is done finds the generation closed and touches nothing. Join and close are both
// sequentially consistent (store, then load the other's word), so one of the two always sees the
// other.
//
// A waiting thread spins for about 40 us, because kernels follow each other within microseconds,
// then sleeps in a futex, because other processes may need the core.
#include "kernels/cpu/pool.h"

#include "base/spin.h"
#include "kernels/cpu/onednn.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPIN_TICKS = 100 * 1000 }; // 40 us at 2.5 GHz

typedef struct worker {
    _Alignas(64) _Atomic(uint64_t) share; // tasks not yet taken: first << 32 | end
    kern_pool *pool;
    pthread_t thread;
    int number; // worker 0 is the leader; only its share is used
} worker;

struct kern_pool {
    int threads;
    void *scratch;
    pool_pins *pins; // NULL: not pinned
    onednn *products;
    bool products_tried;

    kern_task task; // the job: written while the generation is even and no worker is active
    void *context;

    _Alignas(64) _Atomic(uint32_t) generation; // odd: a job is open
    _Atomic(uint32_t) sleepers; // workers that may be in futex_wait on the generation
    _Atomic(bool) stop;
    _Alignas(64) _Atomic(uint32_t) active; // workers inside the job
    _Atomic(bool) leader_sleeps;           // it may be in futex_wait on `active`
    _Atomic(bool) busy;                    // the leader is inside kern_parallel
    _Alignas(64) worker workers[];
};

// Spins on `word` until it differs from `old` or about 40 us have passed, then sleeps in the
// kernel. May return early.
static void word_wait(const _Atomic(uint32_t) *word, uint32_t old)
{
    const uint64_t begin = spin_ticks();
    while (spin_ticks() - begin < SPIN_TICKS) {
        if (atomic_load(word) != old) return;
        spin_pause();
    }
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
}

static void futex_wake_all(const _Atomic(uint32_t) *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

// Takes the first or the last task of a share; -1: it is empty. A share only shrinks during a job,
// so it never has the same value twice.
static int64_t task_take(_Atomic(uint64_t) *share, bool from_front)
{
    uint64_t old = atomic_load_explicit(share, memory_order_relaxed);
    for (;;) {
        const uint64_t first = old >> 32, end = old & UINT32_MAX;
        if (first >= end) return -1;
        const uint64_t left = from_front ? (first + 1) << 32 | end : first << 32 | (end - 1);
        if (atomic_compare_exchange_weak_explicit(share, &old, left, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            return (int64_t)(from_front ? first : end - 1);
        }
    }
}

static void tasks_run(kern_pool *pool, int thread)
{
    const kern_task task = pool->task;
    void *const context = pool->context;
    int64_t i;
    while ((i = task_take(&pool->workers[thread].share, true)) >= 0) task(context, i, thread);
    for (int k = 1; k < pool->threads; k++) {
        worker *victim = &pool->workers[(thread + k) % pool->threads];
        while ((i = task_take(&victim->share, false)) >= 0) task(context, i, thread);
    }
}

static void *worker_main(void *argument)
{
    const worker *w = argument;
    kern_pool *pool = w->pool;
    if (pool->pins != NULL) pool_pins_apply(pool->pins, w->number);
    uint32_t seen = 0; // the last generation looked at
    for (;;) {
        uint32_t generation = atomic_load(&pool->generation);
        if (generation == seen) {
            atomic_fetch_add(&pool->sleepers, 1);
            word_wait(&pool->generation, seen);
            atomic_fetch_sub(&pool->sleepers, 1);
            if (atomic_load(&pool->stop)) return NULL;
            continue;
        }
        if (atomic_load(&pool->stop)) return NULL;
        seen = generation;
        if ((generation & 1) == 0) continue;
        atomic_fetch_add(&pool->active, 1);
        if (atomic_load(&pool->generation) == generation) tasks_run(pool, w->number);
        atomic_fetch_sub(&pool->active, 1);
        if (atomic_load(&pool->leader_sleeps)) futex_wake_all(&pool->active);
    }
}

status kern_pool_create(int threads, kern_pool **out)
{
    ASSERT(threads >= 1 && threads <= KERN_MAX_THREADS);
    const size_t bytes = sizeof(kern_pool) + (size_t)threads * sizeof(worker); // 0: the leader's
    kern_pool *pool = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (pool == NULL) return fail(ST_NO_MEMORY, "no memory for a pool of %d threads", threads);
    *pool = (kern_pool){.threads = 1};
    pool->workers[0] = (worker){.pool = pool};
    pool->pins = threads > 1 ? pool_pins_create(threads) : NULL;
    for (int i = 1; i < threads; i++) {
        worker *w = &pool->workers[i];
        *w = (worker){.pool = pool, .number = i};
        const int error = pthread_create(&w->thread, NULL, worker_main, w);
        if (error != 0) {
            kern_pool_destroy(pool);
            return fail(ST_NO_MEMORY, "cannot start thread %d of %d (error %d)%s", i, threads,
                        error, host_limit_remedy(error));
        }
        pool->threads = i + 1;
    }
    *out = pool;
    return ST_OK;
}

void kern_pool_destroy(kern_pool *pool)
{
    if (pool == NULL) return;
    ASSERT(!atomic_load(&pool->busy));
    atomic_store(&pool->stop, true);
    atomic_fetch_add(&pool->generation, 2);
    futex_wake_all(&pool->generation);
    for (int i = 1; i < pool->threads; i++) (void)pthread_join(pool->workers[i].thread, NULL);
    pool_pins_destroy(pool->pins);
    onednn_destroy(pool->products);
    free(pool);
}

int kern_pool_threads(const kern_pool *pool)
{
    return pool == NULL ? 1 : pool->threads;
}

void kern_pool_scratch_set(kern_pool *pool, void *scratch)
{
    ASSERT((uintptr_t)scratch % ALIGN_TENSOR == 0);
    pool->scratch = scratch;
}

void *kern_pool_scratch(const kern_pool *pool, int thread)
{
    if (pool == NULL || pool->scratch == NULL) return NULL;
    ASSERT(thread >= 0 && thread < pool->threads);
    return (char *)pool->scratch + (int64_t)thread * KERN_SCRATCH_BYTES;
}

void pool_pin_leader(const kern_pool *pool)
{
    if (pool->pins != NULL) pool_pins_apply(pool->pins, 0);
}

void kern_pool_lead(kern_pool *pool)
{
    if (pool != NULL && pool->pins != NULL) pool_pins_lead(pool->pins);
}

onednn *pool_onednn(kern_pool *pool)
{
    if (!pool->products_tried) pool->products = onednn_create(pool->threads);
    pool->products_tried = true;
    return pool->products;
}

static void workers_wait(kern_pool *pool)
{
    atomic_store(&pool->leader_sleeps, true);
    uint32_t active;
    while ((active = atomic_load(&pool->active)) != 0) word_wait(&pool->active, active);
    atomic_store(&pool->leader_sleeps, false);
}

void kern_parallel(kern_pool *pool, int64_t count, kern_task task, void *context)
{
    ASSERT(count >= 0 && count <= UINT32_MAX);
    if (pool == NULL) {
        for (int64_t i = 0; i < count; i++) task(context, i, 0);
        return;
    }
    ASSERT(!atomic_exchange(&pool->busy, true)); // not re-entrant: a task may not call this
    if (pool->threads == 1 || count <= 1) {
        for (int64_t i = 0; i < count; i++) task(context, i, 0);
        atomic_store(&pool->busy, false);
        return;
    }
    pool->task = task;
    pool->context = context;
    for (int i = 0; i < pool->threads; i++) {
        const uint64_t first = (uint64_t)(count * i / pool->threads);
        const uint64_t end = (uint64_t)(count * (i + 1) / pool->threads);
        atomic_store_explicit(&pool->workers[i].share, first << 32 | end, memory_order_relaxed);
    }
    atomic_fetch_add(&pool->generation, 1);
    if (atomic_load(&pool->sleepers) != 0) futex_wake_all(&pool->generation);
    tasks_run(pool, 0);
    atomic_fetch_add(&pool->generation, 1);
    if (atomic_load(&pool->active) != 0) workers_wait(pool);
    atomic_store(&pool->busy, false);
}
