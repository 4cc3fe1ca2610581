// A discrete-event loop: ordered streams of work in virtual time that wait for each other and run
// some work together.
//
// A stream does its work in order; its clock (`free`) is the end of its last work. A stream that
// needs an event that has not happened stops, and the event puts it back on the list of ready
// streams. A rendezvous begins when the last of its members has arrived. There is no queue of
// times: an event gets its time from the clocks of the streams that cause it, so streams may be
// visited in any order, and the cost is one visit for each piece of work and each wait.
//
// The user keeps the next work of each stream and runs the loop:
//
//   for (int32_t s; (s = event_loop_next(&loop)) != EVENT_NONE;)
//       do its work until event_loop_wait() or event_loop_arrive() says that it stops
//
// A stream that never becomes ready again is part of a deadlock: the user looks for streams with
// work left. Users: plan/schedule/timeline.c (equal times), sim/step.c (priced plans),
// sim/virtual.c (the executor's devices).
#ifndef BASE_EVENT_LOOP_H
#define BASE_EVENT_LOOP_H

#include "base/arena.h"
#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EVENT_NONE = -1 };
#define EVENT_NOT_YET INT64_MIN

// The begin and end of a piece of work. Before its end is known, `begin` is the first stream that
// waits for it.
typedef struct event_span {
    int64_t begin, end;
} event_span;
static inline event_span event_span_open(void)
{
    event_span span;
    span.begin = EVENT_NONE;
    span.end = EVENT_NOT_YET;
    return span;
}

typedef struct event_stream {
    int64_t free;        // the end of its last work
    int64_t waited;      // the latest end of all work that it has waited for
    int32_t next_waiter; // the next stream that waits for the same work
    bool has_arrived;    // it is at a rendezvous and other members are missing
} event_stream;

typedef struct event_loop {
    event_stream *streams;
    int32_t *ready;
    int32_t stream_count, ready_count;
    int64_t stream_capacity, ready_capacity;
} event_loop;

// Appends `count` streams at time 0, which are not ready. It invalidates borrowed pointers to
// streams.
NODISCARD status event_loop_add(arena *a, event_loop *loop, int32_t count);

static inline void event_loop_wake(event_loop *loop, int32_t stream)
{
    DEBUG_ASSERT(loop->ready_count < loop->stream_count);
    loop->ready[loop->ready_count++] = stream;
}

// Makes all streams ready; the first one comes first.
static inline void event_loop_wake_all(event_loop *loop)
{
    for (int32_t i = loop->stream_count; i-- > 0;) event_loop_wake(loop, i);
}

// Takes a ready stream; EVENT_NONE: there is none.
static inline int32_t event_loop_next(event_loop *loop)
{
    return loop->ready_count > 0 ? loop->ready[--loop->ready_count] : EVENT_NONE;
}

// Returns true if the work has ended, at span->end. Else the stream stops until the work ends.
static inline bool event_loop_wait(event_loop *loop, int32_t stream, event_span *span)
{
    event_stream *s = &loop->streams[stream];
    if (span->end == EVENT_NOT_YET) {
        s->next_waiter = (int32_t)span->begin;
        span->begin = stream;
        return false;
    }
    s->waited = max_i64(s->waited, span->end);
    return true;
}

// Sets the times of a piece of work and wakes the streams that wait for it.
static inline void event_loop_end(event_loop *loop, event_span *span, int64_t begin, int64_t end)
{
    int32_t waiter = (int32_t)span->begin;
    DEBUG_ASSERT(span->end == EVENT_NOT_YET);
    span->begin = begin;
    span->end = end;
    for (; waiter != EVENT_NONE; waiter = loop->streams[waiter].next_waiter) {
        event_loop_wake(loop, waiter);
    }
}

// Work of several streams: it begins when all have arrived and takes as long as the slowest.
typedef struct event_rendezvous {
    int32_t members, here;
    int64_t begin, ns;
    int32_t *streams; // [members] the streams that have arrived
} event_rendezvous;
NODISCARD status event_rendezvous_make(arena *a, int32_t members, event_rendezvous *out);

// The stream arrives and could begin at `begin`. Returns true if it is the last: then the caller
// ends the work for r->streams at r->begin + r->ns, and all of them but this one are woken. Returns
// false if the stream stops.
static inline bool event_loop_arrive(event_loop *loop, int32_t stream, event_rendezvous *r,
                                     int64_t begin, int64_t ns)
{
    r->begin = r->here == 0 ? begin : max_i64(r->begin, begin);
    r->ns = r->here == 0 ? ns : max_i64(r->ns, ns);
    r->streams[r->here++] = stream;
    loop->streams[stream].has_arrived = true;
    if (r->here < r->members) return false;
    r->here = 0;
    for (int32_t i = 0; i < r->members; i++) {
        loop->streams[r->streams[i]].has_arrived = false;
        if (r->streams[i] != stream) event_loop_wake(loop, r->streams[i]);
    }
    return true;
}

#ifdef __cplusplus
}
#endif
#endif
