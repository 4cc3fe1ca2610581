// The time of each call on the GPU, for traced steps.
//
// A call lies between two events of its stream. Their times are known when the second is done, so
// spans wait in a ring, in the order of their posting, until the host has waited for the device.
// The two events keep kernels from overlapping with their neighbours: a traced step is a little
// slower.
#include "device/cuda/cuda_internal.h"

#include <stdlib.h>

enum { MAX_SPANS = 16384 };

typedef struct span {
    cuda_event begin, end; // made when the place is first used
    trace_record record;
} span;

struct cuda_spans {
    int64_t head, tail; // numbers of spans: taken up to head, posted up to tail
    span all[MAX_SPANS];
};

static const char *const op_names[OP_CODE_COUNT] = {
#define OP_NAME(upper, lower) [OP_##upper] = #lower,
    OP_TABLE(OP_NAME)
#undef OP_NAME
};

status cuda_spans_create(cuda_device *d)
{
    if (d->config.trace == NULL) return ST_OK;
    d->spans = calloc(1, sizeof(*d->spans));
    return d->spans != NULL ? ST_OK : fail(ST_NO_MEMORY, "no memory for a trace of the GPU");
}

void cuda_spans_destroy(cuda_device *d)
{
    for (int i = 0; d->spans != NULL && i < MAX_SPANS; i++) {
        const span *s = &d->spans->all[i];
        if (s->begin != NULL) (void)d->driver.event_destroy(s->begin);
        if (s->end != NULL) (void)d->driver.event_destroy(s->end);
    }
    free(d->spans);
}

static status event_ready(cuda_device *d, cuda_event *e)
{
    if (*e != NULL) return ST_OK;
    return cuda_did(d, d->driver.event_create(e, 0), "an event of the GPU cannot be made");
}

// Returns the place of the call's span; NULL: its step is not traced.
static span *span_of(cuda_device *d, const kern_call *call)
{
    const device_config *c = &d->config;
    if (d->spans == NULL || call->step_no < c->trace_begin || call->step_no > c->trace_end) {
        return NULL;
    }
    if (d->spans->tail - d->spans->head >= MAX_SPANS) return NULL; // as a full ring loses spans
    return &d->spans->all[d->spans->tail % MAX_SPANS];
}

status cuda_spans_run(device_stream *s, const kern_call *call)
{
    cuda_device *d = s->device;
    span *of = span_of(d, call);
    if (of == NULL) return d->config.run->run(s->context, call);
    TRY(event_ready(d, &of->begin));
    TRY(event_ready(d, &of->end));
    of->record = (trace_record){.kind = TRACE_SPAN,
                                .stream = s->number,
                                .step = call->step_no,
                                .microbatch = call->microbatch,
                                .layer = call->layer,
                                .name = op_names[call->code]};
    TRY(cuda_did(d, d->driver.event_record(of->begin, s->handle), "a span cannot begin"));
    TRY(d->config.run->run(s->context, call));
    TRY(cuda_did(d, d->driver.event_record(of->end, s->handle), "a span cannot end"));
    d->spans->tail++;
    return ST_OK;
}

void cuda_spans_take(cuda_device *d)
{
    cuda_spans *all = d->spans;
    int64_t now = 0;
    if (all == NULL || all->head == all->tail || cuda_clock_read(d, &now) != 0) return;
    for (; all->head < all->tail; all->head++) {
        span *s = &all->all[all->head % MAX_SPANS];
        float from = 0.0f, to = 0.0f;
        if (d->driver.event_query(s->end) != 0) return; // and those after it wait too
        if (d->driver.event_elapsed(&from, s->begin, d->clock) != 0) return;
        if (d->driver.event_elapsed(&to, s->end, d->clock) != 0) return;
        s->record.begin_ns = now - (int64_t)(1e6 * (double)from);
        s->record.end_ns = now - (int64_t)(1e6 * (double)to);
        trace_put(d->config.trace, &s->record);
    }
}
