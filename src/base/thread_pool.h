// Threads that share one piece of work. The calling thread is worker 0.
#ifndef BASE_THREAD_POOL_H
#define BASE_THREAD_POOL_H

#include "base/status.h"
#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { THREAD_POOL_MAX = 16 };

// The pool calls this once per worker, each on its own thread. The workers divide the work among
// themselves, for example with an atomic counter.
typedef status (*thread_pool_work_fn)(void *context, int32_t worker);

// Runs `work` on at most THREAD_POOL_MAX workers. If the system refuses a thread, fewer workers
// run, so any number of workers must be able to finish the work. Returns after all workers have
// ended: ST_OK, or the error of the failed worker with the lowest number.
NODISCARD status thread_pool_run(int32_t workers, thread_pool_work_fn work, void *context);

#ifdef __cplusplus
}
#endif
#endif
