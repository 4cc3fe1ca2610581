// Two buffers between one thread that fills and one that takes.
//
//   filled: steps that the thread has finished.   taken: steps that next() has returned.
//   Step number k (from 0) uses buffer k % 2. The thread may fill k when the caller has returned
//   k - 2, that is, when next() has been called for k - 1: filled < taken + 1, where the caller's
//   buffer counts as taken.
#include "data/loader.h"

#include "base/fault.h"

#include <pthread.h>
#include <stdlib.h>

enum { BUFFERS = 2, ROW_KINDS = 4 };

struct data_loader {
    data_loader_args args;
    int64_t steps;
    int32_t *memory;
    data_batch batches[BUFFERS];
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; // guards the fields below
    pthread_cond_t changed;
    int64_t filled, taken;
    bool stop, failed;
    error_record error;
};

static status fill(data_loader *l, int64_t k)
{
    data_batch *b = &l->batches[k % BUFFERS];
    b->step = l->args.first_step + k;
    l->args.range(l->args.context, b->step, &b->first, &b->count);
    ASSERT(b->count >= 0 && b->count <= l->args.max_count);
    TRY(fault_point("data.loader.fill"));
    return data_batch_fill(l->args.dataset, l->args.split, b->first, b->count, &b->rows);
}

static void *run(void *context)
{
    data_loader *l = context;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        // The caller's buffer belongs to step taken - 1, so the thread may fill up to taken + 1.
        while (!l->stop && l->filled > l->taken) pthread_cond_wait(&l->changed, &l->lock);
        if (l->stop || l->filled == l->steps) break;
        const int64_t k = l->filled;
        pthread_mutex_unlock(&l->lock);
        const status st = fill(l, k);
        pthread_mutex_lock(&l->lock);
        if (st != ST_OK) {
            error_take(&l->error);
            l->failed = true;
        } else {
            l->filled++;
        }
        pthread_cond_broadcast(&l->changed);
        if (l->failed) break;
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static status allocate(data_loader *l)
{
    int64_t elements = 0, bytes = 0;
    if (!size_mul(l->args.max_count, data_dataset_seq(l->args.dataset), &elements) ||
        !size_mul(elements, (int64_t)sizeof(int32_t) * ROW_KINDS * BUFFERS, &bytes)) {
        return fail(ST_NO_MEMORY, "a batch of %lld sequences", (long long)l->args.max_count);
    }
    l->memory = calloc(1, (size_t)max_i64(bytes, 1));
    if (l->memory == NULL) {
        return fail(ST_NO_MEMORY, "no memory for two batches, %lld bytes", (long long)bytes);
    }
    int32_t *at = l->memory;
    for (int i = 0; i < BUFFERS; i++, at += ROW_KINDS * elements) {
        l->batches[i].rows = (data_rows){at, at + elements, at + 2 * elements, at + 3 * elements};
    }
    return ST_OK;
}

status data_loader_create(const data_loader_args *args, data_loader **out)
{
    ASSERT(args->last_step >= args->first_step && args->max_count >= 0);
    data_loader *l = calloc(1, sizeof(*l));
    if (l == NULL) return fail(ST_NO_MEMORY, "no memory for the loader");
    status st = ST_OK;
    l->args = *args;
    l->steps = args->last_step - args->first_step + 1;
    pthread_mutex_init(&l->lock, NULL); // cannot fail for default attributes
    pthread_cond_init(&l->changed, NULL);
    TRY_TO(destroy_loader, allocate(l));
    if (!args->no_thread) {
        TRY_TO(destroy_loader, fault_point("data.loader.thread"));
        const int error = pthread_create(&l->thread, NULL, run, l);
        if (error != 0) {
            st = fail(ST_NO_MEMORY, "cannot start the thread of the data loader (error %d)%s",
                      error, host_limit_remedy(error));
            goto destroy_loader;
        }
        l->has_thread = true;
    }
    *out = l;
    return ST_OK;
destroy_loader:
    data_loader_destroy(l);
    return st;
}

status data_loader_next(data_loader *l, data_batch *out)
{
    const host *h = l->args.h;
    const int64_t begin_ns = h->api->monotonic_ns(h);
    status st = ST_OK;
    pthread_mutex_lock(&l->lock);
    const int64_t k = l->taken;
    if (k == l->steps) {
        st = fail(ST_INTERNAL, "the loader was asked for step %lld, its last was %lld",
                  (long long)(l->args.last_step + 1), (long long)l->args.last_step);
    } else if (!l->has_thread) {
        st = fill(l, k);
        if (st == ST_OK) l->filled++;
    } else {
        while (l->filled <= k && !l->failed) pthread_cond_wait(&l->changed, &l->lock);
        if (l->filled <= k) st = error_put(&l->error);
    }
    if (st == ST_OK) {
        *out = l->batches[k % BUFFERS];
        l->taken++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    if (st == ST_OK) out->wait_ns = h->api->monotonic_ns(h) - begin_ns;
    return st;
}

void data_loader_destroy(data_loader *l)
{
    if (l == NULL) return;
    if (l->has_thread) {
        pthread_mutex_lock(&l->lock);
        l->stop = true;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
        (void)pthread_join(l->thread, NULL); // cannot fail for a thread that this file started
    }
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l->memory);
    free(l);
}
