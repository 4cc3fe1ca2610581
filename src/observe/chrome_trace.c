// Writes spans as a Chrome trace, the JSON that ui.perfetto.dev and chrome://tracing open.
#include "observe/observe.h"

#include <string.h>

struct obs_trace {
    arena *a;
    trace_record *spans;
    int64_t count, capacity;
};

status obs_trace_create(arena *a, obs_trace **out)
{
    TRY(arena_new(a, 1, out));
    (*out)->a = a;
    return ST_OK;
}

status obs_trace_take(obs_trace *t, trace_ring *ring)
{
    trace_record chunk[64];
    for (;;) {
        const int64_t n = trace_take(ring, chunk, COUNT_OF(chunk));
        if (n == 0) return ST_OK;
        TRY(arena_grow(t->a, (void **)&t->spans, &t->capacity, t->count + n,
                       (int64_t)sizeof(trace_record)));
        for (int64_t i = 0; i < n; i++) {
            if (chunk[i].kind == TRACE_SPAN) t->spans[t->count++] = chunk[i];
        }
    }
}

static status span_print(const trace_record *r, int64_t zero_ns, text *out, bool last)
{
    TRY(text_add(out,
                 "{\"name\": \"%s\", \"ph\": \"X\", \"pid\": 0, \"tid\": %d, \"ts\": %.3f, "
                 "\"dur\": %.3f, \"args\": {\"step\": %d",
                 r->name, r->stream, (double)(r->begin_ns - zero_ns) / 1e3,
                 (double)(r->end_ns - r->begin_ns) / 1e3, r->step));
    if (r->microbatch >= 0) TRY(text_add(out, ", \"microbatch\": %d", r->microbatch));
    if (r->layer >= 0) TRY(text_add(out, ", \"layer\": %d", r->layer));
    return text_add(out, "}}%s\n", last ? "" : ",");
}

status obs_trace_write(obs_trace *t, const host *h, const char *path)
{
    arena *a = NULL;
    TRY(arena_create("chrome trace", 0, &a));
    text out = {.a = a};
    static const char *const streams[] = {"compute", "copy"};
    int64_t zero_ns = 0;
    for (int64_t i = 0; i < t->count; i++) {
        if (i == 0 || t->spans[i].begin_ns < zero_ns) zero_ns = t->spans[i].begin_ns;
    }
    status st = ST_OK;
    TRY_TO(done, text_add(&out, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"));
    for (int i = 0; i < (int)COUNT_OF(streams); i++) {
        TRY_TO(done, text_add(&out,
                              "{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 0, \"tid\": %d, "
                              "\"args\": {\"name\": \"%s\"}}%s\n",
                              i, streams[i], i + 1 < COUNT_OF(streams) || t->count > 0 ? "," : ""));
    }
    for (int64_t i = 0; i < t->count; i++) {
        TRY_TO(done, span_print(&t->spans[i], zero_ns, &out, i + 1 == t->count));
    }
    TRY_TO(done, text_add(&out, "]}\n"));
    TRY_TO(done, host_write_all(h, path, out.bytes, out.length));
done:
    arena_destroy(a);
    return st;
}
