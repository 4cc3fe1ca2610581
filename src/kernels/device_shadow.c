// The shadow device: stands for a GPU, to find what only an asynchronous device would break.
//
//   memory   the host cannot touch it: pages have no access rights but while the device works
//   lanes    queues; posted work runs only inside later calls, late, in an order that the seed picks
//            among all that lanes and events allow
//   copies   read their source when they run, so a host buffer that is reused too early shows
//
// All work runs in the thread that calls, so that a seed repeats its order exactly. An order is
// drawn item by item: half of the time any lane that may go on, else the first in a fixed ranking of
// the lanes, which starves some lanes as long as the rules let it. Work of lanes that wait for an
// event stays until the event is done; if nobody can go on, the device says who waits for whom.
//
// Not for speed: changing the rights of a large arena costs milliseconds.
#include "kernels/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { QUEUE_ITEMS = 128, MAX_LANES = 64 };
_Static_assert((int)QUEUE_ITEMS >= (int)KERN_QUEUE_ITEMS, "plans are verified for that many");

typedef struct shadow_device shadow_device;

struct kern_event {
    kern_event *next;
    kern_lane *lane; // of the latest record; NULL: never recorded
    uint64_t recorded, done;
    int64_t done_ns;
};

struct kern_lane {
    shadow_device *device;
    const char *name;
    int32_t number;
    uint32_t rank; // in the ranking that starves
    device_work items[QUEUE_ITEMS];
    int64_t head, tail;
};

struct shadow_device {
    kern_device base;
    kern_device_config config;
    kern_level level;
    kern_pool *pool;
    void *scratch;
    uint64_t random; // state of the generator
    bool failed;
    error_record error;
    int lane_count;
    kern_lane *lanes[MAX_LANES];
    kern_event *events;
    device_memory memory;  // hidden from the host
    device_memory visible; // the pool's scratch
};

static shadow_device *device_of(kern_device *d)
{
    ASSERT(d->api == &kern_device_shadow);
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

static bool is_ready(const kern_lane *lane)
{
    if (lane->head == lane->tail) return false;
    const device_work *w = &lane->items[lane->head % QUEUE_ITEMS];
    return w->kind != WORK_WAIT || w->event->done >= w->record;
}

// The lane that goes on next; NULL: none can.
static kern_lane *lane_pick(shadow_device *d)
{
    kern_lane *ready[MAX_LANES], *first = NULL;
    int count = 0;
    for (int i = 0; i < d->lane_count; i++) {
        kern_lane *lane = d->lanes[i];
        if (!is_ready(lane)) continue;
        ready[count++] = lane;
        if (first == NULL || lane->rank < first->rank) first = lane;
    }
    if (count == 0) return NULL;
    const uint64_t word = draw(d);
    return (word & 1) != 0 ? first : ready[(word >> 1) % (uint64_t)count];
}

static void item_run(shadow_device *d, kern_lane *lane)
{
    const device_work *w = &lane->items[lane->head % QUEUE_ITEMS];
    const kern_context context = {.pool = d->pool, .level = d->level};
    if (!d->failed && w->kind <= WORK_HOST) {
        memory_protect(d, PROT_READ | PROT_WRITE);
        const status st = device_work_run(w, &d->config, &context, lane->number);
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
    lane->head++;
}

static bool advance(shadow_device *d)
{
    kern_lane *lane = lane_pick(d);
    if (lane == NULL) return false;
    item_run(d, lane);
    return true;
}

// Some polls do much, most little, some nothing: a host that counts on progress is found out.
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
    for (int i = 0; i < d->lane_count; i++) {
        const kern_lane *lane = d->lanes[i];
        if (lane->head == lane->tail || used >= sizeof(names)) continue;
        const kern_event *e = lane->items[lane->head % QUEUE_ITEMS].event;
        const char *other = e != NULL && e->lane != NULL ? e->lane->name : "nobody";
        const int wrote = snprintf(names + used, sizeof(names) - used, "%s%s waits for %s",
                                   used > 0 ? ", " : "", lane->name, other);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    return fail(ST_INTERNAL, "deadlock on the shadow device: %s", names);
}

// ---- the host's side ----------------------------------------------------------------------------
// The next free item; NULL if the queue is full, which moves the device on a little.
static status item_begin(kern_lane *lane, device_work **out)
{
    shadow_device *d = lane->device;
    TRY(health(d));
    if (lane->tail - lane->head == QUEUE_ITEMS) {
        advance_some(d);
        *out = NULL;
    } else {
        *out = &lane->items[lane->tail % QUEUE_ITEMS];
        (*out)->event = NULL;
    }
    return ST_OK;
}

static status item_end(kern_lane *lane, const device_work *w, bool *posted)
{
    if (w != NULL) lane->tail++;
    *posted = w != NULL;
    return ST_OK;
}

static status launch(kern_lane *lane, const kern_call *call, bool *posted)
{
    device_work *w;
    TRY(item_begin(lane, &w));
    if (w != NULL) {
        w->kind = WORK_CALL;
        w->call = *call;
    }
    TRY(item_end(lane, w, posted));
    // A GPU may be at work before the host has posted the next action.
    if ((draw(lane->device) & 3) == 0) advance_some(lane->device);
    return ST_OK;
}

static status copy(kern_lane *lane, const device_copy *what, bool *posted)
{
    device_work *w;
    TRY(item_begin(lane, &w));
    if (w != NULL) {
        w->kind = WORK_COPY;
        w->copy = *what;
    }
    return item_end(lane, w, posted);
}

static status call(kern_lane *lane, kern_host_fn fn, void *context, bool *posted)
{
    device_work *w;
    TRY(item_begin(lane, &w));
    if (w != NULL) {
        w->kind = WORK_HOST;
        w->fn = fn;
        w->context = context;
    }
    return item_end(lane, w, posted);
}

static status event_create(kern_device *base, kern_event **out)
{
    shadow_device *d = device_of(base);
    kern_event *e = calloc(1, sizeof(*e));
    if (e == NULL) return fail(ST_NO_MEMORY, "no memory for an event of the shadow device");
    e->next = d->events;
    d->events = e;
    *out = e;
    return ST_OK;
}

static status event_record(kern_event *e, kern_lane *lane, bool *posted)
{
    device_work *w;
    TRY(item_begin(lane, &w));
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

static kern_lane_times lane_times(const kern_lane *lane)
{
    (void)lane; // they are run one by one, in an order that is drawn
    return (kern_lane_times){0};
}

static status event_wait(kern_lane *lane, kern_event *e, bool *posted)
{
    device_work *w;
    TRY(item_begin(lane, &w));
    if (w != NULL) {
        w->kind = WORK_WAIT;
        w->event = e;
        w->record = e->recorded;
    }
    return item_end(lane, w, posted);
}

static status event_query(kern_event *e, bool *done)
{
    if (e->lane == NULL) { // never recorded: nothing to wait for
        *done = true;
        return ST_OK;
    }
    shadow_device *d = e->lane->device;
    advance_some(d);
    TRY(health(d));
    *done = e->done == e->recorded;
    return ST_OK;
}

static status event_sync(kern_event *e)
{
    if (e->lane == NULL) return ST_OK;
    shadow_device *d = e->lane->device;
    while (e->done < e->recorded) {
        if (!advance(d)) return deadlock(d);
    }
    return health(d);
}

static bool all_empty(const shadow_device *d)
{
    for (int i = 0; i < d->lane_count; i++) {
        if (d->lanes[i]->head != d->lanes[i]->tail) return false;
    }
    return true;
}

static int64_t event_ns(const kern_event *e)
{
    return e->done_ns;
}

static status sync_all(kern_device *base)
{
    shadow_device *d = device_of(base);
    while (!all_empty(d)) {
        if (!advance(d)) return deadlock(d);
    }
    return health(d);
}

static status alloc(kern_device *base, int64_t bytes, void **out)
{
    shadow_device *d = device_of(base);
    TRY(device_memory_map(&d->memory, bytes, out));
    memory_protect(d, PROT_NONE);
    return ST_OK;
}

static void release(kern_device *base, void *memory)
{
    device_memory_unmap(&device_of(base)->memory, memory);
}

// ---- creation -----------------------------------------------------------------------------------
static status lane_create(kern_device *base, const char *name, int32_t number, kern_lane **out)
{
    shadow_device *d = device_of(base);
    ASSERT(d->lane_count < MAX_LANES);
    kern_lane *lane = calloc(1, sizeof(*lane));
    if (lane == NULL) return fail(ST_NO_MEMORY, "no memory for lane %s of the shadow", name);
    lane->device = d;
    lane->name = name;
    lane->number = number;
    lane->rank = (uint32_t)(draw(d) >> 32);
    d->lanes[d->lane_count++] = lane;
    *out = lane;
    return ST_OK;
}

static void destroy(kern_device *base)
{
    shadow_device *d = device_of(base);
    while (advance(d)) continue;
    for (int i = 0; i < d->lane_count; i++) free(d->lanes[i]);
    for (kern_event *e = d->events, *next; e != NULL; e = next) {
        next = e->next;
        free(e);
    }
    kern_pool_destroy(d->pool);
    device_memory_deinit(&d->memory);
    device_memory_deinit(&d->visible);
    free(d);
}

static status create(const kern_device_config *config, kern_device **out)
{
    shadow_device *d = calloc(1, sizeof(*d));
    if (d == NULL) return fail(ST_NO_MEMORY, "no memory for the shadow device");
    d->base.api = &kern_device_shadow;
    d->config = *config;
    d->level = device_level(config);
    d->random = config->seed;
    status st;
    TRY_TO(destroy_device, device_pool_create(config, &d->visible, &d->pool, &d->scratch));
    *out = &d->base;
    return ST_OK;
destroy_device:
    destroy(&d->base);
    return st;
}

static int threads(const kern_device *d)
{
    return kern_pool_threads(((const shadow_device *)d)->pool);
}

static kern_level level(const kern_device *d)
{
    return ((const shadow_device *)d)->level;
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
    shadow_device *d = device_of(base);
    device_memory_unmap(&d->visible, d->scratch);
    d->scratch = NULL;
    kern_pool_scratch_set(d->pool, scratch);
    return ST_OK;
}

const kern_device_api kern_device_shadow = {
    .name = "shadow",
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
    .threads = threads,
    .level = level,
};
