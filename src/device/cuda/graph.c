// Graphs: the driver keeps the work of a stream, and of those that wait for its events, and repeats
// it by one call. A capture that fails breaks nothing: the same work can be posted one by one.
#include "device/cuda/cuda_internal.h"

#include <stdlib.h>

struct device_graph {
    cuda_device *device;
    cuda_graph_exec handle;
};

status cuda_graph_begin(device_stream *s)
{
    cuda_device *d = s->device;
    ASSERT(!d->captures);
    TRY(cuda_enter(d));
    TRY(cuda_did(d, d->driver.capture_begin(s->handle, CUDA_CAPTURE_THREAD),
                 "the work of a stream cannot be captured"));
    d->captures = true;
    return ST_OK;
}

status cuda_graph_end(device_stream *s, device_graph **out)
{
    cuda_device *d = s->device;
    cuda_graph captured = NULL;
    ASSERT(d->captures);
    d->captures = false;
    TRY(cuda_enter(d));
    TRY(cuda_did(d, d->driver.capture_end(s->handle, &captured), "the captured work is no graph"));
    device_graph *g = calloc(1, sizeof(*g));
    if (g == NULL) {
        (void)d->driver.graph_destroy(captured);
        return fail(ST_NO_MEMORY, "no memory for a graph of the GPU");
    }
    g->device = d;
    const cuda_result r = d->driver.graph_make(&g->handle, captured, 0);
    (void)d->driver.graph_destroy(captured);
    // The nodes of a graph take memory of the GPU: without it the work is posted one by one.
    const status st = r == CUDA_OUT_OF_MEMORY
                          ? cuda_check(&d->driver, r, "the GPU gives no memory for a graph")
                          : cuda_did(d, r, "the driver cannot prepare a graph");
    if (st != ST_OK) {
        free(g);
        return st;
    }
    *out = g;
    return ST_OK;
}

status cuda_graph_post(device_graph *g, device_stream *s, bool *posted)
{
    *posted = true;
    TRY(cuda_enter(s->device));
    return cuda_did(s->device, s->device->driver.graph_launch(g->handle, s->handle),
                    "a graph of the GPU cannot be launched");
}

void cuda_graph_free(device_graph *g)
{
    if (g == NULL) return;
    (void)g->device->driver.graph_exec_destroy(g->handle);
    free(g);
}
