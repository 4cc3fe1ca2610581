// For tests of processes: nothing of them stays, whatever happens.
#ifndef BASE_TEST_WATCH_H
#define BASE_TEST_WATCH_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void *watch_main(void *seconds)
{
    for (intptr_t i = 0; i < (intptr_t)seconds * 10; i++) (void)usleep(100000);
    printf("process %d hangs\n", (int)getpid());
    (void)fflush(stdout);
    _exit(1);
    return seconds;
}

// Ends this process after so many seconds in which it ran. An alarm counts those in which it was stopped, too.
static inline void watch_start(int seconds)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, watch_main, (void *)(intptr_t)seconds) != 0) abort();
    (void)pthread_detach(thread);
}

#endif
