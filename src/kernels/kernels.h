// Kernels: the code of every operation, for devices to run (device/device.h).
//
// A *backend* is one table of kernels by operation: `ref` (naive, double where precision needs it,
// the reference of the tests) and `cpu` (vector code chosen at run time). A *context* is a backend
// with hints. Plans ask it how many bytes a call needs; a device opens its own context for each
// stream and runs calls in it. Both are opaque outside this folder.
//
// A kernel gets its operands as addresses with types, dims and strides. It allocates nothing, waits
// for nothing, and reads only its operands, its workspace and the step block.
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- contexts -----------------------------------------------------------------------------------
enum { KERN_MAX_THREADS = 256 };

// Backends that run on the host's cores read these hints; others ignore them.
typedef struct kern_hint {
    int threads; // of a device's large work; 0: one per core. At most KERN_MAX_THREADS are used
    const char
        *level;     // the highest vector units to use, as kernels.level has it; NULL: the fastest
    double checked; // share of the products whose sums are checked (sdc.abft); 0: none
} kern_hint;

// Makes a context in the arena. It starts no thread and touches no device, so plans for other
// machines have one too. ST_UNSUPPORTED: the backend or the level does not exist.
NODISCARD status kern_context_create(arena *a, const char *backend, const kern_hint *hint,
                                     kern_context **out);
extern const device_kernels kern_device_kernels; // for device_config.run

// Queries for plans. They are pure: only shapes, types and attributes of the call are read.
int64_t
kern_scratch_bytes(const kern_context *c); // of the device's threads, for device_api.scratch_set
int64_t kern_workspace_bytes(const kern_context *c, const kern_call *call);
// Bytes of the packed weight that the calls of a step which differ only in their rows can share, if
// the plan gives them space. 0: the kernel keeps none.
int64_t kern_packed_bytes(const kern_context *c, const kern_call *call);

// Returns whether the backend computes the operation at all.
bool kern_has(const kern_context *c, op_code code);

// Returns whether `second` works element by element on the result of the GEMM `first`, and the
// backend does so while a tile of the result is in cache. Then `first.then` may be `second`, with
// the bits of two calls. The function does not check whether the result of `second` overlaps an
// operand of `first`.
bool kern_fuses(const kern_context *c, const kern_call *first, const kern_call *second);

// Opens a context with threads for one stream of a device: stream 0 has all threads, others have
// one. A calling thread that runs calls itself and is no device thread is pinned like a worker, so
// that they never share a core; closing the context restores its affinity.
NODISCARD status kern_context_open(const kern_context *of, int32_t stream, kern_context **out);
// Opens a context that posts calls to the queue of a GPU's stream (borrowed). It has no threads.
NODISCARD status kern_context_open_queue(const kern_context *of, cuda_queue *queue,
                                         kern_context **out);
void kern_context_lead(kern_context *c);
void kern_context_close(kern_context *c); // NULL is legal
// Checks the call (shapes, types, strides: once, for every backend), then runs it on the threads of
// an open context, or in the calling thread alone.
NODISCARD status kern_run(const kern_context *c, const kern_call *call);

// Runs task(context, i, thread) for i in 0..count-1, each once, on all threads of an open context;
// returns when all are done. Which thread runs what is not fixed, so a task's result may depend on
// i only. Not re-entrant.
void kern_parallel_in(const kern_context *c, int64_t count, device_task task, void *context);

// Properties of a context on this machine.
const char *
kern_context_level(const kern_context *c); // its vector units, as kernels.level names them
int kern_context_threads(const kern_context *c);
// Returns the FLOP/s of `threads` threads (0: all) in a register loop of multiply-adds; for types
// narrower than fp32, of bf16 GEMMs if the level has them. Takes some 20 ms. 0 if it could not be
// measured.
double kern_peak_flops(const kern_context *c, int threads, dtype type);
// Returns roughly how many FLOPs of a GEMM take as long as one byte of memory traffic.
double kern_flops_per_byte(const kern_context *c, dtype type);

// ---- checked products ---------------------------------------------------------------------------
// With kern_hint.checked the GEMMs of layers, experts and the head compare the sums of their rows
// with sums over the operands (cpu/gemm_check.c). A product that fails is computed again. If its
// sums then agree, the result is used and counted as repaired; if not, the call returns ST_CORRUPT.
typedef struct kern_checks kern_checks; // of a context and all that are opened from it
typedef struct kern_hit {
    op_code code;
    int32_t layer, microbatch, step;
    int64_t row, rows; // the first wrong row of the result
    double off, limit; // error of its sum, and the largest that rounding explains
} kern_hit;
typedef struct kern_checks_facts {
    int64_t seen, checked; // products
    int64_t repeated;      // that were computed again
    int64_t repaired;      // whose result was another one then
    kern_hit last;         // of the last repaired one
} kern_checks_facts;
kern_checks *kern_context_checks(const kern_context *c); // NULL: none
// Begins a session of this rank, whose number errors and fault points of tests have: nothing was
// checked and nothing has failed so far. The devices are idle.
void kern_checks_begin(kern_checks *k, int rank);
kern_checks_facts kern_checks_read(kern_checks *k); // NULL: zeros
bool kern_checks_has_failed(const kern_checks *k);  // a call has returned ST_CORRUPT
enum { KERN_HIT_BYTES = 128 };
void kern_hit_print(const kern_hit *hit, char out[KERN_HIT_BYTES]); // "matmul of layer 3, ..."

// ---- seals of the state at rest -----------------------------------------------------------------
// An update that gets a kern_seal finds a bit of the state that has changed since the update before
// it (cpu/seal.c). Callers hash the first state, and compare it between steps, by the same tiles.
enum { KERN_SEAL_ELEMENTS = 16384 };                  // of a tile
bool kern_seals(const kern_context *c, op_code code); // the backend can do so
int64_t kern_seal_tiles(int64_t elements);
// Returns the hash of tile `tile` of `bytes` contiguous bytes of this type.
// On all backends and levels the hash is the same.
uint64_t kern_seal_hash(const kern_context *c, const void *data, int64_t bytes, dtype type,
                        int64_t tile);

// ---- the machine --------------------------------------------------------------------------------
const char *kern_level_highest(void); // vector units that CPU and operating system give, by name
const char *kern_level_default(void); // of those the ones that are used where none are asked for
NODISCARD status
kern_level_check(const char *level);      // ST_DEVICE: not on this machine. NULL is legal
bool kern_machine_has_avx2(void);         // with FMA and F16C: for vector code outside this folder
bool kern_onednn_version(int version[3]); // false: oneDNN is not built in
// Returns the number of cores (not hyperthreads) that this process may use, at least 1. Asks hwloc,
// which takes some milliseconds.
int kern_core_count(void);
// The number of cores of this machine that so many processes like this one have together, whether
// each has its own part or all share the same cores. As slow as kern_core_count().
int kern_cores_shared(int processes);
// Restricts this process to its part of these cores; if there are fewer cores than parts, several
// parts share a core. Call it before the process starts a thread.
void kern_cores_divide(int part, int parts);

#ifdef __cplusplus
}
#endif
#endif
