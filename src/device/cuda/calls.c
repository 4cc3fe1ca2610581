// Host functions in the order of a stream: collectives that wait for other ranks.
//
//   stream   ... work | record ready | wait until *done >= n | work ...
//   thread              wait for ready, run function n, *done = n
//
// The driver has host functions too, but all streams share one of its threads, and such a function
// may not wait for another stream's work.
#include "device/cuda/cuda_internal.h"

#include <string.h>

// Runs one function. After an error the stream goes on, so that nothing waits for ever; the
// device's later calls return the error.
static void item_run(device_stream *s, uint32_t at)
{
    cuda_device *d = s->device;
    status st = cuda_enter(d);
    if (st == ST_OK) {
        st = cuda_did(d, d->driver.event_sync(s->calls.items[at].ready),
                      "the work before a host function failed");
    }
    if (st == ST_OK) st = s->calls.items[at].fn(s->calls.items[at].context);
    if (st != ST_OK) (void)cuda_break(d, st);
}

static void *calls_run(void *context)
{
    device_stream *s = context;
    cuda_calls *c = &s->calls;
    (void)pthread_mutex_lock(&c->lock);
    while (!c->stop || c->begun != c->posted) {
        if (c->begun == c->posted) {
            (void)pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&c->lock);
        item_run(s, c->begun % CUDA_MAX_CALLS);
        (void)pthread_mutex_lock(&c->lock);
        c->begun++;
        __atomic_store_n(c->done, c->begun, __ATOMIC_RELEASE);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return NULL;
}

static status calls_init(device_stream *s)
{
    cuda_calls *c = &s->calls;
    cuda_device *d = s->device;
    void *done = NULL;
    TRY(cuda_check(&d->driver, d->driver.host_alloc(&done, sizeof(*c->done), CUDA_HOST_PORTABLE),
                   "no pinned memory for the host functions of a stream"));
    c->done = done;
    *c->done = 0;
    TRY(cuda_check(&d->driver, d->driver.host_address(&c->done_address, done, 0),
                   "pinned memory has no address on the device"));
    for (int i = 0; i < CUDA_MAX_CALLS; i++) {
        TRY(cuda_check(
            &d->driver,
            d->driver.event_create(&c->items[i].ready, CUDA_EVENT_BLOCKING | CUDA_EVENT_NO_TIME),
            "no event for the host functions of a stream"));
    }
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->changed, NULL);
    const int error = pthread_create(&c->thread, NULL, calls_run, s);
    if (error != 0) {
        return fail(ST_NO_MEMORY, "cannot start the thread for host functions of stream %s: %s",
                    s->name, strerror(error));
    }
    c->runs = true;
    return ST_OK;
}

status cuda_calls_post(device_stream *s, device_host_fn fn, void *context, bool *posted)
{
    cuda_calls *c = &s->calls;
    cuda_device *d = s->device;
    if (!c->runs) TRY(calls_init(s));
    (void)pthread_mutex_lock(&c->lock);
    const uint32_t number = c->posted;
    *posted = number - c->begun < CUDA_MAX_CALLS;
    (void)pthread_mutex_unlock(&c->lock);
    if (!*posted) return ST_OK;
    const uint32_t at = number % CUDA_MAX_CALLS;
    TRY(cuda_did(d, d->driver.event_record(c->items[at].ready, s->handle),
                 "a host function cannot be posted"));
    TRY(cuda_did(
        d, d->driver.stream_wait_value(s->handle, c->done_address, number + 1, CUDA_WAIT_AT_LEAST),
        "a stream cannot wait for a host function"));
    c->items[at].fn = fn;
    c->items[at].context = context;
    (void)pthread_mutex_lock(&c->lock);
    c->posted++;
    (void)pthread_cond_signal(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
    return ST_OK;
}

void cuda_calls_deinit(device_stream *s)
{
    cuda_calls *c = &s->calls;
    const cuda_driver *driver = &s->device->driver;
    if (c->runs) {
        (void)pthread_mutex_lock(&c->lock);
        c->stop = true;
        (void)pthread_cond_signal(&c->changed);
        (void)pthread_mutex_unlock(&c->lock);
        (void)pthread_join(c->thread, NULL);
        (void)pthread_cond_destroy(&c->changed);
        (void)pthread_mutex_destroy(&c->lock);
    }
    for (int i = 0; i < CUDA_MAX_CALLS; i++) {
        if (c->items[i].ready != NULL) (void)driver->event_destroy(c->items[i].ready);
    }
    if (c->done != NULL) (void)driver->host_free(c->done);
}
