// Starts the workers, joins them, and copies the first error record to the calling thread.
#include "base/thread_pool.h"

#include <pthread.h>

typedef struct pool_worker {
    thread_pool_work_fn work;
    void *context;
    int32_t worker;
    pthread_t thread;
    status st;
    error_record why;
} pool_worker;

static void *member_main(void *context)
{
    pool_worker *m = context;
    m->st = m->work(m->context, m->worker);
    if (m->st != ST_OK) error_take(&m->why);
    return NULL;
}

status thread_pool_run(int32_t workers, thread_pool_work_fn work, void *context)
{
    pool_worker all[THREAD_POOL_MAX];
    const int32_t most = (int32_t)min_i64(workers, THREAD_POOL_MAX);
    int32_t begun = 1;
    ASSERT(workers > 0);
    for (int32_t i = 0; i < most; i++) {
        all[i].work = work;
        all[i].context = context;
        all[i].worker = i;
    }
    for (; begun < most; begun++) {
        if (pthread_create(&all[begun].thread, NULL, member_main, &all[begun]) != 0) break;
    }
    (void)member_main(&all[0]);
    for (int32_t i = 1; i < begun; i++) (void)pthread_join(all[i].thread, NULL);
    for (int32_t i = 0; i < begun; i++) {
        if (all[i].st != ST_OK) return error_put(&all[i].why);
    }
    return ST_OK;
}
