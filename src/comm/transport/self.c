// The transport of one rank: no call waits, and every buffer is its own. Groups of one rank use it
// under any transport.
#include "comm/transport/transport_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { REGIONS = 64 };

struct comm_link {
    struct {
        void *at;
        int64_t bytes;
    } regions[REGIONS];
};

typedef struct self_port {
    comm_port base;
    int32_t rank;
    char *name;
    comm_descriptor descriptor;
    comm_list *list;
} self_port;

static bool available(const comm_config *config, const char **why)
{
    *why = config->ranks == 1 ? NULL : "there is more than one rank";
    return config->ranks == 1;
}

static status link_open(const comm_config *config, comm_link **out)
{
    (void)config;
    *out = calloc(1, sizeof(**out));
    return *out != NULL ? ST_OK : fail(ST_NO_MEMORY, "no memory for a link of one rank");
}

static void region_destroy(comm_link *link, int32_t region)
{
    (void)munmap(link->regions[region].at, (size_t)link->regions[region].bytes);
    link->regions[region].bytes = 0;
}

static void link_close(comm_link *link)
{
    if (link == NULL) return;
    for (int i = 0; i < REGIONS; i++) {
        if (link->regions[i].bytes != 0) region_destroy(link, i);
    }
    free(link);
}

static void leave(comm_port *base)
{
    self_port *p = (self_port *)base;
    free(p->list);
    free(p->name);
    free(p);
}

static status join(comm_link *link, const comm_members *members, comm_port **out)
{
    ASSERT(members->count == 1 && members->me == 0);
    self_port *p = calloc(1, sizeof(*p));
    char *name = strdup(members->name);
    if (p == NULL || name == NULL) {
        free(p);
        free(name);
        return fail(ST_NO_MEMORY, "no memory for a group of one rank");
    }
    p->rank = members->ranks[0];
    p->name = name;
    p->base = (comm_port){.transport = &comm_transport_self,
                          .link = link,
                          .members = *members,
                          .inline_bytes = COMM_INLINE_BYTES};
    p->base.members.ranks = &p->rank;
    p->base.members.name = name;
    *out = &p->base;
    return ST_OK;
}

static status arrive(comm_port *base, const comm_descriptor *mine)
{
    // The rest of the payload is not used.
    memcpy(&((self_port *)base)->descriptor, mine,
           offsetof(comm_descriptor, payload) + (size_t)mine->payload_bytes);
    return ST_OK;
}

static const comm_descriptor *descriptor(const comm_port *base, int rank)
{
    (void)rank;
    return &((const self_port *)base)->descriptor;
}

static const void *payload(const comm_port *base, int rank)
{
    return descriptor(base, rank)->payload;
}

static status depart(comm_port *base)
{
    (void)base;
    return ST_OK;
}

static status list_begin(comm_port *base, int64_t entries, comm_list **mine)
{
    self_port *p = (self_port *)base;
    ASSERT(entries <= COMM_MAX_ENTRIES);
    if (p->list == NULL) p->list = calloc(1, sizeof(*p->list));
    if (p->list == NULL) return fail(ST_NO_MEMORY, "no memory for a list of tensors");
    *mine = p->list;
    return ST_OK;
}

static const comm_list *list_of(const comm_port *base, int rank)
{
    (void)rank;
    return ((const self_port *)base)->list;
}

// A place is the address itself.
static comm_place locate(const comm_link *link, const void *at, int64_t bytes)
{
    (void)link;
    (void)bytes;
    if (at == NULL) return (comm_place){.region = COMM_NOWHERE};
    return (comm_place){.region = 0, .offset = (int64_t)(intptr_t)at};
}

static status address(comm_port *port, int rank, comm_place place, int64_t bytes, void **out)
{
    (void)port;
    (void)rank;
    (void)bytes;
    *out = (void *)(intptr_t)place.offset;
    return ST_OK;
}

static status region_create(comm_link *link, int64_t bytes, int32_t *region, void **at)
{
    for (int32_t i = 0; i < REGIONS; i++) {
        if (link->regions[i].bytes != 0) continue;
        const int64_t whole = align_up(max_i64(bytes, 1), 4096);
        void *map =
            mmap(NULL, (size_t)whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED) {
            return fail(ST_NO_MEMORY, "the system gives no %lld bytes: %s", (long long)whole,
                        strerror(errno));
        }
        link->regions[i].at = map;
        link->regions[i].bytes = whole;
        *region = i;
        *at = map;
        return ST_OK;
    }
    return fail(ST_UNSUPPORTED, "a rank may have %d pieces of shared memory", (int)REGIONS);
}

// No call waits here, so there is nothing to end.
static void note_names(comm_port *port, const comm_contract *contract, const char *tensor,
                       const char *site)
{
    (void)port;
    (void)contract;
    (void)tensor;
    (void)site;
}

static status kill_group(comm_port *port)
{
    (void)port;
    return error_last()->code;
}

static void link_stop(comm_link *link, status code, const char *text)
{
    (void)link;
    (void)code;
    (void)text;
}

const comm_transport comm_transport_self = {
    .name = "self",
    .direct = true,
    .available = available,
    .open = link_open,
    .close = link_close,
    .join = join,
    .leave = leave,
    .arrive = arrive,
    .descriptor = descriptor,
    .payload = payload,
    .depart = depart,
    .list_begin = list_begin,
    .list = list_of,
    .address = address,
    .region_create = region_create,
    .region_destroy = region_destroy,
    .locate = locate,
    .post = comm_post_blocking,
    .note = note_names,
    .kill = kill_group,
    .stop = link_stop,
};
