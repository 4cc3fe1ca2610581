// Data messages over MPI, and notes (control messages).
//
// A frame with the contract comes first; a receiver accepts the pieces behind it after the
// contracts agree. Messages of one rank in one group have one tag, whose order MPI keeps. A rank
// that has waited for a while sends a note with its operation, which detects operations whose
// messages would never match. A member of a group that failed tells all members. A computing rank
// does not receive notes, since MPI is called inside operations only.
#include "comm/transport/mpi.h"

#if TRIREME_HAVE_MPI
#    include "base/fault.h"
#    include "base/hash.h"
#    include "comm/transport/timeout_tracker.h"

#    include <sched.h>
#    include <stdio.h>
#    include <stdlib.h>
#    include <string.h>

static const int64_t ask_ns = INT64_C(200000000);
static const int64_t nap_after_ns = INT64_C(1000000), nap_ns = INT64_C(50000);
enum { LOOK = 64 };

// ---- notes -------------------------------------------------------------------------------------
void mpi_note_send(comm_link *link, int rank, const mpi_note *n)
{
    for (mpi_sent_note **at = &link->notes; *at != NULL;) { // those that are gone
        int is_done = 0;
        mpi_sent_note *old = *at;
        (void)link->mpi.Test(&old->request, &is_done, MPI_STATUS_IGNORE);
        if (is_done != 0) {
            *at = old->next;
            free(old);
        } else {
            at = &old->next;
        }
    }
    mpi_sent_note *sent = malloc(sizeof(*sent));
    if (sent == NULL) return; // a note is not worth a failure
    sent->note = *n;
    if (link->mpi.Isend(&sent->note, (int)sizeof(*n), link->mpi.byte, rank, MPI_TAG_NOTE,
                        link->mpi.world, &sent->request) != MPI_SUCCESS) {
        free(sent);
        return;
    }
    sent->next = link->notes;
    link->notes = sent;
}

static void note_take(comm_link *link, mpi_note *n)
{
    mpi_port *p = link->ports;
    while (p != NULL && p->key != n->key) p = p->next;
    if (p == NULL || n->from < 0 || n->from >= link->config.ranks) return;
    n->tensor[MPI_NAME - 1] = n->site[MPI_NAME - 1] = n->text[MPI_TEXT - 1] = '\0';
    if (n->word == MPI_WORD_FAILED) {
        p->announced = true; // by the one that failed
        mpi_port_fail(p, n->code > ST_OK && n->code < STATUS_COUNT ? (status)n->code : ST_PEER_LOST,
                      n->text);
        return;
    }
    const comm_contract *now = &p->now;
    if (!p->busy || n->contract.op == COLLECTIVE_SEND || now->op == COLLECTIVE_SEND ||
        n->contract.sequence != now->sequence || comm_contract_equal(&n->contract, now)) {
        return;
    }
    const status st = mpi_refuse(p, n->from, &n->contract, n->tensor, n->site);
    mpi_port_fail(p, st, error_last()->text);
}

status mpi_notes_take(comm_link *link)
{
    for (int is_there = 1; is_there != 0;) {
        MPI_Status from;
        mpi_note n = {0};
        int code =
            link->mpi.Iprobe(MPI_ANY_SOURCE, MPI_TAG_NOTE, link->mpi.world, &is_there, &from);
        if (code == MPI_SUCCESS && is_there != 0) {
            code = link->mpi.Recv(&n, (int)sizeof(n), link->mpi.byte, from.MPI_SOURCE, MPI_TAG_NOTE,
                                  link->mpi.world, MPI_STATUS_IGNORE);
            if (code == MPI_SUCCESS) note_take(link, &n);
        }
        if (code != MPI_SUCCESS) return mpi_refused(link, "a note of another rank", code);
    }
    return ST_OK;
}

// ---- failures ----------------------------------------------------------------------------------
void mpi_port_fail(mpi_port *p, status code, const char *text)
{
    if (p->failure.code != ST_OK) return; // the first one stays
    p->failure.code = code;
    p->base.link->has_failed = true;
    (void)snprintf(p->failure.text, sizeof(p->failure.text), "%.*s", MPI_TEXT - 1, text);
}

status mpi_health(const mpi_port *p)
{
    const mpi_failure *f = &p->failure, *own = &p->base.link->failure;
    if (f->code != ST_OK) return fail(f->code, "%s", f->text);
    return own->code != ST_OK ? fail(own->code, "%s", own->text) : ST_OK;
}

status mpi_refuse(mpi_port *p, int from, const comm_contract *theirs, const char *tensor,
                  const char *site)
{
    const int me = p->base.link->config.rank;
    const comm_caller own = {.rank = me, .tensor = p->tensor, .site = p->site};
    const comm_caller other = {.rank = from, .tensor = tensor, .site = site};
    const char *group = p->base.members.name;
    if (me < from) return comm_contract_refuse(group, &p->now, &own, theirs, &other);
    return comm_contract_refuse(group, theirs, &other, &p->now, &own);
}

static bool notes_are_gone(comm_link *link)
{
    bool all = true;
    for (mpi_sent_note *n = link->notes; n != NULL; n = n->next) {
        int is_done = 0;
        (void)link->mpi.Test(&n->request, &is_done, MPI_STATUS_IGNORE);
        all = all && is_done != 0;
    }
    return all;
}

status mpi_kill(comm_port *base)
{
    mpi_port *p = mpi_port_of(base);
    comm_link *link = base->link;
    const error_record *e = error_last();
    const int64_t begin = mpi_now(link), most_ns = INT64_C(200000000);
    (void)pthread_mutex_lock(&link->lock);
    mpi_port_fail(p, e->code, e->text);
    mpi_note n = {.word = MPI_WORD_FAILED,
                  .from = link->config.rank,
                  .key = p->key,
                  .code = (int32_t)p->failure.code};
    (void)snprintf(n.text, sizeof(n.text), "%s", p->failure.text);
    for (int i = 0; i < base->members.count && !p->announced; i++) {
        if (i != base->members.me) mpi_note_send(link, base->members.ranks[i], &n);
    }
    p->announced = true;
    while (!notes_are_gone(link) && mpi_now(link) - begin < most_ns) {
        link->config.h->api->sleep_ns(link->config.h, nap_ns);
    }
    const status st = fail(p->failure.code, "%s", p->failure.text);
    (void)pthread_mutex_unlock(&link->lock);
    return st;
}

void mpi_stop(comm_link *link, status code, const char *text)
{
    (void)pthread_mutex_lock(&link->lock);
    if (link->failure.code == ST_OK) {
        link->failure.code = code;
        (void)snprintf(link->failure.text, sizeof(link->failure.text), "%.*s", MPI_TEXT - 1, text);
    }
    (void)pthread_mutex_unlock(&link->lock);
}

void mpi_note_contract(comm_port *base, const comm_contract *contract, const char *tensor,
                       const char *site)
{
    mpi_port *p = mpi_port_of(base);
    (void)pthread_mutex_lock(&base->link->lock);
    p->now = *contract;
    (void)snprintf(p->tensor, sizeof(p->tensor), "%s", tensor != NULL ? tensor : "");
    (void)snprintf(p->site, sizeof(p->site), "%s", site != NULL ? site : "");
    (void)pthread_mutex_unlock(&base->link->lock);
}

// ---- messages ----------------------------------------------------------------------------------
static uint32_t frame_check(const mpi_frame *f)
{
    const uint32_t sum = crc32c(0, &f->contract, (int64_t)offsetof(comm_contract, checksum));
    return crc32c(sum, &f->total, (int64_t)sizeof(*f) - (int64_t)offsetof(mpi_frame, total));
}

static int64_t carried_of(const mpi_half *h)
{
    return h->total <= MPI_CARRIED ? h->total : 0;
}

static status frame_send(mpi_port *p, const comm_contract *contract, mpi_half *h)
{
    comm_link *link = p->base.link;
    mpi_frame *f = &h->parcel.frame;
    *f = (mpi_frame){.contract = *contract, .total = h->total, .sum = crc32c(0, h->at, h->total)};
    memcpy(f->tensor, p->tensor, sizeof(f->tensor));
    memcpy(f->site, p->site, sizeof(f->site));
    f->contract.checksum = frame_check(f);
    h->done = carried_of(h);
    if (h->done > 0) memcpy(h->parcel.payload, h->at, (size_t)h->done);
    const int bytes = (int)sizeof(*f) + (int)h->done;
    if (fault_point("comm.mpi.lose") != ST_OK) { // a message that is lost
        error_clear();
        h->done = h->total;
        return ST_OK;
    }
    if (fault_point("comm.mpi.damage") != ST_OK) {
        error_clear();
        f->sum ^= 1;
    }
    const int code = link->mpi.Isend(&h->parcel, bytes, link->mpi.byte, h->peer,
                                     p->tag + MPI_TAG_FRAME, link->mpi.world, &h->frame_request);
    h->frame_runs = code == MPI_SUCCESS;
    return h->frame_runs ? ST_OK : mpi_refused(link, "a message", code);
}

static status frame_read(mpi_port *p, const comm_contract *contract, mpi_half *h)
{
    mpi_frame *f = &h->parcel.frame;
    const uint32_t check = frame_check(f);
    if (check != f->contract.checksum) {
        return fail(ST_DEVICE, "a frame of rank %d came damaged over MPI: checksum %08x, not %08x",
                    h->peer, check, f->contract.checksum);
    }
    f->tensor[MPI_NAME - 1] = f->site[MPI_NAME - 1] = '\0';
    if (!comm_contract_equal(&f->contract, contract)) {
        return mpi_refuse(p, h->peer, &f->contract, f->tensor, f->site);
    }
    if (f->total != h->total) {
        return fail(ST_DIVERGED,
                    "rank %d sends %lld bytes of %s at %s and rank %d expects %lld at %s", h->peer,
                    (long long)f->total, f->tensor, f->site, p->base.link->config.rank,
                    (long long)h->total, p->site);
    }
    h->has_frame = true;
    h->done = carried_of(h);
    if (h->done > 0) memcpy(h->at, h->parcel.payload, (size_t)h->done);
    return ST_OK;
}

static status piece_post(mpi_port *p, mpi_half *h, bool sends)
{
    comm_link *link = p->base.link;
    const int bytes = (int)min_i64(h->total - h->done, MPI_PIECE_BYTES);
    const int tag = p->tag + MPI_TAG_PIECE;
    const int code = sends ? link->mpi.Isend(h->at + h->done, bytes, link->mpi.byte, h->peer, tag,
                                             link->mpi.world, &h->piece_request)
                           : link->mpi.Irecv(h->at + h->done, bytes, link->mpi.byte, h->peer, tag,
                                             link->mpi.world, &h->piece_request);
    h->piece_runs = code == MPI_SUCCESS;
    return h->piece_runs ? ST_OK : mpi_refused(link, "a piece of a message", code);
}

// *runs is false when it is done.
static status request_test(comm_link *link, MPI_Request *request, bool *runs, bool *moved)
{
    int is_done = 0;
    if (!*runs) return ST_OK;
    const int code = link->mpi.Test(request, &is_done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) {
        *runs = false;
        return mpi_refused(link, "a message", code);
    }
    *runs = is_done == 0;
    *moved = *moved || is_done != 0;
    return ST_OK;
}

static status half_step(mpi_port *p, const comm_contract *contract, mpi_half *h, bool sends,
                        bool *moved)
{
    comm_link *link = p->base.link;
    if (h->ended) return ST_OK;
    TRY(request_test(link, &h->frame_request, &h->frame_runs, moved));
    if (!sends && !h->frame_runs && !h->has_frame) TRY(frame_read(p, contract, h));
    if (!sends && !h->has_frame) return ST_OK;
    if (h->piece_runs) {
        TRY(request_test(link, &h->piece_request, &h->piece_runs, moved));
        if (!h->piece_runs) h->done += min_i64(h->total - h->done, MPI_PIECE_BYTES);
    }
    if (!h->piece_runs && h->done < h->total) return piece_post(p, h, sends);
    h->ended = !h->frame_runs && !h->piece_runs;
    if (!h->ended || sends) return ST_OK;
    const uint32_t sum = crc32c(0, h->at, h->total), wanted = h->parcel.frame.sum;
    if (sum == wanted) return ST_OK;
    return fail(ST_DEVICE, "%s of rank %d came damaged over MPI: checksum %08x, expected %08x",
                p->tensor, h->peer, sum, wanted);
}

static void ask(mpi_port *p)
{
    mpi_note n = {
        .word = MPI_WORD_ASK, .from = p->base.link->config.rank, .key = p->key, .contract = p->now};
    memcpy(n.tensor, p->tensor, sizeof(n.tensor));
    memcpy(n.site, p->site, sizeof(n.site));
    for (int i = 0; i < p->base.members.count; i++) {
        if (i != p->base.members.me) mpi_note_send(p->base.link, p->base.members.ranks[i], &n);
    }
}

static status timed_out(const mpi_port *p, int64_t waited_ns)
{
    char what[256];
    const bool hears = p->receive.ended;
    return fail(
        ST_TIMEOUT, "rank %d waited %.1f s %s rank %d in %s at %s of group %s, over MPI",
        p->base.link->config.rank, (double)waited_ns / 1e9,
        hears ? "to be heard by" : "for a message of", hears ? p->send.peer : p->receive.peer,
        comm_contract_text(&p->now, p->tensor, what, sizeof(what)), p->site, p->base.members.name);
}

// The caller holds the lock, as for all functions here.
static status step(mpi_port *p, const comm_contract *contract, int64_t idle, bool *moved)
{
    TRY(half_step(p, contract, &p->send, true, moved));
    TRY(half_step(p, contract, &p->receive, false, moved));
    if (idle % LOOK != LOOK - 1) return ST_OK;
    TRY(mpi_notes_take(p->base.link));
    return mpi_health(p);
}

static status run(mpi_port *p, const comm_contract *contract)
{
    comm_link *link = p->base.link;
    comm_timeout_tracker timer;
    int64_t idle = 0;
    bool has_asked = false;
    comm_timeout_begin(&timer, mpi_now(link));
    while (!p->send.ended || !p->receive.ended) {
        bool moved = false;
        (void)pthread_mutex_lock(&link->lock);
        const status st = step(p, contract, idle, &moved);
        (void)pthread_mutex_unlock(&link->lock);
        TRY(st);
        if (moved) {
            comm_timeout_begin(&timer, mpi_now(link));
            idle = 0;
            continue;
        }
        if (++idle % LOOK != 0) continue;
        const int64_t waited = comm_timeout_waited(&timer, mpi_now(link));
        if (waited >= link->config.deadline_ns) return timed_out(p, waited);
        if (waited >= ask_ns && !has_asked) {
            (void)pthread_mutex_lock(&link->lock);
            ask(p);
            (void)pthread_mutex_unlock(&link->lock);
            has_asked = true;
        }
        if (waited < nap_after_ns) {
            (void)sched_yield();
        } else {
            link->config.h->api->sleep_ns(link->config.h, nap_ns);
            idle = LOOK - 1; // a nap takes as long as the calls between two checks
        }
    }
    return ST_OK;
}

static status halves_begin(mpi_port *p, const comm_contract *contract, comm_message send,
                           comm_message receive)
{
    comm_link *link = p->base.link;
    mpi_half *s = &p->send, *r = &p->receive;
    s->frame_runs = s->piece_runs = r->frame_runs = r->piece_runs = r->has_frame = false;
    s->ended = send.peer < 0;
    r->ended = receive.peer < 0;
    s->done = r->done = 0;
    if (receive.peer >= 0) {
        r->peer = p->base.members.ranks[receive.peer];
        r->at = receive.receive;
        r->total = receive.bytes;
        const int code =
            link->mpi.Irecv(&r->parcel, MPI_FRAME_BYTES, link->mpi.byte, r->peer,
                            p->tag + MPI_TAG_FRAME, link->mpi.world, &r->frame_request);
        r->frame_runs = code == MPI_SUCCESS;
        if (!r->frame_runs) return mpi_refused(link, "a message", code);
    }
    if (send.peer < 0) return ST_OK;
    s->peer = p->base.members.ranks[send.peer];
    memcpy(&s->at, &send.send, sizeof(s->at)); // only read
    s->total = send.bytes;
    return frame_send(p, contract, s);
}

// Ensures that no request writes to the caller's buffers any more.
static void receives_cancel(mpi_port *p)
{
    comm_link *link = p->base.link;
    (void)pthread_mutex_lock(&link->lock);
    if (p->receive.frame_runs) (void)link->mpi.Cancel(&p->receive.frame_request);
    if (p->receive.piece_runs) (void)link->mpi.Cancel(&p->receive.piece_request);
    (void)pthread_mutex_unlock(&link->lock);
}

status mpi_exchange(comm_port *port, const comm_contract *contract, comm_message send,
                    comm_message receive)
{
    mpi_port *p = mpi_port_of(port);
    comm_link *link = port->link;
    ASSERT(send.peer < port->members.count && receive.peer < port->members.count);
    (void)pthread_mutex_lock(&link->lock);
    status st = mpi_health(p);
    if (st == ST_OK) {
        p->busy = true;
        p->now = *contract;
        st = halves_begin(p, contract, send, receive);
    }
    (void)pthread_mutex_unlock(&link->lock);
    if (st == ST_OK) st = run(p, contract);
    if (st == ST_OK) {
        p->busy = false;
    } else {
        receives_cancel(p);
    }
    return st;
}
#else
typedef int mpi_exchange_is_absent;
#endif
