// What the devices of kernels/ share: work items, memory from the system, the pool with its scratch.
#ifndef KERNELS_DEVICE_H
#define KERNELS_DEVICE_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- work that was posted to a lane -------------------------------------------------------------
typedef enum work_kind { WORK_CALL, WORK_COPY, WORK_HOST, WORK_RECORD, WORK_WAIT } work_kind;

typedef struct device_copy {
    void *target;
    const void *source; // NULL: every byte becomes `value`
    int64_t bytes;
    int value;
} device_copy;

typedef struct device_work {
    work_kind kind;
    kern_event *event; // WORK_RECORD, WORK_WAIT
    uint64_t record;   // its number: the n-th record of the event
    device_copy copy;
    kern_host_fn fn; // WORK_HOST
    void *context;
    kern_call call;
} device_work;

// Runs a call, a copy or a function in this thread; a call in the traced steps leaves a span.
NODISCARD status device_work_run(const device_work *w, const kern_device_config *config,
                                 const kern_context *context, int32_t lane);

// ---- memory -------------------------------------------------------------------------------------
enum { DEVICE_MAX_PIECES = 128, DEVICE_PAGE_BYTES = 4096 };
typedef struct device_memory {
    int count;
    struct {
        void *data;
        int64_t bytes; // whole pages
    } pieces[DEVICE_MAX_PIECES];
} device_memory;
// Whole pages from the system, in huge pages where they are to be had. Fresh memory is zero; in
// debug builds 0xFF bytes: NaN in every floating type.
NODISCARD status device_memory_map(device_memory *m, int64_t bytes, void **out);
#ifdef TRIREME_DEBUG
#    define DEVICE_FRESH_IS_ZERO false
#else
#    define DEVICE_FRESH_IS_ZERO true
#endif
void device_memory_unmap(device_memory *m, void *data);
void device_memory_deinit(device_memory *m); // unmaps what is left

// ---- threads ------------------------------------------------------------------------------------
kern_level device_level(const kern_device_config *config); // what was asked for and is there
// A pool of config->threads (0: one per core), with its scratch taken from `m`.
NODISCARD status device_pool_create(const kern_device_config *config, device_memory *m,
                                    kern_pool **out, void **scratch);

#ifdef __cplusplus
}
#endif
#endif
