// Messages between hosts.
//
//   frame     the contract, names for people, the length; a short message travels behind it
//   pieces    512 KiB each, a few under way, received straight into their place; more than a few
//             only once the receiver has said that it is there, so what lies about unasked has a
//             bound
//   trailer   of several pieces: the checksum, which is made piece by piece while others travel
//
// Both sides know the operation, so a receiver's buffers are ready before the bytes arrive. Frames,
// pieces and trailers of one rank in one group have one tag, whose order UCX keeps. A sent buffer
// may be used again when exchange() returns. Ranks of one host use shared memory instead.
#include "comm/transport/ucx.h"

#if TRIREME_HAVE_UCX
#    include "base/fault.h"
#    include "base/hash.h"
#    include "comm/transport/timeout_tracker.h"
#    include "comm/transport/transport_table.h"

#    include <poll.h>
#    include <sched.h>
#    include <string.h>

static const int64_t ask_ns = INT64_C(200000000);
static const int64_t look_ns = INT64_C(20000000);
static const int64_t linger_ns = INT64_C(250000000);
static const int64_t nap_ns = INT64_C(5000000);

// ---- requests ----------------------------------------------------------------------------------
static void finished(ucx_slot *slot, void *request, ucs_status_t st)
{
    slot->done = true;
    slot->result = st;
    if (st == UCS_OK) slot->peer->heard = true;
    if (request != NULL) slot->peer->link->ucp.request_free(request);
}

static void on_sent(void *request, ucs_status_t st, void *user_data)
{
    finished(user_data, request, st);
}

static void on_received(void *request, ucs_status_t st, const ucp_tag_recv_info_t *info,
                        void *user_data)
{
    ((ucx_slot *)user_data)->bytes = info->length;
    finished(user_data, request, st);
}

void ucx_posted(comm_link *link, ucx_slot *slot, ucs_status_ptr_t result)
{
    slot->posted = true;
    if (slot->done) return; // the callback was faster
    slot->request = result;
    if (result != NULL && !UCS_PTR_IS_ERR(result)) return;
    slot->request = NULL;
    slot->done = true;
    slot->result = result == NULL ? UCS_OK : UCS_PTR_STATUS(result);
    (void)link;
}

static uint64_t tag_of(const ucx_port *p, int from)
{
    return p->key | (uint64_t)(uint32_t)from;
}

static void tagged_send(ucx_port *p, ucx_slot *slot, ucx_peer *peer, const void *at, int64_t bytes,
                        uint64_t tag)
{
    comm_link *link = p->base.link;
    *slot = (ucx_slot){.peer = peer};
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = on_sent,
                                       .user_data = slot};
    ucx_posted(link, slot, link->ucp.tag_send_nbx(peer->ep, at, (size_t)bytes, tag, &param));
}

static void slot_send(ucx_port *p, ucx_slot *slot, ucx_peer *peer, const void *at, int64_t bytes)
{
    tagged_send(p, slot, peer, at, bytes, tag_of(p, p->base.link->config.rank));
}

static void tagged_receive(ucx_port *p, ucx_slot *slot, ucx_peer *peer, void *at, int64_t bytes,
                           uint64_t tag)
{
    comm_link *link = p->base.link;
    *slot = (ucx_slot){.peer = peer};
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                       UCP_OP_ATTR_FIELD_USER_DATA |
                                                       UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                       .cb.recv = on_received,
                                       .user_data = slot};
    ucx_posted(link, slot,
               link->ucp.tag_recv_nbx(link->worker, at, (size_t)bytes, tag, UINT64_MAX, &param));
}

static void slot_receive(ucx_port *p, ucx_slot *slot, ucx_peer *peer, void *at, int64_t bytes)
{
    tagged_receive(p, slot, peer, at, bytes, tag_of(p, peer->rank));
}

// ---- peers -------------------------------------------------------------------------------------
static void on_gone(void *argument, ucp_ep_h ep, ucs_status_t st)
{
    ucx_peer *peer = argument;
    (void)ep;
    peer->gone = true;
    (void)snprintf(peer->why, sizeof(peer->why), "%s", peer->link->ucp.status_text(st));
}

// Finds the network that UCX uses for the peer: the "tcp/eth0" of the first lane in UCX's printed
// description.
static void over_find(ucx_peer *peer)
{
    char text[2048] = "";
    FILE *stream = fmemopen(text, sizeof(text) - 1, "w");
    if (stream == NULL) return;
    peer->link->ucp.ep_print_info(peer->ep, stream);
    (void)fclose(stream);
    const char *lane = strstr(text, "lane[0]:");
    const char *name = lane != NULL ? strchr(lane + strlen("lane[0]:"), ':') : NULL;
    if (name == NULL) return;
    const size_t length = strcspn(name + 1, ". \n");
    if (length < sizeof(peer->over)) memcpy(peer->over, name + 1, length);
}

static status lost(const ucx_peer *peer, const char *why, const char *doing)
{
    char name[UCX_LINK];
    return fail(ST_PEER_LOST, "rank %d (%s) is gone: the %s ended (%s) in %s", peer->rank,
                peer->link->records[peer->rank].host, ucx_link_text(peer, name), why, doing);
}

status ucx_peer_open(comm_link *link, int rank)
{
    ucx_peer *peer = &link->peers[rank];
    if (peer->ep != NULL) return ST_OK;
    if (peer->gone) return lost(peer, peer->why, "connecting");
    if (link->records[rank].address_bytes == 0) {
        return fail(ST_INTERNAL, "rank %d shares no group with rank %d", rank, link->config.rank);
    }
    TRY(fault_point("comm.ucx.connect"));
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)(const void *)link->records[rank].address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_gone, .arg = peer}};
    const ucs_status_t st = link->ucp.ep_create(link->worker, &params, &peer->ep);
    if (st != UCS_OK) {
        peer->ep = NULL;
        return lost(peer, link->ucp.status_text(st), "connecting");
    }
    over_find(peer);
    return ST_OK;
}

void ucx_peer_close(ucx_peer *peer)
{
    comm_link *link = peer->link;
    const int64_t begin = ucx_now(link), most_ns = INT64_C(200000000);
    if (peer->ep == NULL) return;
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_EP_CLOSE_FLAG_FORCE};
    const ucs_status_ptr_t r = link->ucp.ep_close_nbx(peer->ep, &param);
    peer->ep = NULL;
    peer->gone = true;
    if (peer->why[0] == '\0') (void)snprintf(peer->why, sizeof(peer->why), "closed");
    if (r == NULL || UCS_PTR_IS_ERR(r)) return;
    while (link->ucp.request_check_status(r) == UCS_INPROGRESS && ucx_now(link) - begin < most_ns) {
        (void)ucx_pump(link);
    }
    link->ucp.request_free(r);
}

// ---- sending -----------------------------------------------------------------------------------
static int64_t piece_count(const ucx_half *h)
{
    if (h->total <= UCX_INLINE) return 0;
    return (h->total + UCX_PIECE_BYTES - 1) / UCX_PIECE_BYTES;
}

static uint32_t frame_check(const ucx_frame *f)
{
    const uint32_t sum = crc32c(
        0, &f->total, (int64_t)offsetof(ucx_frame, check) - (int64_t)offsetof(ucx_frame, total));
    return crc32c(sum, f->tensor, (int64_t)sizeof(f->tensor) + (int64_t)sizeof(f->site));
}

static uint32_t contract_check(const comm_contract *k)
{
    return crc32c(0, k, (int64_t)offsetof(comm_contract, checksum));
}

static void send_begin(ucx_port *p, const comm_contract *contract, ucx_half *h)
{
    ucx_frame *f = &h->parcel.frame;
    f->contract = *contract;
    f->contract.checksum = contract_check(contract);
    f->total = h->total;
    memcpy(f->tensor, p->tensor, sizeof(f->tensor));
    memcpy(f->site, p->site, sizeof(f->site));
    const int64_t carried = h->total <= UCX_INLINE ? h->total : 0;
    if (carried > 0) memcpy(h->parcel.payload, h->at, (size_t)carried);
    f->sum = h->total <= UCX_PIECE_BYTES ? crc32c(0, h->at, h->total) : 0;
    if (fault_point("comm.ucx.damage") != ST_OK) { // a test damages a message
        error_clear();
        f->sum ^= 1;
    }
    f->check = frame_check(f);
    slot_send(p, &h->frame_slot, h->peer, &h->parcel, (int64_t)sizeof(*f) + carried);
    if (piece_count(h) <= UCX_WINDOW) return;
    tagged_receive(p, &h->ready_slot, h->peer, &h->ready, (int64_t)sizeof(h->ready),
                   tag_of(p, h->peer->rank) | UCX_READY);
}

// A receive does not notice that its sender is gone. A peer that ends because the group failed
// closes its connections, so this waits a while for a note that says why.
static status half_check(const ucx_port *p, const ucx_half *h)
{
    char doing[400];
    if (h->ended || !h->peer->gone) return ST_OK;
    const int64_t now = ucx_now(p->base.link);
    if (h->peer->gone_ns == 0) h->peer->gone_ns = now;
    if (now - h->peer->gone_ns < linger_ns) return ST_OK;
    return lost(h->peer, h->peer->why, ucx_doing_text(p, doing, sizeof(doing)));
}

// Returns whether the request ended well. A failed one leaves its half open, for half_check.
static bool is_done(const ucx_slot *slot)
{
    if (!slot->done || slot->result == UCS_OK) return slot->done;
    ucx_peer *peer = slot->peer;
    if (!peer->gone) {
        peer->gone = true;
        (void)snprintf(peer->why, sizeof(peer->why), "%s",
                       peer->link->ucp.status_text(slot->result));
    }
    return false;
}

// A finished piece frees its slot for the next one. The trailer follows the last piece.
static void send_step(ucx_port *p, ucx_half *h, bool *moved)
{
    const int64_t pieces = piece_count(h);
    while (h->pieces_done < h->pieces_posted && is_done(&h->slots[h->pieces_done % UCX_WINDOW])) {
        h->pieces_done++;
        *moved = true;
    }
    const int64_t allowed = pieces <= UCX_WINDOW || is_done(&h->ready_slot) ? pieces : UCX_WINDOW;
    while (h->pieces_posted < allowed && h->pieces_posted - h->pieces_done < UCX_WINDOW) {
        const int64_t bytes = min_i64(UCX_PIECE_BYTES, h->total - h->posted);
        if (pieces > 1) h->sum = crc32c(h->sum, h->at + h->posted, bytes);
        slot_send(p, &h->slots[h->pieces_posted++ % UCX_WINDOW], h->peer, h->at + h->posted, bytes);
        h->posted += bytes;
        *moved = true;
        (void)ucx_pump(p->base.link);
    }
    if (pieces > 1 && h->pieces_posted == pieces && !h->trailer_slot.posted) {
        h->trailer = (ucx_trailer){.total = h->total, .sum = h->sum};
        slot_send(p, &h->trailer_slot, h->peer, &h->trailer, (int64_t)sizeof(h->trailer));
    }
    h->ended = is_done(&h->frame_slot) && h->pieces_done == pieces &&
               (pieces <= 1 || is_done(&h->trailer_slot));
    if (h->ended) *moved = true;
}

// ---- receiving ---------------------------------------------------------------------------------
static void pieces_want(ucx_port *p, ucx_half *h)
{
    const int64_t pieces = piece_count(h);
    while (h->pieces_posted < pieces && h->pieces_posted - h->pieces_done < UCX_WINDOW) {
        const int64_t bytes = min_i64(UCX_PIECE_BYTES, h->total - h->posted);
        slot_receive(p, &h->slots[h->pieces_posted++ % UCX_WINDOW], h->peer, h->at + h->posted,
                     bytes);
        h->posted += bytes;
    }
    if (pieces > 1 && h->pieces_posted == pieces && !h->trailer_slot.posted) {
        slot_receive(p, &h->trailer_slot, h->peer, &h->trailer, (int64_t)sizeof(h->trailer));
    }
}

static status damaged(const ucx_port *p, const ucx_half *h, const char *what, uint32_t is,
                      uint32_t wanted)
{
    char name[UCX_LINK], doing[400];
    return fail(ST_DEVICE,
                "%s of rank %d came damaged over the %s: checksum %08x, expected %08x, in %s", what,
                h->peer->rank, ucx_link_text(h->peer, name), is, wanted,
                ucx_doing_text(p, doing, sizeof(doing)));
}

static status frame_read(ucx_port *p, const comm_contract *contract, ucx_half *h)
{
    ucx_frame *f = &h->parcel.frame;
    if (h->frame_slot.bytes < sizeof(*f)) return damaged(p, h, "a frame", 0, 1);
    const uint32_t checks[2] = {contract_check(&f->contract), frame_check(f)};
    if (checks[0] != f->contract.checksum) {
        return damaged(p, h, "a contract", checks[0], f->contract.checksum);
    }
    if (checks[1] != f->check) return damaged(p, h, "a frame", checks[1], f->check);
    f->tensor[UCX_NAME - 1] = f->site[UCX_NAME - 1] = '\0';
    if (!comm_contract_equal(&f->contract, contract)) {
        return ucx_refuse(p, h->peer->rank, &f->contract, f->tensor, f->site);
    }
    const int64_t carried = h->total <= UCX_INLINE ? h->total : 0;
    if (f->total != h->total || h->frame_slot.bytes != sizeof(*f) + (size_t)carried) {
        return fail(ST_DIVERGED,
                    "rank %d sends %lld bytes of %s at %s and rank %d expects %lld at %s",
                    h->peer->rank, (long long)f->total, f->tensor, f->site,
                    p->base.link->config.rank, (long long)h->total, p->site);
    }
    if (carried > 0) memcpy(h->at, h->parcel.payload, (size_t)carried);
    h->done = carried;
    h->sum = crc32c(0, h->at, carried);
    return ST_OK;
}

// The frame describes the pieces, so it is handled first even if both are there.
static status receive_step(ucx_port *p, const comm_contract *contract, ucx_half *h, bool *moved)
{
    const int64_t pieces = piece_count(h);
    if (!is_done(&h->frame_slot)) return ST_OK;
    if (!h->has_frame) {
        TRY(frame_read(p, contract, h));
        h->has_frame = *moved = true;
    }
    while (h->pieces_done < h->pieces_posted && is_done(&h->slots[h->pieces_done % UCX_WINDOW])) {
        const ucx_slot *slot = &h->slots[h->pieces_done % UCX_WINDOW];
        h->sum = crc32c(h->sum, h->at + h->done, (int64_t)slot->bytes);
        h->done += (int64_t)slot->bytes;
        h->pieces_done++;
        *moved = true;
        pieces_want(p, h);
    }
    if (pieces > UCX_WINDOW && !is_done(&h->ready_slot)) return ST_OK;
    if (h->done < h->total || (pieces > 1 && !is_done(&h->trailer_slot))) return ST_OK;
    const uint32_t wanted = pieces > 1 ? h->trailer.sum : h->parcel.frame.sum;
    if (h->sum != wanted) return damaged(p, h, "a message", h->sum, wanted);
    h->ended = *moved = true;
    return ST_OK;
}

// ---- both --------------------------------------------------------------------------------------
// A verdict of the control plane may come before this rank's own error, which names the link.
static status stopped(const ucx_port *p)
{
    char name[UCX_LINK];
    const ucx_half *h = p->receive.ended ? &p->send : &p->receive;
    const comm_link *link = p->base.link;
    const status st = ucx_health(p);
    if (st == ST_OK || p->failure.code != ST_OK || h->peer == NULL) return st;
    const bool silent = h->peer->asked_ns != 0 && !h->peer->heard;
    return fail(st, "%s; %s over the %s", link->failure.text,
                silent ? "nothing comes" : "this rank waits", ucx_link_text(h->peer, name));
}

static void half_begin(ucx_port *p, ucx_half *h, int member, char *at, int64_t bytes)
{
    ASSERT(member != p->base.members.me);
    h->peer = &p->base.link->peers[p->base.members.ranks[member]];
    h->at = at;
    h->total = bytes;
    h->ended = false;
}

static void half_clear(ucx_half *h)
{
    h->peer = NULL;
    h->posted = h->done = h->pieces_posted = h->pieces_done = 0;
    h->sum = 0;
    h->has_frame = false;
    h->ended = true;
    h->frame_slot = h->trailer_slot = h->ready_slot = (ucx_slot){0};
    memset(h->slots, 0, sizeof(h->slots));
}

static bool half_rests(const ucx_half *h)
{
    bool open = h->frame_slot.posted && !h->frame_slot.done;
    open = open || (h->trailer_slot.posted && !h->trailer_slot.done);
    open = open || (h->ready_slot.posted && !h->ready_slot.done);
    for (int i = 0; i < UCX_WINDOW; i++) open = open || (h->slots[i].posted && !h->slots[i].done);
    return !open;
}

static void half_cancel(ucx_port *p, ucx_half *h)
{
    enum { SLOTS = UCX_WINDOW + 3 };
    ucx_slot *slots[SLOTS] = {&h->frame_slot, &h->trailer_slot, &h->ready_slot};
    for (int i = 0; i < UCX_WINDOW; i++) slots[3 + i] = &h->slots[i];
    for (int i = 0; i < SLOTS; i++) {
        if (!slots[i]->posted || slots[i]->done || slots[i]->request == NULL) continue;
        p->base.link->ucp.request_cancel(p->base.link->worker, slots[i]->request);
    }
}

static bool rest(ucx_port *p, int64_t most_ns)
{
    comm_link *link = p->base.link;
    const int64_t begin = ucx_now(link);
    while (!half_rests(&p->send) || !half_rests(&p->receive)) {
        if (ucx_now(link) - begin > most_ns) return false;
        (void)ucx_pump(link);
    }
    return true;
}

// After an error no request may still write to the caller's buffers. One that cannot be cancelled
// ends with its connection.
static void drop(ucx_port *p)
{
    error_record kept;
    error_take(&kept);
    half_cancel(p, &p->receive);
    half_cancel(p, &p->send); // the answer that it waits for
    if (!rest(p, 20000000)) {
        if (p->send.peer != NULL && !half_rests(&p->send)) ucx_peer_close(p->send.peer);
        if (p->receive.peer != NULL && !half_rests(&p->receive)) ucx_peer_close(p->receive.peer);
        p->busy = !rest(p, 200000000);
    } else {
        p->busy = false;
    }
    (void)error_put(&kept);
}

// A rank that cannot be reached may have left because the group failed; a note that says why comes
// soon.
static status reach(ucx_port *p, const ucx_peer *peer)
{
    comm_link *link = p->base.link;
    const int64_t begin = ucx_now(link);
    error_record kept;
    if (ucx_peer_open(link, peer->rank) == ST_OK) return ST_OK;
    error_take(&kept);
    while (ucx_now(link) - begin < linger_ns) {
        if (!ucx_pump(link)) link->config.h->api->sleep_ns(link->config.h, 1000000);
        TRY(stopped(p));
    }
    return error_put(&kept);
}

static status begin(ucx_port *p, const comm_contract *contract, const comm_message *send,
                    const comm_message *receive)
{
    ucx_half *in = &p->receive, *out = &p->send;
    half_clear(in);
    half_clear(out);
    p->busy = true;
    p->has_waited = false;
    if (receive != NULL) half_begin(p, in, receive->peer, receive->receive, receive->bytes);
    if (send != NULL) {
        half_begin(p, out, send->peer, (char *)(uintptr_t)send->send, send->bytes);
    }
    TRY(stopped(p));
    if (receive != NULL) {
        TRY(reach(p, in->peer));
        slot_receive(p, &in->frame_slot, in->peer, &in->parcel, (int64_t)sizeof(in->parcel));
        pieces_want(p, in);
        if (piece_count(in) > UCX_WINDOW) {
            tagged_send(p, &in->ready_slot, in->peer, &in->ready, (int64_t)sizeof(in->ready),
                        tag_of(p, p->base.link->config.rank) | UCX_READY);
        }
    }
    if (send != NULL) {
        TRY(reach(p, out->peer));
        send_begin(p, contract, out);
    }
    return ST_OK;
}

static status timed_out(const ucx_port *p, int64_t waited_ns)
{
    char doing[400], name[UCX_LINK];
    const ucx_half *h = p->receive.ended ? &p->send : &p->receive;
    return fail(ST_TIMEOUT, "rank %d waited %.1f s %s rank %d over the %s in %s",
                p->base.link->config.rank, (double)waited_ns / 1e9,
                p->receive.ended ? "to be heard by" : "for a message of", h->peer->rank,
                ucx_link_text(h->peer, name), ucx_doing_text(p, doing, sizeof(doing)));
}

// Checks the clock: the deadline, questions to ask, silent peers.
typedef struct watch {
    comm_timeout_tracker timer;
    int64_t asked_ns;
} watch;

static status look(ucx_port *p, watch *w)
{
    const comm_link *link = p->base.link;
    const int64_t now = ucx_now(link);
    if (now - w->timer.looked_ns < look_ns) return ST_OK;
    const int64_t late = comm_timeout_look(&w->timer, now);
    const int64_t waited = now - w->timer.begin_ns;
    if (waited >= link->config.deadline_ns) return timed_out(p, waited);
    if (!p->send.ended) TRY(ucx_silence(p, p->send.peer, late));
    if (!p->receive.ended && p->receive.peer != p->send.peer) {
        TRY(ucx_silence(p, p->receive.peer, late));
    } else if (!p->receive.ended && p->send.ended) {
        TRY(ucx_silence(p, p->receive.peer, late));
    }
    if (now - w->asked_ns >= ask_ns) {
        w->asked_ns = now;
        ucx_ask(p);
    }
    return ST_OK;
}

// *moved says whether anything was sent or received, in any group. A deadline measures time without
// progress.
static status step(ucx_port *p, const comm_contract *contract, watch *w, bool *moved)
{
    const bool pumped = ucx_pump(p->base.link);
    TRY(stopped(p));
    if (!p->send.ended) send_step(p, &p->send, moved);
    if (!p->receive.ended) TRY(receive_step(p, contract, &p->receive, moved));
    if (p->send.ended && p->receive.ended) return ST_OK;
    if (!*moved) TRY(half_check(p, &p->send));
    if (!*moved) TRY(half_check(p, &p->receive));
    if (*moved) w->timer.begin_ns = ucx_now(p->base.link);
    *moved = *moved || pumped;
    return look(p, w);
}

// Yields the core, which UCX's own thread or another rank may need.
static void nap(const comm_link *link, bool armed)
{
    struct pollfd f = {.fd = link->efd, .events = POLLIN};
    if (armed) {
        (void)poll(&f, 1, (int)(nap_ns / 1000000));
    } else {
        (void)sched_yield();
    }
}

// The caller holds the lock, which is released between two checks.
static status wait_for(ucx_port *p, const comm_contract *contract)
{
    comm_link *link = p->base.link;
    const int64_t now = ucx_now(link);
    watch w = {.timer = {.begin_ns = now, .looked_ns = now}, .asked_ns = now};
    for (int64_t idle = 0;;) {
        bool moved = false;
        TRY(step(p, contract, &w, &moved));
        if (p->send.ended && p->receive.ended) return ST_OK;
        idle = moved ? 0 : idle + 1;
        const bool is_idle = idle > link->spins;
        const bool armed = is_idle && link->ucp.worker_arm(link->worker) == UCS_OK;
        (void)pthread_mutex_unlock(&link->lock);
        if (is_idle) nap(link, armed);
        (void)pthread_mutex_lock(&link->lock);
    }
}

// The part of an exchange that stays on this host.
static status exchange_here(ucx_port *p, const comm_contract *contract, const comm_message *send,
                            const comm_message *receive)
{
    comm_message s = {.peer = -1}, r = {.peer = -1};
    if (send != NULL) s = *send;
    if (receive != NULL) r = *receive;
    if (send != NULL) s.peer = p->inner_of[send->peer];
    if (receive != NULL) r.peer = p->inner_of[receive->peer];
    return comm_transport_shm.exchange(p->inner, contract, s, r);
}

status ucx_exchange(comm_port *port, const comm_contract *contract, comm_message send,
                    comm_message receive)
{
    ucx_port *p = ucx_port_of(port);
    comm_link *link = port->link;
    const bool send_here = send.peer >= 0 && p->inner_of[send.peer] >= 0;
    const bool receive_here = receive.peer >= 0 && p->inner_of[receive.peer] >= 0;
    const bool send_far = send.peer >= 0 && !send_here;
    const bool receive_far = receive.peer >= 0 && !receive_here;
    status st = ST_OK;
    if (send_far || receive_far) {
        (void)pthread_mutex_lock(&link->lock);
        st = begin(p, contract, send_far ? &send : NULL, receive_far ? &receive : NULL);
        if (st != ST_OK) drop(p);
        (void)pthread_mutex_unlock(&link->lock);
        TRY(st);
    }
    if (send_here || receive_here) {
        st = exchange_here(p, contract, send_here ? &send : NULL, receive_here ? &receive : NULL);
    }
    if (send_far || receive_far) {
        (void)pthread_mutex_lock(&link->lock);
        if (st == ST_OK) st = wait_for(p, contract);
        if (st == ST_OK) {
            p->busy = false;
        } else {
            drop(p);
        }
        (void)pthread_mutex_unlock(&link->lock);
    }
    return st;
}
#else
typedef int ucx_exchange_is_absent;
#endif
