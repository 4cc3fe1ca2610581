// Waiting with the core kept: for what comes within microseconds, where to sleep and to be woken takes longer.
// A wait that may last gives the core away in the end; who waits decides how.
#ifndef BASE_SPIN_H
#define BASE_SPIN_H

#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

// Tells the processor that this thread spins: the core's other thread and its power go elsewhere.
static inline void spin_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); // as long as x86's; `yield` is none on most
#endif
}

// A clock that costs next to nothing to read, to bound a spin by: two to four ticks a nanosecond on x86-64,
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
