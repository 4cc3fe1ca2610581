// Starts threads that block all signals.
#ifndef CONTROL_THREAD_H
#define CONTROL_THREAD_H

#include <pthread.h>

// Returns pthread_create's result.
int control_thread_start(pthread_t *thread, void *(*run)(void *), void *context);

#endif
