// The transport of one host: ranks are processes, or threads of one process, that share a control
// block.
//
//   shm_wait.c       waits
//   shm_steal.c      shares of an operation that another rank does, where ranks share cores
//   shm_memory.c     memory of peers
//   shm_exchange.c   messages
//
// arrive() writes this rank's descriptor, its number last, and waits until each peer's descriptor
// has the same number. depart() counts. Both are one store and one load per peer while all ranks
// run. Two descriptors per rank suffice: a rank overwrites descriptor k with k+2 only after arrival
// k+1, to which every peer comes after it has finished with k.
#include "comm/transport/shm.h"

#include "base/fault.h"
#include "base/hash.h"
#include "comm/transport/timeout_tracker.h"
#include "comm/transport/transport_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(comm_descriptor) % SHM_LINE == 0, "descriptors do not share lines");
_Static_assert(sizeof(shm_brief) == SHM_LINE, "one line");
_Static_assert(offsetof(shm_brief, number) == offsetof(comm_contract, checksum), "one place");
_Static_assert(offsetof(shm_brief, payload) == 40, "five words are compared");
_Static_assert(sizeof(shm_slot) % SHM_LINE == 0, "nor with the slot's head");
_Static_assert(sizeof(shm_staging) % SHM_LINE == 0 && offsetof(shm_staging, stage) % SHM_LINE == 0,
               "");
_Static_assert(offsetof(rank_record, records) % SHM_LINE == 0, "a record is two lines, not three");
_Static_assert(sizeof(shm_member) % SHM_LINE == 0, "members do not share lines");
_Static_assert(sizeof(shm_channel) % 8 == 0, "slots are made of words");

static bool available(const comm_config *config, const char **why)
{
    *why = NULL;
    if (config->control_block == NULL)
        *why = "the ranks of this host share no control block";
    else if (config->ranks != config->local_ranks)
        *why = "the ranks are not all on this host";
    else if (config->local_ranks > config->control_block->local_ranks)
        *why = "the control block is for fewer ranks";
    return *why == NULL;
}

static bool probe(const char **words, const char **cost)
{
    (void)cost;
    comm_control_block *b = NULL;
    const bool is_there = comm_control_block_create(1, 1, 0, &b) == ST_OK;
    if (!is_there) error_clear();
    comm_control_block_unmap(b);
    *words = is_there ? "ranks of this host, in place, in sealed memory without a name"
                      : "the system gives no sealed memory (memfd_create)";
    return is_there;
}

// ---- opening: all ranks of the host show their records -----------------------------------------
static int64_t spins_of(int64_t ns)
{
    enum { SAMPLE = 512 };
    struct timespec a, b;
    (void)clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < SAMPLE; i++) spin_pause();
    (void)clock_gettime(CLOCK_MONOTONIC, &b);
    const int64_t took = (int64_t)(b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec;
    // A pause takes 5 to 60 ns. A longer one means that another process had the core.
    const int64_t one = took / SAMPLE < 5 ? 5 : took / SAMPLE > 60 ? 60 : took / SAMPLE;
    return max_i64(1, ns / one);
}

static status record_wait(comm_link *link, int local)
{
    const comm_config *config = &link->config;
    const rank_record *record = rank_record_of(link->control_block, local);
    comm_timeout_tracker timer;
    comm_timeout_begin(&timer, config->h->api->monotonic_ns(config->h));
    for (int64_t spins = 0; half_get(&record->here) != config->epoch + 1; spins++) {
        TRY(block_failure_get(&link->record->failure));
        TRY(block_failure_get(&link->control_block->head->failure));
        const int64_t waited = comm_timeout_waited(&timer, config->h->api->monotonic_ns(config->h));
        const uint32_t here = half_get(&record->here);
        if (waited > config->deadline_ns && here == 0) {
            return fail(ST_TIMEOUT,
                        "local rank %d did not come to this host's control block within %.1f s",
                        local, (double)waited / 1e9);
        }
        if (waited > config->deadline_ns) {
            return fail(ST_DIVERGED, "rank %d is in epoch %u and rank %d in epoch %u", config->rank,
                        config->epoch, record->rank, here - 1);
        }
        if (spins > 100) config->h->api->sleep_ns(config->h, 100000);
    }
    if (record->rank < 0 || record->rank >= config->ranks || link->local_of[record->rank] >= 0) {
        return fail(ST_REFUSED,
                    "local rank %d says that it is rank %d of %d, which another is or none "
                    "can be",
                    local, record->rank, config->ranks);
    }
    link->local_of[record->rank] = local;
    return ST_OK;
}

static status record_publish(comm_link *link)
{
    const comm_config *config = &link->config;
    rank_record *record = link->record;
    record->pid = (int32_t)getpid();
    record->rank = config->rank;
    half_put(&record->failure.state, 0);
    half_put(&record->here, config->epoch + 1);
    for (int i = 0; i < config->local_ranks; i++) TRY(record_wait(link, i));
    return ST_OK;
}

static void link_close(comm_link *link)
{
    if (link == NULL) return;
    ASSERT(link->ports == NULL);
    shm_maps_drop(link);
    (void)pthread_mutex_destroy(&link->lock);
    (void)pthread_mutex_destroy(&link->mapping);
    free(link->maps);
    free(link->local_of);
    free(link);
}

static status link_open(const comm_config *config, comm_link **out)
{
    comm_control_block *b = config->control_block;
    if (config->job != b->head->job) {
        return fail(
            ST_REFUSED, "rank %d belongs to job %llx and this host's control block to job %llx",
            config->rank, (unsigned long long)config->job, (unsigned long long)b->head->job);
    }
    if (config->local_rank < 0 || config->local_rank >= config->local_ranks) {
        return fail(ST_CONFIG_RANGE, "local rank %d of %d", config->local_rank,
                    config->local_ranks);
    }
    comm_link *link = calloc(1, sizeof(*link));
    if (link == NULL) return fail(ST_NO_MEMORY, "no memory for a link of shared memory");
    (void)pthread_mutex_init(&link->lock, NULL);
    (void)pthread_mutex_init(&link->mapping, NULL);
    link->config = *config;
    link->control_block = b;
    link->record = rank_record_of(b, config->local_rank);
    link->crowded = config->local_ranks > b->head->cores;
    link->spins = spins_of(config->spin_ns > 0 ? config->spin_ns : link->crowded ? 1000 : 100000);
    link->local_of = malloc((size_t)config->ranks * sizeof(int));
    link->maps = calloc((size_t)b->local_ranks * BLOCK_REGIONS, sizeof(shm_map));
    status st = ST_OK;
    if (link->local_of == NULL || link->maps == NULL) {
        st = fail(ST_NO_MEMORY, "no memory for a link of shared memory");
        goto close_link;
    }
    for (int i = 0; i < config->ranks; i++) link->local_of[i] = -1;
    TRY_TO(close_link, record_publish(link));
    *out = link;
    return ST_OK;
close_link:
    link_close(link);
    return st;
}

static void link_stop(comm_link *link, status code, const char *text)
{
    block_failure_set(&link->record->failure, code, text);
    (void)pthread_mutex_lock(&link->lock);
    for (shm_port *p = link->ports; p != NULL; p = p->next) shm_ring(&p->slot->bell);
    (void)pthread_mutex_unlock(&link->lock);
    shm_ring(&link->record->bell);
}

// ---- ports --------------------------------------------------------------------------------------
static void leave(comm_port *base)
{
    shm_port *p = shm_port_of(base);
    comm_link *link = base->link;
    (void)pthread_mutex_lock(&link->lock);
    for (shm_port **at = &link->ports; *at != NULL; at = &(*at)->next) {
        if (*at != p) continue;
        *at = p->next;
        break;
    }
    (void)pthread_mutex_unlock(&link->lock);
    free(p->sends);
    free(p);
}

// One allocation: the port, its members' ranks, its name.
static shm_port *port_make(comm_link *link, const comm_members *m)
{
    const size_t name_bytes = strlen(m->name) + 1;
    shm_port *p = calloc(1, sizeof(*p) + (size_t)m->count * sizeof(int32_t) + name_bytes);
    if (p == NULL) return NULL;
    int32_t *ranks = (int32_t *)(void *)(p + 1);
    char *name = (char *)(ranks + m->count);
    memcpy(ranks, m->ranks, (size_t)m->count * sizeof(*ranks));
    memcpy(name, m->name, name_bytes);
    p->base.transport = &comm_transport_shm;
    p->base.shares_cores = link->crowded;
    p->base.inline_bytes = link->crowded ? COMM_INLINE_BYTES : COMM_INLINE_OWN_CORE;
    p->base.link = link;
    p->base.members = *m;
    p->base.members.ranks = ranks;
    p->base.members.name = name;
    p->sends = calloc((size_t)m->count * 2, sizeof(shm_end));
    if (p->sends == NULL) {
        free(p);
        return NULL;
    }
    p->receives = p->sends + m->count;
    return p;
}

static status join(comm_link *link, const comm_members *m, comm_port **out)
{
    TRY(fault_point("comm.shm.join"));
    shm_port *p = port_make(link, m);
    if (p == NULL) return fail(ST_NO_MEMORY, "no memory for a group of %d ranks", m->count);
    const int64_t hot = (int64_t)sizeof(shm_slot) + m->count * (int64_t)sizeof(shm_member);
    const int64_t staging = align_up(hot, BLOCK_PAGE);
    p->key = hash64(m->ranks, m->count * (int64_t)sizeof(*m->ranks),
                    (uint64_t)link->config.epoch << 32 | m->group);
    void *slot = NULL;
    const status st = block_slot(link->control_block, p->key, SHM_SLOT_GROUP, hot,
                                 staging + m->count * (int64_t)sizeof(shm_staging), &slot);
    if (st != ST_OK) {
        free(p->sends);
        free(p);
        return st;
    }
    p->slot = slot;
    p->members = (shm_member *)(void *)((char *)slot + sizeof(shm_slot));
    p->staging = (shm_staging *)(void *)((char *)slot + staging);
    // A group that is made again continues its numbers, which are the same on all its members.
    const shm_member *me = &p->members[m->me];
    for (int i = 0; i < 2; i++) {
        comm_contract k;
        shm_contract_get(&me->descriptors[i], &k);
        if (k.checksum <= p->arrived) continue;
        p->arrived = k.checksum;
        p->base.sequence = k.sequence;
    }
    p->departed = me->departed;
    (void)pthread_mutex_lock(&link->lock);
    p->next = link->ports;
    link->ports = p;
    (void)pthread_mutex_unlock(&link->lock);
    *out = &p->base;
    return ST_OK;
}

// ---- rendezvous ---------------------------------------------------------------------------------
// Ranks that share cores sleep soon, and the last rank must see that they do. These are two
// statements because gcc turns a memory order chosen at run time into the strongest one, which
// waits for all earlier stores: 10 ns (Zen 4).
static void number_put(const comm_link *link, uint32_t *at, uint32_t number)
{
    if (link->crowded) {
        __atomic_store_n(at, number, __ATOMIC_SEQ_CST);
    } else {
        __atomic_store_n(at, number, __ATOMIC_RELEASE);
    }
}

// Writes all but the number, the first cache line last: a peer that reads the line takes it away,
// and this core would have to fetch it again for the number.
static void full_put(comm_descriptor *t, const comm_descriptor *mine)
{
    memcpy((char *)t + sizeof(comm_contract), (const char *)mine + sizeof(comm_contract),
           offsetof(comm_descriptor, payload) - sizeof(comm_contract) +
               (size_t)mine->payload_bytes);
    memcpy(t, mine, offsetof(comm_contract, checksum));
}

static void brief_put(shm_brief *b, const comm_descriptor *mine)
{
    const comm_contract *k = &mine->contract;
    b->magic = SHM_BRIEF_MAGIC;
    b->epoch = k->epoch;
    b->job = k->job;
    b->sequence = (uint32_t)k->sequence;
    b->group = k->group;
    b->op = k->op;
    b->reduction = k->reduction;
    b->order = k->order;
    b->type = k->type;
    b->root = k->root;
    b->algorithm = k->algorithm;
    b->count = (uint16_t)k->count;
    b->tensor = k->tensor;
    memcpy(b->payload, mine->payload, sizeof(b->payload));
    b->site = k->site;
}

static bool briefs_equal(const shm_brief *a, const shm_brief *b)
{
    uint64_t differ = comm_word_xor(a, b, 0) | comm_word_xor(a, b, 1) | comm_word_xor(a, b, 2);
    differ |= comm_word_xor(a, b, 3) | comm_word_xor(a, b, 4);
    return differ == 0;
}

// Fetches the line for writing, so the next descriptor does not wait for it.
static void line_acquire(const void *line)
{
#ifdef __x86_64__
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

// Takes the time after peers can see the descriptor, which costs nothing while it travels.
static void begun_put(shm_port *p)
{
    if (p->base.begun == NULL) return;
    __atomic_store_n(p->base.begun, block_now_ns(p->base.link->control_block), __ATOMIC_RELEASE);
    p->base.begun = NULL;
}

static status arrive(comm_port *base, const comm_descriptor *mine)
{
    shm_port *p = shm_port_of(base);
    const shm_wait w = {.port = p, .arrives = true, .number = ++p->arrived};
    shm_member *me = &p->members[base->members.me];
    shm_descriptor *t = &me->descriptors[w.number & 1];
    shm_brief own;
    p->brief = mine->brief != 0;
    if (p->brief) {
        brief_put(&t->brief, mine);
    } else {
        full_put(&t->full, mine);
    }
    number_put(base->link, &t->brief.number, w.number);
    begun_put(p);
    if (p->brief) brief_put(&own, mine);
    shm_wake(&w);
    TRY(shm_wait_all(&w));
    for (int i = 0; i < base->members.count; i++) {
        const shm_descriptor *other = &p->members[i].descriptors[w.number & 1];
        if (i == base->members.me)
            continue; // a read while its stores are in flight costs 14 ns (Zen 4)
        if (p->brief ? !briefs_equal(&own, &other->brief)
                     : !comm_contract_equal(&mine->contract, &other->full.contract)) {
            return shm_contracts_check(p, true);
        }
    }
    line_acquire(&me->descriptors[(w.number + 1) & 1]);
    return ST_OK;
}

static const comm_descriptor *descriptor(const comm_port *base, int rank)
{
    const shm_port *p = (const shm_port *)base;
    return &p->members[rank].descriptors[p->arrived & 1].full;
}

static const void *payload(const comm_port *base, int rank)
{
    const shm_port *p = (const shm_port *)base;
    const shm_descriptor *t = &p->members[rank].descriptors[p->arrived & 1];
    return p->brief ? t->brief.payload : t->full.payload;
}

static status depart(comm_port *base)
{
    shm_port *p = shm_port_of(base);
    const shm_wait w = {.port = p, .departed = ++p->departed};
    uint64_t *departed = &p->members[base->members.me].departed;
    if (base->link->crowded) {
        __atomic_store_n(departed, w.departed, __ATOMIC_SEQ_CST);
    } else {
        __atomic_store_n(departed, w.departed, __ATOMIC_RELEASE);
    }
    // As in begun_put, the time is taken while the word travels. A wait that lasts takes it again.
    base->ended_ns = base->link->crowded ? 0 : block_now_ns(base->link->control_block);
    shm_wake(&w);
    return shm_wait_all(&w);
}

static status list_begin(comm_port *base, int64_t entries, comm_list **mine)
{
    shm_port *p = shm_port_of(base);
    ASSERT(entries >= 0 && entries <= COMM_MAX_ENTRIES);
    comm_list *list = &p->staging[base->members.me].list;
    const int64_t bytes =
        (int64_t)offsetof(comm_list, entries) + entries * (int64_t)sizeof(comm_entry);
    if (bytes > p->list_bytes) {
        TRY(block_reserve(base->link->control_block, list, bytes));
        p->list_bytes = bytes;
    }
    *mine = list;
    return ST_OK;
}

static const comm_list *list_of(const comm_port *base, int rank)
{
    return &((const shm_port *)base)->staging[rank].list;
}

static status stage(comm_port *base, int rank, void **out)
{
    shm_port *p = shm_port_of(base);
    shm_staging *own = &p->staging[rank];
    if (rank == base->members.me && !p->has_stage) {
        TRY(block_reserve(base->link->control_block, own->stage, sizeof(own->stage)));
        p->has_stage = true;
    }
    *out = own->stage;
    return ST_OK;
}

// ---- texts --------------------------------------------------------------------------------------
static void note_names(comm_port *base, const comm_contract *contract, const char *tensor,
                       const char *site)
{
    shm_port *p = shm_port_of(base);
    rank_record *record = base->link->record;
    const uint64_t changes = word_get(&record->name_changes);
    if (contract->tensor == p->noted_tensor && contract->site == p->noted_site &&
        changes == p->noted_changes) {
        return; // both are there; this check costs 5 ns
    }
    block_name_put(record, contract->tensor, tensor);
    block_name_put(record, contract->site, site);
    p->noted_tensor = contract->tensor;
    p->noted_site = contract->site;
    p->noted_changes = changes; // the older count, so a name that was not written is tried again
}

// The first member's failure counts: all members return its text.
static status kill_group(comm_port *base)
{
    shm_port *p = shm_port_of(base);
    const error_record *e = error_last();
    block_failure_set(&p->slot->failure, e->code, e->text);
    shm_ring(&p->slot->bell);
    for (int i = 0; i < base->members.count; i++) {
        shm_ring(&rank_record_of(base->link->control_block, shm_local(p, i))->bell);
    }
    for (int i = 0; i < 1000 && half_get(&p->slot->failure.state) == 1; i++) spin_pause();
    const status st = block_failure_get(&p->slot->failure);
    return st != ST_OK ? st : e->code;
}

const comm_transport comm_transport_shm = {
    .name = "shm",
    .direct = true,
    .messages = true,
    .stamps = true,
    .available = available,
    .probe = probe,
    .open = link_open,
    .close = link_close,
    .join = join,
    .leave = leave,
    .arrive = arrive,
    .descriptor = descriptor,
    .payload = payload,
    .depart = depart,
    .steal = shm_steal,
    .complete = shm_complete,
    .wait_all = shm_steals_wait,
    .list_begin = list_begin,
    .list = list_of,
    .address = shm_address,
    .stage = stage,
    .region_create = shm_region_create,
    .region_destroy = shm_region_destroy,
    .region_leave = shm_region_leave,
    .region_join = shm_region_join,
    .locate = shm_locate,
    .region_share = shm_region_share,
    .peer_check = shm_peer_check,
    .exchange = shm_exchange,
    .post = comm_post_blocking,
    .note = note_names,
    .kill = kill_group,
    .stop = link_stop,
    .waits_for = shm_waits_for,
};
