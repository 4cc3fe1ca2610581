// Inside kernels/: what the pool offers beyond kernels.h.
#ifndef KERNELS_CPU_POOL_H
#define KERNELS_CPU_POOL_H

#include "kernels/kernels_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

// Where to put the threads of a pool: one core each, where the pool uses all cores of the process.
// With fewer threads than cores nothing is pinned: other ranks of this host choose cores too, know
// nothing of each other, and would all sit down on the first one.
typedef struct pool_pins pool_pins;
pool_pins *pool_pins_create(int threads);                // NULL: do not pin
void pool_pins_apply(const pool_pins *pins, int thread); // pins the calling thread
// As pool_pins_apply for thread 0; pool_pins_destroy, by the same thread, gives back what was.
void pool_pins_lead(pool_pins *pins);
void pool_pins_destroy(pool_pins *pins);

// Pins the thread that will call kern_parallel; workers pin themselves.
void pool_pin_leader(const kern_pool *pool);

// oneDNN's primitives for this pool, made on the first call; NULL: there are none. Leader only.
struct onednn *pool_onednn(kern_pool *pool);

#ifdef __cplusplus
}
#endif
#endif
