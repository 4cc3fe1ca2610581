// Notes between ranks of several hosts, and the detection of peers that are silent.
//
// A rank that has waited for a while asks the ranks that it waits for, and some others of the
// group, and names its operation. The asked rank compares this with its own operation of the same
// number: if they differ, the group ends on both, even if no message of the two operations would
// have matched. Its answer says how far it has come. A rank that does not answer for SILENCE, while
// this one was awake, is cut off, and the error names the link. A rank that fails tells all
// members.
#include "comm/transport/ucx.h"

#if TRIREME_HAVE_UCX
#    include "comm/transport/transport_table.h"

#    include <errno.h>
#    include <stdio.h>
#    include <stdlib.h>
#    include <string.h>
#    include <time.h>

static const int64_t silence_ns = INT64_C(1300000000);
static const int64_t pulse_ns = INT64_C(100000000);

// ---- texts -------------------------------------------------------------------------------------
static const char *host_of(const comm_link *link, int rank)
{
    return link->records[rank].host;
}

const char *ucx_link_text(const ucx_peer *peer, char out[UCX_LINK])
{
    const comm_link *link = peer->link;
    (void)snprintf(out, UCX_LINK, "link %s - %s (ucx%s%s)", host_of(link, link->config.rank),
                   host_of(link, peer->rank), peer->over[0] != '\0' ? ", " : "", peer->over);
    return out;
}

const char *ucx_doing_text(const ucx_port *p, char *out, int bytes)
{
    char what[256];
    (void)snprintf(out, (size_t)bytes, "%s at %s of group %s",
                   comm_contract_text(&p->now, p->tensor, what, sizeof(what)),
                   p->site[0] != '\0' ? p->site : "?", p->base.members.name);
    return out;
}

// The lower rank comes first, so both ranks give the same text.
status ucx_refuse(ucx_port *p, int from, const comm_contract *theirs, const char *tensor,
                  const char *site)
{
    const comm_link *link = p->base.link;
    const int me = link->config.rank;
    const comm_caller own = {
        .rank = me, .host = host_of(link, me), .tensor = p->tensor, .site = p->site};
    const comm_caller other = {
        .rank = from, .host = host_of(link, from), .tensor = tensor, .site = site};
    const char *group = p->base.members.name;
    if (me < from) return comm_contract_refuse(group, &p->now, &own, theirs, &other);
    return comm_contract_refuse(group, theirs, &other, &p->now, &own);
}

// ---- failures ----------------------------------------------------------------------------------
// Records a failure; the first one stays. Wakes ranks of this host that wait in shared memory.
void ucx_port_fail(ucx_port *p, status code, const char *text)
{
    if (p->failure.code != ST_OK) return;
    p->failure.code = code;
    p->base.link->has_failed = true;
    (void)snprintf(p->failure.text, sizeof(p->failure.text), "%s", text);
    if (p->across != NULL) ucx_port_fail(ucx_port_of(p->across), code, text);
    if (p->inner == NULL) return;
    const status st = fail(code, "%s", p->failure.text);
    (void)st; // the error of kill
    (void)comm_transport_shm.kill(p->inner);
}

status ucx_health(const ucx_port *p)
{
    const ucx_failure *f = &p->base.link->failure;
    if (p->failure.code != ST_OK) f = &p->failure;
    return f->code == ST_OK ? ST_OK : fail(f->code, "%s", f->text);
}

void ucx_stop(comm_link *link, status code, const char *text)
{
    (void)pthread_mutex_lock(&link->lock);
    if (link->failure.code == ST_OK) {
        link->failure.code = code;
        (void)snprintf(link->failure.text, sizeof(link->failure.text), "%s", text);
    }
    (void)pthread_mutex_unlock(&link->lock);
    if (link->inner != NULL) comm_transport_shm.stop(link->inner, code, text);
}

static bool is_here(const ucx_port *p, int member)
{
    return member == p->base.members.me || p->inner_of[member] >= 0;
}

// Members on this host learn of the failure through shared memory. A note to a rank that has no
// connection yet needs that rank's help to connect, and it may have no core for a while. So this
// waits; a rank that left earlier would leave the others to guess.
status ucx_kill(comm_port *base)
{
    ucx_port *p = ucx_port_of(base);
    comm_link *link = base->link;
    const error_record *e = error_last();
    const int64_t begin = ucx_now(link), most_ns = INT64_C(2000000000);
    (void)pthread_mutex_lock(&link->lock);
    ucx_port_fail(p, e->code, e->text);
    ucx_note n = {.word = UCX_FAILED,
                  .from = link->config.rank,
                  .key = p->key,
                  .code = (int32_t)p->failure.code};
    n.text_bytes = snprintf(n.text, sizeof(n.text), "%s", p->failure.text);
    for (int i = 0; i < base->members.count && !p->announced; i++) {
        if (!is_here(p, i)) ucx_note_send(link, base->members.ranks[i], &n);
    }
    p->announced = true;
    while (link->notes > 0 && ucx_now(link) - begin < most_ns) {
        if (!ucx_pump(link)) link->config.h->api->sleep_ns(link->config.h, 20000);
    }
    const status st = fail(p->failure.code, "%s", p->failure.text);
    (void)pthread_mutex_unlock(&link->lock);
    return st;
}

// ---- notes -------------------------------------------------------------------------------------
typedef struct sent_note {
    comm_link *link;
    ucx_note note;
} sent_note;

static void on_note_sent(void *request, ucs_status_t st, void *user_data)
{
    sent_note *s = user_data;
    (void)st; // a rank that does not get it is gone
    s->link->notes--;
    s->link->ucp.request_free(request);
    free(s);
}

// Sends a note if possible. A peer that cannot be reached is detected by a wait for it.
void ucx_note_send(comm_link *link, int rank, const ucx_note *n)
{
    if (link->peers[rank].gone) return;
    if (ucx_peer_open(link, rank) != ST_OK) {
        error_clear();
        return;
    }
    sent_note *s = malloc(sizeof(*s));
    if (s == NULL) return;
    s->link = link;
    s->note = *n;
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                       UCP_OP_ATTR_FIELD_USER_DATA |
                                                       UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_AM_SEND_FLAG_EAGER,
                                       .cb.send = on_note_sent,
                                       .user_data = s};
    const size_t bytes = offsetof(ucx_note, text) + (size_t)n->text_bytes;
    link->notes++;
    ucs_status_ptr_t r =
        link->ucp.am_send_nbx(link->peers[rank].ep, 1, NULL, 0, &s->note, bytes, &param);
    if (r != NULL && !UCS_PTR_IS_ERR(r)) return;
    link->notes--; // it is done, or never will be
    free(s);
}

static ucx_port *port_find(const comm_link *link, uint64_t key)
{
    for (ucx_port *p = link->ports; p != NULL; p = p->next) {
        if (p->key == key) return p;
    }
    return NULL;
}

static void owe(comm_link *link, int rank, uint64_t key, ucx_word word)
{
    if (link->owed_count == UCX_ASKED) return; // it will ask again
    link->owed[link->owed_count].rank = rank;
    link->owed[link->owed_count].key = key;
    link->owed[link->owed_count++].word = word;
}

// Sends and receives are counted per pair, so they are not compared.
static void compare(ucx_port *p, int from, const ucx_note *n)
{
    const bool is_pair = n->contract.op == COLLECTIVE_SEND || p->now.op == COLLECTIVE_SEND;
    if (is_pair || n->contract.sequence != p->now.sequence ||
        comm_contract_equal(&n->contract, &p->now)) {
        return;
    }
    const status st = ucx_refuse(p, from, &n->contract, n->tensor, n->site);
    ucx_port_fail(p, st, error_last()->text);
}

static void asked(comm_link *link, ucx_port *p, const ucx_note *n)
{
    owe(link, n->from, n->key, UCX_ANSWER);
    if (p != NULL && p->failure.code == ST_OK) compare(p, n->from, n);
}

static int member_of(const ucx_port *p, int rank)
{
    int low = 0, high = p->base.members.count - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (p->base.members.ranks[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return p->base.members.ranks[low] == rank ? low : -1;
}

// Takes a note of another process, all of whose fields are checked before use.
void ucx_note_take(comm_link *link, const void *data, size_t bytes)
{
    ucx_note n = {0};
    error_record kept;
    if (bytes < offsetof(ucx_note, text) || bytes > sizeof(n)) return;
    memcpy(&n, data, bytes);
    if (n.from < 0 || n.from >= link->config.ranks) return;
    n.tensor[UCX_NAME - 1] = n.site[UCX_NAME - 1] = n.text[UCX_TEXT - 1] = '\0';
    ucx_peer *peer = &link->peers[n.from];
    ucx_port *p = port_find(link, n.key);
    const int member = p != NULL ? member_of(p, n.from) : -1;
    peer->heard = true;
    error_take(&kept);
    if (n.word == UCX_BYE) {
        peer->bye = true;
        if (!peer->said_bye) owe(link, n.from, 0, UCX_BYE);
    } else if (n.word == UCX_ASK && (p == NULL || member >= 0)) {
        asked(link, p, &n);
    } else if (n.word == UCX_ANSWER && member >= 0) {
        p->begun[member] = n.begun;
    } else if (n.word == UCX_FAILED && member >= 0 && n.code > ST_OK && n.code < STATUS_COUNT) {
        p->announced = true; // by the one that failed
        ucx_port_fail(p, (status)n.code, n.text);
    }
    (void)error_put(&kept);
}

static void pay(comm_link *link)
{
    for (int i = 0; i < link->owed_count; i++) {
        const ucx_port *p = port_find(link, link->owed[i].key);
        const ucx_note n = {.word = link->owed[i].word,
                            .from = link->config.rank,
                            .key = link->owed[i].key,
                            .begun = p != NULL ? p->own_begun : 0};
        if (n.word == UCX_BYE) link->peers[link->owed[i].rank].said_bye = true;
        ucx_note_send(link, link->owed[i].rank, &n);
    }
    link->owed_count = 0;
}

bool ucx_pump(comm_link *link)
{
    bool moved = false;
    for (int i = 0; i < 64 && link->ucp.worker_progress(link->worker) != 0; i++) moved = true;
    if (link->owed_count > 0) pay(link);
    return moved;
}

void ucx_ask(ucx_port *p)
{
    comm_link *link = p->base.link;
    const comm_members *m = &p->base.members;
    const int64_t now = ucx_now(link);
    ucx_note n = {.word = UCX_ASK, .from = link->config.rank, .key = p->key, .contract = p->now};
    memcpy(n.tensor, p->tensor, sizeof(n.tensor));
    memcpy(n.site, p->site, sizeof(n.site));
    const ucx_half *halves[2] = {&p->send, &p->receive};
    p->has_waited = true;
    for (int i = 0; i < 2; i++) {
        ucx_peer *peer = halves[i]->peer;
        if (peer == NULL || halves[i]->ended) continue;
        if (i == 1 && !halves[0]->ended && peer == halves[0]->peer) continue;
        if (peer->asked_ns == 0) peer->asked_ns = now;
        ucx_note_send(link, peer->rank, &n);
    }
    for (int i = 1, asked = 0; i < m->count && asked < UCX_ASKED; i++) {
        const int member = (m->me + i) % m->count;
        const ucx_peer *peer = &link->peers[m->ranks[member]];
        if (is_here(p, member) || peer == p->send.peer || peer == p->receive.peer) continue;
        ucx_note_send(link, peer->rank, &n);
        asked++;
    }
}

status ucx_silence(ucx_port *p, ucx_peer *peer, int64_t late_ns)
{
    char doing[400], name[UCX_LINK];
    if (peer->heard) {
        peer->heard = false;
        peer->asked_ns = 0;
    }
    if (peer->asked_ns != 0) peer->asked_ns += late_ns;
    const int64_t silent_ns = peer->asked_ns != 0 ? ucx_now(peer->link) - peer->asked_ns : 0;
    if (silent_ns < silence_ns) return ST_OK;
    return fail(ST_PEER_LOST,
                "the %s is cut or rank %d stands still: nothing came for %.1f s in %s",
                ucx_link_text(peer, name), peer->rank, (double)silent_ns / 1e9,
                ucx_doing_text(p, doing, sizeof(doing)));
}

int ucx_waits_for(comm_link *link, comm_awaited *out, int capacity)
{
    int count = link->inner != NULL ? comm_transport_shm.waits_for(link->inner, out, capacity) : 0;
    (void)pthread_mutex_lock(&link->lock);
    for (const ucx_port *p = link->ports; p != NULL; p = p->next) {
        const ucx_half *halves[2] = {&p->send, &p->receive};
        for (int i = 0; i < 2 && p->busy && p->has_waited && count < capacity; i++) {
            const ucx_peer *peer = halves[i]->peer;
            if (halves[i]->ended || (i == 1 && !p->send.ended && peer == p->send.peer)) continue;
            out[count++] = (comm_awaited){
                .rank = peer->rank, .group = p->base.members.group, .operation = p->now.sequence};
        }
    }
    (void)pthread_mutex_unlock(&link->lock);
    return count;
}

// ---- this rank's own ---------------------------------------------------------------------------
void ucx_note_contract(comm_port *base, const comm_contract *contract, const char *tensor,
                       const char *site)
{
    ucx_port *p = ucx_port_of(base);
    if (p->inner != NULL) comm_transport_shm.note(p->inner, contract, tensor, site);
    if (p->across != NULL) ucx_note_contract(p->across, contract, tensor, site);
    (void)pthread_mutex_lock(&base->link->lock);
    p->now = *contract;
    if (contract->op != COLLECTIVE_SEND) p->own_begun = contract->sequence;
    (void)snprintf(p->tensor, sizeof(p->tensor), "%s", tensor != NULL ? tensor : "");
    (void)snprintf(p->site, sizeof(p->site), "%s", site != NULL ? site : "");
    (void)pthread_mutex_unlock(&base->link->lock);
}

// The pulse does not disturb a working thread: a thread that holds the lock answers, too.
void *ucx_pulse_main(void *argument)
{
    comm_link *link = argument;
    (void)pthread_mutex_lock(&link->lock);
    while (!link->pulse_ends) {
        struct timespec until;
        (void)ucx_pump(link);
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += pulse_ns;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&link->pulse_wakes, &link->lock, &until);
    }
    (void)pthread_mutex_unlock(&link->lock);
    return NULL;
}
#else
typedef int ucx_watch_is_absent;
#endif
