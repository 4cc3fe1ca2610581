// The virtual device. A stream is a queue of small items (timed work, records and waits of events,
// rendezvous) and a stream of the event loop (base/event_loop.h) that all devices of a world share.
// A queue holds no more items than the shortest queue of a real device, so a plan that would hang
// on that device hangs here.
#include "sim/virtual.h"

#include "base/event_loop.h"

#include <string.h>
#include <sys/mman.h>

enum { RECORDS_KEPT = 4 }; // records kept per event: a wait may refer to the step before

typedef struct device_stream stream;

typedef enum item_kind { ITEM_WORK, ITEM_RECORD, ITEM_WAIT, ITEM_ARRIVE } item_kind;

typedef struct item {
    item_kind kind;
    int64_t ns, tail;
    int64_t
        sent; // of ns: what the rank itself sends to other stages, from the end of its last work on
    device_event *event;
    int64_t record; // its number: the n-th record of the event
    virtual_rendezvous *rendezvous;
} item;

struct device_event {
    int64_t recorded, done;
    event_span records[RECORDS_KEPT]; // [record % RECORDS_KEPT]
};

typedef struct virtual_rank {
    device base;
    virtual_clock *clock;
    stream *streams;
    void *memory;
    int64_t memory_bytes;
} virtual_rank;

struct device_stream {
    virtual_rank *rank;
    stream *next; // next stream of the device
    int32_t number;
    int32_t loop_stream; // index in the world's event loop
    int64_t worked;      // the end of its last work
    int64_t head, tail;
    item items[DEVICE_QUEUE_ITEMS];
};

struct virtual_rendezvous {
    virtual_rendezvous *next; // next one of the world
    uint64_t key;
    event_rendezvous at;
};

struct virtual_world {
    arena *a;
    virtual_rendezvous *all_rendezvous;
    event_loop loop;
    stream **streams; // [loop_stream]
    int64_t stream_capacity;
    int64_t done;
};

static event_stream *loop_stream_of(const stream *l)
{
    return &l->rank->clock->world->loop.streams[l->loop_stream];
}

status virtual_world_create(arena *a, virtual_world **out)
{
    TRY(arena_new(a, 1, out));
    (*out)->a = a;
    return ST_OK;
}

int64_t virtual_world_done(const virtual_world *w)
{
    return w->done;
}

status virtual_rendezvous_find(virtual_world *w, uint64_t key, int32_t members,
                               virtual_rendezvous **out)
{
    virtual_rendezvous *m = w->all_rendezvous;
    while (m != NULL && m->key != key) m = m->next;
    if (m == NULL) {
        TRY(arena_new(w->a, 1, &m));
        TRY(event_rendezvous_make(w->a, members, &m->at));
        m->next = w->all_rendezvous;
        m->key = key;
        w->all_rendezvous = m;
    }
    ASSERT(m->at.members == members);
    *out = m;
    return ST_OK;
}

static virtual_rank *rank_of(device *d)
{
    ASSERT(d->api == &virtual_device);
    return (virtual_rank *)d;
}

// ---- time --------------------------------------------------------------------------------------

static void item_end(stream *l, int64_t end)
{
    loop_stream_of(l)->free = end;
    l->head++;
    l->rank->clock->world->done++;
}

static void work_end(stream *l, int64_t end)
{
    if (l->number == 0) l->rank->clock->compute_end = end;
    l->worked = end;
    item_end(l, end);
}

static int64_t item_ns(const stream *l, const item *x)
{
    const event_stream *s = loop_stream_of(l);
    return x->tail == 0 ? x->ns : max_i64(x->ns, s->waited + x->tail - s->free);
}

// The stream arrives at the rendezvous; the last to arrive ends it for all. false: it is not the
// last.
static bool arrive(virtual_world *w, stream *l, const item *x)
{
    event_rendezvous *m = &x->rendezvous->at;
    if (!event_loop_arrive(&w->loop, l->loop_stream, m, loop_stream_of(l)->free, item_ns(l, x)))
        return false;
    for (int32_t i = 0; i < m->members; i++) work_end(w->streams[m->streams[i]], m->begin + m->ns);
    return true;
}

// Record 0 belongs to an event that was never recorded; waiting for it returns at once.
static bool wait(virtual_world *w, stream *l, const item *x)
{
    event_span *record = &x->event->records[x->record % RECORDS_KEPT];
    if (x->record > 0 && !event_loop_wait(&w->loop, l->loop_stream, record)) return false;
    item_end(l, x->record > 0 ? max_i64(loop_stream_of(l)->free, record->end)
                              : loop_stream_of(l)->free);
    return true;
}

// false: the stream is blocked at its next item.
static bool item_run(virtual_world *w, stream *l)
{
    const item *x = &l->items[l->head % DEVICE_QUEUE_ITEMS];
    const int64_t free = loop_stream_of(l)->free;
    switch (x->kind) {
    case ITEM_WORK:
        work_end(l, max_i64(l->worked, free - x->sent) + item_ns(l, x));
        return true;
    case ITEM_RECORD:
        x->event->done = x->record;
        event_loop_end(&w->loop, &x->event->records[x->record % RECORDS_KEPT], free, free);
        item_end(l, free);
        return true;
    case ITEM_WAIT:
        return wait(w, l, x);
    case ITEM_ARRIVE:
    default:
        return arrive(w, l, x);
    }
}

static void stream_run(stream *l)
{
    virtual_world *w = l->rank->clock->world;
    event_loop_wake(&w->loop, l->loop_stream);
    for (int32_t s; (s = event_loop_next(&w->loop)) != EVENT_NONE;) {
        stream *at = w->streams[s];
        while (!w->loop.streams[s].has_arrived && at->head < at->tail && item_run(w, at)) {
        }
    }
}

static bool has_space(const stream *l)
{
    return l->tail - l->head < DEVICE_QUEUE_ITEMS;
}

// A blocked stream is resumed by the event it waits for, not by items posted behind.
static void post(stream *l, const item *x, bool *posted)
{
    *posted = has_space(l);
    if (!*posted) return;
    l->items[l->tail++ % DEVICE_QUEUE_ITEMS] = *x;
    if (l->tail - l->head == 1) stream_run(l);
}

// Adds the pending host and transfer delays to the compute stream's next work.
static void burden_take(stream *l, item *x)
{
    virtual_clock *c = l->rank->clock;
    if (l->number != 0) return;
    x->ns += c->host_ns + c->held_ns + c->sent_ns;
    x->sent = c->sent_ns;
    c->host_ns = c->held_ns = c->sent_ns = 0;
}

void virtual_collective(device_stream *to, virtual_rendezvous *m, int64_t ns, int64_t tail,
                        bool *posted)
{
    item x = {.kind = m != NULL ? ITEM_ARRIVE : ITEM_WORK, .ns = ns, .tail = tail, .rendezvous = m};
    if (has_space(to)) burden_take(to, &x);
    post(to, &x, posted);
}

static status work_post(stream *l, int64_t ns, bool *posted)
{
    virtual_collective(l, NULL, ns, 0, posted);
    return ST_OK;
}

// ---- the device --------------------------------------------------------------------------------

static status virtual_create(const device_config *config, device **out)
{
    virtual_clock *clock = config->clock;
    virtual_rank *d = NULL;
    TRY(arena_new(clock->world->a, 1, &d));
    d->base.api = &virtual_device;
    d->clock = clock;
    *out = &d->base;
    return ST_OK;
}

static void virtual_release(device *base, void *memory)
{
    virtual_rank *d = rank_of(base);
    ASSERT(memory == d->memory);
    if (memory != NULL) (void)munmap(memory, (size_t)d->memory_bytes);
    d->memory = NULL;
}

static void virtual_destroy(device *base) // its bytes go with the world's arena
{
    virtual_release(base, rank_of(base)->memory);
}

static status virtual_alloc(device *base, int64_t bytes, void **out)
{
    virtual_rank *d = rank_of(base);
    ASSERT(d->memory == NULL);
    void *at =
        mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return fail(ST_NO_MEMORY, "no %lld bytes of addresses for a virtual device",
                    (long long)bytes);
    }
    d->memory_bytes = bytes;
    d->memory = *out = at;
    return ST_OK;
}

static status virtual_stream_create(device *base, const char *name, int32_t number,
                                    device_stream **out)
{
    virtual_rank *d = rank_of(base);
    (void)name;
    virtual_world *w = d->clock->world;
    TRY(arena_new(w->a, 1, out));
    (*out)->rank = d;
    (*out)->number = number;
    (*out)->loop_stream = w->loop.stream_count;
    TRY(event_loop_add(w->a, &w->loop, 1));
    TRY(arena_grow(w->a, (void **)&w->streams, &w->stream_capacity, w->loop.stream_count,
                   (int64_t)sizeof(stream *)));
    w->streams[(*out)->loop_stream] = *out;
    (*out)->next = d->streams;
    d->streams = *out;
    return ST_OK;
}

static status virtual_launch(device_stream *l, const kern_call *call, bool *posted)
{
    virtual_clock *c = l->rank->clock;
    *posted = has_space(l);
    if (!*posted) return ST_OK;
    int64_t ns = 0;
    for (const kern_call *k = call; k != NULL; k = k->then, c->calls++)
        ns += c->call_ns(c->context, k);
    return work_post(l, ns, posted);
}

static status copy_post(stream *l, int64_t bytes, bool *posted)
{
    const virtual_clock *c = l->rank->clock;
    return work_post(l, c->copy_ns(c->context, bytes), posted);
}

static status virtual_copy_in(device_stream *l, void *to, const void *source, int64_t bytes,
                              bool *posted)
{
    (void)to;
    (void)source;
    return copy_post(l, bytes, posted);
}

static status virtual_copy_out(device_stream *l, void *to, const void *source, int64_t bytes,
                               bool *posted)
{
    (void)source;
    memset(to, 0, (size_t)bytes);
    return copy_post(l, bytes, posted);
}

// Poison of debug builds: no work of a step.
static status virtual_fill(device_stream *l, void *to, int value, int64_t bytes, bool *posted)
{
    (void)l;
    (void)to;
    (void)value;
    (void)bytes;
    *posted = true;
    return ST_OK;
}

static status virtual_event_create(device *base, device_event **out)
{
    return arena_new(rank_of(base)->clock->world->a, 1, out);
}

static status virtual_event_record(device_event *e, device_stream *l, bool *posted)
{
    const item x = {.kind = ITEM_RECORD, .event = e, .record = e->recorded + 1};
    if (has_space(l)) {
        ASSERT(e->done + RECORDS_KEPT > e->recorded);
        e->records[++e->recorded % RECORDS_KEPT] = event_span_open();
    }
    post(l, &x, posted);
    return ST_OK;
}

static status virtual_event_wait(device_stream *l, device_event *e, bool *posted)
{
    const item x = {.kind = ITEM_WAIT, .event = e, .record = e->recorded};
    post(l, &x, posted);
    return ST_OK;
}

static status virtual_event_query(device_event *e, bool *done)
{
    *done = e->done == e->recorded;
    return ST_OK;
}

static status virtual_event_sync(device_event *e)
{
    if (e->done == e->recorded) return ST_OK;
    return fail(ST_INTERNAL, "a virtual device waits for an event that no stream records");
}

static int64_t virtual_event_ns(const device_event *e)
{
    return e->records[e->done % RECORDS_KEPT].end;
}

static device_stream_times virtual_stream_times(const device_stream *l)
{
    (void)l;
    return (device_stream_times){0};
}

static status virtual_sync(device *base)
{
    const virtual_rank *d = rank_of(base);
    for (const stream *l = d->streams; l != NULL; l = l->next) {
        if (l->head == l->tail) continue;
        return fail(ST_INTERNAL, "stream %d of a virtual device stands still with %lld items",
                    l->number, (long long)(l->tail - l->head));
    }
    return ST_OK;
}

// Its bytes go with the world's arena.
static status virtual_host_alloc(device *base, int64_t bytes, void **out)
{
    return arena_alloc(rank_of(base)->clock->world->a, bytes, out);
}

static void virtual_host_free(device *base, void *memory)
{
    (void)base;
    (void)memory;
}

static device_memory_info virtual_memory_info(const device *base)
{
    (void)base;
    return (device_memory_info){0};
}

static device_facts virtual_facts(const device *base)
{
    (void)base;
    return (device_facts){.name = "virtual", .level = "none", .units = 1};
}

static double virtual_peak_flops(const device *base, dtype type)
{
    (void)base;
    (void)type;
    return 0.0;
}

const device_api virtual_device = {
    .name = "virtual",
    .create = virtual_create,
    .destroy = virtual_destroy,
    .fresh_is_zero = true,
    .alloc = virtual_alloc,
    .release = virtual_release,
    .host_alloc = virtual_host_alloc,
    .host_free = virtual_host_free,
    .memory_info = virtual_memory_info,
    .stream_create = virtual_stream_create,
    .launch = virtual_launch,
    .copy_in = virtual_copy_in,
    .copy_out = virtual_copy_out,
    .fill = virtual_fill,
    .event_create = virtual_event_create,
    .event_record = virtual_event_record,
    .event_wait = virtual_event_wait,
    .event_query = virtual_event_query,
    .event_sync = virtual_event_sync,
    .event_ns = virtual_event_ns,
    .stream_times = virtual_stream_times,
    .sync = virtual_sync,
    .facts = virtual_facts,
    .peak_flops = virtual_peak_flops,
};
