// The transport over MPI: messages through the library of a site, whose launcher starts the ranks.
//
// Ranks of the job are those of MPI_COMM_WORLD. Every message goes through MPI, also within a host.
// Each group has its own tags; contracts, checksums and names are sent in frames, as over UCX.
// mpi_exchange.c has the messages and the notes.
//
// A process can initialise MPI only once, and MPI survives no failure. After a failure it is not
// finalised, and its launcher ends the other ranks.
#include "comm/transport/mpi.h"
#include "comm/transport/transport_table.h"

#if TRIREME_HAVE_MPI
#    include "base/fault.h"
#    include "base/hash.h"

#    include <signal.h>
#    include <stdlib.h>
#    include <string.h>

_Static_assert(sizeof(mpi_parcel) == MPI_FRAME_BYTES, "a frame and what it carries");

static bool available(const comm_config *config, const char **why)
{
    mpi_library unused;
    (void)config;
    return mpi_library_open(&unused, why);
}

static bool probe(const char **words, const char **cost)
{
    mpi_library unused;
    (void)cost;
    if (!mpi_library_open(&unused, words)) return false;
    *words = "between ranks that mpirun started, by Open MPI (comm.transport = mpi)";
    return true;
}

status mpi_refused(const comm_link *link, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "?";
    int length = 0;
    (void)link->mpi.Error_string(code, text, &length);
    return fail(ST_DEVICE, "%s: MPI says \"%s\"", what, text);
}

// ---- opening -----------------------------------------------------------------------------------
// MPI installs handlers for these signals, which print a stack trace; the program has its own.
static int begin_quietly(comm_link *link)
{
    static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction before[COUNT_OF(signals)];
    int level = 0;
    for (int64_t i = 0; i < COUNT_OF(signals); i++) (void)sigaction(signals[i], NULL, &before[i]);
    const int code = link->mpi.Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    for (int64_t i = 0; i < COUNT_OF(signals); i++) (void)sigaction(signals[i], &before[i], NULL);
    return code != MPI_SUCCESS || level >= MPI_THREAD_SERIALIZED ? code : MPI_ERR_OTHER;
}

static status world_check(const comm_link *link)
{
    int rank = -1, ranks = 0;
    (void)link->mpi.Comm_set_errhandler(link->mpi.world, link->mpi.errors_return);
    int code = link->mpi.Comm_rank(link->mpi.world, &rank);
    if (code == MPI_SUCCESS) code = link->mpi.Comm_size(link->mpi.world, &ranks);
    if (code != MPI_SUCCESS) return mpi_refused(link, "no ranks", code);
    if (rank == link->config.rank && ranks == link->config.ranks) return ST_OK;
    return fail(ST_UNSUPPORTED,
                "this is rank %d of %d, and for MPI rank %d of %d; start all ranks with mpirun "
                "-n %d, or leave comm.transport to auto",
                link->config.rank, link->config.ranks, rank, ranks, link->config.ranks);
}

static status mpi_begin(comm_link *link)
{
    const char *why = NULL;
    int is_begun = 0, is_over = 0;
    TRY(fault_point("comm.mpi.open"));
    if (!mpi_library_open(&link->mpi, &why)) return fail(ST_UNSUPPORTED, "%s", why);
    (void)link->mpi.Initialized(&is_begun);
    (void)link->mpi.Finalized(&is_over);
    if (is_over != 0) {
        return fail(ST_UNSUPPORTED, "MPI was ended in this process and cannot begin again");
    }
    if (is_begun == 0) {
        const int code = begin_quietly(link);
        if (code != MPI_SUCCESS) return mpi_refused(link, "it does not begin", code);
    }
    link->begun = true;
    return world_check(link);
}

static void port_free(mpi_port *p)
{
    free(p);
}

static void link_close(comm_link *link)
{
    if (link == NULL) return;
    ASSERT(link->ports == NULL);
    const bool whole =
        !link->has_failed && link->failure.code == ST_OK && link->closed_ports == NULL;
    (void)pthread_mutex_lock(&link->lock);
    if (link->begun && whole) (void)link->mpi.Finalize();
    (void)pthread_mutex_unlock(&link->lock);
    if (link->memory != NULL) comm_transport_self.close(link->memory);
    if (!whole) return; // MPI may still look at the rest
    (void)pthread_mutex_destroy(&link->lock);
    while (link->notes != NULL) {
        mpi_sent_note *n = link->notes;
        link->notes = n->next;
        free(n);
    }
    free(link);
}

static status link_open(const comm_config *config, comm_link **out)
{
    comm_link *link = calloc(1, sizeof(*link));
    if (link == NULL) return fail(ST_NO_MEMORY, "no memory for a link over MPI");
    link->config = *config;
    (void)pthread_mutex_init(&link->lock, NULL);
    status st = comm_transport_self.open(config, &link->memory);
    if (st == ST_OK) st = mpi_begin(link);
    if (st == ST_OK) {
        *out = link;
        return ST_OK;
    }
    link_close(link);
    return st;
}

// ---- ports -------------------------------------------------------------------------------------
static void leave(comm_port *base)
{
    mpi_port *p = mpi_port_of(base);
    comm_link *link = base->link;
    (void)pthread_mutex_lock(&link->lock);
    for (mpi_port **at = &link->ports; *at != NULL; at = &(*at)->next) {
        if (*at != p) continue;
        *at = p->next;
        break;
    }
    if (p->busy) { // something may still be written to it
        p->next = link->closed_ports;
        link->closed_ports = p;
        p = NULL;
    }
    (void)pthread_mutex_unlock(&link->lock);
    if (p != NULL) port_free(p);
}

// One allocation: the port, its members' ranks, its name.
static mpi_port *port_make(comm_link *link, const comm_members *m)
{
    const size_t count = (size_t)m->count, name_bytes = strlen(m->name) + 1;
    mpi_port *p = calloc(1, sizeof(*p) + count * sizeof(int32_t) + name_bytes);
    if (p == NULL) return NULL;
    int32_t *ranks = (int32_t *)(void *)(p + 1);
    memcpy(ranks, m->ranks, count * sizeof(*ranks));
    memcpy(ranks + count, m->name, name_bytes);
    p->base = (comm_port){.transport = &comm_transport_mpi, .link = link, .members = *m};
    p->base.members.ranks = ranks;
    p->base.members.name = (const char *)(ranks + count);
    p->key = hash64(m->ranks, m->count * (int64_t)sizeof(*m->ranks),
                    (uint64_t)link->config.epoch << 32 | m->group);
    p->tag = (int)(p->key % MPI_TAG_GROUPS) * MPI_TAG_KINDS;
    return p;
}

static status join(comm_link *link, const comm_members *m, comm_port **out)
{
    TRY(fault_point("comm.mpi.join"));
    mpi_port *p = port_make(link, m);
    if (p == NULL) return fail(ST_NO_MEMORY, "no memory for a group of %d ranks", m->count);
    bool is_taken = false;
    (void)pthread_mutex_lock(&link->lock);
    for (const mpi_port *o = link->ports; o != NULL; o = o->next) {
        is_taken = is_taken || o->tag == p->tag;
    }
    if (!is_taken) {
        p->next = link->ports;
        link->ports = p;
    }
    (void)pthread_mutex_unlock(&link->lock);
    if (is_taken) {
        port_free(p);
        return fail(ST_UNSUPPORTED, "group %s has the tag of another one over MPI", m->name);
    }
    *out = &p->base;
    return ST_OK;
}

static status region_create(comm_link *link, int64_t bytes, int32_t *region, void **at)
{
    return comm_transport_self.region_create(link->memory, bytes, region, at);
}

static void region_destroy(comm_link *link, int32_t region)
{
    comm_transport_self.region_destroy(link->memory, region);
}

const comm_transport comm_transport_mpi = {
    .name = "mpi",
    .messages = true,
    .hosts_apart = true,
    .available = available,
    .probe = probe,
    .open = link_open,
    .close = link_close,
    .join = join,
    .leave = leave,
    .region_create = region_create,
    .region_destroy = region_destroy,
    .exchange = mpi_exchange,
    .post = comm_post_blocking,
    .note = mpi_note_contract,
    .kill = mpi_kill,
    .stop = mpi_stop,
};
#else
static bool available(const comm_config *config, const char **why)
{
    (void)config;
    *why = "this program was built without Open MPI; apt install libopenmpi-dev and build it again";
    return false;
}

static bool probe(const char **words, const char **cost)
{
    (void)cost;
    return available(NULL, words);
}

const comm_transport comm_transport_mpi = {
    .name = "mpi", .hosts_apart = true, .available = available, .probe = probe};
#endif
