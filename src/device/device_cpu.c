// The cpu device: its memory is that of the process, each stream is a thread with a bounded queue.
//
// Stream 0 has a kernel context with all threads of the device, so GEMMs use all cores;
// other streams (copies, optimizer pieces that overlap communication) have a context with one
// thread each. One lock guards all queues, events and the error: work items are kernels of
// microseconds to seconds, so the lock is idle nearly always. Stream 0 looks for work for some
// microseconds before it sleeps, because the executor posts the next actions while the present one
// runs; other streams leave the cores to it.
//
// The device keeps the first error. After it, streams execute only events, so that every waiting
// thread returns, and every later call returns the error.
#include "device/device_internal.h"

#include "base/spin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUE_ITEMS = 512, MAX_STREAMS = 64, SPIN_TICKS = 50 * 1000, NOT_WANTED = -1 };
_Static_assert((int)QUEUE_ITEMS >= (int)DEVICE_QUEUE_ITEMS, "plans are verified for that many");

typedef struct cpu_device cpu_device;

struct device_event {
    device_event *next;    // the device's list
    device_stream *stream; // of the latest record; NULL: never recorded
    uint64_t recorded, done;
    int64_t done_ns;
};

struct device_stream {
    cpu_device *device;
    const char *name;
    int32_t number;
    pthread_t thread;
    pthread_cond_t work;     // something was posted, the awaited event is done, or the end
    _Atomic(uint64_t) pulse; // counts these
    _Atomic(int64_t) worked_ns, awaited_ns;
    kern_context *context;
    device_work items[QUEUE_ITEMS];
    int64_t head, tail; // items[head % n] is the oldest; it stays in the queue while it runs
    int64_t wanted;     // the host is to hear when so few are left; NOT_WANTED: it does not wait
};

struct cpu_device {
    device base;
    device_config config;
    pthread_mutex_t lock;
    pthread_cond_t host; // an event is done, or a stream is empty or as short as was wanted
    bool stop, failed;
    error_record error;
    int stream_count;
    device_stream *streams[MAX_STREAMS];
    device_event *events;
    device_memory memory;
};

static cpu_device *device_of(device *d)
{
    ASSERT(d->api == &device_cpu);
    return (cpu_device *)d;
}

// ---- a stream's thread --------------------------------------------------------------------------
static bool is_ready(const device_stream *stream)
{
    if (stream->head == stream->tail) return false;
    const device_work *w = &stream->items[stream->head % QUEUE_ITEMS];
    return w->kind != WORK_WAIT || w->event->done >= w->record;
}

// The caller holds the lock, as for all changes of the state that a stream waits for.
static void stream_wake(device_stream *stream)
{
    atomic_fetch_add(&stream->pulse, 1);
    pthread_cond_signal(&stream->work);
}

static int64_t now_ns(const cpu_device *d)
{
    return d->config.h->api->monotonic_ns(d->config.h);
}

// Waits until the head of the queue may run. The caller holds the lock. False: the stream ends.
static bool work_sleep(device_stream *stream)
{
    cpu_device *d = stream->device;
    while (!is_ready(stream)) {
        if (d->stop && stream->head == stream->tail) return false;
        const uint64_t pulse = atomic_load(&stream->pulse);
        if (stream->number == 0) {
            pthread_mutex_unlock(&d->lock);
            const uint64_t begin = spin_ticks();
            while (spin_ticks() - begin < SPIN_TICKS && atomic_load(&stream->pulse) == pulse) {
                spin_pause();
            }
            pthread_mutex_lock(&d->lock);
        }
        if (atomic_load(&stream->pulse) == pulse) pthread_cond_wait(&stream->work, &d->lock);
    }
    return true;
}

// Called and returns with the lock held. The time in which the compute stream waits is charged to
// the stream whose event it waits for.
static bool work_wait(device_stream *stream)
{
    const int64_t head = stream->head;
    if (is_ready(stream)) return true;
    if (stream->number != 0 || head == stream->tail) return work_sleep(stream);
    device_stream *other = stream->items[head % QUEUE_ITEMS].event->stream;
    const int64_t begin = now_ns(stream->device);
    const bool ready = work_sleep(stream);
    atomic_fetch_add(&other->awaited_ns, now_ns(stream->device) - begin);
    return ready;
}

static void event_complete(cpu_device *d, device_event *e, uint64_t record)
{
    e->done = record;
    e->done_ns = now_ns(d);
    for (int i = 0; i < d->stream_count; i++) {
        device_stream *stream = d->streams[i];
        if (stream->head == stream->tail) continue;
        const device_work *w = &stream->items[stream->head % QUEUE_ITEMS];
        if (w->kind == WORK_WAIT && w->event == e) stream_wake(stream);
    }
    pthread_cond_broadcast(&d->host);
}

static void *stream_main(void *argument)
{
    device_stream *stream = argument;
    cpu_device *d = stream->device;
    d->config.run->enter(stream->context);
    pthread_mutex_lock(&d->lock);
    while (work_wait(stream)) {
        device_work *w = &stream->items[stream->head % QUEUE_ITEMS];
        status st = ST_OK;
        if (!d->failed && w->kind <= WORK_HOST) {
            pthread_mutex_unlock(&d->lock);
            const int64_t begin = now_ns(d);
            st = device_work_run(w, &d->config, stream->context, stream->number);
            atomic_fetch_add(&stream->worked_ns, now_ns(d) - begin);
            pthread_mutex_lock(&d->lock);
        }
        if (st != ST_OK && !d->failed) {
            d->failed = true;
            error_take(&d->error);
        }
        if (w->kind == WORK_RECORD) event_complete(d, w->event, w->record);
        stream->head += device_work_items(w);
        const int64_t left = stream->tail - stream->head;
        if (left == 0 || left <= stream->wanted) pthread_cond_broadcast(&d->host);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

// ---- the host's side ----------------------------------------------------------------------------
// Ends a call that holds the lock: releases it and returns the device's error, if there is one.
static status unlock(cpu_device *d)
{
    const bool failed = d->failed;
    pthread_mutex_unlock(&d->lock);
    // The record does not change any more once `failed` is set.
    return failed ? error_put(&d->error) : ST_OK;
}

// Returns the first of the next `count` free items of a queue, NULL if fewer are free. The lock is
// held after it.
static device_work *items_begin(device_stream *stream, int64_t count)
{
    pthread_mutex_lock(&stream->device->lock);
    if (stream->tail - stream->head > QUEUE_ITEMS - count) return NULL;
    return &stream->items[stream->tail % QUEUE_ITEMS];
}

static device_work *item_begin(device_stream *stream)
{
    return items_begin(stream, 1);
}

static status item_end(device_stream *stream, const device_work *w, bool *posted)
{
    cpu_device *d = stream->device;
    if (w != NULL) {
        stream->tail++;
        stream_wake(stream);
    }
    const status st = unlock(d);
    if (st == ST_OK) *posted = w != NULL;
    return st;
}

static status launch(device_stream *stream, const kern_call *call, bool *posted)
{
    const int64_t count = call->then != NULL ? 2 : 1;
    device_work *w = items_begin(stream, count);
    if (w != NULL) {
        device_work_call(w, &stream->items[(stream->tail + 1) % QUEUE_ITEMS], call);
        stream->tail += count - 1; // the last one is counted below
    }
    return item_end(stream, w, posted);
}

static status copy(device_stream *stream, const device_copy *what, bool *posted)
{
    device_work *w = item_begin(stream);
    if (w != NULL) {
        w->kind = WORK_COPY;
        w->copy = *what;
    }
    return item_end(stream, w, posted);
}

static status call(device_stream *stream, device_host_fn fn, void *context, bool *posted)
{
    device_work *w = item_begin(stream);
    if (w != NULL) {
        w->kind = WORK_HOST;
        w->fn = fn;
        w->context = context;
    }
    return item_end(stream, w, posted);
}

static status event_create(device *base, device_event **out)
{
    cpu_device *d = device_of(base);
    device_event *e = calloc(1, sizeof(*e));
    if (e == NULL) return fail(ST_NO_MEMORY, "no memory for an event of the cpu device");
    pthread_mutex_lock(&d->lock);
    e->next = d->events;
    d->events = e;
    pthread_mutex_unlock(&d->lock);
    *out = e;
    return ST_OK;
}

static status event_record(device_event *e, device_stream *stream, bool *posted)
{
    device_work *w = item_begin(stream);
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

static status event_wait(device_stream *stream, device_event *e, bool *posted)
{
    device_work *w = item_begin(stream);
    if (w != NULL) {
        w->kind = WORK_WAIT;
        w->event = e;
        w->record = e->recorded;
    }
    return item_end(stream, w, posted);
}

static device_stream_times stream_times(const device_stream *stream)
{
    return (device_stream_times){.worked_ns = atomic_load(&stream->worked_ns),
                                 .awaited_ns = atomic_load(&stream->awaited_ns)};
}

static status event_query_in(cpu_device *d, const device_event *e, bool *done)
{
    pthread_mutex_lock(&d->lock);
    const bool is_done = e->done == e->recorded;
    const status st = unlock(d);
    if (st == ST_OK) *done = is_done;
    return st;
}

static status event_query(device_event *e, bool *done)
{
    if (e->stream == NULL) { // never recorded: nothing to wait for
        *done = true;
        return ST_OK;
    }
    return event_query_in(e->stream->device, e, done);
}

static status event_sync(device_event *e)
{
    if (e->stream == NULL) return ST_OK;
    cpu_device *d = e->stream->device;
    pthread_mutex_lock(&d->lock);
    const uint64_t record = e->recorded;
    while (e->done < record) pthread_cond_wait(&d->host, &d->lock);
    return unlock(d);
}

static int64_t event_ns(const device_event *e)
{
    return e->done_ns;
}

static status sync_all(device *base)
{
    cpu_device *d = device_of(base);
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->stream_count; i++) {
        const device_stream *stream = d->streams[i];
        const int64_t tail = stream->tail;
        while (stream->head < tail) pthread_cond_wait(&d->host, &d->lock);
    }
    return unlock(d);
}

static bool any_is_wanted(const cpu_device *d)
{
    for (int i = 0; i < d->stream_count; i++) {
        if (d->streams[i]->tail - d->streams[i]->head <= d->streams[i]->wanted) return true;
    }
    return false;
}

// Waiting for one stream is enough: the work that another stream waits for may be posted by the
// caller's next call.
static status space_wait(device *base)
{
    cpu_device *d = device_of(base);
    bool any = false;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->stream_count; i++) {
        device_stream *stream = d->streams[i];
        const int64_t left = stream->tail - stream->head;
        stream->wanted = left > 0 ? left / 2 : NOT_WANTED;
        any |= left > 0;
    }
    while (any && !any_is_wanted(d)) pthread_cond_wait(&d->host, &d->lock);
    for (int i = 0; i < d->stream_count; i++) d->streams[i]->wanted = NOT_WANTED;
    return unlock(d);
}

static status alloc(device *base, int64_t bytes, void **out)
{
    cpu_device *d = device_of(base);
    if (d->config.memory_take == NULL) return device_memory_map(&d->memory, bytes, out);
    TRY(d->config.memory_take(d->config.memory_context, bytes, out));
    if (!DEVICE_FRESH_IS_ZERO && !d->config.memory_is_used) memset(*out, 0xff, (size_t)bytes);
    return ST_OK;
}

static void release(device *base, void *memory)
{
    cpu_device *d = device_of(base);
    if (d->config.memory_take == NULL) {
        device_memory_unmap(&d->memory, memory);
    } else {
        d->config.memory_give(d->config.memory_context, memory);
    }
}

// ---- creation -----------------------------------------------------------------------------------
static void stream_destroy(device_stream *stream)
{
    stream->device->config.run->close(stream->context);
    pthread_cond_destroy(&stream->work);
    free(stream);
}

static status stream_create(device *base, const char *name, int32_t number, device_stream **out)
{
    cpu_device *d = device_of(base);
    ASSERT(d->stream_count < MAX_STREAMS);
    for (int i = 0; i < d->stream_count; i++) ASSERT(d->streams[i]->number != number);
    device_stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL)
        return fail(ST_NO_MEMORY, "no memory for stream %s of the cpu device", name);
    stream->device = d;
    stream->name = name;
    stream->number = number;
    stream->wanted = NOT_WANTED;
    pthread_cond_init(&stream->work, NULL);
    status st = ST_OK;
    TRY_TO(destroy_stream, d->config.run->open(d->config.kernels, number, &stream->context));
    const int error = pthread_create(&stream->thread, NULL, stream_main, stream);
    if (error != 0) {
        st = fail(ST_NO_MEMORY, "cannot start the thread of stream %s (error %d)%s", name, error,
                  host_limit_remedy(error));
        goto destroy_stream;
    }
    pthread_mutex_lock(&d->lock);
    d->streams[d->stream_count++] = stream;
    pthread_mutex_unlock(&d->lock);
    *out = stream;
    return ST_OK;
destroy_stream:
    stream_destroy(stream);
    return st;
}

static void destroy(device *base)
{
    cpu_device *d = device_of(base);
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    for (int i = 0; i < d->stream_count; i++) stream_wake(d->streams[i]);
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < d->stream_count; i++) (void)pthread_join(d->streams[i]->thread, NULL);
    for (int i = 0; i < d->stream_count; i++) stream_destroy(d->streams[i]);
    for (device_event *e = d->events, *next; e != NULL; e = next) {
        next = e->next;
        free(e);
    }
    device_memory_deinit(&d->memory);
    pthread_cond_destroy(&d->host);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static status create(const device_config *config, device **out)
{
    cpu_device *d = calloc(1, sizeof(*d));
    if (d == NULL) return fail(ST_NO_MEMORY, "no memory for the cpu device");
    d->base.api = &device_cpu;
    d->config = *config;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->host, NULL);
    *out = &d->base;
    return ST_OK;
}

static device_facts facts(const device *base)
{
    return device_host_facts("cpu", &((const cpu_device *)base)->config);
}

static device_memory_info memory_info(const device *base)
{
    return device_host_memory(&((const cpu_device *)base)->config);
}

static double peak_flops(const device *base, dtype type)
{
    const device_config *config = &((const cpu_device *)base)->config;
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
    const cpu_device *d = device_of(base);
    for (int i = 0; i < d->stream_count; i++) {
        if (d->streams[i]->number != 0) continue;
        d->config.run->scratch_set(d->streams[i]->context, scratch);
        return ST_OK;
    }
    return fail(ST_INTERNAL, "the cpu device has no stream 0 for its scratch");
}

const device_api device_cpu = {
    .name = "cpu",
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
    .space_wait = space_wait,
    .facts = facts,
    .peak_flops = peak_flops,
};
