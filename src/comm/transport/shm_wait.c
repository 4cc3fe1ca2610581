// Waits in shared memory: they spin while every rank has a core, sleep otherwise, and always have a
// deadline.
//
// A waiter reads one word per peer and spins for a while. If ranks share cores, it then yields its
// core for a while, which costs less than a sleep and a wake-up: at once if a rank that it waits
// for last waited on this core, and after a spin if each of them has its own core. Then it counts
// itself as a sleeper of the slot and sleeps on the slot's bell. The last rank to write its word
// rings, so a phase costs one wake-up per sleeper and not one per pair. If each rank has a core,
// sleepers are rare, and the writer looks for them without a fence: a ring that it misses costs one
// millisecond, the longest first sleep. A wake-up takes longer (about 200 us) than a wait spins, so
// two ranks could wake each other forever. Therefore a wait spins longer after a short sleep.
//
// Every wait checks three words that end it (of this rank, of the group, of the host) and the clock
// (timeout_tracker.h leaves out the time in which the rank was stopped). The text of a timeout
// names the missing ranks, and the last operation of each.
#include "comm/transport/shm.h"
#include "comm/transport/timeout_tracker.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// YIELD_NS: 8 ranks on 2 cores (Zen 3, Linux 6.18), all_reduce of 1 MiB: 480 us without, 350 with
// 200 us, 280 with 1 ms, medians of 3; 4 MiB 1.90, 1.84, 1.64 ms.
enum {
    FIRST_SLEEP_NS = 1000000,
    LONGEST_SLEEP_NS = 5000000,
    YIELD_NS = 1000000,
    BRIEF_SLEEP_NS = 2000000,
    BRIEF_SLEEP_SPINS = 10, // times as long as another spin
    SPINS_PER_LOOK = 64,
    SPINS_AT_ONCE = 16 // about 0.3 us, for which the last time is used again
};

void shm_sleep(const uint32_t *bell, uint32_t seen, int64_t ns)
{
    const struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    (void)syscall(SYS_futex, bell, FUTEX_WAIT, seen, &t, NULL, 0);
}

void shm_ring(uint32_t *bell)
{
    __atomic_fetch_add(bell, 1, __ATOMIC_SEQ_CST);
    (void)syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool is_there(const shm_wait *w, int member)
{
    const shm_member *m = &w->port->members[member];
    if (w->arrives) return half_get(&m->descriptors[w->number & 1].brief.number) == w->number;
    return word_get(&m->departed) >= w->departed;
}

static bool all_there(const shm_wait *w)
{
    shm_port *p = w->port;
    while (p->cursor < p->base.members.count) {
        if (!is_there(w, p->cursor)) return false;
        p->cursor++;
    }
    return true;
}

void shm_wake(const shm_wait *w)
{
    shm_port *p = w->port;
    shm_slot *slot = p->slot;
    if (__atomic_load_n(&slot->sleepers, __ATOMIC_SEQ_CST) == 0) return;
    for (int i = 0; i < p->base.members.count; i++) {
        if (!is_there(w, i)) return; // the last rank rings
    }
    shm_ring(&slot->bell);
}

status shm_health(const shm_port *p)
{
    const comm_link *link = p->base.link;
    TRY(block_failure_get(&p->slot->failure));
    // The failure that a rank recorded explains more than the signs of its end.
    TRY(block_failure_get(&link->control_block->head->failure));
    return block_failure_get(&link->record->failure);
}

void shm_contract_get(const shm_descriptor *t, comm_contract *out)
{
    shm_brief b;
    words_copy_out(&b, &t->brief, sizeof(b));
    if (b.magic != SHM_BRIEF_MAGIC) {
        memcpy(out, &b, sizeof(*out));
        return;
    }
    *out = (comm_contract){.magic = COMM_MAGIC,
                           .epoch = b.epoch,
                           .job = b.job,
                           .sequence = b.sequence,
                           .group = b.group,
                           .op = b.op,
                           .reduction = b.reduction,
                           .order = b.order,
                           .type = b.type,
                           .root = b.root,
                           .algorithm = b.algorithm,
                           .items = b.op == COLLECTIVE_BARRIER ? 0 : 1,
                           .count = b.count,
                           .tensor = b.tensor,
                           .site = b.site,
                           .checksum = b.number};
}

// ---- errors -------------------------------------------------------------------------------------
static comm_caller caller_of(const shm_port *p, int member, const comm_contract *k,
                             char tensor[BLOCK_NAME_BYTES], char site[BLOCK_NAME_BYTES])
{
    const rank_record *record = rank_record_of(p->base.link->control_block, shm_local(p, member));
    block_name_get(record, k->tensor, tensor);
    block_name_get(record, k->site, site);
    return (comm_caller){.rank = p->base.members.ranks[member], .tensor = tensor, .site = site};
}

// Compares with the first member that is there, so all ranks find the same pair and give the same
// text.
status shm_contracts_check(const shm_port *p, bool all)
{
    const uint32_t number = p->arrived;
    comm_contract k, other = {0};
    int first = -1;
    for (int i = 0; i < p->base.members.count; i++) {
        const shm_descriptor *t = &p->members[i].descriptors[number & 1];
        if (!all && half_get(&t->brief.number) != number) continue;
        shm_contract_get(t, &k);
        if (first < 0) {
            first = i;
            other = k;
        }
        if (comm_contract_equal(&other, &k)) continue;
        char names[4][BLOCK_NAME_BYTES];
        const comm_caller a = caller_of(p, first, &other, names[0], names[1]);
        const comm_caller b = caller_of(p, i, &k, names[2], names[3]);
        return comm_contract_refuse(p->base.members.name, &other, &a, &k, &b);
    }
    return ST_OK;
}

// Writes "rank 3 (last: all_reduce #12 of gradients)". A descriptor that is being written reads as
// garbage, which the text tolerates.
static int missing_text(const shm_wait *w, int member, char *out, int bytes)
{
    const shm_port *p = w->port;
    const shm_member *m = &p->members[member];
    comm_contract k;
    char what[256], tensor[BLOCK_NAME_BYTES], site[BLOCK_NAME_BYTES];
    const uint32_t one = half_get(&m->descriptors[0].brief.number);
    const uint32_t two = half_get(&m->descriptors[1].brief.number);
    shm_contract_get(&m->descriptors[one > two ? 0 : 1], &k);
    const comm_caller who = caller_of(p, member, &k, tensor, site);
    if (one == 0 && two == 0) {
        return snprintf(out, (size_t)bytes, "rank %d (nothing yet in this group)", who.rank);
    }
    return snprintf(out, (size_t)bytes, "rank %d (last: %s%s%s)", who.rank,
                    comm_contract_text(&k, tensor, what, sizeof(what)),
                    site[0] != '\0' ? " at " : "", site);
}

// Returns whether the member is not there, or does the share of one that is not.
static bool is_awaited(const shm_wait *w, int member)
{
    for (int i = 0; i < w->port->base.members.count; i++) {
        if (!is_there(w, i) && shm_holder(w, i) == member) return true;
    }
    return false;
}

static status timed_out(const shm_wait *w, int64_t waited_ns)
{
    const shm_port *p = w->port;
    char missing[1400] = "", mine[256], tensor[BLOCK_NAME_BYTES], site[BLOCK_NAME_BYTES];
    int used = 0;
    for (int i = 0; i < p->base.members.count && used < (int)sizeof(missing) - 400; i++) {
        if (!is_awaited(w, i)) continue;
        if (used > 0) used += snprintf(missing + used, sizeof(missing) - (size_t)used, ", ");
        used += missing_text(w, i, missing + used, (int)sizeof(missing) - used);
    }
    comm_contract k;
    shm_contract_get(&p->members[p->base.members.me].descriptors[p->arrived & 1], &k);
    const comm_caller me = caller_of(p, p->base.members.me, &k, tensor, site);
    return fail(ST_TIMEOUT, "rank %d waited %.1f s %s %s at %s in group %s; not there: %s", me.rank,
                (double)waited_ns / 1e9, w->arrives ? "to begin" : "to end",
                comm_contract_text(&k, tensor, mine, sizeof(mine)), site[0] != '\0' ? site : "?",
                p->base.members.name, missing);
}

// ---- ranks that this one waits for -------------------------------------------------------------
static int port_waits_for(shm_port *p, comm_awaited *out, int capacity)
{
    const shm_awaited *a = &p->awaited;
    const uint32_t kind = half_get(&a->kind), from = half_get(&a->from), to = half_get(&a->to);
    const shm_wait w = {.port = p,
                        .arrives = kind == SHM_AWAITS_ARRIVAL,
                        .number = half_get(&a->number),
                        .departed = word_get(&a->departed)};
    int count = 0;
    for (int i = 0; i < p->base.members.count && count < capacity; i++) {
        const bool is_peer = (uint32_t)i + 1 == from || (uint32_t)i + 1 == to;
        if (kind == SHM_AWAITS_NONE || i == p->base.members.me) continue;
        if (kind == SHM_AWAITS_MESSAGE ? !is_peer : !is_awaited(&w, i)) continue;
        out[count++] = (comm_awaited){.rank = p->base.members.ranks[i],
                                      .group = p->base.members.group,
                                      .operation = word_get(&a->operation)};
    }
    return count;
}

int shm_waits_for(comm_link *link, comm_awaited *out, int capacity)
{
    int count = 0;
    (void)pthread_mutex_lock(&link->lock);
    for (shm_port *p = link->ports; p != NULL && count < capacity; p = p->next) {
        count += port_waits_for(p, out + count, capacity - count);
    }
    (void)pthread_mutex_unlock(&link->lock);
    return count;
}

static void awaited_put(const shm_wait *w)
{
    shm_port *p = w->port;
    comm_contract k;
    shm_contract_get(&p->members[p->base.members.me].descriptors[p->arrived & 1], &k);
    half_put(&p->awaited.number, w->number);
    word_put(&p->awaited.departed, w->departed);
    word_put(&p->awaited.operation, k.sequence);
    half_put(&p->awaited.kind, w->arrives ? SHM_AWAITS_ARRIVAL : SHM_AWAITS_DEPARTURE);
}

// ---- waiting ------------------------------------------------------------------------------------
static status sleep_until(const shm_wait *w)
{
    shm_port *p = w->port;
    const comm_config *config = &p->base.link->config;
    comm_timeout_tracker timer;
    int64_t sleep_ns = FIRST_SLEEP_NS;
    comm_timeout_begin(&timer, config->h->api->monotonic_ns(config->h));
    uint32_t *sleepers = &p->slot->sleepers, *bell = &p->slot->bell;
    while (!all_there(w)) {
        TRY(shm_health(p));
        if (w->arrives) TRY(shm_contracts_check(p, false));
        const int64_t waited = comm_timeout_waited(&timer, config->h->api->monotonic_ns(config->h));
        if (waited >= config->deadline_ns) return timed_out(w, waited);
        __atomic_fetch_add(sleepers, 1, __ATOMIC_SEQ_CST);
        const uint32_t seen = __atomic_load_n(bell, __ATOMIC_SEQ_CST);
        if (!all_there(w)) shm_sleep(bell, seen, min_i64(sleep_ns, config->deadline_ns - waited));
        __atomic_fetch_sub(sleepers, 1, __ATOMIC_SEQ_CST);
        sleep_ns = LONGEST_SLEEP_NS;
    }
    return ST_OK;
}

int64_t shm_spins(const shm_port *p)
{
    return p->base.link->spins * (p->slept_briefly ? BRIEF_SLEEP_SPINS : 1);
}

void shm_slept(shm_port *p, int64_t begin_ns)
{
    const host *h = p->base.link->config.h;
    p->slept_briefly =
        !p->base.link->crowded && h->api->monotonic_ns(h) - begin_ns < BRIEF_SLEEP_NS;
}

static status wait_asleep(const shm_wait *w)
{
    const host *h = w->port->base.link->config.h;
    const int64_t begin = h->api->monotonic_ns(h);
    w->port->base.ended_ns = 0;
    awaited_put(w);
    const status st = sleep_until(w);
    half_put(&w->port->awaited.kind, SHM_AWAITS_NONE);
    shm_slept(w->port, begin);
    return st;
}

bool shm_yield(const comm_link *link, int64_t *since)
{
    if (!link->crowded) return false;
    const host *h = link->config.h;
    const int64_t now = h->api->monotonic_ns(h);
    if (*since == 0) *since = now;
    if (now - *since >= YIELD_NS) return false;
    (void)sched_yield();
    return true;
}

// Returns whether a missing rank can only run after this one yields its core.
static bool waits_here(const shm_wait *w, uint32_t cpu)
{
    const shm_port *p = w->port;
    for (int i = p->cursor; i < p->base.members.count; i++) {
        if (!is_there(w, i) && half_get(&p->members[shm_holder(w, i)].cpu) == cpu) return true;
    }
    return false;
}

static status wait_crowded(const shm_wait *w)
{
    shm_port *p = w->port;
    const uint32_t cpu = (uint32_t)sched_getcpu() + 1;
    uint32_t *here = &p->members[p->base.members.me].cpu;
    if (half_get(here) != cpu) half_put(here, cpu);
    int64_t since = 0;
    const int64_t spins = shm_spins(p);
    do {
        if (all_there(w)) return ST_OK;
        for (int64_t i = 1; i <= spins && !waits_here(w, cpu); i++) {
            spin_pause();
            if (all_there(w)) return ST_OK;
            if (i % SPINS_PER_LOOK == 0) TRY(shm_health(p));
        }
    } while (shm_yield(p->base.link, &since));
    return wait_asleep(w);
}

status shm_wait_all(const shm_wait *w)
{
    shm_port *p = w->port;
    p->cursor = 0;
    if (p->base.link->crowded) return wait_crowded(w);
    const int64_t spins = shm_spins(p);
    for (int64_t i = 1; i <= spins; i++) {
        if (all_there(w)) return ST_OK;
        if (i % SPINS_AT_ONCE == 0) p->base.ended_ns = 0;
        if (i % SPINS_PER_LOOK == 0) TRY(shm_health(p));
        spin_pause();
    }
    return wait_asleep(w);
}
