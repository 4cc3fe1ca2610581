// The cpu device: memory is the process's own, each lane is a thread with a bounded queue.
//
// The thread of lane 0 leads the pool, so products use all cores; other lanes (copies, optimizer
// pieces beside communication) run their kernels alone, each with a pool of one. One lock guards
// all queues, events and the error: work items are kernels of microseconds to seconds, so the lock
// is idle nearly always. Lane 0 looks for work for some microseconds before it sleeps, because the
// executor posts the next actions while the present one runs; other lanes leave the cores to it.
//
// A product and what follows it element by element run as one call where both are there (kern_joins).
//
// An error is kept in the device: after the first, lanes only pass events, so that everybody who
// waits comes back, and every later call returns it.
#include "base/spin.h"
#include "kernels/cpu/pool.h"
#include "kernels/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUE_ITEMS = 512, MAX_LANES = 64, SPIN_TICKS = 50 * 1000, NOT_WANTED = -1 };
_Static_assert((int)QUEUE_ITEMS >= (int)KERN_QUEUE_ITEMS, "plans are verified for that many");

typedef struct cpu_device cpu_device;

struct kern_event {
    kern_event *next; // the device's list
    kern_lane *lane;  // of the latest record; NULL: never recorded
    uint64_t recorded, done;
    int64_t done_ns;
};

struct kern_lane {
    cpu_device *device;
    const char *name;
    int32_t number;
    pthread_t thread;
    pthread_cond_t work;     // something was posted, the awaited event is done, or the end
    _Atomic(uint64_t) pulse; // counts these
    _Atomic(int64_t) worked_ns, awaited_ns;
    kern_context context;
    kern_pool *own_pool; // of lanes other than 0
    void *own_scratch;
    device_work items[QUEUE_ITEMS];
    int64_t head, tail; // items[head % n] is the oldest; it stays in the queue while it runs
    int64_t wanted;     // the host is to hear when so few are left; NOT_WANTED: it does not wait
};

struct cpu_device {
    kern_device base;
    kern_device_config config;
    kern_level level;
    kern_pool *pool;
    void *scratch;
    pthread_mutex_t lock;
    pthread_cond_t host; // an event is done, or a lane is empty or as short as was wanted
    bool stop, failed;
    error_record error;
    int lane_count;
    kern_lane *lanes[MAX_LANES];
    kern_event *events;
    device_memory memory;
};

static cpu_device *device_of(kern_device *d)
{
    ASSERT(d->api == &kern_device_cpu);
    return (cpu_device *)d;
}

// ---- a lane's thread ----------------------------------------------------------------------------
static bool is_ready(const kern_lane *lane)
{
    if (lane->head == lane->tail) return false;
    const device_work *w = &lane->items[lane->head % QUEUE_ITEMS];
    return w->kind != WORK_WAIT || w->event->done >= w->record;
}

// With the lock held, as all changes of what a lane waits for.
static void lane_wake(kern_lane *lane)
{
    atomic_fetch_add(&lane->pulse, 1);
    pthread_cond_signal(&lane->work);
}

static int64_t now_ns(const cpu_device *d)
{
    return d->config.h->api->monotonic_ns(d->config.h);
}

// Until the head of the queue may run. With the lock; false: the end.
static bool work_sleep(kern_lane *lane)
{
    cpu_device *d = lane->device;
    while (!is_ready(lane)) {
        if (d->stop && lane->head == lane->tail) return false;
        const uint64_t pulse = atomic_load(&lane->pulse);
        if (lane->number == 0) {
            pthread_mutex_unlock(&d->lock);
            const uint64_t begin = spin_ticks();
            while (spin_ticks() - begin < SPIN_TICKS && atomic_load(&lane->pulse) == pulse) {
                spin_pause();
            }
            pthread_mutex_lock(&d->lock);
        }
        if (atomic_load(&lane->pulse) == pulse) pthread_cond_wait(&lane->work, &d->lock);
    }
    return true;
}

// Called and left with the lock held. The time for which products stand still goes to the lane whose event
// they wait for.
static bool work_await(kern_lane *lane)
{
    const int64_t head = lane->head;
    if (is_ready(lane)) return true;
    if (lane->number != 0 || head == lane->tail) return work_sleep(lane);
    kern_lane *other = lane->items[head % QUEUE_ITEMS].event->lane;
    const int64_t begin = now_ns(lane->device);
    const bool ready = work_sleep(lane);
    atomic_fetch_add(&other->awaited_ns, now_ns(lane->device) - begin);
    return ready;
}

static void event_complete(cpu_device *d, kern_event *e, uint64_t record)
{
    e->done = record;
    e->done_ns = now_ns(d);
    for (int i = 0; i < d->lane_count; i++) {
        kern_lane *lane = d->lanes[i];
        if (lane->head == lane->tail) continue;
        const device_work *w = &lane->items[lane->head % QUEUE_ITEMS];
        if (w->kind == WORK_WAIT && w->event == e) lane_wake(lane);
    }
    pthread_cond_broadcast(&d->host);
}

// With the lock: the call after the head's, if it is there and the head's can take it up. They run as one.
static const kern_call *call_after(const kern_lane *lane)
{
    if (lane->tail - lane->head < 2) return NULL;
    const device_work *w = &lane->items[lane->head % QUEUE_ITEMS];
    const device_work *next = &lane->items[(lane->head + 1) % QUEUE_ITEMS];
    if (w->kind != WORK_CALL || next->kind != WORK_CALL) return NULL;
    const kern_backend *backend = lane->device->config.backend;
    return kern_joins(backend, &lane->context, &w->call, &next->call) ? &next->call : NULL;
}

static void *lane_main(void *argument)
{
    kern_lane *lane = argument;
    cpu_device *d = lane->device;
    if (lane->number == 0) pool_pin_leader(d->pool);
    pthread_mutex_lock(&d->lock);
    while (work_await(lane)) {
        device_work *w = &lane->items[lane->head % QUEUE_ITEMS];
        status st = ST_OK;
        if (!d->failed && w->kind <= WORK_HOST) {
            w->call.then = call_after(lane);
            pthread_mutex_unlock(&d->lock);
            const int64_t begin = now_ns(d);
            st = device_work_run(w, &d->config, &lane->context, lane->number);
            atomic_fetch_add(&lane->worked_ns, now_ns(d) - begin);
            pthread_mutex_lock(&d->lock);
        }
        if (st != ST_OK && !d->failed) {
            d->failed = true;
            error_take(&d->error);
        }
        if (w->kind == WORK_RECORD) event_complete(d, w->event, w->record);
        lane->head += w->kind == WORK_CALL && w->call.then != NULL ? 2 : 1;
        const int64_t left = lane->tail - lane->head;
        if (left == 0 || left <= lane->wanted) pthread_cond_broadcast(&d->host);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

// ---- the host's side ----------------------------------------------------------------------------
// Ends a call that holds the lock: gives it back, and the device's error if there is one.
static status unlock(cpu_device *d)
{
    const bool failed = d->failed;
    pthread_mutex_unlock(&d->lock);
    // The record does not change any more once `failed` is set.
    return failed ? error_put(&d->error) : ST_OK;
}

// The next free item of a queue, NULL if it is full. The lock is held after.
static device_work *item_begin(kern_lane *lane)
{
    pthread_mutex_lock(&lane->device->lock);
    if (lane->tail - lane->head == QUEUE_ITEMS) return NULL;
    return &lane->items[lane->tail % QUEUE_ITEMS];
}

static status item_end(kern_lane *lane, const device_work *w, bool *posted)
{
    cpu_device *d = lane->device;
    if (w != NULL) {
        lane->tail++;
        lane_wake(lane);
    }
    const status st = unlock(d);
    if (st == ST_OK) *posted = w != NULL;
    return st;
}

static status launch(kern_lane *lane, const kern_call *call, bool *posted)
{
    device_work *w = item_begin(lane);
    if (w != NULL) {
        w->kind = WORK_CALL;
        w->call = *call;
    }
    return item_end(lane, w, posted);
}

static status copy(kern_lane *lane, const device_copy *what, bool *posted)
{
    device_work *w = item_begin(lane);
    if (w != NULL) {
        w->kind = WORK_COPY;
        w->copy = *what;
    }
    return item_end(lane, w, posted);
}

static status call(kern_lane *lane, kern_host_fn fn, void *context, bool *posted)
{
    device_work *w = item_begin(lane);
    if (w != NULL) {
        w->kind = WORK_HOST;
        w->fn = fn;
        w->context = context;
    }
    return item_end(lane, w, posted);
}

static status event_create(kern_device *base, kern_event **out)
{
    cpu_device *d = device_of(base);
    kern_event *e = calloc(1, sizeof(*e));
    if (e == NULL) return fail(ST_NO_MEMORY, "no memory for an event of the cpu device");
    pthread_mutex_lock(&d->lock);
    e->next = d->events;
    d->events = e;
    pthread_mutex_unlock(&d->lock);
    *out = e;
    return ST_OK;
}

static status event_record(kern_event *e, kern_lane *lane, bool *posted)
{
    device_work *w = item_begin(lane);
    if (w != NULL) {
        // Records are numbered; numbers of two lanes could be reached out of order.
        ASSERT(e->lane == NULL || e->lane == lane || e->done == e->recorded);
        e->lane = lane;
        w->kind = WORK_RECORD;
        w->event = e;
        w->record = ++e->recorded;
    }
    return item_end(lane, w, posted);
}

static status event_wait(kern_lane *lane, kern_event *e, bool *posted)
{
    device_work *w = item_begin(lane);
    if (w != NULL) {
        w->kind = WORK_WAIT;
        w->event = e;
        w->record = e->recorded;
    }
    return item_end(lane, w, posted);
}

static kern_lane_times lane_times(const kern_lane *lane)
{
    return (kern_lane_times){.worked_ns = atomic_load(&lane->worked_ns),
                             .awaited_ns = atomic_load(&lane->awaited_ns)};
}

static status event_query_in(cpu_device *d, const kern_event *e, bool *done)
{
    pthread_mutex_lock(&d->lock);
    const bool is_done = e->done == e->recorded;
    const status st = unlock(d);
    if (st == ST_OK) *done = is_done;
    return st;
}

static status event_query(kern_event *e, bool *done)
{
    if (e->lane == NULL) { // never recorded: nothing to wait for
        *done = true;
        return ST_OK;
    }
    return event_query_in(e->lane->device, e, done);
}

static status event_sync(kern_event *e)
{
    if (e->lane == NULL) return ST_OK;
    cpu_device *d = e->lane->device;
    pthread_mutex_lock(&d->lock);
    const uint64_t record = e->recorded;
    while (e->done < record) pthread_cond_wait(&d->host, &d->lock);
    return unlock(d);
}

static int64_t event_ns(const kern_event *e)
{
    return e->done_ns;
}

static status sync_all(kern_device *base)
{
    cpu_device *d = device_of(base);
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->lane_count; i++) {
        const kern_lane *lane = d->lanes[i];
        const int64_t tail = lane->tail;
        while (lane->head < tail) pthread_cond_wait(&d->host, &d->lock);
    }
    return unlock(d);
}

static bool any_is_wanted(const cpu_device *d)
{
    for (int i = 0; i < d->lane_count; i++) {
        if (d->lanes[i]->tail - d->lanes[i]->head <= d->lanes[i]->wanted) return true;
    }
    return false;
}

// One lane is enough: what another waits for may come after the caller's next call.
static status room_await(kern_device *base)
{
    cpu_device *d = device_of(base);
    bool any = false;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->lane_count; i++) {
        kern_lane *lane = d->lanes[i];
        const int64_t left = lane->tail - lane->head;
        lane->wanted = left > 0 ? left / 2 : NOT_WANTED;
        any |= left > 0;
    }
    while (any && !any_is_wanted(d)) pthread_cond_wait(&d->host, &d->lock);
    for (int i = 0; i < d->lane_count; i++) d->lanes[i]->wanted = NOT_WANTED;
    return unlock(d);
}

static status alloc(kern_device *base, int64_t bytes, void **out)
{
    cpu_device *d = device_of(base);
    if (d->config.memory_take == NULL) return device_memory_map(&d->memory, bytes, out);
    TRY(d->config.memory_take(d->config.memory_context, bytes, out));
    if (!DEVICE_FRESH_IS_ZERO) memset(*out, 0xff, (size_t)bytes);
    return ST_OK;
}

static void release(kern_device *base, void *memory)
{
    cpu_device *d = device_of(base);
    if (d->config.memory_take == NULL) {
        device_memory_unmap(&d->memory, memory);
    } else {
        d->config.memory_give(d->config.memory_context, memory);
    }
}

// ---- creation -----------------------------------------------------------------------------------
static void lane_destroy(kern_lane *lane)
{
    kern_pool_destroy(lane->own_pool);
    device_memory_unmap(&lane->device->memory, lane->own_scratch);
    pthread_cond_destroy(&lane->work);
    free(lane);
}

static status lane_own_pool(cpu_device *d, kern_lane *lane)
{
    TRY(kern_pool_create(1, &lane->own_pool));
    TRY(device_memory_map(&d->memory, KERN_SCRATCH_BYTES, &lane->own_scratch));
    kern_pool_scratch_set(lane->own_pool, lane->own_scratch);
    return ST_OK;
}

static status lane_create(kern_device *base, const char *name, int32_t number, kern_lane **out)
{
    cpu_device *d = device_of(base);
    ASSERT(d->lane_count < MAX_LANES);
    for (int i = 0; i < d->lane_count; i++) ASSERT(d->lanes[i]->number != number);
    kern_lane *lane = calloc(1, sizeof(*lane));
    if (lane == NULL) return fail(ST_NO_MEMORY, "no memory for lane %s of the cpu device", name);
    lane->device = d;
    lane->name = name;
    lane->number = number;
    lane->wanted = NOT_WANTED;
    pthread_cond_init(&lane->work, NULL);
    status st = ST_OK;
    if (number != 0) TRY_TO(destroy_lane, lane_own_pool(d, lane));
    lane->context =
        (kern_context){.pool = number == 0 ? d->pool : lane->own_pool, .level = d->level};
    const int error = pthread_create(&lane->thread, NULL, lane_main, lane);
    if (error != 0) {
        st = fail(ST_NO_MEMORY, "cannot start the thread of lane %s (error %d)", name, error);
        goto destroy_lane;
    }
    pthread_mutex_lock(&d->lock);
    d->lanes[d->lane_count++] = lane;
    pthread_mutex_unlock(&d->lock);
    *out = lane;
    return ST_OK;
destroy_lane:
    lane_destroy(lane);
    return st;
}

static void destroy(kern_device *base)
{
    cpu_device *d = device_of(base);
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    for (int i = 0; i < d->lane_count; i++) lane_wake(d->lanes[i]);
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < d->lane_count; i++) (void)pthread_join(d->lanes[i]->thread, NULL);
    for (int i = 0; i < d->lane_count; i++) lane_destroy(d->lanes[i]);
    for (kern_event *e = d->events, *next; e != NULL; e = next) {
        next = e->next;
        free(e);
    }
    kern_pool_destroy(d->pool);
    device_memory_deinit(&d->memory);
    pthread_cond_destroy(&d->host);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static status create(const kern_device_config *config, kern_device **out)
{
    cpu_device *d = calloc(1, sizeof(*d));
    if (d == NULL) return fail(ST_NO_MEMORY, "no memory for the cpu device");
    d->base.api = &kern_device_cpu;
    d->config = *config;
    d->level = device_level(config);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->host, NULL);
    status st;
    TRY_TO(destroy_device, device_pool_create(config, &d->memory, &d->pool, &d->scratch));
    *out = &d->base;
    return ST_OK;
destroy_device:
    destroy(&d->base);
    return st;
}

static int threads(const kern_device *d)
{
    return kern_pool_threads(((const cpu_device *)d)->pool);
}

static kern_level level(const kern_device *d)
{
    return ((const cpu_device *)d)->level;
}

static status copy_in(kern_lane *lane, void *device, const void *source, int64_t bytes,
                      bool *posted)
{
    ASSERT(source != NULL || bytes == 0);
    const device_copy what = {.target = device, .source = source, .bytes = bytes};
    return copy(lane, &what, posted);
}

static status copy_out(kern_lane *lane, void *target, const void *device, int64_t bytes,
                       bool *posted)
{
    const device_copy what = {.target = target, .source = device, .bytes = bytes};
    return copy(lane, &what, posted);
}

static status fill(kern_lane *lane, void *device, int value, int64_t bytes, bool *posted)
{
    const device_copy what = {.target = device, .bytes = bytes, .value = value};
    return copy(lane, &what, posted);
}

static status scratch_set(kern_device *base, void *scratch)
{
    cpu_device *d = device_of(base);
    device_memory_unmap(&d->memory, d->scratch);
    d->scratch = NULL;
    kern_pool_scratch_set(d->pool, scratch);
    return ST_OK;
}

const kern_device_api kern_device_cpu = {
    .name = "cpu",
    .create = create,
    .destroy = destroy,
    .fresh_is_zero = DEVICE_FRESH_IS_ZERO,
    .alloc = alloc,
    .release = release,
    .lane_create = lane_create,
    .launch = launch,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .fill = fill,
    .call = call,
    .scratch_set = scratch_set,
    .event_create = event_create,
    .event_record = event_record,
    .event_wait = event_wait,
    .lane_times = lane_times,
    .event_query = event_query,
    .event_sync = event_sync,
    .event_ns = event_ns,
    .sync = sync_all,
    .room_await = room_await,
    .threads = threads,
    .level = level,
};
