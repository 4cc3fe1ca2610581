// Threads that block all signals, and their waits.
#ifndef CONTROL_THREAD_H
#define CONTROL_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

// Returns pthread_create's result.
int control_thread_start(pthread_t *thread, void *(*run)(void *), void *context);
// Waits for the condition for this time at most, on the monotonic clock; the caller holds the lock.
// False: the time is over.
bool control_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t wait_ns);

#endif
