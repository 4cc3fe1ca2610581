// Asynchronous saving: a step waits only for the copy of the state. A separate thread writes,
// syncs, reads back, links and prunes. Without the thread the same work is done synchronously.
//
//   trainer  begin(): copy ──┐                       result(): how the save ended
//   writer                   └─ write, sync, manifest, read back, links, prune ─┘
//
// At most one save is in progress. All memory of the trainer's side is allocated when the saver is
// created.
#include "base/fault.h"
#include "checkpoint/save.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum saver_state { SAVER_IDLE, SAVER_ORDERED, SAVER_DONE, SAVER_ENDS } saver_state;

struct ckpt_saver {
    const host *h;
    arena *a;
    ckpt_image image;
    const char *folder;
    int64_t fork;
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock; // guards `state`, which decides who may use order and result
    pthread_cond_t changed;
    saver_state state;
    ckpt_order order;
    ckpt_saved result;
};

// ---- the writer's side --------------------------------------------------------------------------

static status link_set(ckpt_saver *s, arena *a, const char *link, const char *name)
{
    char *path = NULL;
    TRY(path_join(a, s->folder, link, &path));
    return s->h->api->path_link(s->h, name, path);
}

// The checkpoint is durable; a failure from here on does not affect it.
static status after_save(ckpt_saver *s, arena *a, const char *name)
{
    ckpt_keep keep = s->order.keep;
    keep.saved = name;
    if (s->order.is_best) keep.best = name;
    TRY(fault_point("checkpoint.latest"));
    TRY(link_set(s, a, "latest", name));
    if (s->order.is_best) {
        TRY(fault_point("checkpoint.best"));
        TRY(link_set(s, a, "best", name));
    }
    return ckpt_prune(s->h, a, s->folder, &keep);
}

static status save_named(ckpt_saver *s, arena *a, char **name)
{
    ckpt_info info = s->order.info;
    char *path = NULL;
    text removed = {.a = a};
    // Debris only takes space.
    if (ckpt_debris_remove(s->h, a, s->folder, &removed) != ST_OK) error_clear();
    TRY(ckpt_name_free(s->h, a, s->folder, info.step, s->fork, name));
    if (s->order.is_best) info.best = *name;
    TRY(path_join(a, s->folder, *name, &path));
    (void)snprintf(s->result.path, sizeof(s->result.path), "%s", path);
    return ckpt_image_save(&s->image, a, s->folder, &info, s->order.extras, s->order.extra_count,
                           *name);
}

// Performs a save and fills in the result. All memory that the writer allocates is released with
// its arena.
static void order_do(ckpt_saver *s)
{
    ckpt_saved *r = &s->result;
    arena *a = NULL;
    char *name = NULL;
    status st = arena_create("save", 0, &a);
    if (st == ST_OK) st = save_named(s, a, &name);
    r->st = st;
    if (st == ST_OK) {
        r->after = after_save(s, a, name);
        if (r->after != ST_OK) error_take(&r->error);
    } else {
        error_take(&r->error);
        if (s->h->api->path_space(s->h, s->folder, &r->free_bytes) != ST_OK) r->free_bytes = -1;
    }
    error_clear();
    arena_destroy(a);
    r->seconds = (double)(s->h->api->monotonic_ns(s->h) - r->begin_ns) / 1e9;
}

static void *writer(void *context)
{
    ckpt_saver *s = context;
    pthread_mutex_lock(&s->lock);
    while (s->state != SAVER_ENDS) {
        if (s->state != SAVER_ORDERED) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock); // the writer owns an order until it is done
        order_do(s);
        pthread_mutex_lock(&s->lock);
        s->state = SAVER_DONE;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

// ---- the trainer's side -------------------------------------------------------------------------

status ckpt_image_bytes(const ckpt_state *state, int64_t *bytes)
{
    arena *a = NULL;
    state_list list = {0};
    TRY(arena_create("state", 0, &a));
    const status st = state_list_make(state, a, &list);
    *bytes = list.bytes;
    arena_destroy(a);
    return st;
}

static status thread_start(ckpt_saver *s)
{
    TRY(fault_point("checkpoint.thread"));
    const int error = pthread_create(&s->thread, NULL, writer, s);
    if (error != 0) {
        return fail(ST_NO_MEMORY, "cannot start the thread that writes checkpoints (error %d)%s",
                    error, host_limit_remedy(error));
    }
    s->has_thread = true;
    return ST_OK;
}

static status saver_fill(ckpt_saver *s, const ckpt_saver_config *c)
{
    char *folder = NULL;
    TRY(arena_strdup(s->a, c->folder, &folder));
    s->folder = folder;
    s->h = c->state->h;
    s->fork = c->fork;
    s->image.s = c->state;
    s->image.file_bytes = c->file_bytes;
    TRY(ckpt_image_block(&s->image, s->a));
    TRY(state_list_make(c->state, s->a, &s->image.list));
    if (!c->async) return ST_OK;
    s->image.bytes = malloc((size_t)max_i64(s->image.list.bytes, 1));
    if (s->image.bytes == NULL) {
        return fail(ST_NO_MEMORY,
                    "no memory for the copy of the state for asynchronous saving: %lld bytes; "
                    "checkpoint.async=no needs no copy",
                    (long long)s->image.list.bytes);
    }
    return thread_start(s);
}

status ckpt_saver_create(const ckpt_saver_config *config, ckpt_saver **out)
{
    arena *a = NULL;
    ckpt_saver *s = NULL;
    TRY(arena_create("saver", 0, &a));
    status st = arena_new(a, 1, &s);
    if (st != ST_OK) {
        arena_destroy(a);
        return st;
    }
    s->a = a;
    if (pthread_mutex_init(&s->lock, NULL) != 0 || pthread_cond_init(&s->changed, NULL) != 0) {
        arena_destroy(a);
        return fail(ST_NO_MEMORY, "no memory for a lock");
    }
    st = saver_fill(s, config);
    if (st == ST_OK) {
        *out = s;
    } else {
        ckpt_saver_destroy(s);
    }
    return st;
}

void ckpt_saver_destroy(ckpt_saver *s)
{
    if (s == NULL) return;
    if (s->has_thread) {
        pthread_mutex_lock(&s->lock);
        while (s->state == SAVER_ORDERED) pthread_cond_wait(&s->changed, &s->lock);
        s->state = SAVER_ENDS;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        (void)pthread_join(s->thread, NULL);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s->image.bytes);
    arena_destroy(s->a); // the arena also holds `s`
}

status ckpt_saver_begin(ckpt_saver *s, const ckpt_order *order)
{
    pthread_mutex_lock(&s->lock);
    ASSERT(s->state == SAVER_IDLE); // the result of the previous save has been taken
    pthread_mutex_unlock(&s->lock);
    ckpt_saved *r = &s->result;
    memset(r, 0, sizeof(*r));
    s->order = *order;
    r->step = order->info.step;
    r->is_best = order->is_best;
    r->bytes = s->image.list.bytes;
    r->free_bytes = -1;
    r->begin_ns = s->h->api->monotonic_ns(s->h);
    TRY(ckpt_image_take(&s->image));
    if (order->confirm != NULL) TRY(order->confirm(order->context));
    if (!s->has_thread) {
        order_do(s);
        r->stall_s = r->seconds;
        s->state = SAVER_DONE;
        return ST_OK;
    }
    r->stall_s = (double)(s->h->api->monotonic_ns(s->h) - r->begin_ns) / 1e9;
    pthread_mutex_lock(&s->lock);
    s->state = SAVER_ORDERED;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return ST_OK;
}

bool ckpt_saver_result(ckpt_saver *s, bool wait, ckpt_saved **out)
{
    bool any = false;
    pthread_mutex_lock(&s->lock);
    while (wait && s->state == SAVER_ORDERED) pthread_cond_wait(&s->changed, &s->lock);
    if (s->state == SAVER_DONE) {
        s->state = SAVER_IDLE;
        *out = &s->result;
        any = true;
    }
    pthread_mutex_unlock(&s->lock);
    return any;
}
