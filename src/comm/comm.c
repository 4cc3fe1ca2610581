// A rank's end of a job: it finds a transport, opens it, and owns the groups.
#include "comm/comm_internal.h"

#include "comm/transport/shm.h"
#include "comm/transport/transport_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORLD_NUMBER = 1, NUMBERED = 16, SPLIT_NUMBER = 1024 };
static const int64_t default_deadline_ns = INT64_C(600) * 1000000000;

static status transport_find(const comm_config *config, const comm_transport **out)
{
    if (config->row != NULL) {
        *out = config->row;
        return ST_OK;
    }
    const bool any = config->transport == NULL || strcmp(config->transport, "auto") == 0;
    char reasons[512] = "";
    int used = 0;
    for (int i = 0; i < comm_transport_count(); i++) {
        const comm_transport *t = comm_transport_table[i];
        const char *why = "";
        if (!any && strcmp(t->name, config->transport) != 0) continue;
        if (t->available(config, &why)) {
            *out = t;
            return ST_OK;
        }
        if (used < (int)sizeof(reasons) - 100) {
            used += snprintf(reasons + used, sizeof(reasons) - (size_t)used, "%s%s: %s",
                             used > 0 ? "; " : "", t->name, why);
        }
    }
    if (used == 0) {
        return fail(ST_CONFIG,
                    "there is no transport \"%s\"; there are auto, self, shm, ucx and mpi",
                    config->transport);
    }
    return fail(ST_UNSUPPORTED, "no transport serves %d ranks, %d of them here: %s", config->ranks,
                config->local_ranks, reasons);
}

int comm_paths(comm_path *out, int capacity)
{
    int count = 0;
    for (int i = 0; i < comm_transport_count() && count < capacity; i++) {
        const comm_transport *t = comm_transport_table[i];
        if (t->probe == NULL) continue;
        comm_path *p = &out[count++];
        *p = (comm_path){.name = t->name, .hosts_apart = t->hosts_apart, .words = ""};
        p->is_there = t->probe(&p->words, &p->cost);
    }
    return count;
}

static status world_open(comm *c)
{
    const int n = c->config.ranks;
    int32_t *ranks = malloc((size_t)n * sizeof(*ranks));
    if (ranks == NULL) return fail(ST_NO_MEMORY, "no memory for the numbers of %d ranks", n);
    for (int i = 0; i < n; i++) ranks[i] = i;
    const status st = comm_group_open(c, ranks, n, WORLD_NUMBER, "world", &c->world);
    free(ranks);
    return st;
}

static status open_parts(comm *c)
{
    TRY(comm_rules_read(c, c->config.tuning));
    TRY(transport_find(&c->config, &c->transport));
    TRY(comm_transport_self.open(&c->config, &c->self));
    if (c->transport == &comm_transport_self) {
        c->link = c->self;
    } else {
        TRY(c->transport->open(&c->config, &c->link));
    }
    return world_open(c);
}

static void release(comm *c)
{
    while (c->groups != NULL) {
        comm_group *g = c->groups;
        c->groups = g->next;
        comm_group_close(g);
    }
    comm_group_close(c->world);
    comm_nccl_watch_end(c->watch);
    if (c->link != c->self && c->link != NULL) c->transport->close(c->link);
    if (c->self != NULL) comm_transport_self.close(c->self);
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
}

status comm_open(const comm_config *config, comm **out)
{
    if (config->ranks < 1 || config->ranks > COMM_MAX_RANKS || config->rank < 0 ||
        config->rank >= config->ranks) {
        return fail(ST_CONFIG_RANGE, "rank %d of %d", config->rank, config->ranks);
    }
    comm *c = calloc(1, sizeof(*c));
    if (c == NULL) return fail(ST_NO_MEMORY, "no memory for the ranks' communication");
    (void)pthread_mutex_init(&c->lock, NULL);
    c->config = *config;
    c->vectors = comm_vectors_of_machine();
    if (c->config.deadline_ns <= 0) c->config.deadline_ns = default_deadline_ns;
    const status st = open_parts(c);
    if (st != ST_OK) {
        release(c);
        return st;
    }
    *out = c;
    return ST_OK;
}

// Peers may still copy from this rank's memory, if the last operation of a group needed no second
// wait. So all ranks wait for each other once more, unless the job has failed.
void comm_close(comm *c)
{
    if (c == NULL) return;
    if (comm_transport_runs(c->transport) && !__atomic_load_n(&c->failed, __ATOMIC_ACQUIRE)) {
        const error_record before = *error_last();
        if (comm_barrier(c->world, "comm_close") != ST_OK) (void)error_put(&before);
    }
    release(c);
}

comm_group *comm_world(comm *c)
{
    return c->world;
}

int comm_rank(const comm *c)
{
    return c->config.rank;
}

int comm_local_rank(const comm *c)
{
    return c->config.local_rank;
}

int comm_local_ranks(const comm *c)
{
    return c->config.local_ranks;
}

int comm_ranks(const comm *c)
{
    return c->config.ranks;
}

const char *comm_transport_name(const comm *c)
{
    return c->transport->name;
}

const char *comm_tuning(const comm *c)
{
    return c->config.tuning;
}

void comm_abort(comm *c, status code, const char *text)
{
    (void)pthread_mutex_lock(&c->lock);
    if (c->aborted.code == ST_OK) {
        c->aborted.code = code;
        (void)snprintf(c->aborted.text, sizeof(c->aborted.text), "%s", text);
    }
    (void)pthread_mutex_unlock(&c->lock);
    __atomic_store_n(&c->failed, true, __ATOMIC_RELEASE);
    comm_nccl_watch_abort(__atomic_load_n(&c->watch, __ATOMIC_ACQUIRE));
    c->transport->stop(c->link, code, text);
}

status comm_abort_check(comm *c)
{
    (void)pthread_mutex_lock(&c->lock);
    const error_record aborted = c->aborted;
    (void)pthread_mutex_unlock(&c->lock);
    return aborted.code == ST_OK ? ST_OK : fail(aborted.code, "%s", aborted.text);
}

int comm_waits_for(comm *c, comm_awaited *out, int capacity)
{
    return c->transport->waits_for == NULL ? 0 : c->transport->waits_for(c->link, out, capacity);
}

// ---- memory -------------------------------------------------------------------------------------
struct comm_memory {
    comm *owner; // NULL: none
    int32_t region;
    void *at;
    comm_pages pages; // while it has no owner
    int64_t bytes;
};

status comm_memory_create(comm *c, int64_t bytes, comm_memory **out)
{
    ASSERT(bytes >= 0);
    comm_memory *m = calloc(1, sizeof(*m));
    if (m == NULL) return fail(ST_NO_MEMORY, "no memory for a piece of shared memory");
    m->owner = c;
    m->bytes = bytes;
    const status st = c->transport->region_create(c->link, bytes, &m->region, &m->at);
    if (st != ST_OK) {
        free(m);
        return st;
    }
    *out = m;
    return ST_OK;
}

void *comm_memory_at(const comm_memory *m)
{
    return m->at;
}

int64_t comm_memory_bytes(const comm_memory *m)
{
    return m->bytes;
}

void comm_memory_destroy(comm_memory *m)
{
    if (m == NULL) return;
    if (m->owner != NULL) {
        m->owner->transport->region_destroy(m->owner->link, m->region);
    } else {
        shm_pages_free(&m->pages);
    }
    free(m);
}

bool comm_memory_leave(comm_memory *m)
{
    comm *c = m->owner;
    if (c == NULL) return true;
    if (c->transport->region_leave == NULL) return false;
    c->transport->region_leave(c->link, m->region, &m->pages);
    m->owner = NULL;
    return true;
}

status comm_memory_join(comm *c, comm_memory *m)
{
    ASSERT(m->owner == NULL);
    if (c->transport->region_join == NULL) {
        return fail(ST_UNSUPPORTED, "transport %s cannot take memory", c->transport->name);
    }
    TRY(c->transport->region_join(c->link, &m->pages, &m->region));
    m->owner = c;
    return ST_OK;
}

status comm_memory_create_apart(int64_t bytes, comm_memory **out)
{
    comm_memory *m = calloc(1, sizeof(*m));
    if (m == NULL) return fail(ST_NO_MEMORY, "no memory for a piece of shared memory");
    const status st = shm_pages_make(bytes, &m->pages);
    if (st != ST_OK) {
        free(m);
        return st;
    }
    m->at = m->pages.at;
    m->bytes = bytes;
    *out = m;
    return ST_OK;
}

// ---- groups -------------------------------------------------------------------------------------
static void keep(comm *c, comm_group *g)
{
    (void)pthread_mutex_lock(&c->lock);
    g->next = c->groups;
    c->groups = g;
    (void)pthread_mutex_unlock(&c->lock);
}

status comm_group_create(comm *c, const int32_t *members, int count, int number, const char *name,
                         comm_group **out)
{
    int me = -1;
    for (int i = 0; i < count; i++) {
        if (members[i] < 0 || members[i] >= c->config.ranks ||
            (i > 0 && members[i] <= members[i - 1])) {
            return fail(ST_INTERNAL, "group %s: rank %d is no member in place %d of %d", name,
                        members[i], i, count);
        }
        if (members[i] == c->config.rank) me = i;
    }
    if (me < 0 || number < 0 || number > 255) {
        return fail(ST_INTERNAL, "rank %d makes group %s, number %d, without being in it",
                    c->config.rank, name, number);
    }
    TRY(comm_group_open(c, members, count, NUMBERED + (uint32_t)number, name, out));
    keep(c, *out);
    return ST_OK;
}

status comm_split(comm *c, int color, const char *name, comm_group **out)
{
    const int n = c->config.ranks;
    const int32_t mine = color < 0 ? -1 : color;
    int32_t *colors = malloc((size_t)n * sizeof(*colors) * 2);
    if (colors == NULL) return fail(ST_NO_MEMORY, "no memory for the colours of %d ranks", n);
    int32_t *members = colors + n;
    const comm_item item = {.in = &mine, .out = colors, .count = 1};
    const comm_args args = {.op = COLLECTIVE_ALL_GATHER,
                            .type = DTYPE_I32,
                            .items = &item,
                            .item_count = 1,
                            .tensor = name,
                            .site = "comm_split",
                            .step = -1};
    status st = comm_run(c->world, &args);
    int count = 0;
    for (int i = 0; i < n && st == ST_OK; i++) {
        if (colors[i] == mine) members[count++] = i;
    }
    comm_group *g = NULL;
    const uint32_t number = SPLIT_NUMBER + (uint32_t)c->splits++;
    if (st == ST_OK && mine >= 0) st = comm_group_open(c, members, count, number, name, &g);
    free(colors);
    TRY(st);
    if (g != NULL) keep(c, g);
    *out = g;
    return ST_OK;
}

void comm_group_destroy(comm_group *g)
{
    if (g == NULL) return;
    comm *c = g->owner;
    (void)pthread_mutex_lock(&c->lock);
    for (comm_group **at = &c->groups; *at != NULL; at = &(*at)->next) {
        if (*at != g) continue;
        *at = g->next;
        break;
    }
    (void)pthread_mutex_unlock(&c->lock);
    comm_group_close(g);
}

int comm_group_rank(const comm_group *g)
{
    return g->rank;
}

int comm_group_size(const comm_group *g)
{
    return g->size;
}

const char *comm_group_name(const comm_group *g)
{
    return g->name;
}
