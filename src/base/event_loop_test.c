// Compares the event loop with a plain reference on random programs of streams: work, events that
// other streams wait for, rendezvous. Times do not depend on the order in which streams are
// visited; streams in a cycle of waits stay blocked.
#include "base/event_loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { STREAMS = 6, ITEMS = 40, EVENTS = STREAMS * ITEMS, RENDEZVOUS = 3 };

typedef enum kind { WORK, SIGNAL, WAIT, ARRIVE } kind;
typedef struct item {
    kind kind;
    int64_t ns;   // WORK, ARRIVE
    int32_t what; // event, rendezvous
} item;

typedef struct program {
    item items[STREAMS][2 * ITEMS];
    int32_t count[STREAMS];
    int32_t members[RENDEZVOUS], events;
    int32_t member[RENDEZVOUS][STREAMS];
} program;

static uint64_t seed_state;
static int64_t random_below(int64_t n)
{
    seed_state = seed_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)((seed_state >> 33) % (uint64_t)n);
}

static void put(program *p, int32_t s, kind k, int64_t ns, int32_t what)
{
    p->items[s][p->count[s]++] = (item){k, ns, what};
}

// Makes a program in a feasible order: each wait is for an event that exists.
static void program_make(program *p, uint64_t seed)
{
    memset(p, 0, sizeof(*p));
    seed_state = seed;
    for (int m = 0; m < RENDEZVOUS; m++) {
        for (int32_t s = 0; s < STREAMS; s++) {
            if (random_below(2) == 0 || (s >= STREAMS - 2 && p->members[m] < 2)) {
                p->member[m][p->members[m]++] = s;
            }
        }
    }
    for (int i = 0; i < STREAMS * ITEMS / 2; i++) {
        const int32_t s = (int32_t)random_below(STREAMS);
        const int32_t m = (int32_t)random_below(RENDEZVOUS);
        bool fits = true;
        switch (random_below(4)) {
        case 0:
            if (p->count[s] < ITEMS) put(p, s, SIGNAL, 0, p->events++);
            break;
        case 1:
            if (p->count[s] < ITEMS && p->events > 0) {
                put(p, s, WAIT, 0, (int32_t)random_below(p->events));
            }
            break;
        case 2:
            for (int k = 0; k < p->members[m]; k++)
                fits = fits && p->count[p->member[m][k]] < ITEMS;
            for (int k = 0; fits && k < p->members[m]; k++) {
                put(p, p->member[m][k], ARRIVE, random_below(100), m);
            }
            break;
        default:
            if (p->count[s] < ITEMS) put(p, s, WORK, random_below(100), 0);
        }
    }
}

typedef struct simulation {
    const program *p;
    event_loop loop;
    event_span events[EVENTS];
    event_rendezvous rendezvous[RENDEZVOUS];
    int32_t at[STREAMS];
} simulation;

static void run(simulation *y, int32_t s)
{
    for (; y->at[s] < y->p->count[s]; y->at[s]++) {
        const item *x = &y->p->items[s][y->at[s]];
        event_stream *stream = &y->loop.streams[s];
        event_rendezvous *r = &y->rendezvous[x->what % RENDEZVOUS];
        switch (x->kind) {
        case WORK:
            stream->free += x->ns;
            break;
        case SIGNAL:
            event_loop_end(&y->loop, &y->events[x->what], stream->free, stream->free);
            break;
        case WAIT:
            if (!event_loop_wait(&y->loop, s, &y->events[x->what])) return;
            stream->free = max_i64(stream->free, y->events[x->what].end);
            break;
        case ARRIVE:
            if (!event_loop_arrive(&y->loop, s, r, stream->free, x->ns)) return;
            for (int32_t i = 0; i < r->members; i++) {
                y->loop.streams[r->streams[i]].free = r->begin + r->ns;
                if (r->streams[i] != s) y->at[r->streams[i]]++;
            }
            break;
        }
    }
}

static void simulation_begin(arena *a, const program *p, simulation *y)
{
    memset(y, 0, sizeof(*y));
    y->p = p;
    assert_int_equal(event_loop_add(a, &y->loop, STREAMS), ST_OK);
    for (int i = 0; i < EVENTS; i++) y->events[i] = event_span_open();
    for (int m = 0; m < RENDEZVOUS; m++) {
        assert_int_equal(event_rendezvous_make(a, p->members[m], &y->rendezvous[m]), ST_OK);
    }
}

typedef struct reference {
    const program *p;
    int64_t free[STREAMS], ends[EVENTS];
    int32_t at[STREAMS];
} reference;

static bool reference_arrive(reference *d, int32_t m)
{
    int64_t begin = 0, ns = 0;
    for (int k = 0; k < d->p->members[m]; k++) {
        const int32_t s = d->p->member[m][k];
        const item *x = &d->p->items[s][d->at[s]];
        if (d->at[s] == d->p->count[s] || x->kind != ARRIVE || x->what != m) return false;
        begin = max_i64(begin, d->free[s]);
        ns = max_i64(ns, x->ns);
    }
    for (int k = 0; k < d->p->members[m]; k++) {
        d->free[d->p->member[m][k]] = begin + ns;
        d->at[d->p->member[m][k]]++;
    }
    return true;
}

// Runs the stream's next item if it is ready.
static bool reference_do(reference *d, int32_t s)
{
    const item *x = &d->p->items[s][d->at[s]];
    if (d->at[s] == d->p->count[s]) return false;
    if (x->kind == ARRIVE) return reference_arrive(d, x->what);
    if (x->kind == WAIT && d->ends[x->what] < 0) return false;
    if (x->kind == WORK) d->free[s] += x->ns;
    if (x->kind == SIGNAL) d->ends[x->what] = d->free[s];
    if (x->kind == WAIT) d->free[s] = max_i64(d->free[s], d->ends[x->what]);
    d->at[s]++;
    return true;
}

// Runs all ready items round after round, without a list of ready streams.
static void reference_run(const program *p, reference *d)
{
    memset(d, 0, sizeof(*d));
    d->p = p;
    for (int i = 0; i < EVENTS; i++) d->ends[i] = -1;
    for (bool moved = true; moved;) {
        moved = false;
        for (int32_t s = 0; s < STREAMS; s++) moved = reference_do(d, s) || moved;
    }
}

static void times_are_those_of_the_reference(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        arena *a = NULL;
        program p;
        simulation y;
        reference d;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        program_make(&p, seed);
        reference_run(&p, &d);
        for (int order = 0; order < 3; order++) {
            simulation_begin(a, &p, &y);
            if (order == 0) event_loop_wake_all(&y.loop);
            for (int32_t s = 0; order == 1 && s < STREAMS; s++) event_loop_wake(&y.loop, s);
            for (int32_t s = 0; order == 2 && s < STREAMS; s++) {
                event_loop_wake(&y.loop, (s * 5 + 3) % STREAMS);
            }
            for (int32_t s; (s = event_loop_next(&y.loop)) != EVENT_NONE;) run(&y, s);
            for (int32_t s = 0; s < STREAMS; s++) {
                assert_int_equal(y.at[s], p.count[s]);
                assert_int_equal(y.at[s], d.at[s]);
                assert_int_equal(y.loop.streams[s].free, d.free[s]);
                assert_false(y.loop.streams[s].has_arrived);
            }
        }
        arena_destroy(a);
    }
}

// Two streams that wait for each other stay blocked; a third one finishes.
static void cycles_block(void **state)
{
    (void)state;
    arena *a = NULL;
    program p = {.events = 2};
    simulation y;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    for (int m = 0; m < RENDEZVOUS; m++) p.members[m] = 1;
    for (int32_t s = 0; s < 2; s++) {
        put(&p, s, WAIT, 0, 1 - s);
        put(&p, s, SIGNAL, 0, s);
    }
    put(&p, 2, WORK, 7, 0);
    simulation_begin(a, &p, &y);
    event_loop_wake_all(&y.loop);
    for (int32_t s; (s = event_loop_next(&y.loop)) != EVENT_NONE;) run(&y, s);
    assert_int_equal(y.at[0], 0);
    assert_int_equal(y.at[1], 0);
    assert_int_equal(y.at[2], 1);
    assert_int_equal(y.loop.streams[2].free, 7);
    arena_destroy(a);
}

// Streams may be added while others run: their clocks stay.
static void streams_are_added_later(void **state)
{
    (void)state;
    arena *a = NULL;
    event_loop loop = {0};
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    for (int32_t i = 0; i < 1000; i++) {
        assert_int_equal(event_loop_add(a, &loop, 1), ST_OK);
        assert_int_equal(loop.streams[i].free, 0);
        loop.streams[i].free = i + 1;
    }
    for (int32_t i = 0; i < 1000; i++) assert_int_equal(loop.streams[i].free, i + 1);
    event_loop_wake_all(&loop);
    for (int32_t i = 0; i < 1000; i++) assert_int_equal(event_loop_next(&loop), i);
    assert_int_equal(event_loop_next(&loop), EVENT_NONE);
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(times_are_those_of_the_reference),
                                       cmocka_unit_test(cycles_block),
                                       cmocka_unit_test(streams_are_added_later)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
