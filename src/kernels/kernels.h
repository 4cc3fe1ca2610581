// Kernels: the code of every operation, for devices to run (device/device.h).
//
// A *backend* is one table of kernels by operation: `ref` (naive, double where it matters, the one
// the tests trust) and `cpu` (vector code chosen at run time). A *context* is a backend that was
// set up with hints. Plans ask it how many bytes a call needs; a device opens one of its own for
// each stream and runs calls in it. Nothing outside this folder looks into either.
//
// A kernel gets its operands as addresses with types, dims and strides; it allocates nothing, waits
// for nothing and reads nothing but its operands, its workspace and the step block.
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- contexts -----------------------------------------------------------------------------------
enum { KERN_MAX_THREADS = 256 };

// Read by backends that run on the host's cores; others ignore it.
typedef struct kern_hint {
    int threads; // of a device's large work; 0: one per core. At most KERN_MAX_THREADS are used
    const char
        *level; // the highest vector units to use, as kernels.level has it; NULL: the fastest
} kern_hint;

// Lives in the arena. Starts no thread and touches no device, so plans for other machines have one
// too. ST_UNSUPPORTED: there is no such backend, or no such level.
NODISCARD status kern_context_create(arena *a, const char *backend, const kern_hint *hint,
                                     kern_context **out);
extern const device_kernels kern_device_kernels; // for device_config.run

// What a plan asks. Only shapes, types and attributes of the call are read; pure.
int64_t
kern_scratch_bytes(const kern_context *c); // of the device's threads, for device_api.scratch_set
int64_t kern_workspace_bytes(const kern_context *c, const kern_call *call);
// Of a weight in the form that products read, for all calls of a step that differ in their rows
// only: what they can keep, if they are given space. 0: nothing.
int64_t kern_packed_bytes(const kern_context *c, const kern_call *call);

// Of two calls that follow each other: whether `second` works element by element on what the GEMM
// `first` makes, and the backend does so while a tile of it is in cache. For it `first.then` may be
// `second`; the bits are those of two calls. That the second's result lies on nothing that the
// first reads is not asked.
bool kern_fuses(const kern_context *c, const kern_call *first, const kern_call *second);

// A context with threads, for one stream of a device: 0 has all threads, others have one. A thread
// that runs calls itself and is no device leads it: it takes a core as the other threads do, which
// it would else share with one of them. Then it closes the context, and has its places back.
NODISCARD status kern_context_open(const kern_context *of, int32_t stream, kern_context **out);
void kern_context_lead(kern_context *c);
void kern_context_close(kern_context *c); // NULL is legal
// Checks the call (shapes, types, strides: once, for every backend), then runs it on the threads of
// an open context, or in the calling thread alone.
NODISCARD status kern_run(const kern_context *c, const kern_call *call);

// Runs task(context, i, thread) for i in 0..count-1, each once, on all threads of an open context;
// returns when all are done. Which thread runs what is not fixed, so a task's result may depend on
// i only. Not re-entrant.
void kern_parallel_in(const kern_context *c, int64_t count, device_task task, void *context);

// What a context is, on this machine.
const char *
kern_context_level(const kern_context *c); // its vector units, as kernels.level names them
int kern_context_threads(const kern_context *c);
// FLOP/s of so many threads (0: all) in a register loop of multiply-adds; of a narrower type than
// fp32: of bf16 products, where the level has them. Takes some 20 ms. 0 if it could not be
// measured.
double kern_peak_flops(const kern_context *c, int threads, dtype type);
// FLOPs of GEMMs in the time in which a byte goes through memory, roughly.
double kern_flops_per_byte(const kern_context *c, dtype type);

// ---- the machine --------------------------------------------------------------------------------
const char *kern_level_highest(void); // vector units that CPU and operating system give, by name
const char *kern_level_default(void); // of those the ones that are used where none are asked for
NODISCARD status
kern_level_check(const char *level);      // ST_DEVICE: not on this machine. NULL is legal
bool kern_machine_has_avx2(void);         // with FMA and F16C: for vector code outside this folder
bool kern_onednn_version(int version[3]); // false: oneDNN is not built in
// Cores (not hyperthreads) that this process may use; at least 1. Asks hwloc, some milliseconds.
int kern_core_count(void);
// Keeps this process to its part of these cores; where there are fewer than parts, several share
// one. Before any thread of it is started.
void kern_cores_divide(int part, int parts);

#ifdef __cplusplus
}
#endif
#endif
