// Operations by NCCL. Uneven pieces are a broadcast or a reduction for each piece, as one group of
// calls; all of them are one launch.
#include "comm/nccl/nccl.h"

#include "comm/args.h"
#include "comm/nccl/start.h"
#include "control/thread.h"

#include <pthread.h>
#include <stdlib.h>

struct comm_nccl {
    comm_nccl *next; // of the watchdog
    nccl_library library;
    comm_group *group;
    nccl_handle handle;
    pthread_mutex_t lock; // of the handle
    bool is_aborted;
};

// -1: NCCL has no such type, or no operation of a run uses it.
static int type_of(dtype t)
{
    static const struct {
        dtype type;
        int number;
    } rows[] = {{DTYPE_F32, NCCL_F32}, {DTYPE_BF16, NCCL_BF16}, {DTYPE_F16, NCCL_F16},
                {DTYPE_F64, NCCL_F64}, {DTYPE_I32, NCCL_I32},   {DTYPE_I64, NCCL_I64},
                {DTYPE_U8, NCCL_U8},   {DTYPE_U32, NCCL_U32},   {DTYPE_U64, NCCL_U64}};
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if (rows[i].type == t) return rows[i].number;
    }
    return -1;
}

static int reduction_of(op_reduction r)
{
    static const int numbers[REDUCTION_COUNT] = {[REDUCTION_SUM] = NCCL_SUM,
                                                 [REDUCTION_MAX] = NCCL_MAX,
                                                 [REDUCTION_MIN] = NCCL_MIN,
                                                 [REDUCTION_AVG] = NCCL_AVG};
    return numbers[r];
}

static status did(const comm_nccl *n, int result, const char *what, const char *of)
{
    if (result == 0 || result == NCCL_IN_PROGRESS) return ST_OK;
    return fail(result == NCCL_REMOTE_ERROR ? ST_PEER_LOST : ST_DEVICE,
                "%s of %s in group %s: NCCL says \"%s\"", what, of, comm_group_name(n->group),
                n->library.text(result));
}

// ---- a communicator -----------------------------------------------------------------------------
static status id_share(comm_nccl *n, nccl_id *id)
{
    *id = (nccl_id){{0}};
    if (comm_group_rank(n->group) == 0)
        TRY(did(n, n->library.id_make(id), "the number", "a communicator"));
    return comm_pass(n->group, COLLECTIVE_BROADCAST, 0, id, (int64_t)sizeof(*id),
                     "NCCL's number of a communicator", __func__);
}

status comm_nccl_create(const nccl_library *library, comm_group *g, const device_api *api,
                        device *d, comm_nccl **out)
{
    nccl_id id;
    int result = 0;
    comm_nccl *n = calloc(1, sizeof(*n));
    if (n == NULL) return fail(ST_NO_MEMORY, "no memory for NCCL in group %s", comm_group_name(g));
    n->library = *library;
    n->group = g;
    status st = id_share(n, &id);
    if (st == ST_OK) st = comm_nccl_start(library, g, api, d, &id, &n->handle, &result);
    if (st == ST_OK) st = did(n, result, "the beginning", "a communicator");
    if (st != ST_OK) {
        free(n);
        return st;
    }
    (void)pthread_mutex_init(&n->lock, NULL);
    *out = n;
    return ST_OK;
}

void comm_nccl_destroy(comm_nccl *n)
{
    if (n == NULL) return;
    if (!n->is_aborted) (void)n->library.leave(n->handle);
    (void)pthread_mutex_destroy(&n->lock);
    free(n);
}

void comm_nccl_abort(comm_nccl *n)
{
    (void)pthread_mutex_lock(&n->lock);
    const bool was = __atomic_exchange_n(&n->is_aborted, true, __ATOMIC_SEQ_CST);
    // From here on operations end with any bytes in their buffers.
    if (!was) (void)n->library.stop(n->handle);
    (void)pthread_mutex_unlock(&n->lock);
}

status comm_nccl_abort_check(const comm_nccl *n)
{
    if (!__atomic_load_n(&n->is_aborted, __ATOMIC_SEQ_CST)) return ST_OK;
    return fail(ST_PEER_LOST, "group %s has ended: NCCL was aborted", comm_group_name(n->group));
}

status comm_nccl_check(comm_nccl *n)
{
    int later = 0;
    (void)pthread_mutex_lock(&n->lock);
    const int result = n->is_aborted ? 0 : n->library.error_later(n->handle, &later);
    (void)pthread_mutex_unlock(&n->lock);
    return did(n, result != 0 ? result : later, "an operation", "the GPU");
}

// ---- operations ---------------------------------------------------------------------------------
bool comm_nccl_posts(const device_api *api, const comm_args *args)
{
    static const bool does[COLLECTIVE_COUNT] = {
        [COLLECTIVE_ALL_REDUCE] = true, [COLLECTIVE_REDUCE_SCATTER] = true,
        [COLLECTIVE_ALL_GATHER] = true, [COLLECTIVE_BROADCAST] = true,
        [COLLECTIVE_REDUCE] = true,     [COLLECTIVE_ALL_TO_ALL] = true,
        [COLLECTIVE_SEND] = true,       [COLLECTIVE_RECEIVE] = true};
    return api->stream_native != NULL && does[args->op] && args->order == COMM_ORDER_ANY &&
           args->compressed == NULL && type_of(args->type) >= 0;
}

// The arguments that all calls for one tensor share.
typedef struct call {
    const nccl_library *nccl;
    nccl_handle handle;
    void *stream;
    int type, reduction;
    int64_t width;
    int rank, ranks;
} call;

static size_t piece_of(const comm_item *item, int rank)
{
    return (size_t)comm_item_piece(item, rank);
}

static int scatter_post(const call *c, const comm_item *item)
{
    const char *in = item->in;
    int result = 0;
    if (comm_item_whole(item, c->ranks) == c->ranks * item->count) {
        return c->nccl->reduce_scatter(in, item->out, (size_t)item->count, c->type, c->reduction,
                                       c->handle, c->stream);
    }
    for (int r = 0; r < c->ranks && result == 0; r++) {
        if (piece_of(item, r) == 0) continue;
        result = c->nccl->reduce(in + r * item->count * c->width, item->out, piece_of(item, r),
                                 c->type, c->reduction, r, c->handle, c->stream);
    }
    return result;
}

static int gather_post(const call *c, const comm_item *item)
{
    char *out = item->out;
    int result = 0;
    if (comm_item_whole(item, c->ranks) == c->ranks * item->count) {
        return c->nccl->all_gather(item->in, out, (size_t)item->count, c->type, c->handle,
                                   c->stream);
    }
    for (int r = 0; r < c->ranks && result == 0; r++) {
        char *at = out + r * item->count * c->width;
        if (piece_of(item, r) == 0) continue;
        result = c->nccl->broadcast(r == c->rank ? item->in : at, at, piece_of(item, r), c->type, r,
                                    c->handle, c->stream);
    }
    return result;
}

static int exchange_post(const call *c, const comm_item *item)
{
    const int64_t bytes = item->count * c->width;
    const char *in = item->in;
    char *out = item->out;
    int result = 0;
    for (int r = 0; r < c->ranks && result == 0; r++) {
        result =
            c->nccl->send(in + r * bytes, (size_t)item->count, c->type, r, c->handle, c->stream);
        if (result != 0) break;
        result = c->nccl->receive(out + r * bytes, (size_t)item->count, c->type, r, c->handle,
                                  c->stream);
    }
    return result;
}

static int item_post(const call *c, const comm_args *args, const comm_item *item)
{
    const size_t count = (size_t)item->count;
    if (count == 0 && item->total == 0) return 0;
    switch (args->op) {
    case COLLECTIVE_ALL_REDUCE:
        return c->nccl->all_reduce(item->in, item->out, count, c->type, c->reduction, c->handle,
                                   c->stream);
    case COLLECTIVE_REDUCE_SCATTER:
        return scatter_post(c, item);
    case COLLECTIVE_ALL_GATHER:
        return gather_post(c, item);
    case COLLECTIVE_BROADCAST:
        return c->nccl->broadcast(item->in != NULL ? item->in : item->out, item->out, count,
                                  c->type, args->root, c->handle, c->stream);
    case COLLECTIVE_REDUCE:
        return c->nccl->reduce(item->in, item->out, count, c->type, c->reduction, args->root,
                               c->handle, c->stream);
    case COLLECTIVE_ALL_TO_ALL:
        return exchange_post(c, item);
    case COLLECTIVE_SEND:
        return c->nccl->send(item->in, count, c->type, args->root, c->handle, c->stream);
    case COLLECTIVE_RECEIVE:
        return c->nccl->receive(item->out, count, c->type, args->root, c->handle, c->stream);
    case COLLECTIVE_GATHER:
    case COLLECTIVE_SCATTER:
    case COLLECTIVE_ALL_TO_ALLV:
    case COLLECTIVE_BARRIER:
    case COLLECTIVE_COUNT:
    default:
        return 0; // comm_nccl_posts() refuses it
    }
}

static int items_post(const comm_nccl *n, const call *c, const comm_args *args)
{
    int result = n->library.group_begin();
    for (int i = 0; i < args->item_count && result == 0; i++) {
        result = item_post(c, args, &args->items[i]);
    }
    const int ended = n->library.group_end();
    return result != 0 ? result : ended;
}

static call call_of(const comm_nccl *n, const device_api *api, device_stream *stream,
                    const comm_args *args)
{
    return (call){.nccl = &n->library,
                  .handle = n->handle,
                  .stream = api->stream_native(stream),
                  .type = type_of(args->type),
                  .reduction = reduction_of(args->reduction),
                  .width = dtype_bytes(args->type),
                  .rank = comm_group_rank(n->group),
                  .ranks = comm_group_size(n->group)};
}

status comm_nccl_post(comm_nccl *n, const device_api *api, device_stream *stream,
                      const comm_args *args)
{
    ASSERT(comm_nccl_posts(api, args));
    const call c = call_of(n, api, stream, args);
    (void)pthread_mutex_lock(&n->lock);
    const status st = comm_nccl_abort_check(n);
    const int result = st != ST_OK ? 0 : items_post(n, &c, args);
    (void)pthread_mutex_unlock(&n->lock);
    TRY(st);
    return did(n, result, op_collective_name(args->op), args->tensor);
}

// ---- rows by counts -----------------------------------------------------------------------------
struct comm_nccl_rows {
    comm_nccl *nccl;
    const device_api *api;
    device_stream *stream;
    device_event *done;
};

status comm_nccl_rows_create(const nccl_library *library, comm_group *g, const device_api *api,
                             device *d, comm_nccl_rows **out)
{
    enum { ROWS_STREAM = 1001 }; // its number: no work of the plan
    comm_nccl_rows *rows = calloc(1, sizeof(*rows));
    if (rows == NULL) return fail(ST_NO_MEMORY, "no memory for the rows of experts");
    rows->api = api;
    status st = api->stream_create(d, "rows", ROWS_STREAM, &rows->stream);
    if (st == ST_OK) st = api->event_create(d, &rows->done);
    if (st == ST_OK) st = comm_nccl_create(library, g, api, d, &rows->nccl);
    if (st != ST_OK) {
        free(rows);
        return st;
    }
    *out = rows;
    return ST_OK;
}

void comm_nccl_rows_destroy(comm_nccl_rows *rows)
{
    if (rows == NULL) return;
    comm_nccl_destroy(rows->nccl);
    free(rows);
}

comm_nccl *comm_nccl_rows_library(comm_nccl_rows *rows)
{
    return rows->nccl;
}

bool comm_nccl_rows_can(const comm_args *args)
{
    return args->op == COLLECTIVE_ALL_TO_ALLV && args->send_offsets != NULL &&
           args->items[0].in != args->items[0].out && type_of(args->type) >= 0;
}

// A message to and from every rank, also where no row travels: so all ranks post as many.
static int rows_post(const call *c, const comm_item *item, const int64_t *sends,
                     const int64_t *receives)
{
    const char *in = item->in;
    char *out = item->out;
    int result = c->nccl->group_begin();
    for (int r = 0; r < c->ranks && result == 0; r++) {
        result = c->nccl->send(in, (size_t)sends[r], c->type, r, c->handle, c->stream);
        if (result == 0) {
            result = c->nccl->receive(out, (size_t)receives[r], c->type, r, c->handle, c->stream);
        }
        in += sends[r] * c->width;
        out += receives[r] * c->width;
    }
    const int ended = c->nccl->group_end();
    return result != 0 ? result : ended;
}

status comm_nccl_rows_run(comm_nccl_rows *rows, const comm_args *args, const int64_t *sends,
                          const int64_t *receives)
{
    comm_nccl *n = rows->nccl;
    bool posted = false;
    const call c = call_of(n, rows->api, rows->stream, args);
    (void)pthread_mutex_lock(&n->lock);
    const status st = comm_nccl_abort_check(n);
    const int result = st != ST_OK ? 0 : rows_post(&c, &args->items[0], sends, receives);
    (void)pthread_mutex_unlock(&n->lock);
    TRY(st);
    TRY(did(n, result, op_collective_name(args->op), args->tensor));
    TRY(rows->api->event_record(rows->done, rows->stream, &posted));
    TRY(rows->api->event_sync(rows->done));
    return comm_nccl_abort_check(n);
}

// ---- the watchdog -------------------------------------------------------------------------------
struct comm_nccl_watch {
    comm_nccl_broken broken;
    comm_nccl *first;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
};

static void *watch_run(void *context)
{
    enum { EVERY_MS = 100 };
    comm_nccl_watch *w = context;
    (void)pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        (void)control_condition_wait(&w->changed, &w->lock, EVERY_MS * INT64_C(1000000));
        for (comm_nccl *n = w->first; n != NULL && !w->stop; n = n->next) {
            const status st = comm_nccl_check(n);
            if (st == ST_OK) continue;
            const error_record why = *error_last();
            for (comm_nccl *other = w->first; other != NULL; other = other->next) {
                comm_nccl_abort(other);
            }
            (void)error_put(&why);
            w->broken(n->group, st);
        }
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void watch_free(comm_nccl_watch *w)
{
    (void)pthread_cond_destroy(&w->changed);
    (void)pthread_mutex_destroy(&w->lock);
    free(w);
}

status comm_nccl_watch_begin(comm_nccl_broken broken, comm_nccl_watch **out)
{
    comm_nccl_watch *w = calloc(1, sizeof(*w));
    if (w == NULL) return fail(ST_NO_MEMORY, "no memory for NCCL's watchdog");
    w->broken = broken;
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->changed, NULL);
    const int error = control_thread_start(&w->thread, watch_run, w);
    if (error != 0) {
        watch_free(w);
        return fail(ST_NO_MEMORY, "cannot start the thread that watches NCCL (error %d)%s", error,
                    host_limit_remedy(error));
    }
    *out = w;
    return ST_OK;
}

void comm_nccl_watch_add(comm_nccl_watch *w, comm_nccl *n)
{
    (void)pthread_mutex_lock(&w->lock);
    n->next = w->first;
    w->first = n;
    (void)pthread_mutex_unlock(&w->lock);
}

void comm_nccl_watch_remove(comm_nccl_watch *w, comm_nccl *n)
{
    (void)pthread_mutex_lock(&w->lock);
    for (comm_nccl **at = &w->first; *at != NULL; at = &(*at)->next) {
        if (*at != n) continue;
        *at = n->next;
        break;
    }
    (void)pthread_mutex_unlock(&w->lock);
}

void comm_nccl_watch_abort(comm_nccl_watch *w)
{
    if (w == NULL) return;
    (void)pthread_mutex_lock(&w->lock);
    for (comm_nccl *n = w->first; n != NULL; n = n->next) comm_nccl_abort(n);
    (void)pthread_mutex_unlock(&w->lock);
}

void comm_nccl_watch_end(comm_nccl_watch *w)
{
    if (w == NULL) return;
    (void)pthread_mutex_lock(&w->lock);
    w->stop = true;
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
    (void)pthread_join(w->thread, NULL);
    watch_free(w);
}
