// Inside kernels/: the structure of a backend, and the context that its kernels get.
#ifndef KERNELS_KERNELS_INTERNAL_H
#define KERNELS_KERNELS_INTERNAL_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- threads ------------------------------------------------------------------------------------
typedef struct kern_pool kern_pool;
typedef device_task kern_task;
enum { KERN_SCRATCH_BYTES = 4 << 20 }; // of each thread
// `threads` includes the calling thread. Worker threads are pinned through hwloc where there is one
// core for each.
NODISCARD status kern_pool_create(int threads, kern_pool **out);
// Pins the calling thread, which will call kern_parallel, like a worker of the pool, so that they
// never share a core. The same thread must destroy the pool, which restores its affinity.
void kern_pool_lead(kern_pool *pool);
void kern_pool_destroy(kern_pool *pool);
int kern_pool_threads(const kern_pool *pool);
// Runs task(context, i, thread) for i in 0..count-1, each once, on all threads; returns when all
// are done. Which thread runs what is not fixed, so a task's result may depend on i only. Not
// re-entrant.
void kern_parallel(kern_pool *pool, int64_t count, kern_task task, void *context);
// scratch: threads * KERN_SCRATCH_BYTES, borrowed.
void kern_pool_scratch_set(kern_pool *pool, void *scratch);
void *kern_pool_scratch(const kern_pool *pool, int thread);

// ---- vector units -------------------------------------------------------------------------------
typedef enum kern_level {
    KERN_SCALAR, // plain C
    KERN_AVX2,   // AVX2 + FMA + F16C
    KERN_AVX512,
    KERN_AVX512_BF16,
    KERN_AMX,
    KERN_LEVEL_COUNT
} kern_level;
const char *kern_level_name(kern_level level);
kern_level kern_level_of_machine(void); // the highest that CPU and operating system give
kern_level kern_level_fastest(void);    // of those the one that is used where none is asked for
double kern_loop_flops(kern_level level, int threads, bool bf16); // of kern_peak_flops

// ---- backends and contexts ----------------------------------------------------------------------

typedef status (*kern_fn)(const kern_context *context, const kern_call *call);
typedef bool (*kern_pair_fn)(const kern_context *context, const kern_call *first,
                             const kern_call *second);
typedef struct kern_backend {
    const char *name; // as written in a config
    bool on_gpu;      // rows post work to context->queue and never touch the memory of operands
    kern_fn run[OP_CODE_COUNT]; // NULL: not supported; the dispatcher reports it
    // Bytes of scratch that a call needs beyond the per-thread scratch; NULL: none. Pure.
    int64_t (*workspace_bytes[OP_CODE_COUNT])(const kern_call *call, int threads);
    // Bytes behind these that a product needs to be checked; NULL: it never is. Pure.
    int64_t (*check_bytes[OP_CODE_COUNT])(const kern_call *call);
    // Implements kern_packed_bytes; NULL: 0 bytes. Pure.
    int64_t (*packed_bytes[OP_CODE_COUNT])(const kern_call *call, kern_level level);
    // Whether a GEMM can also run a following call that reads its result element by element; NULL:
    // never. Pure.
    kern_pair_fn fuses[OP_CODE_COUNT];
    bool seals; // updates element by element take a kern_seal
    // Fills bounded rows of outputs that are not there with NaN, of backends whose rows look at the
    // counts themselves. NULL: kern_run does it.
    kern_fn poison_rest;
} kern_backend;
extern const kern_backend kern_backend_ref;
extern const kern_backend kern_backend_cpu;
extern const kern_backend kern_backend_cuda;
const kern_backend *kern_backend_find(const char *name); // NULL: none

struct kern_context {
    const kern_backend *backend;
    kern_level level;
    int threads;         // of a device's large work
    cuda_queue *queue;   // of a context that was opened for a stream of a GPU; else NULL
    kern_pool *pool;     // of an open context; NULL: its calls run in the calling thread alone
    void *scratch;       // of an open context, until the device gives it some
    kern_checks *checks; // NULL: products are not checked
};

// ---- checked products (checks.c) ----------------------------------------------------------------
NODISCARD status kern_checks_create(arena *a, double share, kern_checks **out);
bool kern_checks_draw(kern_checks *k); // whether the next product is checked
// Whether a bit of the product's result is to flip, at the fault point "kernels.product.RANK"
// (tests); where: random bits that choose it.
bool kern_checks_flips(kern_checks *k, uint64_t *where);
void kern_checks_repeated(kern_checks *k);
void kern_checks_repaired(kern_checks *k, const kern_hit *hit);
void kern_checks_failed(kern_checks *k, const kern_hit *hit);
NODISCARD status kern_checks_status(kern_checks *k); // ST_CORRUPT after a failure; NULL: ST_OK
// Workspace of a call without the part for checks.
int64_t kern_workspace_plain(const kern_context *c, const kern_call *call);

// Runs one checked call (dispatch.c). ST_UNSUPPORTED if the backend has no kernel for it.
NODISCARD status kern_call_run(const kern_context *c, const kern_call *call);
// Returns whether the backend can run first.then = second as one launch: it fuses them, the
// operands are where kern_fuses assumed, and the second writes nothing that the first still reads.
bool kern_joins(const kern_context *context, const kern_call *first, const kern_call *second);
// Returns whether the second call of a fused launch writes over an operand of its own, other than
// the result of the first.
bool kern_eats_operand(const kern_call *second);

#ifdef __cplusplus
}
#endif
#endif
