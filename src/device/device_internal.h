// Inside device/: work items that run in a host thread, and memory from the system.
#ifndef DEVICE_DEVICE_INTERNAL_H
#define DEVICE_DEVICE_INTERNAL_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- work that was posted to a stream -----------------------------------------------------------
typedef enum work_kind { WORK_CALL, WORK_COPY, WORK_HOST, WORK_RECORD, WORK_WAIT } work_kind;

typedef struct device_copy {
    void *target;
    const void *source; // NULL: every byte becomes `value`
    int64_t bytes;
    int value;
} device_copy;

typedef struct device_work {
    work_kind kind;
    device_event *event; // WORK_RECORD, WORK_WAIT
    uint64_t record;     // its number: the n-th record of the event
    device_copy copy;
    device_host_fn fn; // WORK_HOST
    void *context;
    kern_call call; // with `then`: the next item's
} device_work;

// Returns the number of queue items of a work item: a launch takes one for each of its calls, and
// runs at the position of the first.
static inline int64_t device_work_items(const device_work *w)
{
    return w->kind == WORK_CALL && w->call.then != NULL ? 2 : 1;
}
void device_work_call(device_work *w, device_work *second, const kern_call *call);
// Runs a call, a copy or a function in this thread; a call in the traced steps leaves a span.
NODISCARD status device_work_run(const device_work *w, const device_config *config,
                                 const kern_context *context, int32_t stream);

// ---- memory -------------------------------------------------------------------------------------
enum { DEVICE_MAX_PIECES = 128, DEVICE_PAGE_BYTES = 4096 };
typedef struct device_memory {
    int count;
    struct {
        void *data;
        int64_t bytes; // whole pages
    } pieces[DEVICE_MAX_PIECES];
} device_memory;
// Allocates whole pages from the system, huge pages if possible. Fresh memory is zero; in debug
// builds 0xFF bytes: NaN in every floating-point type.
NODISCARD status device_memory_map(device_memory *m, int64_t bytes, void **out);
#ifdef TRIREME_DEBUG
#    define DEVICE_FRESH_IS_ZERO false
#else
#    define DEVICE_FRESH_IS_ZERO true
#endif
void device_memory_unmap(device_memory *m, void *data);
void device_memory_deinit(device_memory *m); // unmaps the remaining pieces

// ---- a device that is the host ------------------------------------------------------------------
device_facts device_host_facts(const char *name, const device_config *config);
NODISCARD status device_host_alloc(device *d, int64_t bytes, void **out); // plain memory
void device_host_free(device *d, void *memory);
device_memory_info device_host_memory(const device_config *config);

#ifdef __cplusplus
}
#endif
#endif
