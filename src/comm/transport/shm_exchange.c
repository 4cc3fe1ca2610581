// Messages in shared memory: a channel from each rank to each rank that it sends to.
//
// The sender shows parcels in two alternating places; the receiver copies them out and counts them.
// A message in a shared region is one parcel with its place. Other messages travel inside the
// parcel (up to 1,024 bytes) or in the channel's stage, 128 KiB at a time, where the copy in of one
// piece overlaps the copy out of the other. exchange() returns while a small message is still in
// flight, since its buffer may be used again.
//
// A waiting rank sleeps on the bell of its own record, and every writer to it rings that bell.
#include "comm/transport/shm.h"

#include "base/fault.h"
#include "base/hash.h"
#include "comm/peer.h"
#include "comm/recorder.h"
#include "comm/transport/timeout_tracker.h"

#include <string.h>

// One half of an exchange in progress.
typedef struct half {
    shm_end *end;
    int peer;
    const char *from;
    char *to;
    int64_t total, done;
    bool begun, ended;
    comm_place place; // of the message
} half;

static status end_open(shm_port *p, shm_end *end, int from, int to)
{
    if (end->channel != NULL) return ST_OK;
    const uint64_t pair = (uint64_t)(uint32_t)from << 32 | (uint32_t)to;
    void *slot = NULL;
    TRY(block_slot(p->base.link->control_block, hash64(&pair, sizeof(pair), p->key),
                   SHM_SLOT_CHANNEL, (int64_t)offsetof(shm_channel, stage),
                   (int64_t)sizeof(shm_channel), &slot));
    shm_channel *c = slot;
    end->channel = c;
    const uint32_t one = half_get(&c->parcels[0].contract.checksum);
    const uint32_t two = half_get(&c->parcels[1].contract.checksum);
    // A group that is made again continues its numbers.
    end->count = from == p->base.members.me ? (one > two ? one : two) : half_get(&c->taken);
    return ST_OK;
}

static void ring_peer(const shm_port *p, int member)
{
    rank_record *record = rank_record_of(p->base.link->control_block, shm_local(p, member));
    if (__atomic_load_n(&record->sleepers, __ATOMIC_SEQ_CST) != 0) shm_ring(&record->bell);
}

// ---- sending ------------------------------------------------------------------------------------
static status parcel_fill(shm_port *p, half *h, shm_parcel *parcel)
{
    shm_channel *c = h->end->channel;
    parcel->total = h->total;
    parcel->offset = h->done;
    parcel->place = h->place;
    parcel->bytes = h->total - h->done;
    if (p->base.peer != NULL) {
        if (h->place.region < 0 && h->total > 0)
            return fail(ST_INTERNAL, "a message of a GPU lies in memory that peers do not reach");
    } else if (h->total <= COMM_INLINE_BYTES) {
        parcel->place.region = COMM_PRIVATE;
        if (h->total > 0) memcpy(parcel->payload, h->from, (size_t)h->total);
    } else if (h->place.region < 0) {
        if (!h->end->staged) {
            TRY(block_reserve(p->base.link->control_block, c->stage, sizeof(c->stage)));
            h->end->staged = true;
        }
        parcel->bytes = min_i64(parcel->bytes, SHM_PARCEL_BYTES);
        memcpy(c->stage[(h->end->count + 1) & 1], h->from + h->done, (size_t)parcel->bytes);
    }
    h->done += parcel->bytes;
    return ST_OK;
}

static status send_step(shm_port *p, const comm_contract *contract, half *h, bool *moved)
{
    shm_channel *c = h->end->channel;
    const uint32_t taken = half_get(&c->taken);
    if (h->begun && h->done == h->total) { // shown; a message in a region must also be taken
        const bool is_shown = p->base.peer != NULL || h->total > COMM_INLINE_BYTES;
        const bool borrowed = h->place.region >= 0 && is_shown;
        if (borrowed && taken != h->end->count) return ST_OK;
        h->ended = *moved = true;
        return ST_OK;
    }
    if (h->end->count - taken >= 2) return ST_OK;
    const uint32_t number = h->end->count + 1;
    shm_parcel *parcel = &c->parcels[number & 1];
    memcpy(&parcel->contract, contract, offsetof(comm_contract, checksum));
    TRY(parcel_fill(p, h, parcel));
    h->begun = *moved = true;
    h->end->count = number;
    if (fault_point("comm.shm.send") != ST_OK) { // it is lost on its way
        error_clear();
        return ST_OK;
    }
    __atomic_store_n(&parcel->contract.checksum, number, __ATOMIC_SEQ_CST);
    ring_peer(p, h->peer);
    return ST_OK;
}

// ---- receiving ----------------------------------------------------------------------------------
static status refuse(const shm_port *p, int peer, const comm_contract *mine,
                     const comm_contract *theirs)
{
    const rank_record *records[2] = {
        p->base.link->record, rank_record_of(p->base.link->control_block, shm_local(p, peer))};
    char names[4][BLOCK_NAME_BYTES];
    block_name_get(records[0], mine->tensor, names[0]);
    block_name_get(records[0], mine->site, names[1]);
    block_name_get(records[1], theirs->tensor, names[2]);
    block_name_get(records[1], theirs->site, names[3]);
    const comm_caller me = {.rank = records[0]->rank, .tensor = names[0], .site = names[1]};
    const comm_caller they = {.rank = records[1]->rank, .tensor = names[2], .site = names[3]};
    return comm_contract_refuse(p->base.members.name, theirs, &they, mine, &me);
}

static status refuse_parcel(const shm_port *p, const half *h, const comm_contract *mine,
                            const shm_parcel *parcel)
{
    if (!comm_contract_equal(mine, &parcel->contract)) {
        return refuse(p, h->peer, mine, &parcel->contract);
    }
    const rank_record *record = rank_record_of(p->base.link->control_block, shm_local(p, h->peer));
    char what[256], tensor[BLOCK_NAME_BYTES];
    block_name_get(p->base.link->record, mine->tensor, tensor);
    return fail(ST_DIVERGED, "rank %d sends %lld bytes in %s and rank %d expects %lld",
                record->rank, (long long)parcel->total,
                comm_contract_text(mine, tensor, what, sizeof(what)), p->base.link->record->rank,
                (long long)h->total);
}

// The peer may have begun this operation with a descriptor, which no rank here would read.
static status descriptors_check(const shm_port *p, const comm_contract *mine)
{
    const uint32_t next = p->arrived + 1;
    for (int i = 0; i < p->base.members.count && mine->op != COLLECTIVE_SEND; i++) {
        const shm_descriptor *t = &p->members[i].descriptors[next & 1];
        comm_contract k;
        if (half_get(&t->brief.number) != next) continue;
        shm_contract_get(t, &k);
        if (k.sequence == mine->sequence) return refuse(p, i, mine, &k);
    }
    return ST_OK;
}

static status other_memory(const shm_port *p, int peer)
{
    return fail(ST_DIVERGED, "rank %d sends from host memory what rank %d expects from a GPU's",
                p->base.members.ranks[peer], p->base.link->record->rank);
}

static status receive_step(shm_port *p, const comm_contract *contract, half *h, bool *moved)
{
    shm_channel *c = h->end->channel;
    const uint32_t number = h->end->count + 1;
    const shm_parcel *parcel = &c->parcels[number & 1];
    if (half_get(&parcel->contract.checksum) != number) return ST_OK;
    if (!comm_contract_equal(&parcel->contract, contract) || parcel->total != h->total ||
        parcel->offset != h->done || parcel->bytes < 0 || parcel->bytes > h->total - h->done) {
        return refuse_parcel(p, h, contract, parcel);
    }
    void *from = NULL;
    if (parcel->place.region >= 0) {
        TRY(shm_address(&p->base, h->peer, parcel->place, parcel->bytes, &from));
    } else if (h->total <= COMM_INLINE_BYTES) {
        from = c->parcels[number & 1].payload;
    } else {
        from = c->stage[number & 1];
    }
    if (p->base.peer != NULL) {
        if (parcel->place.region < 0 && parcel->bytes > 0) return other_memory(p, h->peer);
        comm_peer_copy(p->base.peer, h->to + h->done, from, parcel->bytes);
        TRY(comm_peer_wait(p->base.peer));
    } else if (parcel->bytes > 0) {
        memcpy(h->to + h->done, from, (size_t)parcel->bytes);
    }
    h->done += parcel->bytes;
    h->end->count = number;
    __atomic_store_n(&c->taken, number, __ATOMIC_SEQ_CST);
    ring_peer(p, h->peer);
    h->ended = h->done == h->total;
    *moved = true;
    return ST_OK;
}

// ---- both ---------------------------------------------------------------------------------------
typedef struct both {
    shm_port *p;
    const comm_contract *contract;
    half send, receive;
} both;

static status step(both *b, bool *moved)
{
    *moved = false;
    if (!b->send.ended) TRY(send_step(b->p, b->contract, &b->send, moved));
    if (!b->receive.ended) TRY(receive_step(b->p, b->contract, &b->receive, moved));
    return ST_OK;
}

static status timed_out(const both *b, int64_t waited_ns)
{
    const shm_port *p = b->p;
    char what[256], tensor[BLOCK_NAME_BYTES], site[BLOCK_NAME_BYTES];
    block_name_get(p->base.link->record, b->contract->tensor, tensor);
    block_name_get(p->base.link->record, b->contract->site, site);
    const half *h = b->receive.ended ? &b->send : &b->receive;
    const rank_record *record = rank_record_of(p->base.link->control_block, shm_local(p, h->peer));
    return fail(ST_TIMEOUT, "rank %d waited %.1f s %s rank %d in %s at %s of group %s",
                p->base.link->record->rank, (double)waited_ns / 1e9,
                b->receive.ended ? "to be heard by" : "for a message of", record->rank,
                comm_contract_text(b->contract, tensor, what, sizeof(what)), site,
                p->base.members.name);
}

// Its recorder says so.
static bool peer_has_ended(const both *b)
{
    enum { LOOK_BACK = 16 };
    comm_record theirs[LOOK_BACK];
    const shm_port *p = b->p;
    const int local = shm_local(p, b->receive.peer);
    const int count = comm_recorder_read(p->base.link->control_block, local, theirs, LOOK_BACK);
    for (int i = 0; i < count && b->contract->op != COLLECTIVE_SEND; i++) {
        if (theirs[i].group == b->contract->group && theirs[i].done_ns != 0 &&
            theirs[i].sequence == b->contract->sequence) {
            return true;
        }
    }
    return false;
}

// Parcels are shown in order and before the operation ends. So a parcel is lost if a later one is
// there without it, or if its sender is done.
static status gap_check(const both *b)
{
    const half *h = &b->receive;
    if (h->ended) return ST_OK;
    const shm_port *p = b->p;
    const shm_channel *c = h->end->channel;
    const uint32_t number = h->end->count + 1;
    const bool is_late = half_get(&c->parcels[(number + 1) & 1].contract.checksum) == number + 1 ||
                         peer_has_ended(b);
    if (!is_late || half_get(&c->parcels[number & 1].contract.checksum) == number) return ST_OK;
    char what[256], tensor[BLOCK_NAME_BYTES];
    block_name_get(p->base.link->record, b->contract->tensor, tensor);
    return fail(ST_PEER_LOST, "message %u from rank %d to rank %d was lost, in %s of group %s",
                number, rank_record_of(p->base.link->control_block, shm_local(p, h->peer))->rank,
                p->base.link->record->rank,
                comm_contract_text(b->contract, tensor, what, sizeof(what)), p->base.members.name);
}

static void awaited_put(const both *b)
{
    shm_awaited *a = &b->p->awaited;
    half_put(&a->from, b->receive.ended ? 0 : (uint32_t)b->receive.peer + 1);
    half_put(&a->to, b->send.ended ? 0 : (uint32_t)b->send.peer + 1);
    word_put(&a->operation, b->contract->sequence);
    half_put(&a->kind, SHM_AWAITS_MESSAGE);
}

static status sleep_until(both *b)
{
    comm_link *link = b->p->base.link;
    const comm_config *config = &link->config;
    comm_timeout_tracker timer;
    comm_timeout_begin(&timer, config->h->api->monotonic_ns(config->h));
    while (!b->send.ended || !b->receive.ended) {
        bool moved = false;
        TRY(shm_health(b->p));
        TRY(descriptors_check(b->p, b->contract));
        TRY(gap_check(b));
        awaited_put(b);
        const int64_t waited = comm_timeout_waited(&timer, config->h->api->monotonic_ns(config->h));
        if (waited >= config->deadline_ns) return timed_out(b, waited);
        __atomic_fetch_add(&link->record->sleepers, 1, __ATOMIC_SEQ_CST);
        const uint32_t seen = __atomic_load_n(&link->record->bell, __ATOMIC_SEQ_CST);
        const status st = step(b, &moved);
        if (st == ST_OK && !moved) shm_sleep(&link->record->bell, seen, 5000000);
        __atomic_fetch_sub(&link->record->sleepers, 1, __ATOMIC_SEQ_CST);
        TRY(st);
        if (moved) comm_timeout_begin(&timer, config->h->api->monotonic_ns(config->h));
    }
    return ST_OK;
}

static status wait_asleep(both *b)
{
    const host *h = b->p->base.link->config.h;
    const int64_t begin = h->api->monotonic_ns(h);
    const status st = sleep_until(b);
    half_put(&b->p->awaited.kind, SHM_AWAITS_NONE);
    shm_slept(b->p, begin);
    return st;
}

static status run(both *b)
{
    int64_t idle = 0, since = 0;
    while (!b->send.ended || !b->receive.ended) {
        bool moved = false;
        TRY(step(b, &moved));
        if (moved) {
            idle = since = 0;
            continue;
        }
        if (++idle % 64 == 0) TRY(shm_health(b->p));
        if (idle <= shm_spins(b->p)) {
            spin_pause();
        } else if (!shm_yield(b->p->base.link, &since)) {
            return wait_asleep(b);
        }
    }
    return ST_OK;
}

status shm_exchange(comm_port *port, const comm_contract *contract, comm_message send,
                    comm_message receive)
{
    shm_port *p = shm_port_of(port);
    const int me = port->members.me;
    both b = {.p = p, .contract = contract};
    b.send.ended = send.peer < 0;
    b.receive.ended = receive.peer < 0;
    TRY(shm_health(p));
    if (send.peer >= 0) {
        ASSERT(send.peer < port->members.count && send.peer != me);
        b.send.end = &p->sends[send.peer];
        b.send.peer = send.peer;
        b.send.from = send.send;
        b.send.total = send.bytes;
        b.send.place = shm_locate(port->link, send.send, send.bytes);
        TRY(end_open(p, b.send.end, me, send.peer));
    }
    if (receive.peer >= 0) {
        ASSERT(receive.peer < port->members.count && receive.peer != me);
        b.receive.end = &p->receives[receive.peer];
        b.receive.peer = receive.peer;
        b.receive.to = receive.receive;
        b.receive.total = receive.bytes;
        TRY(end_open(p, b.receive.end, receive.peer, me));
    }
    return run(&b);
}
