// Devices that run operations, and the backends (sets of kernels) that they run.
//
// A *device* has memory, lanes (streams) and events; all work is posted and completes later:
//   cpu      lanes are threads, products use a pool of threads
//   shadow   memory that the host cannot touch, lanes that complete late, in every legal order that
//            a seed picks: stands for a GPU until there is one
// A *backend* is one table of kernels by operation code: `ref` (naive, double where it matters, the
// one the tests trust) and `cpu` (vector code chosen at run time). Any device here runs any backend.
//
// A kernel gets its operands as addresses with types, dims and strides; it allocates nothing, waits
// for nothing and reads nothing but its operands, its workspace and the step block.
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "base/host.h"
#include "base/trace.h"
#include "op/op.h"
#include "op/step.h"

#ifdef __cplusplus
extern "C" {
#endif

// A tensor as a kernel sees it. Strides in elements; the last dim is contiguous (stride 1).
typedef struct kern_tensor {
    void *data; // NULL: operand missing
    dtype type;
    int32_t ndim;
    int64_t dims[OP_MAX_DIMS];
    int64_t strides[OP_MAX_DIMS];
    // Of bounded rows: where device memory has their count, dims[0] being the bound. NULL: dims are
    // exact. Kernels neither read nor write rows from the count on. For backends that run on the
    // host kern_run sees to it: it gives them the live count as dims[0]. Where a call itself makes
    // the count, its kernel gets the bound.
    const void *count;
    dtype count_type; // DTYPE_I32 or DTYPE_I64
} kern_tensor;

typedef struct kern_call {
    op_code code;
    op_attrs attrs;
    kern_tensor in[OP_MAX_IN], out[OP_MAX_OUT];
    step_block *step; // device memory
    void *workspace;  // workspace_bytes of the backend's row for this call; aligned to 64
    int64_t workspace_bytes;
    // What the operation keeps of its weight for calls like this one: panels_bytes of the backend's row; aligned to
    // 64. NULL: nothing. It is there already, or (fills) this call makes it.
    void *panels;
    bool fills;
    int64_t seq;            // T: rows per sequence
    int64_t cache_seq;      // S_max of caches; 0 without
    int64_t first_sequence; // number within the global batch of the sequence of row 0
    // DROPOUT of positions that are cut over AXIS_TP (op/zigzag.h: cut_position): the rank's place in how many, and
    // the pieces of a sequence. 0: they are not.
    int64_t cut_ways, cut_at, cut_pieces;
    int64_t first_head;  // number within the layer of head 0, where heads are cut: dropout
    int64_t first_row;   // number within the weight of row 0, where rows are cut: optimizers
    double loss_divisor; // HEAD_LOSS
    bool accumulate;     // "+=" outputs: false = start from +0
    bool strict;         // bits of a row may not depend on other rows, threads or position
    // Of strict: sums over rows that go on from one call to the next have had an even number of rows, so a unit that
    // takes two at a time gives one fold.
    bool in_pairs;
    bool poison; // bounded outputs: rows that are not there become NaN (bytes 0xFF)
    // The next call, done tile by tile as this one's results are there (kern_joins); NULL: nothing.
    const struct kern_call *then;
    // For the trace: who and where.
    int32_t step_no, microbatch, layer;
} kern_call;

// ---- threads ------------------------------------------------------------------------------------
typedef struct kern_pool kern_pool;
typedef void (*kern_task)(void *context, int64_t index, int thread);
enum { KERN_MAX_THREADS = 256, KERN_SCRATCH_BYTES = 4 << 20 }; // scratch is per thread
// `threads` includes the calling thread. Worker threads are pinned through hwloc where there is one
// core for each. scratch: threads * KERN_SCRATCH_BYTES from the device's arena, borrowed.
NODISCARD status kern_pool_create(int threads, kern_pool **out);
// The calling thread, which will call kern_parallel, takes a core as the pool's own threads do: else
// it may sit down on theirs. Then the same thread must destroy the pool, and has its places back.
void kern_pool_lead(kern_pool *pool);
void kern_pool_destroy(kern_pool *pool);
int kern_pool_threads(const kern_pool *pool);
void kern_pool_scratch_set(kern_pool *pool, void *scratch);
void *kern_pool_scratch(const kern_pool *pool, int thread);
// Runs task(context, i, thread) for i in 0..count-1, each once, on all threads; returns when all are
// done. Which thread runs what is not fixed, so a task's result may depend on i only. Not re-entrant.
void kern_parallel(kern_pool *pool, int64_t count, kern_task task, void *context);

// ---- backends -----------------------------------------------------------------------------------
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
// FLOP/s of `threads` threads in a register loop of multiply-adds (bf16: of bf16 products, where the
// level has them); takes some 20 ms. 0 if it could not be measured.
double kern_peak_flops(kern_level level, int threads, bool bf16);
bool kern_onednn_version(int version[3]); // false: oneDNN is not built in
// Cores (not hyperthreads) that this process may use; at least 1. Asks hwloc, some milliseconds.
int kern_core_count(void);
// Keeps this process to its part of these cores; where there are fewer than parts, several share one.
// Before any thread of it is started.
void kern_cores_divide(int part, int parts);

typedef struct kern_context {
    kern_pool *pool;
    kern_level level;
} kern_context;

typedef status (*kern_fn)(const kern_context *context, const kern_call *call);
typedef bool (*kern_pair_fn)(const kern_context *context, const kern_call *first,
                             const kern_call *second);
typedef struct kern_backend {
    const char *name;           // as written in a config
    kern_fn run[OP_CODE_COUNT]; // NULL: not supported; the dispatcher reports it
    // Scratch beyond the per-thread one that a call needs; NULL: none. Pure.
    int64_t (*workspace_bytes[OP_CODE_COUNT])(const kern_call *call, int threads);
    // Of a weight in the form that products read, for all calls of a step that differ in their rows only: what they
    // can keep, if they are given room. NULL: nothing. Pure.
    int64_t (*panels_bytes[OP_CODE_COUNT])(const kern_call *call, kern_level level);
    // Of a product: can it take up such a call, which reads its result element by element? NULL: none. Pure.
    kern_pair_fn joins[OP_CODE_COUNT];
} kern_backend;
extern const kern_backend kern_backend_ref;
extern const kern_backend kern_backend_cpu;
const kern_backend *kern_backend_find(const char *name); // NULL: none
// Checks the call (shapes, types, strides: once, for every backend), then runs it in this thread.
NODISCARD status kern_run(const kern_backend *backend, const kern_context *context,
                          const kern_call *call);
// Whether first.then = second gives what the two give one after the other, to the bit: the backend can do it,
// and the second writes nothing that the first still reads.
bool kern_joins(const kern_backend *backend, const kern_context *context, const kern_call *first,
                const kern_call *second);
int64_t kern_workspace_bytes(const kern_backend *backend, const kern_call *call, int threads);
int64_t kern_panels_bytes(const kern_backend *backend, const kern_call *call, kern_level level);

// ---- devices ------------------------------------------------------------------------------------
typedef struct kern_device kern_device;
typedef struct kern_lane kern_lane;
typedef struct kern_event kern_event;

typedef struct kern_device_config {
    const host *h;
    const kern_backend *backend;
    int threads;       // 0: one per core
    kern_level level;  // at most this
    uint64_t seed;     // shadow: picks the order
    trace_ring *trace; // NULL: none. Spans are put there for steps in [trace_begin, trace_end]
    int64_t trace_begin, trace_end;
    // Where alloc takes its memory, such as pages that other processes reach; zeros. NULL: the device's
    // own. Not for devices whose memory the host cannot touch.
    status (*memory_take)(void *context, int64_t bytes, void **out);
    void (*memory_give)(void *context, void *memory);
    void *memory_context;
    void *clock; // of devices in virtual time: what keeps it (sim/virtual.h)
} kern_device_config;

typedef status (*kern_host_fn)(void *context);

// Of a lane, since it was made. 0 and 0 where time is not real (shadow).
typedef struct kern_lane_times {
    int64_t worked_ns;  // that its work took
    int64_t awaited_ns; // that lane 0, the products, stood still for its events
} kern_lane_times;

enum { KERN_QUEUE_ITEMS = 128 }; // that a lane of any device takes, at least

typedef struct kern_device_api {
    const char *name;
    status (*create)(const kern_device_config *config, kern_device **out);
    void (*destroy)(kern_device *d); // waits for all lanes
    bool fresh_is_zero;              // what alloc gives; debug builds: false
    // Memory comes in few large pieces (the plan's arena); aligned to 4096. Debug builds fill it
    // with 0xFF bytes (NaN in every floating type).
    status (*alloc)(kern_device *d, int64_t bytes, void **out);
    void (*release)(kern_device *d, void *memory);
    status (*lane_create)(kern_device *d, const char *name, int32_t number, kern_lane **out);
    // Posting copies the call and returns at once; false in *posted if the lane's queue is full.
    status (*launch)(kern_lane *lane, const kern_call *call, bool *posted);
    // Host memory must stay until an event after it is done.
    status (*copy_in)(kern_lane *lane, void *device, const void *source, int64_t bytes,
                      bool *posted);
    status (*copy_out)(kern_lane *lane, void *target, const void *device, int64_t bytes,
                       bool *posted);
    // Sets `bytes` bytes of device memory to `value`.
    status (*fill)(kern_lane *lane, void *device, int value, int64_t bytes, bool *posted);
    // Runs fn(context) in the lane's order, in its thread: work that is no kernel's. Its error is one of
    // the device.
    status (*call)(kern_lane *lane, kern_host_fn fn, void *context, bool *posted);
    // Scratch of the product lane's threads comes from the arena: threads * KERN_SCRATCH_BYTES,
    // borrowed until destroy. Until it is set the device uses its own.
    status (*scratch_set)(kern_device *d, void *scratch);
    status (*event_create)(kern_device *d, kern_event **out); // owned by the device
    // record: the event is done when all work posted to the lane before is. wait: the lane goes on
    // only when the event's latest record before this call is done. Neither blocks the host.
    status (*event_record)(kern_event *e, kern_lane *lane, bool *posted);
    status (*event_wait)(kern_lane *lane, kern_event *e, bool *posted);
    // An error of any kernel is sticky: every later call returns it.
    status (*event_query)(kern_event *e, bool *done);
    status (*event_sync)(kern_event *e); // the host sleeps until it is done
    // When its latest record was done, by the host's monotonic clock; after event_sync.
    int64_t (*event_ns)(const kern_event *e);
    kern_lane_times (*lane_times)(const kern_lane *lane); // any thread
    status (*sync)(kern_device *d);                       // until all lanes are empty
    // Until one of the queues is half as long as now, or all are empty; NULL where only a query makes room.
    status (*room_await)(kern_device *d);
    int (*threads)(const kern_device *d);
    kern_level (*level)(const kern_device *d);
} kern_device_api;

extern const kern_device_api kern_device_cpu;
extern const kern_device_api kern_device_shadow;
const kern_device_api *kern_device_find(const char *name); // NULL: none
// First member of every device's own struct.
struct kern_device {
    const kern_device_api *api;
};

#ifdef __cplusplus
}
#endif
#endif
