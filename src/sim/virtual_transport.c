// The transport between virtual devices: post() puts a collective on a stream for the time it
// costs.
//
// A link is one rank's end. Only simulated members of a group count: if this rank is the only one,
// its collectives are plain work; otherwise they begin when the streams of all simulated members
// have arrived.
#include "base/hash.h"
#include "comm/transport/transport.h"
#include "sim/virtual.h"

#include <stdlib.h>
#include <string.h>

struct comm_link {
    const virtual_network *network;
};

typedef struct virtual_port {
    comm_port base;
    virtual_rendezvous *rendezvous; // NULL: no other member is simulated
} virtual_port;

static bool available(const comm_config *config, const char **why)
{
    (void)config;
    (void)why;
    return true;
}

static status link_open(const comm_config *config, comm_link **out)
{
    comm_link *link = calloc(1, sizeof(*link));
    if (link == NULL) return fail(ST_NO_MEMORY, "no memory for a virtual link");
    link->network = config->row_context;
    *out = link;
    return ST_OK;
}

static void link_close(comm_link *link)
{
    free(link);
}

static bool is_member(const comm_members *m, int32_t rank)
{
    int begin = 0, end = m->count;
    while (begin < end) {
        const int middle = begin + (end - begin) / 2;
        if (m->ranks[middle] < rank) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin < m->count && m->ranks[begin] == rank;
}

// The port keeps no copy of the members: groups have up to 100,000, and no operation reads them.
static status join(comm_link *link, const comm_members *m, comm_port **out)
{
    const virtual_network *network = link->network;
    virtual_port *p = calloc(1, sizeof(*p));
    if (p == NULL) return fail(ST_NO_MEMORY, "no memory for a virtual group");
    p->base = (comm_port){.transport = &virtual_transport, .link = link};
    p->base.members = (comm_members){.count = m->count, .me = m->me, .group = m->group};
    int32_t simulated = 0;
    for (int32_t i = 0; i < network->simulated_count; i++) {
        simulated += is_member(m, network->simulated[i]);
    }
    // Two links in opposite directions have the same members and number; their names differ.
    const uint64_t name = hash64(m->name, (int64_t)strlen(m->name), m->group);
    const uint64_t key = hash64(m->ranks, m->count * (int64_t)sizeof(*m->ranks), name);
    status st = ST_OK;
    if (simulated > 1) st = virtual_rendezvous_find(network->world, key, simulated, &p->rendezvous);
    if (st != ST_OK) {
        free(p);
        return st;
    }
    *out = &p->base;
    return ST_OK;
}

static void leave(comm_port *port)
{
    free(port);
}

static status post(comm_port *port, const device_api *api, device_stream *stream,
                   const comm_args *args, const comm_contract *contract, bool *posted)
{
    const virtual_network *network = port->link->network;
    ASSERT(api == &virtual_device && contract->count >= 0);
    const virtual_price price = network->price(network->context, args);
    virtual_collective(stream, ((virtual_port *)port)->rendezvous, price.ns, price.tail, posted);
    if (!*posted) return ST_OK;
    network->clock->held_ns += price.held;
    network->clock->sent_ns += price.sent;
    return ST_OK;
}

// No thread waits here, so there is nothing to stop.
static status kill_group(comm_port *port)
{
    (void)port;
    return error_last()->code;
}

static void stop(comm_link *link, status code, const char *words)
{
    (void)link;
    (void)code;
    (void)words;
}

const comm_transport virtual_transport = {
    .name = "virtual",
    .hosts_apart = true,
    .available = available,
    .open = link_open,
    .close = link_close,
    .join = join,
    .leave = leave,
    .post = post,
    .kill = kill_group,
    .stop = stop,
};
