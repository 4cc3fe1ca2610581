// Operations on streams for transports whose calls block: a host function on the stream runs the
// algorithm.
//
// The posting thread fills a place of the group's ring, and the thread of the stream frees the
// places in the same order. The function waits for peers, so host functions of the device must be
// allowed to wait. Those of the CPU device are; CUDA forbids it.
#include "comm/comm_internal.h"

void comm_busy_begin(comm_group *g)
{
    comm *c = g->owner;
    if (c->config.control_block == NULL) return;
    (void)pthread_mutex_lock(&c->lock);
    if (c->under_way++ == 0) c->busy_since = block_now_ns(c->config.control_block);
    (void)pthread_mutex_unlock(&c->lock);
}

void comm_busy_end(comm_group *g)
{
    comm *c = g->owner;
    if (c->config.control_block == NULL) return;
    (void)pthread_mutex_lock(&c->lock);
    ASSERT(c->under_way > 0);
    if (--c->under_way == 0) c->busy_ns += block_now_ns(c->config.control_block) - c->busy_since;
    (void)pthread_mutex_unlock(&c->lock);
}

int64_t comm_busy_ns(comm_group *g)
{
    comm *c = g->owner;
    (void)pthread_mutex_lock(&c->lock);
    int64_t ns = c->busy_ns;
    if (c->under_way > 0) ns += block_now_ns(c->config.control_block) - c->busy_since;
    (void)pthread_mutex_unlock(&c->lock);
    return ns;
}

int64_t comm_group_worked_ns(const comm_group *g)
{
    return __atomic_load_n(&g->worked_ns, __ATOMIC_RELAXED);
}

static int64_t now_ns(const comm_group *g)
{
    const comm_control_block *block = g->owner->config.control_block;
    return block != NULL ? block_now_ns(block) : 0;
}

static status posted_run(void *context)
{
    comm_posted *p = context;
    comm_group *g = p->group;
    const int64_t began = now_ns(g);
    comm_busy_begin(g);
    const status st = comm_operation_run(g, &g->stream, &p->args, &p->contract, p->posted_ns);
    comm_busy_end(g);
    (void)__atomic_fetch_add(&g->worked_ns, now_ns(g) - began, __ATOMIC_RELAXED);
    __atomic_store_n(&p->busy, 0, __ATOMIC_RELEASE);
    return st;
}

status comm_post_blocking(comm_port *port, const device_api *api, device_stream *stream,
                          const comm_args *args, const comm_contract *contract, bool *posted)
{
    comm_group *g = port->group;
    comm_posted *p = &g->posted[g->posted_next];
    *posted = false;
    if (api->call == NULL) {
        return fail(ST_UNSUPPORTED,
                    "device %s runs no host functions on its streams, and transport %s has no "
                    "other way to post %s",
                    api->name, port->transport->name, op_collective_name(args->op));
    }
    if (__atomic_load_n(&p->busy, __ATOMIC_ACQUIRE) != 0) return ST_OK;
    *p = (comm_posted){
        .group = g, .args = *args, .contract = *contract, .posted_ns = now_ns(g), .busy = 1};
    const status st = api->call(stream, posted_run, p, posted);
    if (*posted) {
        g->posted_next = (g->posted_next + 1) % COMM_MAX_POSTED;
    } else {
        p->busy = 0;
    }
    return st;
}
