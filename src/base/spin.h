// Busy waiting that keeps the core, for events that come within microseconds, where sleeping and
// waking take longer. A longer wait must yield the core in the end; the waiting code decides how.
#ifndef BASE_SPIN_H
#define BASE_SPIN_H

#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

// Tells the processor that this thread spins, so that the sibling hyperthread gets the execution
// units and the core saves power.
static inline void spin_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); // as long as x86's pause; `yield` does nothing on most processors
#endif
}

// A clock that is very cheap to read, to bound a spin: two to four ticks per nanosecond on x86-64,
// nanoseconds elsewhere.
static inline uint64_t spin_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
#endif
}

#ifdef __cplusplus
}
#endif
#endif
