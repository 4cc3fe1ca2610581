// Posts the copies and sums of an operation to a stream of the GPU, and turns a reducer's program
// into that of a kernel.
#include "comm/peer.h"

#include "comm/args.h"
#include "comm/reduce_steps.h"

#include <stdlib.h>

struct comm_peer {
    const device_api *api;
    device *d;
    device_stream *stream;
    device_event *done;
    status st; // the first that failed since the last wait
    error_record error;
};

status comm_peer_create(const device_api *api, device *d, comm_peer **out)
{
    enum { PEER_STREAM = 1000 }; // its number: no work of the plan
    comm_peer *p = calloc(1, sizeof(*p));
    if (p == NULL) return fail(ST_NO_MEMORY, "no memory for the peers of a GPU");
    p->api = api;
    p->d = d;
    status st = api->stream_create(d, "peers", PEER_STREAM, &p->stream);
    if (st == ST_OK) st = api->event_create(d, &p->done);
    if (st != ST_OK) {
        free(p);
        return st;
    }
    *out = p;
    return ST_OK;
}

void comm_peer_destroy(comm_peer *p)
{
    free(p);
}

static bool can_sum(dtype type, op_reduction reduction)
{
    if (type == DTYPE_F32 || type == DTYPE_BF16 || type == DTYPE_F16) return true;
    const bool is_integer =
        type == DTYPE_I32 || type == DTYPE_U32 || type == DTYPE_I64 || type == DTYPE_U64;
    return is_integer && reduction != REDUCTION_AVG;
}

bool comm_peer_can(const comm_args *args, int ranks)
{
    const int terms = comm_args_terms(args); // which may differ between ranks
    const bool exchanges = args->op == COLLECTIVE_ALL_TO_ALL || args->op == COLLECTIVE_ALL_TO_ALLV;
    if (ranks > DEVICE_PEERS || args->compressed != NULL) return false; // codecs run on the host
    for (int i = 0; i < args->item_count; i++) { // such an exchange goes through stages
        const comm_item *item = &args->items[(int64_t)i * terms];
        if (exchanges && item->in == item->out) return false;
    }
    if (!comm_op_rows[args->op].adds) return true;
    return can_sum(args->type, args->reduction) && args->shards <= DEVICE_SUM_TERMS;
}

static void keep(comm_peer *p, status st)
{
    if (st == ST_OK || p->st != ST_OK) return;
    p->st = st;
    error_take(&p->error);
}

void comm_peer_copy(comm_peer *p, void *to, const void *from, int64_t bytes)
{
    if (p->st == ST_OK && bytes > 0) keep(p, p->api->peers->copy(p->stream, to, from, bytes));
}

static void step_add(device_sum *s, int left, int right, int slot)
{
    ASSERT(s->step_count < DEVICE_SUM_STEPS && slot < DEVICE_SUM_SLOTS);
    s->steps[s->step_count++] =
        (device_sum_step){.left = (int16_t)left, .right = (int16_t)right, .slot = (int16_t)slot};
}

static void steps_make(const comm_reducer *r, device_sum *s)
{
    for (int32_t i = 0; i < r->step_count; i++) {
        const comm_reduce_step *t = &r->steps[i];
        if (t->kind == REDUCE_QUAD) { // slots above its own are free
            step_add(s, t->a, t->a + 1, t->dest);
            step_add(s, t->a + 2, t->a + 3, t->dest + 1);
            step_add(s, ~t->dest, ~(t->dest + 1), t->dest);
        } else {
            step_add(s, t->a, t->b, t->dest);
        }
    }
}

void comm_peer_sum(comm_peer *p, const comm_reducer *r, const comm_reduce_args *args)
{
    device_sum s = {.begin = args->begin,
                    .count = args->count,
                    .scale = r->scale,
                    .terms = r->inputs,
                    .outs = args->outs,
                    .type = (int32_t)r->type,
                    .reduction = (int32_t)r->reduction};
    if (p->st != ST_OK) return;
    ASSERT(r->inputs <= DEVICE_SUM_TERMS && args->outs <= DEVICE_PEERS); // comm_peer_can
    for (int32_t k = 0; k < r->inputs; k++) s.in[k] = args->in[k];
    for (int32_t k = 0; k < args->outs; k++) s.out[k] = args->out[k];
    steps_make(r, &s);
    keep(p, p->api->peers->sum(p->stream, &s));
}

status comm_peer_wait(comm_peer *p)
{
    bool posted = false;
    if (p->st == ST_OK) keep(p, p->api->event_record(p->done, p->stream, &posted));
    if (p->st == ST_OK) keep(p, p->api->event_sync(p->done));
    const status st = p->st;
    p->st = ST_OK;
    return st == ST_OK ? ST_OK : error_put(&p->error);
}
