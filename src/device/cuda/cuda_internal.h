// Inside device/cuda/: the device and its streams.
#ifndef DEVICE_CUDA_CUDA_INTERNAL_H
#define DEVICE_CUDA_CUDA_INTERNAL_H

#include "base/text.h"
#include "device/cuda/cublaslt.h"
#include "device/cuda/driver.h"
#include "device/cuda/launch.h"
#include "device/cuda/nvml.h"
#include "device/device_internal.h"
#include "device/peers.h"

#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_MAX_STREAMS = 160, CUDA_MAX_FUNCTIONS = 512, CUDA_MAX_CALLS = 32 };

typedef struct cuda_device cuda_device;
typedef struct cuda_spans cuda_spans;

// A function of the fat binary; found when it is first launched.
typedef struct cuda_named {
    const char *name; // NULL: a free place
    cuda_function handle;
} cuda_named;

// Host functions of a stream run in a thread of their own, because a host function of the driver
// may neither wait for other ranks nor call the driver. The stream waits for the count of those
// that are done, in pinned memory.
typedef struct cuda_calls {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool runs, stop;
    uint32_t *done; // pinned: the number of functions that have run
    cuda_address done_address;
    struct {
        device_host_fn fn;
        void *context;
        cuda_event ready; // the work that was posted before it is done
    } items[CUDA_MAX_CALLS];
    uint32_t begun, posted; // numbers of functions
} cuda_calls;

struct device_stream {
    cuda_queue queue; // first: the queue's functions get its address
    cuda_device *device;
    const char *name;
    int32_t number;
    cuda_stream handle;
    kern_context *context;
    cuda_calls calls;
};

struct cuda_device {
    device base;
    device_config config;
    cuda_driver driver;
    cuda_gpu gpu;
    char level[96]; // for facts: architecture and name
    char id[CUDA_UUID_BYTES];
    nvml_library nvml;
    nvml_device measured; // this GPU, of which this process alone takes memory; NULL: not so
    int64_t used_before;  // of its memory, before this process opened it
    int64_t allocated;    // by alloc
    int handle;           // of the GPU
    cuda_context context;
    cuda_module module; // NULL until the first launch
    cuda_named functions[CUDA_MAX_FUNCTIONS];
    pthread_mutex_t finding; // of module and functions: several threads launch kernels
    lt_products *products;   // NULL: cuBLASLt is not there
    cuda_spans *spans;       // NULL: no step is traced
    int stream_count;
    device_stream *streams[CUDA_MAX_STREAMS];
    device_event *events;
    bool captures;            // the thread that posts work captures it
    cuda_stream clock_stream; // idle but for the clock
    cuda_event clock;
    int piece_count;
    struct {
        void *data;
        cuda_address raw;
        int64_t bytes;
    } pieces[DEVICE_MAX_PIECES];
    pthread_mutex_t lock; // of the next two, which the threads of host functions write
    error_record error;
    int failed; // read and written atomically
};

static inline cuda_address cuda_address_of(const void *memory)
{
    return (cuda_address)(uintptr_t)memory;
}

// Keeps the first error of the device and returns the given one.
status cuda_break(cuda_device *d, status st);
// cuda_check whose error sticks to the device.
NODISCARD status cuda_did(cuda_device *d, cuda_result r, const char *what);
// Returns the device's first error, or makes its context the one of this thread.
NODISCARD status cuda_enter(cuda_device *d);

// Records the clock event and waits for it; *now is the host's time then.
cuda_result cuda_clock_read(cuda_device *d, int64_t *now);

// spans.c
NODISCARD status cuda_spans_create(cuda_device *d);
void cuda_spans_destroy(cuda_device *d);
NODISCARD status cuda_spans_run(device_stream *s, const kern_call *call); // posts the call
void cuda_spans_take(cuda_device *d); // puts the spans that are done into the trace

// queue.c
NODISCARD status cuda_products_open(cuda_device *d);
// Whether the library has products in 8 bits for this GPU, with factors of blocks or of operands.
bool cuda_has_fp8(const cuda_device *d, bool by_blocks);
void cuda_queue_init(device_stream *s);
void cuda_queue_close(device_stream *s);

// graph.c
NODISCARD status cuda_graph_begin(device_stream *s);
NODISCARD status cuda_graph_end(device_stream *s, device_graph **out);
NODISCARD status cuda_graph_post(device_graph *g, device_stream *s, bool *posted);
void cuda_graph_free(device_graph *g);

// peers.c
extern const device_peers cuda_peers;

// calls.c
NODISCARD status cuda_calls_post(device_stream *s, device_host_fn fn, void *context, bool *posted);
void cuda_calls_deinit(device_stream *s); // the stream is empty, or the device is broken

#ifdef __cplusplus
}
#endif
#endif
