// The transport between hosts: messages over UCX (InfiniBand, RoCE or TCP), and shared memory
// within a host.
//
// Every rank has one worker. The members of a group exchange the addresses of their workers over
// `control` when they join, and two ranks connect at their first message. A group whose ranks are
// all on one host uses the transport of shared memory; in other groups, messages between ranks of
// one host do.
//
//   ucx_exchange.c   messages: a frame with the contract, then the bytes; checksums
//   ucx_watch.c      notes (control messages): liveness, failures; detection of silent peers
//
// One thread at a time calls UCX, under the link's lock. A thread of the link, the pulse, calls it
// ten times a second while no other thread does, so this rank answers questions while it computes:
// a peer that does not answer is gone, cut off or stopped.
#include "comm/transport/ucx.h"
#include "comm/transport/transport_table.h"

#if TRIREME_HAVE_UCX
#    include "base/fault.h"
#    include "base/hash.h"

#    include <errno.h>
#    include <glob.h>
#    include <stdlib.h>
#    include <string.h>
#    include <sys/mman.h>
#    include <sys/resource.h>
#    include <unistd.h>

_Static_assert(sizeof(ucx_record) == 4096, "a record is one page");
_Static_assert(sizeof(ucx_parcel) == UCX_FRAME_BYTES, "a frame and what it carries");

enum { RANK_BITS = 20, SPINS = 2000 };

static bool glob_any(const char *pattern)
{
    glob_t found;
    const bool any = glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
    if (any) globfree(&found);
    return any;
}

static bool available(const comm_config *config, const char **why)
{
    ucx_library unused;
    *why = "the ranks' addresses cannot be traded";
    return config->swap != NULL && ucx_library_open(&unused, why);
}

// UCX silently ignores a host channel adapter that a container does not show, or whose memory may
// not be locked. Ranks then use TCP.
static bool probe(const char **words, const char **cost)
{
    ucx_library unused;
    struct rlimit locked;
    if (!ucx_library_open(&unused, words)) return false;
    const bool has_adapter = glob_any("/sys/class/infiniband/*");
    const bool is_usable = has_adapter && glob_any("/dev/infiniband/uverbs*");
    const bool may_lock = geteuid() == 0 || (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 &&
                                             locked.rlim_cur == RLIM_INFINITY);
    *words = is_usable && may_lock ? "between hosts, by InfiniBand or RoCE"
             : has_adapter         ? "between hosts, by TCP in place of InfiniBand or RoCE"
                                   : "between hosts, by TCP (no InfiniBand or RoCE here)";
    if (has_adapter && !is_usable) {
        *cost =
            "TCP gives about 2 GB/s a link, an adapter of 100 Gbit/s 12: show /dev/infiniband to this container";
    } else if (has_adapter && !may_lock) {
        *cost = "TCP gives about 2 GB/s a link, an adapter of 100 Gbit/s 12: ulimit -l unlimited";
    }
    return true;
}

static status refused(const comm_link *link, const char *what, ucs_status_t st)
{
    return fail(ST_DEVICE, "%s: UCX says \"%s\"", what, link->ucp.status_text(st));
}

// ---- opening -----------------------------------------------------------------------------------
static ucs_status_t on_note(void *argument, const void *header, size_t header_bytes, void *data,
                            size_t bytes, const ucp_am_recv_param_t *param)
{
    (void)header;
    (void)header_bytes;
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) ucx_note_take(argument, data, bytes);
    return UCS_OK;
}

// Over TCP bytes are copied in any case, and a request for each piece costs a third of the speed,
// so pieces are sent without one; ucx_exchange.c bounds their number. With InfiniBand, or if the
// user set it, UCX decides.
static void send_at_once(const comm_link *link, ucp_config_t *config)
{
    char text[32 << 10] = "";
    FILE *stream =
        glob_any("/sys/class/infiniband/*") ? NULL : fmemopen(text, sizeof(text) - 1, "w");
    if (stream == NULL) return;
    link->ucp.config_print(config, stream, NULL, UCS_CONFIG_PRINT_CONFIG);
    (void)fclose(stream);
    if (strstr(text, "UCX_RNDV_THRESH=auto\n") == NULL) return;
    (void)link->ucp.config_modify(config, "RNDV_THRESH", "inf"); // a wish
}

static status context_open(comm_link *link)
{
    ucp_config_t *config = NULL;
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES |
                                               UCP_PARAM_FIELD_MT_WORKERS_SHARED |
                                               UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                                 .features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                                 .mt_workers_shared = 1,
                                 .estimated_num_eps = (size_t)link->config.ranks};
    ucs_status_t st = link->ucp.config_read(NULL, NULL, &config);
    if (st != UCS_OK) return refused(link, "its settings cannot be read", st);
    send_at_once(link, config);
    st = link->ucp.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &link->context);
    link->ucp.config_release(config);
    return st == UCS_OK ? ST_OK : refused(link, "no context", st);
}

static status worker_open(comm_link *link)
{
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = 1,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = on_note,
        .arg = link};
    ucs_status_t st = link->ucp.worker_create(link->context, &params, &link->worker);
    if (st == UCS_OK) st = link->ucp.worker_set_am_recv_handler(link->worker, &handler);
    if (st == UCS_OK) st = link->ucp.worker_get_efd(link->worker, &link->efd);
    return st == UCS_OK ? ST_OK : refused(link, "no worker", st);
}

// Makes this rank's record. A rank without a worker still gives its host.
static status record_make(comm_link *link, ucx_record *mine)
{
    ucp_address_t *address = NULL;
    size_t bytes = 0;
    const char *name = link->config.host != NULL ? link->config.host : "?";
    mine->machine = link->config.machine;
    memcpy(mine->host, name, (size_t)min_i64((int64_t)strlen(name), UCX_HOST - 1));
    if (link->unusable.code != ST_OK) return error_put(&link->unusable);
    const ucs_status_t st = link->ucp.worker_get_address(link->worker, &address, &bytes);
    if (st != UCS_OK) return refused(link, "no address", st);
    mine->address_bytes = (int32_t)bytes;
    if (bytes <= UCX_ADDRESS) memcpy(mine->address, address, bytes);
    link->ucp.worker_release_address(link->worker, address);
    if (bytes <= UCX_ADDRESS) return ST_OK;
    return fail(ST_UNSUPPORTED,
                "this rank's address has %zu bytes, %d can be; name fewer networks in "
                "UCX_NET_DEVICES",
                bytes, (int)UCX_ADDRESS);
}

static status neighbours_check(const comm_link *link)
{
    int local = 0;
    const ucx_record *mine = &link->records[link->config.rank];
    for (int i = 0; i < link->config.ranks; i++) local += link->records[i].machine == mine->machine;
    if (link->inner == NULL || local == link->config.local_ranks) return ST_OK;
    return fail(ST_DIVERGED, "%d ranks are on %s, and %d share its memory", local, mine->host,
                link->config.local_ranks);
}

static status record_take(comm_link *link, int rank, const ucx_record *record)
{
    ucx_record *mine = &link->records[rank];
    *mine = *record;
    mine->host[UCX_HOST - 1] = '\0';
    if (mine->failed != 0) {
        return fail(ST_PEER_LOST, "rank %d (%s) has no way to other hosts", rank, mine->host);
    }
    if (mine->address_bytes >= 1 && mine->address_bytes <= UCX_ADDRESS) return ST_OK;
    return fail(ST_DIVERGED, "rank %d gives an address of %d bytes", rank, mine->address_bytes);
}

// Exchanges the records of a group's members. A member that failed takes part too, or the others
// would wait for it.
static status records_exchange(comm_link *link, const comm_members *m)
{
    if (link->knows_all) return ST_OK;
    ucx_record *mine = calloc((size_t)m->count + 1, sizeof(*mine)), *records = mine + 1;
    if (mine == NULL)
        return fail(ST_NO_MEMORY, "no memory for the addresses of %d ranks", m->count);
    status st = record_make(link, mine);
    const error_record before = *error_last();
    mine->failed = st != ST_OK;
    const status traded =
        comm_members_swap(&link->config, m, mine, (int64_t)sizeof(*mine), records);
    if (st != ST_OK) {
        (void)error_put(&before);
    } else {
        st = traded;
    }
    (void)pthread_mutex_lock(&link->lock);
    for (int i = 0; i < m->count && st == ST_OK; i++) {
        st = record_take(link, m->ranks[i], &records[i]);
    }
    (void)pthread_mutex_unlock(&link->lock);
    free(mine);
    TRY(st);
    if (m->count < link->config.ranks) return ST_OK;
    link->knows_all = true;
    return neighbours_check(link);
}

static status inner_open(comm_link *link)
{
    const comm_config *config = &link->config;
    if (config->control_block == NULL || config->local_ranks < 2 || config->machine == 0)
        return ST_OK;
    return comm_transport_shm.open(config, &link->inner);
}

static status pulse_start(comm_link *link)
{
    if (pthread_create(&link->pulse, NULL, ucx_pulse_main, link) != 0) {
        return fail(ST_NO_MEMORY, "no thread for the link to other hosts");
    }
    link->pulse_runs = true;
    return ST_OK;
}

// ---- closing -----------------------------------------------------------------------------------
// No rank may close a connection that its peer still needs, so each sends a goodbye and waits a
// while for those of its peers.
static bool goodbye(comm_link *link)
{
    const int64_t begin = ucx_now(link), most_ns = INT64_C(2000000000);
    const ucx_note bye = {.word = UCX_BYE, .from = link->config.rank};
    for (int i = 0; i < link->config.ranks; i++) {
        ucx_peer *p = &link->peers[i];
        if (p->ep == NULL || p->gone || p->said_bye) continue;
        p->said_bye = true;
        ucx_note_send(link, i, &bye);
    }
    bool all = false;
    while (!all && ucx_now(link) - begin < most_ns) {
        if (!ucx_pump(link)) link->config.h->api->sleep_ns(link->config.h, 50000);
        all = link->notes == 0;
        for (int i = 0; i < link->config.ranks && all; i++) {
            const ucx_peer *p = &link->peers[i];
            all = p->ep == NULL || p->gone || p->bye;
        }
    }
    return all;
}

static void port_free(ucx_port *p)
{
    free(p->inner_of);
    free(p->begun);
    free(p);
}

static void pulse_stop(comm_link *link)
{
    if (!link->pulse_runs) return;
    (void)pthread_mutex_lock(&link->lock);
    link->pulse_ends = true;
    (void)pthread_cond_signal(&link->pulse_wakes);
    (void)pthread_mutex_unlock(&link->lock);
    (void)pthread_join(link->pulse, NULL);
}

// UCX 1.13 aborts the process if a worker is destroyed whose connections are not all open, or not
// all closed. So after a failure the worker stays until the process ends.
static bool worker_close(comm_link *link)
{
    bool whole = link->failure.code == ST_OK && !link->has_failed && link->closed_ports == NULL;
    (void)pthread_mutex_lock(&link->lock);
    if (whole && link->pulse_runs) whole = goodbye(link);
    for (int i = 0; link->pulse_runs && i < link->config.ranks; i++)
        ucx_peer_close(&link->peers[i]);
    (void)pthread_mutex_unlock(&link->lock);
    if (whole && link->worker != NULL) link->ucp.worker_destroy(link->worker);
    if (whole && link->context != NULL) link->ucp.cleanup(link->context);
    return whole;
}

static void link_close(comm_link *link)
{
    if (link == NULL) return;
    ASSERT(link->ports == NULL);
    pulse_stop(link);
    const bool whole = worker_close(link);
    while (link->closed_ports != NULL && whole) {
        ucx_port *p = link->closed_ports;
        link->closed_ports = p->next;
        port_free(p);
    }
    if (link->inner != NULL) comm_transport_shm.close(link->inner);
    for (int i = 0; i < UCX_REGIONS; i++) {
        if (link->regions[i].bytes > 0) {
            (void)munmap(link->regions[i].at, (size_t)link->regions[i].bytes);
        }
    }
    if (!whole) return; // UCX may still look at the rest
    (void)pthread_cond_destroy(&link->pulse_wakes);
    (void)pthread_mutex_destroy(&link->lock);
    free(link->records);
    free(link->peers);
    free(link);
}

static status tables_make(comm_link *link)
{
    const int n = link->config.ranks;
    link->records = calloc((size_t)n, sizeof(*link->records));
    link->peers = calloc((size_t)n, sizeof(*link->peers));
    if (link->records == NULL || link->peers == NULL) {
        return fail(ST_NO_MEMORY, "no memory for the addresses of %d ranks", n);
    }
    for (int i = 0; i < n; i++) link->peers[i] = (ucx_peer){.link = link, .rank = i};
    return ST_OK;
}

static status link_start(comm_link *link)
{
    const char *why = NULL;
    TRY(fault_point("comm.ucx.open"));
    if (!ucx_library_open(&link->ucp, &why)) return fail(ST_UNSUPPORTED, "%s", why);
    TRY(context_open(link));
    TRY(worker_open(link));
    TRY(inner_open(link));
    return pulse_start(link);
}

// A rank that cannot start gets a link, too: the first group that it joins learns of its failure.
static status link_open(const comm_config *config, comm_link **out)
{
    comm_link *link = calloc(1, sizeof(*link));
    status st = ST_OK;
    if (link == NULL) return fail(ST_NO_MEMORY, "no memory for a link between hosts");
    link->config = *config;
    link->spins = SPINS;
    (void)pthread_mutex_init(&link->lock, NULL);
    (void)pthread_cond_init(&link->pulse_wakes, NULL);
    TRY_TO(close_link, tables_make(link));
    if (link_start(link) != ST_OK) error_take(&link->unusable);
    *out = link;
    return ST_OK;
close_link:
    link_close(link);
    return st;
}

// ---- ports -------------------------------------------------------------------------------------
static void leave(comm_port *base)
{
    ucx_port *p = ucx_port_of(base);
    comm_link *link = base->link;
    if (p->across != NULL) leave(p->across);
    if (p->inner != NULL) comm_transport_shm.leave(p->inner);
    (void)pthread_mutex_lock(&link->lock);
    for (ucx_port **at = &link->ports; *at != NULL; at = &(*at)->next) {
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
static ucx_port *port_make(comm_link *link, const comm_members *m)
{
    const size_t count = (size_t)m->count, name_bytes = strlen(m->name) + 1;
    ucx_port *p = calloc(1, sizeof(*p) + count * sizeof(int32_t) + name_bytes);
    if (p == NULL) return NULL;
    int32_t *ranks = (int32_t *)(void *)(p + 1);
    memcpy(ranks, m->ranks, count * sizeof(*ranks));
    memcpy(ranks + count, m->name, name_bytes);
    p->base = (comm_port){.transport = &comm_transport_ucx, .link = link, .members = *m};
    p->base.members.ranks = ranks;
    p->base.members.name = (const char *)(ranks + count);
    p->key = hash64(m->ranks, m->count * (int64_t)sizeof(*m->ranks),
                    (uint64_t)link->config.epoch << 32 | m->group)
                 << (RANK_BITS + 1) >>
             1; // the highest bit is that of UCX_READY
    p->inner_of = malloc(count * sizeof(*p->inner_of));
    p->begun = calloc(count, sizeof(*p->begun));
    if (p->inner_of == NULL || p->begun == NULL) {
        port_free(p);
        return NULL;
    }
    return p;
}

// Lists the members on this host in `ranks` and returns their number.
static int neighbours(const comm_link *link, const comm_members *m, int32_t *ranks, int *inner_of,
                      int *me)
{
    const uint64_t machine = link->records[link->config.rank].machine;
    int count = 0;
    for (int i = 0; i < m->count; i++) {
        inner_of[i] = -1;
        if (link->inner == NULL || link->records[m->ranks[i]].machine != machine) continue;
        if (i == m->me) *me = count;
        inner_of[i] = count;
        ranks[count++] = m->ranks[i];
    }
    return count;
}

// Makes the number of a part of a group. It differs from those of other groups' parts and from all
// numbers of callers.
enum { PART_HERE = 2, PART_ACROSS = 3 };
static uint32_t part_number(const comm_members *whole, uint32_t part)
{
    const uint64_t hash = hash64(whole->ranks, whole->count * (int64_t)sizeof(*whole->ranks),
                                 (uint64_t)part << 32 | whole->group);
    return part << 30 | (uint32_t)(hash & 0x3fffffff);
}

// Opens a port of members that all know each other's addresses.
static status port_open(comm_link *link, const comm_members *m, comm_port **out)
{
    TRY(fault_point("comm.ucx.join"));
    ucx_port *p = port_make(link, m);
    int32_t *ranks = malloc((size_t)m->count * sizeof(*ranks));
    status st = ST_OK;
    if (p == NULL || ranks == NULL) {
        st = fail(ST_NO_MEMORY, "no memory for a group of %d ranks", m->count);
        goto drop;
    }
    comm_members here = *m;
    here.count = neighbours(link, m, ranks, p->inner_of, &here.me);
    here.ranks = ranks;
    if (here.count == m->count) { // all on this host
        st = comm_transport_shm.join(link->inner, &here, out);
        goto drop;
    }
    here.group = part_number(m, PART_HERE);
    if (here.count > 1) TRY_TO(drop, comm_transport_shm.join(link->inner, &here, &p->inner));
    (void)pthread_mutex_lock(&link->lock);
    p->next = link->ports;
    link->ports = p;
    (void)pthread_mutex_unlock(&link->lock);
    free(ranks);
    *out = &p->base;
    return ST_OK;
drop:
    if (p != NULL) port_free(p);
    free(ranks);
    return st;
}

static status join(comm_link *link, const comm_members *m, comm_port **out)
{
    TRY(records_exchange(link, m));
    return port_open(link, m, out);
}

// Returns the number of members per host if all hosts have the same number, with neighbouring
// numbers; else 0.
static int ranks_per_host(const ucx_port *p)
{
    const comm_link *link = p->base.link;
    const comm_members *m = &p->base.members;
    const int here = p->inner != NULL ? p->inner->members.count : 0;
    if (here < 2 || m->count % here != 0) return 0;
    for (int i = 0; i < m->count; i++) {
        const uint64_t first = link->records[m->ranks[i / here * here]].machine;
        if (link->records[m->ranks[i]].machine != first) return 0;
        if (i % here == 0 && i > 0 && link->records[m->ranks[i - 1]].machine == first) return 0;
    }
    return here;
}

static status levels(comm_port *base, comm_port **local, comm_port **across)
{
    ucx_port *p = ucx_port_of(base);
    const int here = ranks_per_host(p);
    *local = *across = NULL;
    if (here == 0) return ST_OK;
    const int hosts = base->members.count / here, number = p->inner->members.me;
    int32_t *ranks = malloc((size_t)hosts * sizeof(*ranks));
    if (ranks == NULL) return fail(ST_NO_MEMORY, "no memory for a group of %d hosts", hosts);
    for (int h = 0; h < hosts; h++) ranks[h] = base->members.ranks[h * here + number];
    const comm_members m = {.ranks = ranks,
                            .count = hosts,
                            .me = base->members.me / here,
                            .group = part_number(&base->members, PART_ACROSS),
                            .name = base->members.name};
    const status st = port_open(base->link, &m, &p->across);
    free(ranks);
    TRY(st);
    *local = p->inner;
    *across = p->across;
    return ST_OK;
}

// ---- memory: what the ranks of this host share, if there are several ---------------------------
static status region_create(comm_link *link, int64_t bytes, int32_t *region, void **at)
{
    if (link->inner != NULL)
        return comm_transport_shm.region_create(link->inner, bytes, region, at);
    for (int32_t i = 0; i < UCX_REGIONS; i++) {
        if (link->regions[i].bytes != 0) continue;
        const int64_t whole = align_up(max_i64(bytes, 1), 4096);
        void *map =
            mmap(NULL, (size_t)whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED) {
            return fail(ST_NO_MEMORY, "the system gives no %lld bytes: %s", (long long)whole,
                        strerror(errno));
        }
        link->regions[i] = (ucx_region){map, whole};
        *region = i;
        *at = map;
        return ST_OK;
    }
    return fail(ST_UNSUPPORTED, "a rank may have %d pieces of memory", (int)UCX_REGIONS);
}

static void region_destroy(comm_link *link, int32_t region)
{
    if (link->inner != NULL) {
        comm_transport_shm.region_destroy(link->inner, region);
        return;
    }
    (void)munmap(link->regions[region].at, (size_t)link->regions[region].bytes);
    link->regions[region] = (ucx_region){0};
}

const comm_transport comm_transport_ucx = {
    .name = "ucx",
    .messages = true,
    .hosts_apart = true,
    .available = available,
    .probe = probe,
    .open = link_open,
    .close = link_close,
    .join = join,
    .leave = leave,
    .levels = levels,
    .region_create = region_create,
    .region_destroy = region_destroy,
    .exchange = ucx_exchange,
    .post = comm_post_blocking,
    .note = ucx_note_contract,
    .kill = ucx_kill,
    .stop = ucx_stop,
    .waits_for = ucx_waits_for,
};
#else
static bool available(const comm_config *config, const char **why)
{
    (void)config;
    *why = "this program was built without UCX; apt install libucx-dev and build it again";
    return false;
}

static bool probe(const char **words, const char **cost)
{
    (void)cost;
    return available(NULL, words);
}

const comm_transport comm_transport_ucx = {
    .name = "ucx", .hosts_apart = true, .available = available, .probe = probe};
#endif
