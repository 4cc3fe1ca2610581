// The sockets, clocks and bytes around one member's quorum machine, in a thread of its own.
//
//   link m    the connection to member m: the member with the larger number connects. While it
//             is unproven it is one of `strangers`, which has no number yet.
//   frame     CONTROL_MSG_COUNCIL: a message of the machine, for ENTRY with the record's bytes, or
//             a report of the sender; each with the incarnation of the sender, and that of the
//             receiver as the sender knows it
//   seat m    before the owner's bytes of a record: the incarnation of member m, and its address
//             if it has moved
//
// Only the newest entry and the newest agreed one are kept, each with its bytes.
#include "control/council.h"

#include "base/fault.h"
#include "base/hash.h"
#include "base/rng.h"
#include "control/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    MEMBERS = CONTROL_QUORUM_MAX,
    STRANGERS = 8,
    LINKS = MEMBERS + STRANGERS,
    READ_BYTES = 64 << 10,
    HEAD_BYTES = 56,
    SEAT_BYTES = 8 + CONTROL_SEAT_BYTES,
    BLOB_BYTES = MEMBERS * SEAT_BYTES + CONTROL_RECORD_BYTES,
    TELL = CONTROL_QUORUM_KINDS, // kind of a frame with a report
    OUT_LIMIT = 1 << 20,
    CONNECT_MS = 100
};
static const int64_t beat_ns = INT64_C(100000000);
static const int64_t silence_ns = INT64_C(1000000000);
static const int64_t back_ns = INT64_C(60000000);   // for a connection that ended to come back
static const int64_t retry_ns = INT64_C(500000000); // between two tries to connect
static const int64_t draw_ns = INT64_C(400000000);  // members time out at different times
static const int64_t turn_ns = INT64_C(30000000);   // the same after a leader's end was seen
static const int64_t linger_ns = INT64_C(1000000000);
static const int64_t never_ns = INT64_C(10000000000); // a member that was never heard is lost then

typedef struct blob {
    uint64_t name;
    int64_t bytes;
    uint8_t *at; // [BLOB_BYTES] seats, then the owner's record
} blob;

typedef struct line {
    int fd; // -1: none
    bool is_ours, has_proved, has_claimed;
    int member; // that it claims to be
    int64_t since;
    control_stream stream;
    control_handshake handshake;
} line;

typedef struct member {
    int64_t heard_at, retry_at;
    bool was_heard, has_ended; // its connection has ended
    uint64_t incarnation;      // of the frames that come from it
    int64_t told_bytes;
    uint8_t *told;                    // CONTROL_TOLD_BYTES
    char address[CONTROL_SEAT_BYTES]; // where it listens
} member;

struct control_council {
    control_council_config config;
    control_peer self;
    pthread_t thread;
    pthread_mutex_t lock;
    // Guarded by the lock:
    control_quorum q;
    control_quorum_message out[CONTROL_QUORUM_OUT];
    member members[MEMBERS];
    blob newest, agreed;
    bool is_stopping, is_replaced;
    uint64_t incarnation;
    int64_t majority_at; // when a majority was heard last
    // The thread alone uses these:
    int listen_fd, wake_fd;
    line lines[LINKS]; // by member, then strangers
    int64_t beat_at, timeout_at, ran_at;
    uint64_t draws, leader_term;
    uint8_t buffer[READ_BYTES];
};

static int64_t now_of(const control_council *c)
{
    return c->config.h->api->monotonic_ns(c->config.h);
}

static int64_t drawn(control_council *c)
{
    return (int64_t)(rng_word((uint64_t)c->config.self, 3, c->draws++) % (uint32_t)draw_ns);
}

static void wake(control_council *c)
{
    const uint64_t one = 1;
    const ssize_t n = write(c->wake_fd, &one, sizeof(one));
    (void)n;
}

// ---- seats --------------------------------------------------------------------------------------

static uint8_t *seat_of(const blob *b, int m)
{
    return b->at + (ptrdiff_t)m * SEAT_BYTES;
}

static uint64_t incarnation_of(const blob *b, int m)
{
    return b->bytes > 0 ? control_get64(seat_of(b, m)) : 0;
}

static bool is_admitted(const control_council *c, int m)
{
    const uint64_t incarnation = m == c->config.self ? c->incarnation : c->members[m].incarnation;
    return incarnation == incarnation_of(&c->newest, m);
}

// An incarnation that no other process has, later than `other`.
static status incarnation_choose(control_council *c, uint64_t other)
{
    uint32_t word = 0;
    const host *h = c->config.h;
    TRY(h->api->random_fill(h, &word, (int64_t)sizeof(word)));
    c->incarnation = other + 1 + word;
    return ST_OK;
}

// The others know a process of this incarnation as this member.
static void incarnation_told(control_council *c, uint64_t incarnation)
{
    if (incarnation <= c->incarnation || c->is_replaced) return;
    if (c->q.is_back) {
        if (incarnation_choose(c, incarnation) != ST_OK) error_clear(); // another try follows
        return;
    }
    control_quorum_retire(&c->q);
    c->is_replaced = true;
}

static int64_t prefix_bytes(const control_council *c)
{
    return (int64_t)c->config.count * SEAT_BYTES;
}

// ---- lines --------------------------------------------------------------------------------------

static void line_begin(control_council *c, line *l, int fd, bool is_ours, int64_t now)
{
    *l = (line){.fd = fd, .is_ours = is_ours, .member = -1, .since = now};
    control_stream_init(&l->stream, BLOB_BYTES + HEAD_BYTES, OUT_LIMIT);
    control_handshake_begin(&l->handshake, c->config.key, c->config.job, 0);
}

static void line_end(line *l)
{
    if (l->fd >= 0) (void)close(l->fd);
    control_stream_deinit(&l->stream);
    control_wipe(&l->handshake, sizeof(l->handshake));
    *l = (line){.fd = -1, .member = -1};
}

// The connection to a member has ended: it is lost unless it comes back soon.
static void link_end(control_council *c, int m, int64_t now)
{
    line_end(&c->lines[m]);
    c->members[m].has_ended = true;
    c->members[m].retry_at = now;
    if (c->members[m].was_heard)
        c->members[m].heard_at = min_i64(c->members[m].heard_at, now - silence_ns + back_ns);
}

static void hello_send(control_council *c, line *l, control_hello_type type)
{
    control_hello hello = {.type = type,
                           .job = c->config.job,
                           .rank = c->config.self,
                           .ranks = c->config.count,
                           .pid = c->self.pid,
                           .started = c->self.started,
                           .machine = c->self.machine};
    uint8_t frame[CONTROL_HELLO_BYTES];
    memcpy(hello.host, c->self.host, sizeof(hello.host));
    status st = c->config.h->api->random_fill(c->config.h, hello.nonce, sizeof(hello.nonce));
    control_hello_print(&hello, frame);
    control_handshake_seal(&l->handshake, frame);
    if (st == ST_OK) st = control_stream_put_raw(&l->stream, frame, sizeof(frame));
    if (st != ST_OK) error_clear(); // the other side gives up, and another connection follows
}

static void proved(control_council *c, line *l)
{
    l->has_proved = true;
    control_stream_key(&l->stream, c->config.key, &l->handshake, 0, !l->is_ours);
    control_wipe(&l->handshake, sizeof(l->handshake));
}

// Returns false if the other side is no member of this council, or not the one that it must be.
static bool hello_take(control_council *c, line *l, const uint8_t *frame)
{
    control_hello m;
    if (!control_hello_parse(frame, &m) || m.job != c->config.job || m.ranks != c->config.count ||
        !control_handshake_check(&l->handshake, frame)) {
        return false;
    }
    if (l->is_ours) {
        if (m.type != CONTROL_CHALLENGE || m.rank != l->member) return false;
        hello_send(c, l, CONTROL_PROOF);
        proved(c, l);
        return true;
    }
    if (!l->has_claimed) {
        // A member that has moved connects to all.
        if (m.type != CONTROL_HELLO || m.rank < 0 || m.rank == c->config.self) return false;
        l->has_claimed = true;
        l->member = m.rank;
        hello_send(c, l, CONTROL_CHALLENGE);
        return true;
    }
    if (m.type != CONTROL_PROOF || m.rank != l->member) return false;
    proved(c, l);
    return true;
}

// ---- frames -------------------------------------------------------------------------------------

static void frame_send(control_council *c, int to, const uint8_t *head, control_span body)
{
    line *l = &c->lines[to];
    if (l->fd < 0 || !l->has_proved || c->is_replaced) return;
    if (control_stream_put(&l->stream, CONTROL_MSG_COUNCIL, (control_span){head, HEAD_BYTES},
                           body) == ST_OK) {
        return;
    }
    error_clear(); // it does not read
    link_end(c, to, now_of(c));
}

static void incarnations_put(const control_council *c, int to, uint8_t *head)
{
    control_put64(head + 40, c->incarnation);
    control_put64(head + 48, incarnation_of(&c->newest, to));
}

static void message_send(control_council *c, const control_quorum_message *m)
{
    uint8_t head[HEAD_BYTES] = {0};
    control_put32(head, (uint32_t)m->kind);
    control_put32(head + 4, m->is_yes);
    control_put64(head + 8, m->term);
    control_put64(head + 16, m->entry.term);
    control_put64(head + 24, m->entry.index);
    control_put64(head + 32, m->entry.value);
    incarnations_put(c, m->to, head);
    const bool has_body = m->kind == CONTROL_QUORUM_ENTRY && m->entry.index > 0;
    ASSERT(!has_body || m->entry.value == c->newest.name);
    frame_send(c, m->to, head,
               has_body ? (control_span){c->newest.at, c->newest.bytes} : (control_span){0});
}

static void report_send(control_council *c, int to)
{
    uint8_t head[HEAD_BYTES] = {0}, body[CONTROL_SEAT_BYTES + CONTROL_TOLD_BYTES];
    const member *self = &c->members[c->config.self];
    control_put32(head, TELL);
    incarnations_put(c, to, head);
    memcpy(body, self->address, CONTROL_SEAT_BYTES);
    if (self->told_bytes > 0)
        memcpy(body + CONTROL_SEAT_BYTES, self->told, (size_t)self->told_bytes);
    frame_send(c, to, head, (control_span){body, CONTROL_SEAT_BYTES + self->told_bytes});
}

static void blob_set(blob *b, uint64_t name, const void *bytes, int64_t count)
{
    ASSERT(count <= BLOB_BYTES);
    b->name = name;
    b->bytes = count;
    if (count > 0) memcpy(b->at, bytes, (size_t)count);
}

// The newest entry says which process is which member.
static void seats_take(control_council *c)
{
    const int self = c->config.self;
    for (int m = 0; m < c->config.count && c->newest.bytes > 0; m++) {
        const uint8_t *seat = seat_of(&c->newest, m);
        if (m == self || seat[8] == 0) continue;
        memcpy(c->members[m].address, seat + 8, CONTROL_SEAT_BYTES);
        c->members[m].address[CONTROL_SEAT_BYTES - 1] = '\0';
    }
    incarnation_told(c, incarnation_of(&c->newest, self));
    if (c->q.is_back && c->agreed.bytes > 0 && incarnation_of(&c->agreed, self) == c->incarnation)
        control_quorum_admit(&c->q);
}

// After each event of the machine: the agreed bytes follow it, and its messages are sent.
static void machine_follow(control_council *c)
{
    control_quorum_check(&c->q);
    if (c->q.agreed.index > 0 && c->q.agreed.value == c->newest.name &&
        c->agreed.name != c->newest.name) {
        blob_set(&c->agreed, c->newest.name, c->newest.at, c->newest.bytes);
    }
    seats_take(c);
    for (int i = 0; i < c->q.out_count; i++) message_send(c, &c->out[i]);
    c->q.out_count = 0;
}

// Empty seats, before the first record.
static void seats_begin(control_council *c)
{
    if (c->newest.bytes > 0) return;
    c->newest.bytes = prefix_bytes(c);
    memset(c->newest.at, 0, (size_t)c->newest.bytes);
}

// The leader, which may propose, has changed the newest bytes.
static void newest_propose(control_council *c)
{
    c->newest.name = hash64(c->newest.at, c->newest.bytes, c->q.entry.index + 1);
    const bool is_begun = control_quorum_propose(&c->q, c->newest.name);
    ASSERT(is_begun);
    machine_follow(c);
}

static bool report_take(member *m, const uint8_t *body, int64_t count)
{
    const int64_t told = count - CONTROL_SEAT_BYTES;
    if (told < 0 || told > CONTROL_TOLD_BYTES || body[CONTROL_SEAT_BYTES - 1] != 0) return false;
    if (m->incarnation > 0) memcpy(m->address, body, CONTROL_SEAT_BYTES);
    m->told_bytes = told;
    if (told > 0) memcpy(m->told, body + CONTROL_SEAT_BYTES, (size_t)told);
    return true;
}

static bool frame_take(control_council *c, int from, const control_frame *f, int64_t now)
{
    member *m = &c->members[from];
    if (f->type != CONTROL_MSG_COUNCIL || f->bytes < HEAD_BYTES) return false;
    const uint32_t kind = control_get32(f->payload);
    const int64_t count = f->bytes - HEAD_BYTES;
    const uint8_t *body = f->payload + HEAD_BYTES;
    const uint64_t incarnation = control_get64(f->payload + 40);
    incarnation_told(c, control_get64(f->payload + 48));
    // Another process has its place, which it learns from what it is sent.
    if (incarnation < incarnation_of(&c->newest, from) || incarnation < m->incarnation) return true;
    if (incarnation > m->incarnation) m->told_bytes = 0;
    m->incarnation = incarnation;
    m->heard_at = now;
    m->was_heard = true;
    m->has_ended = false;
    if (kind == TELL) return report_take(m, body, count);
    if (kind >= TELL || control_get32(f->payload + 4) > 1) return false;
    const control_quorum_message q = {.kind = (control_quorum_kind)kind,
                                      .from = from,
                                      .to = c->config.self,
                                      .is_yes = control_get32(f->payload + 4) != 0,
                                      .term = control_get64(f->payload + 8),
                                      .entry = {.term = control_get64(f->payload + 16),
                                                .index = control_get64(f->payload + 24),
                                                .value = control_get64(f->payload + 32)}};
    const bool has_body = q.kind == CONTROL_QUORUM_ENTRY && q.entry.index > 0;
    if (has_body != (count > 0) || q.entry.term > q.term + 1) return false;
    if (has_body && (count < prefix_bytes(c) || count > BLOB_BYTES)) return false;
    if (has_body && hash64(body, count, q.entry.index) != q.entry.value) return false;
    const bool is_taken = control_quorum_handle(&c->q, &q);
    if (has_body && is_taken && c->q.entry.value == q.entry.value &&
        c->newest.name != q.entry.value)
        blob_set(&c->newest, q.entry.value, body, count);
    if (q.kind == CONTROL_QUORUM_ENTRY && is_taken) { // the leader was heard
        c->timeout_at = now + silence_ns + drawn(c);
    }
    machine_follow(c);
    return true;
}

// ---- connections --------------------------------------------------------------------------------

// A proven stranger becomes the link of the member that it is; an older one is a dead one.
static void stranger_admit(control_council *c, line *l)
{
    line *to = &c->lines[l->member];
    const int m = l->member;
    if (to->fd >= 0) line_end(to);
    *to = *l;
    *l = (line){.fd = -1, .member = -1};
    c->members[m].has_ended = false;
    report_send(c, m);
    control_quorum_beat(&c->q); // it has the newest entry at once
    machine_follow(c);
}

// Returns false if the connection is over.
static bool line_bytes(control_council *c, line *l, const uint8_t *bytes, int64_t count,
                       int64_t now)
{
    status st = control_stream_take(&l->stream, bytes, count);
    while (st == ST_OK && !l->has_proved) {
        const uint8_t *frame = control_stream_hello(&l->stream);
        if (frame == NULL) return true;
        if (!hello_take(c, l, frame)) return false;
        if (l->has_proved && l->is_ours) report_send(c, l->member);
    }
    for (bool has = true; st == ST_OK && has;) {
        control_frame f;
        if (l != &c->lines[l->member]) return true; // a stranger: its line moves first
        st = control_stream_next(&l->stream, &f, &has);
        if (st == ST_OK && has && !frame_take(c, l->member, &f, now)) return false;
        if (l->fd < 0) return true; // ended while it was sent to
    }
    if (st != ST_OK) error_clear();
    return st == ST_OK;
}

static void line_close(control_council *c, line *l, int64_t now)
{
    const int64_t at = l - c->lines;
    if (at < c->config.count) {
        link_end(c, (int)at, now);
    } else {
        line_end(l);
    }
}

static void line_read(control_council *c, line *l, int64_t now)
{
    const int64_t n = control_read(l->fd, c->buffer, READ_BYTES);
    if (n == 0) return;
    if (n < 0 || !line_bytes(c, l, c->buffer, n, now)) {
        line_close(c, l, now);
        return;
    }
    if (l - c->lines < c->config.count || !l->has_proved) return;
    const int m = l->member;
    stranger_admit(c, l);
    if (!line_bytes(c, &c->lines[m], NULL, 0, now)) line_close(c, &c->lines[m], now);
}

static void line_write(control_council *c, line *l, int64_t now)
{
    const control_span out = control_stream_output(&l->stream);
    if (l->fd < 0 || out.bytes == 0) return;
    const int64_t n = control_write(l->fd, out.data, out.bytes);
    if (n > 0) control_stream_sent(&l->stream, n);
    if (n < 0) line_close(c, l, now);
}

static void accept_some(control_council *c, int64_t now)
{
    for (;;) {
        const int fd = control_accept(c->listen_fd);
        if (fd < 0) return;
        line *free_line = NULL, *oldest = &c->lines[c->config.count];
        for (int i = c->config.count; i < c->config.count + STRANGERS; i++) {
            line *l = &c->lines[i];
            if (l->fd < 0) free_line = l;
            if (l->since < oldest->since) oldest = l;
        }
        if (free_line == NULL) line_end(oldest);
        line_begin(c, free_line != NULL ? free_line : oldest, fd, false, now);
    }
}

// Connects to members with smaller numbers, and if it has moved to each one that does not know it
// yet. The lock is not held, because it may take a while.
static void connect_some(control_council *c)
{
    for (int m = 0; m < c->config.count && !c->is_replaced; m++) {
        char address[CONTROL_SEAT_BYTES];
        int fd = -1;
        if (m == c->config.self || c->lines[m].fd >= 0 || now_of(c) < c->members[m].retry_at)
            continue;
        if (m > c->config.self && (!c->config.is_moved || c->members[m].was_heard)) continue;
        control_council_address(c, m, address);
        if (control_connect(address, CONNECT_MS, &fd) != ST_OK) {
            error_clear();
            c->members[m].retry_at = now_of(c) + retry_ns;
            return; // the rest of the work must not wait for several
        }
        (void)pthread_mutex_lock(&c->lock);
        line_begin(c, &c->lines[m], fd, true, now_of(c));
        c->lines[m].member = m;
        hello_send(c, &c->lines[m], CONTROL_HELLO);
        (void)pthread_mutex_unlock(&c->lock);
        return;
    }
}

// ---- time ---------------------------------------------------------------------------------------

static bool is_heard(const control_council *c, int m, int64_t now)
{
    const member *x = &c->members[m];
    return m == c->config.self || (x->was_heard && now - x->heard_at < silence_ns);
}

static bool majority_heard(const control_council *c, int64_t now)
{
    int n = 0;
    for (int m = 0; m < c->config.count; m++) n += is_heard(c, m, now) && is_admitted(c, m);
    return n >= control_quorum_majority(c->config.count);
}

static void leader_watch(control_council *c, int64_t now)
{
    const int leader = c->q.leader;
    if (majority_heard(c, now)) {
        c->majority_at = now;
    } else if (c->q.role == CONTROL_LEADS) {
        control_quorum_retire(&c->q);
    }
    // The end of the leader's process was seen: one member after the other asks for its role.
    if (leader >= 0 && leader != c->config.self && !is_heard(c, leader, now) &&
        c->members[leader].has_ended && c->leader_term != c->q.term) {
        c->leader_term = c->q.term;
        c->timeout_at = min_i64(c->timeout_at, now + turn_ns * c->config.self);
    }
    if (now < c->timeout_at || c->q.role == CONTROL_LEADS) return;
    control_quorum_timeout(&c->q);
    machine_follow(c);
    c->timeout_at = now + silence_ns / 4 + drawn(c);
}

// The leader: a record with the incarnations of all that are heard, and the owner's bytes as they
// were.
static void admit_some(control_council *c, int64_t now)
{
    bool is_new = false;
    if (!control_quorum_may_propose(&c->q)) return;
    for (int m = 0; m < c->config.count; m++) {
        member *x = &c->members[m];
        if (m == c->config.self || !is_heard(c, m, now) ||
            x->incarnation <= incarnation_of(&c->newest, m))
            continue;
        seats_begin(c);
        uint8_t *seat = seat_of(&c->newest, m);
        control_put64(seat, x->incarnation);
        memcpy(seat + 8, x->address, CONTROL_SEAT_BYTES);
        is_new = true;
    }
    if (is_new) newest_propose(c);
}

static void tick(control_council *c, int64_t now)
{
    // A member that ran late suspects no other one: unread messages may lie in its sockets.
    const int64_t gap = now - c->ran_at, late = gap > 3 * beat_ns ? gap - beat_ns : 0;
    c->ran_at = now;
    for (int m = 0; m < c->config.count && late > 0; m++) c->members[m].heard_at += late;
    if (late > 0) c->timeout_at += late;
    leader_watch(c, now);
    for (int i = c->config.count; i < c->config.count + STRANGERS; i++) {
        line *l = &c->lines[i];
        if (l->fd >= 0 && now - l->since > (int64_t)CONTROL_HANDSHAKE_MS * 1000000) line_end(l);
    }
    if (now < c->beat_at) return;
    c->beat_at = now + beat_ns;
    admit_some(c, now);
    control_quorum_beat(&c->q);
    machine_follow(c);
    for (int m = 0; m < c->config.count; m++) report_send(c, m);
}

// ---- the thread ---------------------------------------------------------------------------------

static bool has_output(const control_council *c)
{
    bool has = false;
    for (int i = 0; i < LINKS; i++) {
        has = has || (c->lines[i].fd >= 0 && control_stream_output(&c->lines[i].stream).bytes > 0);
    }
    return has;
}

static void run_once(control_council *c)
{
    enum { LISTENER, WAKE, FIXED };
    struct pollfd polls[FIXED + LINKS];
    const int lines = c->config.count + STRANGERS;
    polls[LISTENER] = (struct pollfd){.fd = c->listen_fd, .events = POLLIN};
    polls[WAKE] = (struct pollfd){.fd = c->wake_fd, .events = POLLIN};
    (void)pthread_mutex_lock(&c->lock);
    for (int i = 0; i < lines; i++) {
        const bool wants = control_stream_output(&c->lines[i].stream).bytes > 0;
        polls[FIXED + i] = (struct pollfd){.fd = c->lines[i].fd,
                                           .events = (short)(POLLIN | (wants ? POLLOUT : 0))};
    }
    const int64_t left = min_i64(c->beat_at, c->timeout_at) - now_of(c);
    (void)pthread_mutex_unlock(&c->lock);
    (void)poll(polls, (nfds_t)(FIXED + lines), (int)max_i64(min_i64(left / 1000000 + 1, 20), 0));
    if ((polls[WAKE].revents & POLLIN) != 0) {
        uint64_t woken;
        const ssize_t n = read(c->wake_fd, &woken, sizeof(woken));
        (void)n;
    }
    connect_some(c);
    (void)pthread_mutex_lock(&c->lock);
    const int64_t now = now_of(c);
    for (int i = 0; i < lines; i++) {
        line *l = &c->lines[i];
        if (polls[FIXED + i].fd >= 0 && l->fd == polls[FIXED + i].fd &&
            (polls[FIXED + i].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
            line_read(c, l, now);
    }
    if ((polls[LISTENER].revents & POLLIN) != 0) accept_some(c, now);
    tick(c, now);
    machine_follow(c);
    for (int i = 0; i < lines; i++) line_write(c, &c->lines[i], now);
    (void)pthread_mutex_unlock(&c->lock);
}

static void *council_main(void *context)
{
    control_council *c = context;
    int64_t stop_at = 0;
    for (;;) {
        run_once(c);
        (void)pthread_mutex_lock(&c->lock);
        const bool is_stopping = c->is_stopping, is_busy = has_output(c);
        (void)pthread_mutex_unlock(&c->lock);
        if (!is_stopping) continue;
        if (stop_at == 0) stop_at = now_of(c) + linger_ns;
        if (!is_busy || now_of(c) > stop_at) return NULL;
    }
}

static void destroy(control_council *c)
{
    for (int i = 0; i < LINKS; i++) line_end(&c->lines[i]);
    for (int m = 0; m < MEMBERS; m++) free(c->members[m].told);
    free(c->newest.at);
    free(c->agreed.at);
    (void)close(c->listen_fd);
    if (c->wake_fd >= 0) (void)close(c->wake_fd);
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
}

static status prepare(control_council *c)
{
    const control_council_config *g = &c->config;
    const int64_t now = now_of(c);
    TRY(control_self(g->h, &c->self));
    if (g->is_back) {
        control_quorum_return(&c->q, g->self, g->count, c->out);
        TRY(incarnation_choose(c, 0));
    } else {
        control_quorum_init(&c->q, g->self, g->count, c->out);
    }
    c->newest.at = malloc(BLOB_BYTES);
    c->agreed.at = malloc(BLOB_BYTES);
    bool has_all = c->newest.at != NULL && c->agreed.at != NULL;
    for (int m = 0; m < g->count; m++) {
        c->members[m] = (member){.heard_at = now, .told = malloc(CONTROL_TOLD_BYTES)};
        has_all = has_all && c->members[m].told != NULL;
        (void)snprintf(c->members[m].address, CONTROL_SEAT_BYTES, "%s", g->addresses[m]);
    }
    if (!has_all) return fail(ST_NO_MEMORY, "no memory for a council of %d", g->count);
    TRY(fault_point("control.council.start"));
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake_fd < 0) {
        return fail(ST_IO, "cannot open a descriptor for the council: %s%s", strerror(errno),
                    host_limit_remedy(errno));
    }
    c->ran_at = c->beat_at = c->majority_at = now;
    // Member 0 leads first: the others give it time.
    c->timeout_at = now + (g->self == 0 ? beat_ns : silence_ns + draw_ns + turn_ns * g->self);
    const int error = control_thread_start(&c->thread, council_main, c);
    if (error == 0) return ST_OK;
    return fail(ST_NO_MEMORY, "cannot start the council's thread (error %d)%s", error,
                host_limit_remedy(error));
}

// ---- public -------------------------------------------------------------------------------------

status control_council_start(const control_council_config *config, int listen_fd,
                             control_council **out)
{
    control_council *c = calloc(1, sizeof(*c));
    ASSERT(config->count >= 1 && config->count <= MEMBERS);
    if (c == NULL) {
        (void)close(listen_fd);
        return fail(ST_NO_MEMORY, "no memory for a council");
    }
    c->config = *config;
    c->listen_fd = listen_fd;
    c->wake_fd = -1;
    for (int i = 0; i < LINKS; i++) c->lines[i] = (line){.fd = -1, .member = -1};
    (void)pthread_mutex_init(&c->lock, NULL);
    const status st = prepare(c);
    if (st != ST_OK) {
        destroy(c);
        return st;
    }
    *out = c;
    return ST_OK;
}

void control_council_stop(control_council *c)
{
    if (c == NULL) return;
    (void)pthread_mutex_lock(&c->lock);
    c->is_stopping = true;
    (void)pthread_mutex_unlock(&c->lock);
    wake(c);
    (void)pthread_join(c->thread, NULL);
    destroy(c);
}

void control_council_look(control_council *c, control_council_view *out)
{
    (void)pthread_mutex_lock(&c->lock);
    const int64_t now = now_of(c);
    *out = (control_council_view){.leads = c->q.role == CONTROL_LEADS,
                                  .leader = c->q.leader,
                                  .index = c->agreed.name != 0 ? c->q.agreed.index : 0,
                                  .term = c->q.term,
                                  .cut_ns =
                                      majority_heard(c, now) ? 0 : max_i64(now - c->majority_at, 1),
                                  .is_admitted = !c->q.is_back,
                                  .is_replaced = c->is_replaced};
    for (int m = 0; m < c->config.count; m++) {
        out->is_heard = out->is_heard || (m != c->config.self && is_heard(c, m, now));
    }
    (void)pthread_mutex_unlock(&c->lock);
}

int64_t control_council_record(control_council *c, void *out)
{
    (void)pthread_mutex_lock(&c->lock);
    const int64_t prefix = prefix_bytes(c);
    const int64_t bytes = c->agreed.name != 0 ? c->agreed.bytes - prefix : 0;
    if (bytes > 0) memcpy(out, c->agreed.at + prefix, (size_t)bytes);
    (void)pthread_mutex_unlock(&c->lock);
    return bytes;
}

bool control_council_propose(control_council *c, const void *record, int64_t bytes)
{
    ASSERT(bytes > 0 && bytes <= CONTROL_RECORD_BYTES);
    (void)pthread_mutex_lock(&c->lock);
    const int64_t prefix = prefix_bytes(c);
    const bool may = control_quorum_may_propose(&c->q);
    if (may) {
        seats_begin(c);
        memcpy(c->newest.at + prefix, record, (size_t)bytes);
        c->newest.bytes = prefix + bytes;
        newest_propose(c);
    }
    (void)pthread_mutex_unlock(&c->lock);
    if (may) wake(c);
    return may;
}

void control_council_tell(control_council *c, const void *report, int64_t bytes)
{
    ASSERT(bytes >= 0 && bytes <= CONTROL_TOLD_BYTES);
    (void)pthread_mutex_lock(&c->lock);
    member *m = &c->members[c->config.self];
    m->told_bytes = bytes;
    if (bytes > 0) memcpy(m->told, report, (size_t)bytes);
    for (int to = 0; to < c->config.count; to++) report_send(c, to);
    (void)pthread_mutex_unlock(&c->lock);
    wake(c);
}

int64_t control_council_told(control_council *c, int m, void *out, bool *is_lost)
{
    ASSERT(m >= 0 && m < c->config.count);
    (void)pthread_mutex_lock(&c->lock);
    const member *x = &c->members[m];
    if (x->told_bytes > 0) memcpy(out, x->told, (size_t)x->told_bytes);
    const int64_t bytes = x->told_bytes;
    const int64_t now = now_of(c);
    *is_lost = !is_heard(c, m, now) && (x->was_heard || now - x->heard_at > never_ns);
    (void)pthread_mutex_unlock(&c->lock);
    return bytes;
}

void control_council_address(control_council *c, int m, char out[CONTROL_SEAT_BYTES])
{
    ASSERT(m >= 0 && m < c->config.count);
    (void)pthread_mutex_lock(&c->lock);
    memcpy(out, c->members[m].address, CONTROL_SEAT_BYTES);
    (void)pthread_mutex_unlock(&c->lock);
}
