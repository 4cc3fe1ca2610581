// The part of CUDA's driver API that device cuda uses, as a table of functions.
//
// cuda_driver_open fills the table from libcuda, which is loaded at run time; tests fill it with a
// driver of their own (tests/fixtures/device/fake_driver.h). The build needs no CUDA headers: the
// types below have the layout of those in cuda.h, and handles are opaque pointers.
#ifndef DEVICE_CUDA_DRIVER_H
#define DEVICE_CUDA_DRIVER_H

#include "base/base.h"
#include "base/host.h"
#include "base/types.h"
#include "device/cuda/tensor_map.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int cuda_result; // CUresult; 0: success
typedef uint64_t cuda_address;
typedef struct cuda_context_handle *cuda_context;
typedef struct cuda_stream_handle *cuda_stream;
typedef struct cuda_event_handle *cuda_event;
typedef struct cuda_module_handle *cuda_module;
typedef struct cuda_function_handle *cuda_function;
typedef struct cuda_graph_handle *cuda_graph;
typedef struct cuda_graph_exec_handle *cuda_graph_exec;

enum {
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NO_DEVICE = 100,
    CUDA_NO_BINARY = 209,
    CUDA_NOT_FOUND = 500,
    CUDA_NOT_READY = 600,
    CUDA_PEER_ENABLED = 704,
    CUDA_LAUNCH_FAILED = 719,
    CUDA_CAPTURE_FIRST = 900, // of the errors of a capture
    CUDA_CAPTURE_LAST = 909
};
// Attributes of a device and of a function, and flags, by their numbers in cuda.h.
enum {
    CUDA_ATTRIBUTE_CLOCK_KHZ = 13,
    CUDA_ATTRIBUTE_MULTIPROCESSORS = 16,
    CUDA_ATTRIBUTE_MEMORY_KHZ = 36,
    CUDA_ATTRIBUTE_MEMORY_BITS = 37,
    CUDA_ATTRIBUTE_CAPABILITY_MAJOR = 75,
    CUDA_ATTRIBUTE_CAPABILITY_MINOR = 76,
    CUDA_ATTRIBUTE_SHARED_BYTES_OPTIN = 97,
    CUDA_FUNCTION_SHARED_BYTES = 1,         // static
    CUDA_FUNCTION_DYNAMIC_SHARED_BYTES = 8, // the most that a launch may ask for
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_BLOCKING = 1, // a thread that waits for it sleeps
    CUDA_EVENT_NO_TIME = 2,
    CUDA_HOST_PORTABLE = 1,
    CUDA_IPC_PEERS = 1, // memory of another GPU is opened too
    CUDA_WAIT_AT_LEAST = 0,
    CUDA_CAPTURE_THREAD = 1, // calls of other threads do not matter to a capture
    CUDA_MAP_F16 = 6,        // of tensor maps
    CUDA_MAP_BF16 = 9,
    CUDA_MAP_SWIZZLE_128 = 3,
    CUDA_MAP_L2_256 = 3 // the second-level cache reads 256 bytes at a time
};

typedef struct cuda_ipc_handle { // CUipcMemHandle: a piece of memory for other processes
    unsigned char bytes[64];
} cuda_ipc_handle;
typedef struct cuda_uuid { // CUuuid
    unsigned char bytes[16];
} cuda_uuid;

typedef struct cuda_launch_config { // CUlaunchConfig
    unsigned grid[3], block[3], shared_bytes;
    cuda_stream stream;
    void *attributes;
    unsigned attribute_count;
} cuda_launch_config;

#define CUDA_TILES_PARAMETERS                                                              \
    (cuda_tensor_map * out, int type, unsigned dims, void *data, const uint64_t *sizes,    \
     const uint64_t *strides, const unsigned *tile, const unsigned *steps, int interleave, \
     int swizzle, int l2_promotion, int outside)
// X(field, symbol, parameters): every function returns a cuda_result.
#define CUDA_DRIVER_FUNCTIONS(X)                                                                  \
    X(init, cuInit, (unsigned flags))                                                             \
    X(version, cuDriverGetVersion, (int *out))                                                    \
    X(device_count, cuDeviceGetCount, (int *out))                                                 \
    X(device_get, cuDeviceGet, (int *out, int ordinal))                                           \
    X(device_name, cuDeviceGetName, (char *out, int bytes, int device))                           \
    X(device_attribute, cuDeviceGetAttribute, (int *out, int attribute, int device))              \
    X(device_memory, cuDeviceTotalMem_v2, (size_t * out, int device))                             \
    X(context_retain, cuDevicePrimaryCtxRetain, (cuda_context * out, int device))                 \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (int device))                                \
    X(context_enter, cuCtxSetCurrent, (cuda_context c))                                           \
    X(device_uuid, cuDeviceGetUuid_v2, (cuda_uuid * out, int device))                             \
    X(peer_can, cuDeviceCanAccessPeer, (int *out, int device, int peer))                          \
    X(peer_enable, cuCtxEnablePeerAccess, (cuda_context peer, unsigned flags))                    \
    X(ipc_handle, cuIpcGetMemHandle, (cuda_ipc_handle * out, cuda_address memory))                \
    X(ipc_open, cuIpcOpenMemHandle_v2,                                                            \
      (cuda_address * out, cuda_ipc_handle handle, unsigned flags))                               \
    X(ipc_close, cuIpcCloseMemHandle, (cuda_address memory))                                      \
    X(memory_info, cuMemGetInfo_v2, (size_t * free_bytes, size_t * all_bytes))                    \
    X(memory_alloc, cuMemAlloc_v2, (cuda_address * out, size_t bytes))                            \
    X(memory_free, cuMemFree_v2, (cuda_address memory))                                           \
    X(host_alloc, cuMemHostAlloc, (void **out, size_t bytes, unsigned flags))                     \
    X(host_free, cuMemFreeHost, (void *memory))                                                   \
    X(host_address, cuMemHostGetDevicePointer_v2,                                                 \
      (cuda_address * out, void *host, unsigned flags))                                           \
    X(copy_in, cuMemcpyHtoDAsync_v2,                                                              \
      (cuda_address to, const void *from, size_t bytes, cuda_stream s))                           \
    X(copy_out, cuMemcpyDtoHAsync_v2, (void *to, cuda_address from, size_t bytes, cuda_stream s)) \
    X(copy, cuMemcpyDtoDAsync_v2,                                                                 \
      (cuda_address to, cuda_address from, size_t bytes, cuda_stream s))                          \
    X(fill, cuMemsetD8Async, (cuda_address to, unsigned char value, size_t bytes, cuda_stream s)) \
    X(stream_create, cuStreamCreate, (cuda_stream * out, unsigned flags))                         \
    X(stream_destroy, cuStreamDestroy_v2, (cuda_stream s))                                        \
    X(stream_sync, cuStreamSynchronize, (cuda_stream s))                                          \
    X(stream_wait, cuStreamWaitEvent, (cuda_stream s, cuda_event e, unsigned flags))              \
    X(stream_wait_value, cuStreamWaitValue32_v2,                                                  \
      (cuda_stream s, cuda_address at, uint32_t value, unsigned flags))                           \
    X(event_create, cuEventCreate, (cuda_event * out, unsigned flags))                            \
    X(event_destroy, cuEventDestroy_v2, (cuda_event e))                                           \
    X(event_record, cuEventRecord, (cuda_event e, cuda_stream s))                                 \
    X(event_query, cuEventQuery, (cuda_event e))                                                  \
    X(event_sync, cuEventSynchronize, (cuda_event e))                                             \
    X(event_elapsed, cuEventElapsedTime, (float *ms, cuda_event from, cuda_event to))             \
    X(module_load, cuModuleLoadData, (cuda_module * out, const void *image))                      \
    X(module_unload, cuModuleUnload, (cuda_module m))                                             \
    X(function_find, cuModuleGetFunction, (cuda_function * out, cuda_module m, const char *name)) \
    X(function_get, cuFuncGetAttribute, (int *out, int attribute, cuda_function f))               \
    X(function_set, cuFuncSetAttribute, (cuda_function f, int attribute, int value))              \
    X(launch, cuLaunchKernelEx,                                                                   \
      (const cuda_launch_config *config, cuda_function f, void **params, void **extra))           \
    X(tiles_encode, cuTensorMapEncodeTiled, CUDA_TILES_PARAMETERS)                                \
    X(capture_begin, cuStreamBeginCapture_v2, (cuda_stream s, int mode))                          \
    X(capture_end, cuStreamEndCapture, (cuda_stream s, cuda_graph * out))                         \
    X(graph_make, cuGraphInstantiateWithFlags,                                                    \
      (cuda_graph_exec * out, cuda_graph g, unsigned long long flags))                            \
    X(graph_launch, cuGraphLaunch, (cuda_graph_exec g, cuda_stream s))                            \
    X(graph_destroy, cuGraphDestroy, (cuda_graph g))                                              \
    X(graph_exec_destroy, cuGraphExecDestroy, (cuda_graph_exec g))                                \
    X(error_name, cuGetErrorName, (cuda_result r, const char **out))                              \
    X(error_text, cuGetErrorString, (cuda_result r, const char **out))

typedef struct cuda_driver {
#define CUDA_DRIVER_FIELD(field, symbol, parameters) cuda_result(*field) parameters;
    CUDA_DRIVER_FUNCTIONS(CUDA_DRIVER_FIELD)
#undef CUDA_DRIVER_FIELD
} cuda_driver;

// Loads libcuda.so.1 and initializes it. ST_DEVICE, with the remedy: there is no driver, it lacks a
// function, or it finds no GPU. The library stays loaded.
NODISCARD status cuda_driver_open(cuda_driver *out);
// Returns ST_OK for 0, else fails with the driver's name and text of the error: ST_NO_MEMORY for
// CUDA_OUT_OF_MEMORY, ST_DEVICE for all others. `what` names the attempt: "cannot copy 12 bytes".
NODISCARD status cuda_check(const cuda_driver *c, cuda_result r, const char *what);

// The file with the kernels, in the folder of the program. ST_UNSUPPORTED, with the remedy: it is
// not there.
enum { CUDA_PATH_BYTES = 4096 };
NODISCARD status cuda_image_path(const host *h, char path[CUDA_PATH_BYTES]);
// Maps the file until the caller closes it.
NODISCARD status cuda_image_map(const host *h, file **open, const void **image);

typedef struct cuda_gpu {
    char name[64];
    int64_t memory_bytes;
    int multiprocessors, clock_khz;
    double bytes_per_s;   // of the memory: two transfers a cycle; 0: not known
    int arch;             // compute capability, 90 for 9.0
    int max_shared_bytes; // of a block, with the opt-in
} cuda_gpu;
NODISCARD status cuda_gpu_count(const cuda_driver *c, int *out);
enum { CUDA_UUID_BYTES = 41 };
// "GPU-..." as NVML and CUDA_VISIBLE_DEVICES write it.
NODISCARD status cuda_gpu_uuid(const cuda_driver *c, int ordinal, char out[CUDA_UUID_BYTES]);
NODISCARD status cuda_gpu_describe(const cuda_driver *c, int ordinal, cuda_gpu *out);
// FLOP/s of dense matrix products of the type at the boost clock for which the maker states them;
// 0: not known.
double cuda_gpu_peak_flops(const cuda_gpu *g, dtype type);

#ifdef __cplusplus
}
#endif
#endif
