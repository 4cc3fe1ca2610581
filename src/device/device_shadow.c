// The shadow device imitates a GPU, to find mistakes that show only on an asynchronous device.
//
//   memory   the host cannot touch it: pages have access rights only while the device works
//   streams  queues; posted work runs only inside later calls, in an order that the seed picks from
//            all orders that streams and events allow
//   copies   read their source when they run, so a host buffer that is reused too early shows
//
// All work runs in the thread that calls, so that a seed repeats its order exactly. An order is
// drawn item by item: half of the time from any stream that can continue, else from the first
// one in a fixed ranking of the streams, which starves some streams as long as the rules allow.
// Streams that wait for an event keep their work until the event is done. If no stream can
// continue, the error names the streams that wait for each other.
//
// The device is slow: changing the access rights of a large arena costs milliseconds.
#include "device/device_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { QUEUE_ITEMS = 128, MAX_STREAMS = 64 };
_Static_assert((int)QUEUE_ITEMS >= (int)DEVICE_QUEUE_ITEMS, "plans are verified for that many");

typedef struct shadow_device shadow_device;

struct device_event {
    device_event *next;
    device_stream *stream; // of the latest record; NULL: never recorded
    uint64_t recorded, done;
    int64_t done_ns;
};

struct device_stream {
    shadow_device *device;
    const char *name;
    int32_t number;
    uint32_t rank; // in the ranking that starves
    device_work items[QUEUE_ITEMS];
    int64_t head, tail;
};

struct shadow_device {
    device base;
    device_config config;
    kern_context *context; // of all streams: one item runs at a time
    uint64_t random;       // state of the generator
    bool failed;
    error_record error;
    int stream_count;
    device_stream *streams[MAX_STREAMS];
    device_event *events;
    device_memory memory; // hidden from the host
};

static shadow_device *device_of(device *d)
{
    ASSERT(d->api == &device_shadow);
    return (shadow_device *)d;
}

static status health(const shadow_device *d)
{
    return d->failed ? error_put(&d->error) : ST_OK;
}

// SplitMix64: small, and good enough to pick an order.
static uint64_t draw(shadow_device *d)
{
    uint64_t z = d->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// ---- running ------------------------------------------------------------------------------------
static void memory_protect(const shadow_device *d, int rights)
{
    for (int i = 0; i < d->memory.count; i++) {
        const int error =
            mprotect(d->memory.pieces[i].data, (size_t)d->memory.pieces[i].bytes, rights);
        ASSERT(error == 0);
    }
}

static bool is_ready(const device_stream *stream)
{
    if (stream->head == stream->tail) return false;
    const device_work *w = &stream->items[stream->head % QUEUE_ITEMS];
    return w->kind != WORK_WAIT || w->event->done >= w->record;
}

// Picks the stream that continues next; NULL: none can.
static device_stream *stream_pick(shadow_device *d)
{
    device_stream *ready[MAX_STREAMS], *first = NULL;
    int count = 0;
    for (int i = 0; i < d->stream_count; i++) {
        device_stream *stream = d->streams[i];
        if (!is_ready(stream)) continue;
        ready[count++] = stream;
        if (first == NULL || stream->rank < first->rank) first = stream;
    }
    if (count == 0) return NULL;
    const uint64_t word = draw(d);
    return (word & 1) != 0 ? first : ready[(word >> 1) % (uint64_t)count];
}

static void item_run(shadow_device *d, device_stream *stream)
{
    const device_work *w = &stream->items[stream->head % QUEUE_ITEMS];
    if (!d->failed && w->kind <= WORK_HOST) {
        memory_protect(d, PROT_READ | PROT_WRITE);
        const status st = device_work_run(w, &d->config, d->context, stream->number);
        memory_protect(d, PROT_NONE);
        if (st != ST_OK) {
            d->failed = true;
            error_take(&d->error);
        }
    }
    if (w->kind == WORK_RECORD) {
        w->event->done = w->record;
        w->event->done_ns = d->config.h->api->monotonic_ns(d->config.h);
    }
    stream->head += device_work_items(w);
}

static bool advance(shadow_device *d)
{
    device_stream *stream = stream_pick(d);
    if (stream == NULL) return false;
    item_run(d, stream);
    return true;
}

// Some polls do much work, most do little, some do none, so a host that relies on progress by
// polling fails in tests.
static void advance_some(shadow_device *d)
{
    const uint64_t word = draw(d);
    const uint64_t count = (word & 7) == 0 ? (word >> 3) % 16 : (word >> 3) % 3;
    for (uint64_t i = 0; i < count; i++) {
        if (!advance(d)) return;
    }
}

static status deadlock(const shadow_device *d)
{
    char names[512] = "";
    size_t used = 0;
    for (int i = 0; i < d->stream_count; i++) {
        const device_stream *stream = d->streams[i];
        if (stream->head == stream->tail || used >= sizeof(names)) continue;
        const device_event *e = stream->items[stream->head % QUEUE_ITEMS].event;
        const char *other = e != NULL && e->stream != NULL ? e->stream->name : "no stream";
        const int wrote = snprintf(names + used, sizeof(names) - used, "%s%s waits for %s",
                                   used > 0 ? ", " : "", stream->name, other);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    return fail(ST_INTERNAL, "deadlock on the shadow device: %s", names);
}

// ---- the host's side ----------------------------------------------------------------------------
// Returns the first of the next `count` free items; NULL if fewer are free, in which case the
// device does some work.
static status items_begin(device_stream *stream, int64_t count, device_work **out)
{
    shadow_device *d = stream->device;
    TRY(health(d));
    if (stream->tail - stream->head > QUEUE_ITEMS - count) {
        advance_some(d);
        *out = NULL;
    } else {
        *out = &stream->items[stream->tail % QUEUE_ITEMS];
        (*out)->event = NULL;
    }
    return ST_OK;
}

static status item_begin(device_stream *stream, device_work **out)
{
    return items_begin(stream, 1, out);
}

static status item_end(device_stream *stream, const device_work *w, bool *posted)
{
    if (w != NULL) stream->tail++;
    *posted = w != NULL;
    return ST_OK;
}

static status launch(device_stream *stream, const kern_call *call, bool *posted)
{
    const int64_t count = call->then != NULL ? 2 : 1;
    device_work *w;
    TRY(items_begin(stream, count, &w));
    if (w != NULL) {
        device_work_call(w, &stream->items[(stream->tail + 1) % QUEUE_ITEMS], call);
        stream->tail += count - 1; // the last one is counted below
    }
    TRY(item_end(stream, w, posted));
    // A GPU may start before the host has posted the next action.
    if ((draw(stream->device) & 3) == 0) advance_some(stream->device);
    return ST_OK;
}

static status copy(device_stream *stream, const device_copy *what, bool *posted)
{
    device_work *w;
    TRY(item_begin(stream, &w));
    if (w != NULL) {
        w->kind = WORK_COPY;
        w->copy = *what;
    }
    return item_end(stream, w, posted);
}

static status call(device_stream *stream, device_host_fn fn, void *context, bool *posted)
{
    device_work *w;
    TRY(item_begin(stream, &w));
    if (w != NULL) {
        w->kind = WORK_HOST;
        w->fn = fn;
        w->context = context;
    }
    return item_end(stream, w, posted);
}

static status event_create(device *base, device_event **out)
{
    shadow_device *d = device_of(base);
    device_event *e = calloc(1, sizeof(*e));
    if (e == NULL) return fail(ST_NO_MEMORY, "no memory for an event of the shadow device");
    e->next = d->events;
    d->events = e;
    *out = e;
    return ST_OK;
}

static status event_record(device_event *e, device_stream *stream, bool *posted)
{
    device_work *w;
    TRY(item_begin(stream, &w));
    if (w != NULL) {
        // Records are numbered; numbers of two streams could be reached out of order, so an event
        // has one stream at a time.
        ASSERT(e->stream == NULL || e->stream == stream || e->done == e->recorded);
        e->stream = stream;
        w->kind = WORK_RECORD;
        w->event = e;
        w->record = ++e->recorded;
    }
    return item_end(stream, w, posted);
}

static device_stream_times stream_times(const device_stream *stream)
{
    (void)stream; // they are run one by one, in an order that is drawn
    return (device_stream_times){0};
}

static status event_wait(device_stream *stream, device_event *e, bool *posted)
{
    device_work *w;
    TRY(item_begin(stream, &w));
    if (w != NULL) {
        w->kind = WORK_WAIT;
        w->event = e;
        w->record = e->recorded;
    }
    return item_end(stream, w, posted);
}

static status event_query(device_event *e, bool *done)
{
    if (e->stream == NULL) { // never recorded: nothing to wait for
        *done = true;
        return ST_OK;
    }
    shadow_device *d = e->stream->device;
    advance_some(d);
    TRY(health(d));
    *done = e->done == e->recorded;
    return ST_OK;
}

static status event_sync(device_event *e)
{
    if (e->stream == NULL) return ST_OK;
    shadow_device *d = e->stream->device;
    while (e->done < e->recorded) {
        if (!advance(d)) return deadlock(d);
    }
    return health(d);
}

static bool all_empty(const shadow_device *d)
{
    for (int i = 0; i < d->stream_count; i++) {
        if (d->streams[i]->head != d->streams[i]->tail) return false;
    }
    return true;
}

static int64_t event_ns(const device_event *e)
{
    return e->done_ns;
}

static status sync_all(device *base)
{
    shadow_device *d = device_of(base);
    while (!all_empty(d)) {
        if (!advance(d)) return deadlock(d);
    }
    return health(d);
}

static status alloc(device *base, int64_t bytes, void **out)
{
    shadow_device *d = device_of(base);
    TRY(device_memory_map(&d->memory, bytes, out));
    memory_protect(d, PROT_NONE);
    return ST_OK;
}

static void release(device *base, void *memory)
{
    device_memory_unmap(&device_of(base)->memory, memory);
}

// ---- creation -----------------------------------------------------------------------------------
static status stream_create(device *base, const char *name, int32_t number, device_stream **out)
{
    shadow_device *d = device_of(base);
    ASSERT(d->stream_count < MAX_STREAMS);
    device_stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL) return fail(ST_NO_MEMORY, "no memory for stream %s of the shadow", name);
    stream->device = d;
    stream->name = name;
    stream->number = number;
    stream->rank = (uint32_t)(draw(d) >> 32);
    d->streams[d->stream_count++] = stream;
    *out = stream;
    return ST_OK;
}

static void destroy(device *base)
{
    shadow_device *d = device_of(base);
    while (advance(d)) continue;
    for (int i = 0; i < d->stream_count; i++) free(d->streams[i]);
    for (device_event *e = d->events, *next; e != NULL; e = next) {
        next = e->next;
        free(e);
    }
    d->config.run->close(d->context);
    device_memory_deinit(&d->memory);
    free(d);
}

static status create(const device_config *config, device **out)
{
    shadow_device *d = calloc(1, sizeof(*d));
    if (d == NULL) return fail(ST_NO_MEMORY, "no memory for the shadow device");
    d->base.api = &device_shadow;
    d->config = *config;
    d->random = config->seed;
    status st;
    TRY_TO(destroy_device, config->run->open(config->kernels, 0, &d->context));
    *out = &d->base;
    return ST_OK;
destroy_device:
    destroy(&d->base);
    return st;
}

static device_facts facts(const device *base)
{
    return device_host_facts("shadow", &((const shadow_device *)base)->config);
}

static device_memory_info memory_info(const device *base)
{
    return device_host_memory(&((const shadow_device *)base)->config);
}

static double peak_flops(const device *base, dtype type)
{
    const device_config *config = &((const shadow_device *)base)->config;
    return config->run->peak_flops(config->kernels, type);
}

static status copy_in(device_stream *stream, void *to, const void *source, int64_t bytes,
                      bool *posted)
{
    ASSERT(source != NULL || bytes == 0);
    const device_copy what = {.target = to, .source = source, .bytes = bytes};
    return copy(stream, &what, posted);
}

static status copy_out(device_stream *stream, void *to, const void *source, int64_t bytes,
                       bool *posted)
{
    const device_copy what = {.target = to, .source = source, .bytes = bytes};
    return copy(stream, &what, posted);
}

static status fill(device_stream *stream, void *to, int value, int64_t bytes, bool *posted)
{
    const device_copy what = {.target = to, .bytes = bytes, .value = value};
    return copy(stream, &what, posted);
}

static status scratch_set(device *base, void *scratch)
{
    const shadow_device *d = device_of(base);
    d->config.run->scratch_set(d->context, scratch);
    return ST_OK;
}

const device_api device_shadow = {
    .name = "shadow",
    .create = create,
    .destroy = destroy,
    .fresh_is_zero = DEVICE_FRESH_IS_ZERO,
    .alloc = alloc,
    .release = release,
    .host_alloc = device_host_alloc,
    .host_free = device_host_free,
    .memory_info = memory_info,
    .stream_create = stream_create,
    .launch = launch,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .fill = fill,
    .call = call,
    .scratch_set = scratch_set,
    .event_create = event_create,
    .event_record = event_record,
    .event_wait = event_wait,
    .stream_times = stream_times,
    .event_query = event_query,
    .event_sync = event_sync,
    .event_ns = event_ns,
    .sync = sync_all,
    .facts = facts,
    .peak_flops = peak_flops,
};
