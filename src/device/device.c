// Shared code of the cpu and the shadow device: memory from the system, and work items that run in
// a host thread.
#include "device/device_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const char *const op_names[OP_CODE_COUNT] = {
#define OP_NAME(upper, lower) [OP_##upper] = #lower,
    OP_TABLE(OP_NAME)
#undef OP_NAME
};

// All threads of the stream make a large copy: initial weights go to memory that was never touched,
// and there the system needs longer to provide the pages than a thread to copy the bytes.
enum { COPY_PIECE_BYTES = 1 << 21 };

static void copy_piece(void *context, int64_t index, int thread)
{
    const device_copy *c = context;
    const int64_t at = index * COPY_PIECE_BYTES;
    const size_t bytes = (size_t)min_i64(COPY_PIECE_BYTES, c->bytes - at);
    (void)thread;
    if (c->source == NULL) {
        memset((char *)c->target + at, c->value, bytes);
    } else {
        memcpy((char *)c->target + at, (const char *)c->source + at, bytes);
    }
}

static status copy_run(const device_copy *copy, const device_kernels *run,
                       const kern_context *context)
{
    device_copy c = *copy;
    run->parallel(context, (c.bytes + COPY_PIECE_BYTES - 1) / COPY_PIECE_BYTES, copy_piece, &c);
    return ST_OK;
}

void device_work_call(device_work *w, device_work *second, const kern_call *call)
{
    w->kind = WORK_CALL;
    w->call = *call;
    if (call->then == NULL) return;
    ASSERT(call->then->then == NULL);
    second->kind = WORK_CALL;
    second->call = *call->then;
    w->call.then = &second->call;
}

status device_work_run(const device_work *w, const device_config *config,
                       const kern_context *context, int32_t stream)
{
    if (w->kind == WORK_COPY) return copy_run(&w->copy, config->run, context);
    if (w->kind == WORK_HOST) return w->fn(w->context);
    ASSERT(w->kind == WORK_CALL);
    const kern_call *call = &w->call;
    if (config->trace == NULL || call->step_no < config->trace_begin ||
        call->step_no > config->trace_end) {
        return config->run->run(context, call);
    }
    trace_record span = {.kind = TRACE_SPAN,
                         .stream = stream,
                         .step = call->step_no,
                         .microbatch = call->microbatch,
                         .layer = call->layer,
                         .name = op_names[call->code]};
    span.begin_ns = config->h->api->monotonic_ns(config->h);
    const status st = config->run->run(context, call);
    span.end_ns = config->h->api->monotonic_ns(config->h);
    trace_put(config->trace, &span);
    return st;
}

// ---- memory -------------------------------------------------------------------------------------
enum { HUGE_PAGE_BYTES = 2 << 20 };

status device_memory_map(device_memory *m, int64_t bytes, void **out)
{
    ASSERT(bytes >= 0);
    ASSERT(m->count < DEVICE_MAX_PIECES);
    const int64_t whole = align_up(max_i64(bytes, 1), DEVICE_PAGE_BYTES);
    // A large piece starts on a huge page; otherwise its first and last megabytes would get none.
    const int64_t slack = whole >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 0;
    char *map = mmap(NULL, (size_t)(whole + slack), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        return fail(ST_NO_MEMORY, "the system gives no %lld bytes of memory: %s", (long long)whole,
                    strerror(errno));
    }
    char *data = map;
    if (slack != 0) {
        const int64_t before = align_up((int64_t)(uintptr_t)map, slack) - (int64_t)(uintptr_t)map;
        data = map + before;
        if (before > 0) (void)munmap(map, (size_t)before);
        if (slack > before) (void)munmap(data + whole, (size_t)(slack - before));
        (void)madvise(data, (size_t)whole,
                      MADV_HUGEPAGE); // a wish: without it only some speed goes
    }
#ifdef TRIREME_DEBUG
    memset(data, 0xff, (size_t)whole);
#endif
    m->pieces[m->count].data = data;
    m->pieces[m->count].bytes = whole;
    m->count++;
    *out = data;
    return ST_OK;
}

void device_memory_unmap(device_memory *m, void *data)
{
    for (int i = 0; i < m->count; i++) {
        if (m->pieces[i].data != data) continue;
        (void)munmap(data, (size_t)m->pieces[i].bytes);
        m->pieces[i] = m->pieces[--m->count];
        return;
    }
    ASSERT(data == NULL); // not memory of this device
}

void device_memory_deinit(device_memory *m)
{
    while (m->count > 0) device_memory_unmap(m, m->pieces[m->count - 1].data);
}

// ---- a device that is the host ------------------------------------------------------------------
device_facts device_host_facts(const char *name, const device_config *config)
{
    return (device_facts){.name = name,
                          .level = config->run->level(config->kernels),
                          .units = config->run->threads(config->kernels)};
}

status device_host_alloc(device *d, int64_t bytes, void **out)
{
    const int64_t whole = align_up(max_i64(bytes, 1), ALIGN_TENSOR);
    void *memory = aligned_alloc(ALIGN_TENSOR, (size_t)whole);
    if (memory == NULL) {
        return fail(ST_NO_MEMORY, "no %lld bytes of host memory for device %s", (long long)bytes,
                    d->api->name);
    }
    memset(memory, 0, (size_t)whole);
    *out = memory;
    return ST_OK;
}

void device_host_free(device *d, void *memory)
{
    (void)d;
    free(memory);
}

device_memory_info device_host_memory(const device_config *config)
{
    return (device_memory_info){.free_bytes = host_memory_bytes(config->h),
                                .all_bytes = host_memory_installed(config->h)};
}
