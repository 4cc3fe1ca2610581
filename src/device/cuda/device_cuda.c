// Device cuda: an NVIDIA GPU through the driver API.
//
//   memory   cuMemAlloc; the host never touches it. host_alloc is pinned memory.
//   streams  of the driver. launch() lets the row of the backend post its kernels at once, so a
//            stream needs no thread; only host functions have one (calls.c).
//   events   of the driver. Their time is measured against a clock event that is recorded when the
//            time is asked for, so the interval is short and exact.
//
// The driver's queues are long; a call blocks when one is full. All errors of the driver but the
// lack of memory stick: a GPU gives up its context after the first.
#include "device/cuda/cuda_internal.h"
#include "device/gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct device_event {
    device_event *next;
    cuda_device *device;
    cuda_event handle;
};

static cuda_device *device_of(device *d)
{
    ASSERT(d->api == &device_cuda);
    return (cuda_device *)d;
}

status cuda_break(cuda_device *d, status st)
{
    error_record why;
    error_take(&why);
    (void)pthread_mutex_lock(&d->lock);
    if (!__atomic_load_n(&d->failed, __ATOMIC_ACQUIRE)) d->error = why;
    __atomic_store_n(&d->failed, 1, __ATOMIC_RELEASE);
    (void)pthread_mutex_unlock(&d->lock);
    (void)error_put(&why);
    return st;
}

status cuda_did(cuda_device *d, cuda_result r, const char *what)
{
    const status st = cuda_check(&d->driver, r, what);
    // A capture that fails has done no work, so the device is as it was.
    const bool of_capture = r >= CUDA_CAPTURE_FIRST && r <= CUDA_CAPTURE_LAST;
    return st == ST_OK || of_capture ? st : cuda_break(d, st);
}

status cuda_enter(cuda_device *d)
{
    if (__atomic_load_n(&d->failed, __ATOMIC_ACQUIRE)) {
        (void)pthread_mutex_lock(&d->lock);
        const status st = error_put(&d->error);
        (void)pthread_mutex_unlock(&d->lock);
        return st;
    }
    return cuda_did(d, d->driver.context_enter(d->context), "the GPU's context is lost");
}

// ---- work on streams ----------------------------------------------------------------------------
static status launch(device_stream *s, const kern_call *call, bool *posted)
{
    *posted = true;
    TRY(cuda_enter(s->device));
    const status st = cuda_spans_run(s, call);
    return st == ST_OK || s->device->captures ? st : cuda_break(s->device, st);
}

static status copy_in(device_stream *s, void *to, const void *source, int64_t bytes, bool *posted)
{
    ASSERT(source != NULL || bytes == 0);
    *posted = true;
    TRY(cuda_enter(s->device));
    if (bytes == 0) return ST_OK;
    return cuda_did(
        s->device, s->device->driver.copy_in(cuda_address_of(to), source, (size_t)bytes, s->handle),
        "host memory cannot be copied to the GPU");
}

static status copy_out(device_stream *s, void *to, const void *source, int64_t bytes, bool *posted)
{
    *posted = true;
    TRY(cuda_enter(s->device));
    if (bytes == 0) return ST_OK;
    return cuda_did(
        s->device,
        s->device->driver.copy_out(to, cuda_address_of(source), (size_t)bytes, s->handle),
        "memory of the GPU cannot be copied to the host");
}

static status fill(device_stream *s, void *to, int value, int64_t bytes, bool *posted)
{
    *posted = true;
    TRY(cuda_enter(s->device));
    if (bytes == 0) return ST_OK;
    return cuda_did(
        s->device,
        s->device->driver.fill(cuda_address_of(to), (unsigned char)value, (size_t)bytes, s->handle),
        "memory of the GPU cannot be filled");
}

static status call(device_stream *s, device_host_fn fn, void *context, bool *posted)
{
    *posted = false;
    TRY(cuda_enter(s->device));
    if (s->device->captures) {
        return fail(ST_UNSUPPORTED, "a graph of a GPU's work contains no functions of the host");
    }
    return cuda_calls_post(s, fn, context, posted);
}

static status enter(device *base)
{
    return cuda_enter(device_of(base));
}

static void *stream_native(device_stream *s)
{
    return s->handle;
}

// ---- events -------------------------------------------------------------------------------------
static status event_create(device *base, device_event **out)
{
    cuda_device *d = device_of(base);
    TRY(cuda_enter(d));
    device_event *e = calloc(1, sizeof(*e));
    if (e == NULL) return fail(ST_NO_MEMORY, "no memory for an event of the GPU");
    e->device = d;
    const status st = cuda_did(d, d->driver.event_create(&e->handle, CUDA_EVENT_BLOCKING),
                               "an event of the GPU cannot be made");
    if (st != ST_OK) {
        free(e);
        return st;
    }
    e->next = d->events;
    d->events = e;
    *out = e;
    return ST_OK;
}

static status event_record(device_event *e, device_stream *s, bool *posted)
{
    *posted = true;
    TRY(cuda_enter(s->device));
    return cuda_did(s->device, s->device->driver.event_record(e->handle, s->handle),
                    "an event of the GPU cannot be recorded");
}

static status event_wait(device_stream *s, device_event *e, bool *posted)
{
    *posted = true;
    TRY(cuda_enter(s->device));
    return cuda_did(s->device, s->device->driver.stream_wait(s->handle, e->handle, 0),
                    "a stream of the GPU cannot wait for an event");
}

static status event_query(device_event *e, bool *done)
{
    TRY(cuda_enter(e->device));
    const cuda_result r = e->device->driver.event_query(e->handle);
    *done = r != CUDA_NOT_READY;
    return *done ? cuda_did(e->device, r, "work on the GPU failed") : ST_OK;
}

static status event_sync(device_event *e)
{
    TRY(cuda_enter(e->device));
    TRY(cuda_did(e->device, e->device->driver.event_sync(e->handle), "work on the GPU failed"));
    cuda_spans_take(e->device);
    return cuda_enter(e->device); // a host function may have failed meanwhile
}

cuda_result cuda_clock_read(cuda_device *d, int64_t *now)
{
    cuda_result r = d->driver.event_record(d->clock, d->clock_stream);
    if (r == 0) r = d->driver.event_sync(d->clock);
    *now = d->config.h->api->monotonic_ns(d->config.h);
    return r;
}

static int64_t event_ns(const device_event *e)
{
    cuda_device *d = e->device;
    int64_t now = 0;
    float ms = 0.0f;
    if (cuda_enter(d) != ST_OK) return 0;
    cuda_result r = cuda_clock_read(d, &now);
    if (r == 0) r = d->driver.event_elapsed(&ms, e->handle, d->clock);
    // An event that was never recorded has no time.
    return r == 0 && ms > 0.0f ? now - (int64_t)(1e6 * (double)ms) : now;
}

static device_stream_times stream_times(const device_stream *s)
{
    (void)s; // the driver counts none
    return (device_stream_times){0};
}

static status sync_all(device *base)
{
    cuda_device *d = device_of(base);
    for (int i = 0; i < d->stream_count; i++) {
        TRY(cuda_enter(d));
        TRY(cuda_did(d, d->driver.stream_sync(d->streams[i]->handle), "work on the GPU failed"));
    }
    cuda_spans_take(d);
    return cuda_enter(d);
}

// ---- memory -------------------------------------------------------------------------------------
static status alloc(device *base, int64_t bytes, void **out)
{
    cuda_device *d = device_of(base);
    char what[96], human[32];
    cuda_address raw = 0;
    ASSERT(d->piece_count < DEVICE_MAX_PIECES);
    TRY(cuda_enter(d));
    const int64_t whole = align_up(max_i64(bytes, 1), DEVICE_PAGE_BYTES) + DEVICE_PAGE_BYTES;
    (void)snprintf(what, sizeof(what), "the GPU gives no %s of memory",
                   text_bytes_human(whole, human));
    TRY(cuda_check(&d->driver, d->driver.memory_alloc(&raw, (size_t)whole), what));
    void *data = (void *)(uintptr_t)align_up((int64_t)raw, DEVICE_PAGE_BYTES);
    d->allocated += whole;
    d->pieces[d->piece_count].bytes = whole;
    d->pieces[d->piece_count].raw = raw;
    d->pieces[d->piece_count].data = data;
    d->piece_count++;
#ifdef TRIREME_DEBUG
    TRY(cuda_did(d, d->driver.fill(raw, 0xff, (size_t)whole, d->clock_stream), what));
    TRY(cuda_did(d, d->driver.stream_sync(d->clock_stream), what));
#endif
    *out = data;
    return ST_OK;
}

// Waits until the driver has no more work, also after an error.
static void drain(cuda_device *d)
{
    (void)d->driver.context_enter(d->context);
    for (int i = 0; i < d->stream_count; i++) (void)d->driver.stream_sync(d->streams[i]->handle);
}

static void release(device *base, void *memory)
{
    cuda_device *d = device_of(base);
    drain(d); // after an error sync() does not wait
    for (int i = 0; i < d->piece_count; i++) {
        if (d->pieces[i].data != memory) continue;
        (void)d->driver.memory_free(d->pieces[i].raw);
        d->allocated -= d->pieces[i].bytes;
        d->pieces[i] = d->pieces[--d->piece_count];
        return;
    }
    ASSERT(memory == NULL); // not memory of this device
}

static status host_alloc(device *base, int64_t bytes, void **out)
{
    cuda_device *d = device_of(base);
    const int64_t whole = align_up(max_i64(bytes, 1), ALIGN_TENSOR);
    char what[96], human[32];
    TRY(cuda_enter(d));
    (void)snprintf(what, sizeof(what), "the system gives no %s of pinned memory",
                   text_bytes_human(whole, human));
    TRY(cuda_check(&d->driver, d->driver.host_alloc(out, (size_t)whole, CUDA_HOST_PORTABLE), what));
    memset(*out, 0, (size_t)whole);
    return ST_OK;
}

static void host_free(device *base, void *memory)
{
    cuda_device *d = device_of(base);
    if (memory == NULL) return;
    (void)d->driver.context_enter(d->context);
    (void)d->driver.host_free(memory);
}

// Returns the GPU's memory in use by all processes. NVML is asked: the driver needs a context.
static int64_t used_now(const cuda_device *d)
{
    nvml_state s = {0};
    if (d->measured != NULL) nvml_look(&d->nvml, d->measured, &s);
    return s.memory_used_bytes;
}

static void measure_begin(cuda_device *d, int gpus)
{
    const char *why = NULL;
    if (d->config.sharing > gpus || !nvml_library_open(&d->nvml, &why)) return;
    d->measured = nvml_find_uuid(&d->nvml, d->id);
    d->used_before = used_now(d);
    if (d->used_before < 0) d->measured = NULL;
}

static device_memory_info memory_info(const device *base)
{
    const cuda_device *d = (const cuda_device *)base;
    size_t available = 0, all = 0;
    (void)d->driver.context_enter(d->context);
    if (d->driver.memory_info(&available, &all) != 0) return (device_memory_info){0};
    const int64_t outside = used_now(d) - d->used_before - d->allocated;
    return (device_memory_info){.free_bytes = (int64_t)available,
                                .all_bytes = (int64_t)all,
                                .outside_bytes = d->measured != NULL ? max_i64(outside, 0) : 0};
}

// ---- creation -----------------------------------------------------------------------------------
static void stream_destroy(device_stream *s)
{
    const cuda_driver *driver = &s->device->driver;
    cuda_calls_deinit(s);
    cuda_queue_close(s);
    if (s->context != NULL) s->device->config.run->close(s->context);
    if (s->handle != NULL) (void)driver->stream_destroy(s->handle);
    free(s);
}

static status stream_create(device *base, const char *name, int32_t number, device_stream **out)
{
    cuda_device *d = device_of(base);
    ASSERT(d->stream_count < CUDA_MAX_STREAMS);
    TRY(cuda_enter(d));
    device_stream *s = calloc(1, sizeof(*s));
    if (s == NULL) return fail(ST_NO_MEMORY, "no memory for stream %s of the GPU", name);
    s->device = d;
    s->name = name;
    s->number = number;
    cuda_queue_init(s);
    status st;
    TRY_TO(destroy_stream,
           cuda_did(d, d->driver.stream_create(&s->handle, CUDA_STREAM_NON_BLOCKING),
                    "a stream of the GPU cannot be made"));
    TRY_TO(destroy_stream, d->config.run->open_queue(d->config.kernels, &s->queue, &s->context));
    d->streams[d->stream_count++] = s;
    *out = s;
    return ST_OK;
destroy_stream:
    stream_destroy(s);
    return st;
}

static void destroy(device *base)
{
    cuda_device *d = device_of(base);
    const cuda_driver *driver = &d->driver;
    if (d->context != NULL) {
        drain(d);
        while (d->stream_count > 0) stream_destroy(d->streams[--d->stream_count]);
        for (device_event *e = d->events, *next; e != NULL; e = next) {
            next = e->next;
            (void)driver->event_destroy(e->handle);
            free(e);
        }
        while (d->piece_count > 0) release(base, d->pieces[d->piece_count - 1].data);
        cuda_spans_destroy(d);
        if (d->clock != NULL) (void)driver->event_destroy(d->clock);
        if (d->clock_stream != NULL) (void)driver->stream_destroy(d->clock_stream);
        lt_products_destroy(d->products);
        if (d->module != NULL) (void)driver->module_unload(d->module);
        (void)driver->context_release(d->handle);
    }
    nvml_library_close(&d->nvml);
    (void)pthread_mutex_destroy(&d->lock);
    (void)pthread_mutex_destroy(&d->finding);
    free(d);
}

static status device_open(cuda_device *d)
{
    const cuda_driver *driver = &d->driver;
    int count = 0;
    if (d->config.driver != NULL) {
        d->driver = *d->config.driver;
    } else {
        TRY(cuda_driver_open(&d->driver));
    }
    TRY(cuda_gpu_count(driver, &count));
    if (count < 1) return fail(ST_DEVICE, "NVIDIA's driver sees no GPU");
    const int ordinal = d->config.ordinal % count;
    TRY(cuda_gpu_describe(driver, ordinal, &d->gpu));
    (void)snprintf(d->level, sizeof(d->level), "sm_%d %s", d->gpu.arch, d->gpu.name);
    TRY(cuda_gpu_uuid(driver, ordinal, d->id));
    TRY(cuda_check(driver, driver->device_get(&d->handle, ordinal), "the GPU cannot be opened"));
    measure_begin(d, count);
    TRY(cuda_check(driver, driver->context_retain(&d->context, d->handle),
                   "the GPU cannot be opened"));
    TRY(cuda_enter(d));
    TRY(cuda_did(d, driver->stream_create(&d->clock_stream, CUDA_STREAM_NON_BLOCKING),
                 "a stream of the GPU cannot be made"));
    TRY(cuda_did(d, driver->event_create(&d->clock, 0), "an event of the GPU cannot be made"));
    TRY(cuda_spans_create(d));
    return cuda_products_open(d);
}

static status create(const device_config *config, device **out)
{
    if (config->run == NULL || config->run->open_queue == NULL) {
        return fail(ST_UNSUPPORTED, "these kernels cannot post to a GPU");
    }
    cuda_device *d = calloc(1, sizeof(*d));
    if (d == NULL) return fail(ST_NO_MEMORY, "no memory for device cuda");
    d->base.api = &device_cuda;
    d->config = *config;
    (void)pthread_mutex_init(&d->lock, NULL);
    (void)pthread_mutex_init(&d->finding, NULL);
    const status st = device_open(d);
    if (st != ST_OK) {
        destroy(&d->base);
        return st;
    }
    *out = &d->base;
    return ST_OK;
}

static device_facts facts(const device *base)
{
    const cuda_device *d = (const cuda_device *)base;
    return (device_facts){.name = "cuda",
                          .level = d->level,
                          .units = d->gpu.multiprocessors,
                          .bytes_per_s = d->gpu.bytes_per_s,
                          .id = d->id,
                          .fp8_tensors = cuda_has_fp8(d, false),
                          .fp8_blocks = cuda_has_fp8(d, true)};
}

static double peak_flops(const device *base, dtype type)
{
    return cuda_gpu_peak_flops(&((const cuda_device *)base)->gpu, type);
}

// Context, code of kernels and library take some 0.6 GiB of an H100; the rest is for arenas.
enum { DRIVER_BYTES_PER_RANK = 1 << 30 };

// Describes the first GPU and returns the number of GPUs; 0: there is none, or no driver.
static int first_gpu(cuda_gpu *out)
{
    cuda_driver driver;
    int count = 0;
    error_record kept;
    error_take(&kept);
    status st = cuda_driver_open(&driver);
    if (st == ST_OK) st = cuda_gpu_count(&driver, &count);
    if (st == ST_OK && count > 0) st = cuda_gpu_describe(&driver, 0, out);
    (void)error_put(&kept);
    return st == ST_OK ? count : 0;
}

int64_t device_cuda_memory(int64_t local)
{
    cuda_gpu gpu;
    const int count = first_gpu(&gpu);
    if (count < 1) return 0;
    const int64_t sharing = (local + count - 1) / count; // ranks of one GPU
    const int64_t share = gpu.memory_bytes / sharing;
    return share - min_i64(DRIVER_BYTES_PER_RANK, share / 8);
}

void device_cuda_name(char out[64])
{
    cuda_gpu gpu;
    (void)snprintf(out, 64, "%s", first_gpu(&gpu) > 0 ? gpu.name : "");
}

int device_cuda_count(void)
{
    cuda_gpu gpu;
    return first_gpu(&gpu);
}

void device_cuda_id(int ordinal, char out[DEVICE_GPU_ID_BYTES])
{
    cuda_driver driver;
    int count = 0;
    char id[CUDA_UUID_BYTES] = "";
    error_record kept;
    error_take(&kept);
    const bool found = cuda_driver_open(&driver) == ST_OK &&
                       cuda_gpu_count(&driver, &count) == ST_OK && count > 0 &&
                       cuda_gpu_uuid(&driver, ordinal % count, id) == ST_OK;
    (void)error_put(&kept);
    (void)snprintf(out, DEVICE_GPU_ID_BYTES, "%s", found ? id : "");
}

const device_api device_cuda = {
    .name = "cuda",
    .create = create,
    .destroy = destroy,
    .enter = enter,
    .fresh_is_zero = false,
    .hides_memory = true,
    .alloc = alloc,
    .release = release,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .memory_info = memory_info,
    .stream_create = stream_create,
    .stream_native = stream_native,
    .launch = launch,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .fill = fill,
    .call = call,
    .scratch_set = NULL,
    .event_create = event_create,
    .event_record = event_record,
    .event_wait = event_wait,
    .graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_launch = cuda_graph_post,
    .graph_destroy = cuda_graph_free,
    .event_query = event_query,
    .event_sync = event_sync,
    .event_ns = event_ns,
    .stream_times = stream_times,
    .sync = sync_all,
    .space_wait = NULL,
    .facts = facts,
    .peak_flops = peak_flops,
    .peers = &cuda_peers,
};
