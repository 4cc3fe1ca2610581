// Inside kernels/: functions of the pool beyond kernels.h.
#ifndef KERNELS_CPU_POOL_H
#define KERNELS_CPU_POOL_H

#include "kernels/kernels_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

// The cores of the threads of a pool: one core each, if the pool uses all cores of the process.
// With fewer threads than cores nothing is pinned, because the ranks of a host choose cores
// independently and would all choose the first one.
typedef struct pool_pins pool_pins;
pool_pins *pool_pins_create(int threads);                // NULL: do not pin
void pool_pins_apply(const pool_pins *pins, int thread); // pins the calling thread
// Like pool_pins_apply for thread 0; pool_pins_destroy, called by the same thread, restores its
// affinity.
void pool_pins_lead(pool_pins *pins);
void pool_pins_destroy(pool_pins *pins);

// Pins the thread that will call kern_parallel; workers pin themselves.
void pool_pin_leader(const kern_pool *pool);

// Returns oneDNN's primitives for this pool, made on the first call; NULL: oneDNN is not available.
// Leader only.
struct onednn *pool_onednn(kern_pool *pool);

#ifdef __cplusplus
}
#endif
#endif
