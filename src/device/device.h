// Devices: memory, streams and events. All work is posted to a stream and completes later.
//
//   cpu      streams are threads; large work of stream 0 uses a pool of threads
//   shadow   the host cannot touch its memory; streams complete late, in a legal order that a seed
//            picks: it imitates a GPU in tests
//   cuda     an NVIDIA GPU (device/cuda); the host cannot touch its memory either
//
// A device knows no kernel. Its config contains a kern_context (kernels/), which is opaque to it,
// and the functions that run calls in that context. So every device runs every backend.
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include "base/host.h"
#include "base/trace.h"
#include "device/call.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct device device;
typedef struct device_stream device_stream;
typedef struct device_event device_event;
typedef struct device_graph device_graph;
typedef struct device_peers device_peers; // device/peers.h

// ---- kernels ------------------------------------------------------------------------------------
typedef struct kern_context kern_context; // of a backend: opaque here
typedef struct cuda_queue cuda_queue;     // the queue of a GPU's stream (device/cuda/launch.h)
typedef void (*device_task)(void *context, int64_t index, int thread);

// The functions by which a device runs kernels: kern_device_kernels in kernels/kernels.h. Kernels
// of the host's cores run inside `run`; those of a GPU are only posted there.
typedef struct device_kernels {
    // Opens a context for one stream of a device. Stream 0 does the large work of a step, with all
    // threads of the device's context.
    status (*open)(const kern_context *of, int32_t stream, kern_context **out);
    // The same for a stream of a GPU: `run` posts calls to the queue, which is borrowed.
    status (*open_queue)(const kern_context *of, cuda_queue *queue, kern_context **out);
    void (*close)(kern_context *c);
    void (*enter)(const kern_context *c); // by the thread that will run the stream's calls
    status (*run)(const kern_context *c, const kern_call *call);
    // Runs task(context, i, thread) for i in 0..count-1 on the threads of the stream: large copies.
    void (*parallel)(const kern_context *c, int64_t count, device_task task, void *context);
    // Sets the memory for the scratch of the threads, borrowed; before that the context uses its
    // own.
    void (*scratch_set)(kern_context *c, void *scratch);
    int (*threads)(const kern_context *of);
    const char *(*level)(const kern_context *of); // the vector units that are used, by name
    double (*peak_flops)(const kern_context *of, dtype type); // as in device_api
} device_kernels;

// ---- devices ------------------------------------------------------------------------------------
typedef struct device_config {
    const host *h;
    const device_kernels *run; // NULL for devices that run none (virtual time)
    const kern_context *kernels;
    uint64_t seed;     // shadow: picks the order
    trace_ring *trace; // NULL: none. Spans are put there for steps in [trace_begin, trace_end]
    int64_t trace_begin, trace_end;
    // The source of alloc's memory, such as pages that other processes can map; zeroed. NULL: the
    // device's own. Not for devices whose memory the host cannot touch.
    status (*memory_take)(void *context, int64_t bytes, void **out);
    void (*memory_give)(void *context, void *memory);
    void *memory_context;
    bool memory_is_used; // that memory may hold values already, which alloc must keep
    void *clock;         // of devices in virtual time (sim/virtual.h)
    // Device cuda reads these: the number of the GPU (modulo their count), and the driver; NULL:
    // libcuda.
    int ordinal;
    int sharing; // ranks of this host, which take the GPUs in turn
    const struct cuda_driver *driver;
} device_config;

typedef status (*device_host_fn)(void *context);

// Times of a stream since it was made. Both are 0 on a device without real time (shadow).
typedef struct device_stream_times {
    int64_t worked_ns;  // that its work took
    int64_t awaited_ns; // that stream 0 stood still for its events
} device_stream_times;

// Properties of a device, for reports and for everything that results depend on.
typedef struct device_facts {
    const char *name;             // "cpu"
    const char *level;            // the level of its kernels ("avx512"); bits of bf16 depend on it
    int units;                    // cores that run kernels, or multiprocessors
    double bytes_per_s;           // of its memory, as its maker states it; 0: not known
    const char *id;               // its UUID ("GPU-..."), as NVML knows it too; NULL: it has none
    bool fp8_tensors, fp8_blocks; // products in 8 bits, by the numbers that share a factor
} device_facts;

typedef struct device_memory_info {
    int64_t free_bytes, all_bytes;
    // Taken from the device by this process, but not by alloc: for the driver's context, the code
    // of kernels and libraries. 0: not known.
    int64_t outside_bytes;
} device_memory_info;

enum { DEVICE_QUEUE_ITEMS = 128 }; // that a stream of any device takes, at least

typedef struct device_api {
    const char *name;
    status (*create)(const device_config *config, device **out);
    void (*destroy)(device *d); // waits for all streams
    // Makes the device that of the calling thread, for libraries that look for one. NULL: there are
    // none.
    status (*enter)(device *d);
    bool fresh_is_zero; // alloc returns zeroed memory; debug builds: false
    bool hides_memory;  // not even functions of `call` can touch the memory
    // Allocates memory in few large pieces (the plan's arena), aligned to 4096. Debug builds fill
    // it with 0xFF bytes (NaN in every floating-point type).
    status (*alloc)(device *d, int64_t bytes, void **out);
    void (*release)(device *d, void *memory);
    // Allocates pinned host memory, which copies access directly; aligned to 64, zeroed. Must be
    // freed before the device is destroyed.
    status (*host_alloc)(device *d, int64_t bytes, void **out);
    void (*host_free)(device *d, void *memory); // NULL is legal
    // Bytes of device memory: available now, and total; 0: not known.
    device_memory_info (*memory_info)(const device *d);
    status (*stream_create)(device *d, const char *name, int32_t number, device_stream **out);
    // The stream as libraries of the device know it (CUstream). NULL: there are none.
    void *(*stream_native)(device_stream *s);
    // Posts the call and the one in `then`, which are copied, and returns at once; *posted is false
    // if the queue of the stream is full.
    status (*launch)(device_stream *s, const kern_call *call, bool *posted);
    // The host memory must stay valid until a later event is done. It may be any memory; if it is
    // not from host_alloc, a device may be slower and wait for the copy.
    status (*copy_in)(device_stream *s, void *to, const void *source, int64_t bytes, bool *posted);
    status (*copy_out)(device_stream *s, void *to, const void *source, int64_t bytes, bool *posted);
    // Sets `bytes` bytes of device memory to `value`.
    status (*fill)(device_stream *s, void *to, int value, int64_t bytes, bool *posted);
    // Runs fn(context) in the order of the stream, in its thread, for work that is not a kernel.
    // Its error becomes one of the device.
    status (*call)(device_stream *s, device_host_fn fn, void *context, bool *posted);
    // Sets the scratch of stream 0's threads, memory of the arena (kern_scratch_bytes), borrowed
    // until destroy. Before that the device uses its own. NULL: its kernels need none.
    status (*scratch_set)(device *d, void *scratch);
    status (*event_create)(device *d, device_event **out); // owned by the device
    // record: the event is done when all work that was posted to the stream before is done. wait:
    // the stream continues only when the event's latest record before this call is done. Neither
    // blocks the host.
    status (*event_record)(device_event *e, device_stream *s, bool *posted);
    status (*event_wait)(device_stream *s, device_event *e, bool *posted);
    // From graph_begin to graph_end this thread's work on the stream is kept, not done; so is that
    // of streams that wait for an event that was recorded there. The first stream must wait for all
    // of them before the end. No wait for earlier work, no host functions, no copies from or to
    // memory that is not of host_alloc, and no other memory. If graph_end fails, nothing was done
    // and the device goes on. graph_launch posts the kept work, with the addresses and arguments of
    // the capture. All NULL: the device has no graphs.
    status (*graph_begin)(device_stream *s);
    status (*graph_end)(device_stream *s, device_graph **out);
    status (*graph_launch)(device_graph *g, device_stream *s, bool *posted);
    void (*graph_destroy)(device_graph *g); // its launches are done; NULL is legal
    // An error of any kernel is sticky: every later call returns it.
    status (*event_query)(device_event *e, bool *done);
    status (*event_sync)(device_event *e); // the host sleeps until it is done
    // Time at which the latest record was done, by the host's monotonic clock; after event_sync.
    int64_t (*event_ns)(const device_event *e);
    device_stream_times (*stream_times)(const device_stream *s); // any thread
    status (*sync)(device *d);                                   // until all streams are empty
    // Waits until one of the queues is half as long as now, or all are empty; NULL if only a query
    // makes space.
    status (*space_wait)(device *d);
    device_facts (*facts)(const device *d);
    // FLOP/s of all units in GEMMs of this type. A CPU is measured, which takes some 20 ms. 0: not
    // known.
    double (*peak_flops)(const device *d, dtype type);
    const device_peers *peers; // NULL: other ranks do not reach its memory by themselves
} device_api;

extern const device_api device_cpu;
extern const device_api device_shadow;
extern const device_api device_cuda;
const device_api *device_find(const char *name); // NULL: none
// The bytes of this machine's first GPU for each of `local` ranks that share all GPUs, without what
// the driver takes for itself. 0: there is no GPU or no driver.
int64_t device_cuda_memory(int64_t local);
// The name of this machine's first GPU; "": there is none.
void device_cuda_name(char out[64]);
// First member of every device's own struct.
struct device {
    const device_api *api;
};

#ifdef __cplusplus
}
#endif
#endif
