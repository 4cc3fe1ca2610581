// The coordinator admits ranks, distributes swapped bytes, listens to heartbeats and gives
// verdicts.
//
// A connection is a STRANGER until its hello carries a correct MAC, CLAIMED until its proof does,
// then JOINED. At most CONTROL_PENDING_MAX connections are strangers or claims, each for at most
// two seconds. A client that opens sockets and sends nothing therefore blocks no rank: the
// coordinator closes the oldest stranger to free a slot for the next connection. A claim with a
// wrong key, or one that was changed on the way, is refused and reported at once. If no process
// joins as that rank within two seconds, the job ends for all ranks, because they would wait for a
// process that has given up. So a stranger can end a job, but only while ranks are missing.
//
// When all ranks have joined, the coordinator compares their digests. If they differ, it requests
// the facts of one rank of the majority and one of the minority, tells all ranks what differs, and
// ends the job before its first step.
#include "control/coordinator_internal.h"

#include "base/fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_LIMIT = CONTROL_TO_RANK_MAX + (1 << 20) };

status control_coordinator_create(const control_coordinator_config *config, int64_t now,
                                  control_coordinator **out)
{
    ASSERT(config->ranks >= 1 && config->ranks <= CONTROL_RANKS_MAX);
    ASSERT(config->rank >= CONTROL_COORDINATOR && config->rank < config->ranks);
    TRY(fault_point("control.coordinator.create"));
    control_coordinator *b = calloc(1, sizeof(*b));
    if (b == NULL) return fail(ST_NO_MEMORY, "no memory for control");
    const size_t ranks = (size_t)config->ranks;
    b->config = *config;
    control_limits_complete(&b->config.limits);
    if (b->config.join_ns == 0) b->config.join_ns = INT64_C(60) * 1000000000;
    b->line_count = config->ranks + CONTROL_PENDING_MAX;
    b->lines = calloc(ranks + CONTROL_PENDING_MAX, sizeof(*b->lines));
    b->members = calloc(ranks, sizeof(*b->members));
    b->seen = calloc(ranks, sizeof(*b->seen));
    if (b->lines == NULL || b->members == NULL || b->seen == NULL) {
        control_coordinator_destroy(b);
        return fail(ST_NO_MEMORY, "no memory for the connections of %d ranks", config->ranks);
    }
    for (int r = 0; r < config->ranks; r++) b->members[r].line = -1;
    b->join_until = now + b->config.join_ns;
    b->tick_at = now + b->config.limits.beat_ns;
    b->ticked_at = now;
    *out = b;
    return ST_OK;
}

void control_coordinator_destroy(control_coordinator *b)
{
    if (b == NULL) return;
    for (int i = 0; b->lines != NULL && i < b->line_count; i++) {
        control_stream_deinit(&b->lines[i].stream);
        control_wipe(&b->lines[i].handshake, sizeof(b->lines[i].handshake));
    }
    for (int r = 0; b->members != NULL && r < b->config.ranks; r++) free(b->members[r].record);
    while (b->swaps != NULL) {
        coordinator_swap *s = b->swaps;
        b->swaps = s->next;
        free(s);
    }
    free(b->lines);
    free(b->members);
    free(b->seen);
    free(b);
}

int control_coordinator_connections(const control_coordinator *b)
{
    return b->line_count;
}

int control_coordinator_pending(const control_coordinator *b)
{
    int count = 0;
    for (int i = 0; i < b->line_count; i++) {
        count += b->lines[i].state == LINE_STRANGER || b->lines[i].state == LINE_CLAIMED;
    }
    return count;
}

bool control_coordinator_is_open(const control_coordinator *b, int connection)
{
    return b->lines[connection].state != LINE_FREE;
}

bool control_coordinator_drops(const control_coordinator *b, int connection)
{
    return b->lines[connection].state == LINE_CLOSING;
}

control_span control_coordinator_output(const control_coordinator *b, int connection)
{
    return control_stream_output(&b->lines[connection].stream);
}

void control_coordinator_sent(control_coordinator *b, int connection, int64_t count)
{
    control_stream_sent(&b->lines[connection].stream, count);
}

bool control_coordinator_notice(control_coordinator *b, control_notice *out)
{
    return control_notice_pop(&b->notices, out);
}

int64_t control_coordinator_wake(const control_coordinator *b)
{
    return b->tick_at;
}

bool control_coordinator_is_done(const control_coordinator *b)
{
    return b->phase == COORDINATOR_OVER;
}

void control_coordinator_refuse(control_coordinator *b, int rank, status code, const char *format,
                                ...)
{
    control_notice n = {.kind = CONTROL_NOTE_REFUSED, .rank = rank, .code = code};
    va_list args;
    va_start(args, format);
    (void)vsnprintf(n.text, sizeof(n.text), format, args);
    va_end(args);
    // Rate limit: a flood of strangers must neither displace important notices nor fill a log.
    if (rank < 0 && b->ticked_at - b->stranger_told_at < INT64_C(1000000000)) return;
    if (rank < 0) b->stranger_told_at = b->ticked_at;
    control_notice_push(&b->notices, &n);
}

void control_coordinator_send(control_coordinator *b, int rank, control_type type,
                              control_span head, control_span rest)
{
    const int at = b->members[rank].line;
    if (at < 0 || b->lines[at].state != LINE_JOINED) return;
    const status st = control_stream_put(&b->lines[at].stream, type, head, rest);
    // The rank does not read its input; the coordinator treats it as lost.
    if (st != ST_OK) control_coordinator_drop(b, at);
}

void control_coordinator_send_all(control_coordinator *b, control_type type, control_span head,
                                  control_span rest)
{
    for (int r = 0; r < b->config.ranks; r++) control_coordinator_send(b, r, type, head, rest);
}

// Marks a connection for closing; its pending output is still sent.
void control_coordinator_drop(control_coordinator *b, int connection)
{
    coordinator_line *line = &b->lines[connection];
    const int rank = line->rank;
    const bool was_joined = line->state == LINE_JOINED;
    line->state = LINE_CLOSING;
    if (!was_joined) return;
    coordinator_member *m = &b->members[rank];
    m->line = -1;
    if (b->phase == COORDINATOR_JOINING) {
        m->has_joined = false; // another process may take its place
        b->seen[rank].is_here = false;
        b->joined--;
    } else if (!m->has_left) {
        b->seen[rank].is_gone = true;
    }
}

void control_coordinator_end(control_coordinator *b, status code, const char *said)
{
    uint8_t head[4];
    control_put32(head, (uint32_t)code);
    const control_span message = {said, (int64_t)strnlen(said, CONTROL_TEXT_BYTES - 1)};
    control_coordinator_send_all(b, CONTROL_MSG_END, (control_span){head, sizeof(head)}, message);
    b->phase = COORDINATOR_OVER;
    for (int i = 0; i < b->line_count; i++) {
        if (b->lines[i].state != LINE_FREE) b->lines[i].state = LINE_CLOSING;
    }
}

bool control_coordinator_fail(control_coordinator *b, status code, const char *said)
{
    if (b->phase != COORDINATOR_JOINING) return false;
    control_coordinator_end(b, code, said);
    return true;
}

// ---- strangers ----------------------------------------------------------------------------------
int control_coordinator_accept(control_coordinator *b, int64_t now)
{
    int pending = 0, oldest = -1, free_line = -1;
    for (int i = 0; i < b->line_count; i++) {
        const coordinator_line *line = &b->lines[i];
        if (line->state == LINE_FREE && free_line < 0) free_line = i;
        if (line->state == LINE_STRANGER || line->state == LINE_CLAIMED) pending++;
        if (line->state == LINE_STRANGER && (oldest < 0 || line->until < b->lines[oldest].until)) {
            oldest = i;
        }
    }
    if (b->phase == COORDINATOR_OVER) return -1;
    if (pending >= CONTROL_PENDING_MAX) {
        control_coordinator_refuse(b, -1, ST_SECURITY,
                                   "%d connections have not authenticated; the oldest was closed",
                                   pending);
        if (oldest >= 0) control_coordinator_drop(b, oldest);
        return -1; // the slot is free once it is closed; a rank tries again
    }
    if (free_line < 0) return -1;
    coordinator_line *line = &b->lines[free_line];
    control_stream_init(&line->stream, CONTROL_TO_COORDINATOR_MAX, OUT_LIMIT);
    control_handshake_begin(&line->handshake, b->config.key, b->config.job, b->config.epoch);
    line->state = LINE_STRANGER;
    line->rank = -1;
    line->until = now + (int64_t)CONTROL_HANDSHAKE_MS * 1000000;
    return free_line;
}

static void put_hello(control_coordinator *b, coordinator_line *line, control_hello_type type,
                      status code)
{
    control_hello hello = {.type = type,
                           .job = b->config.job,
                           .epoch = b->config.epoch,
                           .rank = b->config.rank,
                           .ranks = b->config.ranks,
                           .code = (uint32_t)code};
    uint8_t frame[CONTROL_HELLO_BYTES];
    if (type != CONTROL_REJECT) { // a stranger learns no name of a host
        hello.pid = b->config.self.pid;
        hello.started = b->config.self.started;
        hello.machine = b->config.self.machine;
        memcpy(hello.host, b->config.self.host, sizeof(hello.host));
    }
    status st = b->config.h->api->random_fill(b->config.h, hello.nonce, sizeof(hello.nonce));
    control_hello_print(&hello, frame);
    control_handshake_seal(&line->handshake, frame);
    if (st == ST_OK) st = control_stream_put_raw(&line->stream, frame, sizeof(frame));
    if (st != ST_OK) control_coordinator_drop(b, (int)(line - b->lines));
}

// Notes a claim that failed the handshake.
static void note_claim(control_coordinator *b, const control_hello *m, int64_t now)
{
    if (b->phase != COORDINATOR_JOINING || m->rank < 0 || m->rank >= b->config.ranks) return;
    coordinator_member *member = &b->members[m->rank];
    if (member->has_joined || member->refused_at != 0) return;
    member->refused_at = now;
    member->claimed = (control_peer){.machine = m->machine, .pid = m->pid, .started = m->started};
    memcpy(member->claimed.host, m->host, sizeof(m->host));
}

static void reject(control_coordinator *b, int connection, status code)
{
    put_hello(b, &b->lines[connection], CONTROL_REJECT, code);
    control_coordinator_drop(b, connection);
}

// True for a process that lost its connection and reconnects before the coordinator saw the old one
// end.
static bool is_same_process(const control_peer *holder, const control_hello *m)
{
    return m->machine != 0 && holder->machine == m->machine && holder->pid == m->pid &&
           holder->started == m->started;
}

// Handles the first frame, which claims a rank.
static void on_hello(control_coordinator *b, int connection, const uint8_t *frame, int64_t now)
{
    coordinator_line *line = &b->lines[connection];
    control_hello *m = &line->hello;
    if (!control_hello_parse(frame, m) || m->type != CONTROL_HELLO) {
        control_coordinator_refuse(
            b, -1, ST_SECURITY,
            "a connection was closed because it does not speak the control protocol");
        reject(b, connection, ST_SECURITY); // a rank whose frame was changed should not try again
        return;
    }
    if (!control_handshake_check(&line->handshake, frame)) {
        const bool is_other = m->job != b->config.job || m->epoch != b->config.epoch;
        control_coordinator_refuse(
            b, m->rank, ST_SECURITY, "rank %d (%s, process %lld) was refused: %s", m->rank, m->host,
            (long long)m->pid,
            is_other ? "it belongs to another job or epoch"
                     : "it has another key, or its message was changed on the way");
        if (!is_other) note_claim(b, m, now);
        reject(b, connection, ST_SECURITY);
        return;
    }
    if (m->ranks != b->config.ranks) {
        control_coordinator_refuse(
            b, m->rank, ST_REFUSED,
            "rank %d (%s) was refused: it was started for a job of %d ranks, the others "
            "for %d",
            m->rank, m->host, m->ranks, b->config.ranks);
        reject(b, connection, ST_REFUSED);
        return;
    }
    const coordinator_member *holder = &b->members[m->rank];
    const bool is_taken = holder->has_joined && !is_same_process(&holder->peer, m);
    if (is_taken || b->phase != COORDINATOR_JOINING) {
        control_coordinator_refuse(
            b, m->rank, ST_REFUSED,
            "a second process that claims rank %d (%s, process %lld) was refused: "
            "process %lld on %s already has the rank",
            m->rank, m->host, (long long)m->pid, (long long)holder->peer.pid, holder->peer.host);
        reject(b, connection, ST_REFUSED);
        return;
    }
    line->rank = m->rank;
    line->state = LINE_CLAIMED;
    put_hello(b, line, CONTROL_CHALLENGE, ST_OK);
}

// Handles the second frame, which proves that the first was not a replay.
static void on_proof(control_coordinator *b, int connection, const uint8_t *frame, int64_t now)
{
    coordinator_line *line = &b->lines[connection];
    control_hello m;
    const bool is_hello = control_hello_parse(frame, &m);
    const bool is_reject = is_hello && m.type == CONTROL_REJECT;
    const bool is_proof = is_hello && m.type == CONTROL_PROOF && m.rank == line->rank &&
                          m.ranks == b->config.ranks &&
                          control_handshake_check(&line->handshake, frame);
    if (!is_proof) {
        control_coordinator_refuse(
            b, line->rank, ST_SECURITY,
            "a connection from %s that claims rank %d could not prove it%s", line->hello.host,
            line->rank, is_reject ? ": it refused this coordinator's key or message" : "");
        note_claim(b, &line->hello, now);
        reject(b, connection, ST_SECURITY);
        return;
    }
    coordinator_member *member = &b->members[line->rank];
    if (member->has_joined && b->phase == COORDINATOR_JOINING &&
        is_same_process(&member->peer, &m)) {
        control_coordinator_drop(b, member->line);
    }
    // Two processes claimed it; the other one proved first.
    if (member->has_joined || b->phase != COORDINATOR_JOINING) {
        control_coordinator_refuse(
            b, line->rank, ST_REFUSED,
            "a second process that claims rank %d (%s, process %lld) was refused", line->rank,
            m.host, (long long)m.pid);
        control_coordinator_drop(b, connection);
        return;
    }
    control_stream_key(&line->stream, b->config.key, &line->handshake, b->config.epoch, true);
    control_wipe(&line->handshake, sizeof(line->handshake));
    line->state = LINE_JOINED;
    member->line = connection;
    member->has_joined = true;
    member->refused_at = 0;
    member->peer = (control_peer){.machine = m.machine, .pid = m.pid, .started = m.started};
    memcpy(member->peer.host, m.host, sizeof(m.host));
    memcpy(member->digest, m.digest, sizeof(m.digest));
    control_seen *seen = &b->seen[line->rank];
    *seen = (control_seen){.is_here = true,
                           .heard_at = now,
                           .moved_at = now,
                           .machine = m.machine,
                           .host = member->peer.host};
    control_notice_push(&b->notices,
                        &(control_notice){.kind = CONTROL_NOTE_JOINED, .rank = line->rank});
    if (++b->joined == b->config.ranks) control_coordinator_compare(b, now);
}

static void on_bytes(control_coordinator *b, const control_event *e, int64_t now)
{
    coordinator_line *line = &b->lines[e->connection];
    status st = line->state == LINE_FREE || line->state == LINE_CLOSING
                    ? ST_OK
                    : control_stream_take(&line->stream, e->bytes, e->count);
    while (st == ST_OK) {
        if (line->state == LINE_STRANGER || line->state == LINE_CLAIMED) {
            const uint8_t *frame = control_stream_hello(&line->stream);
            if (frame == NULL) return;
            if (line->state == LINE_STRANGER) {
                on_hello(b, e->connection, frame, now);
            } else {
                on_proof(b, e->connection, frame, now);
            }
            continue;
        }
        if (line->state != LINE_JOINED) return;
        control_frame f;
        bool has = false;
        st = control_stream_next(&line->stream, &f, &has);
        if (st != ST_OK || !has) break;
        b->seen[line->rank].heard_at = now;
        if (!control_coordinator_message(b, line->rank, &f, now)) {
            st = fail(ST_SECURITY, "it sent a malformed message (type %d, %lld bytes)", f.type,
                      (long long)f.bytes);
        }
    }
    if (st != ST_OK) {
        control_coordinator_refuse(b, line->rank, st, "rank %d was disconnected: %s", line->rank,
                                   error_last()->text);
        control_coordinator_drop(b, e->connection);
    }
}

static void on_closed(control_coordinator *b, int connection)
{
    coordinator_line *line = &b->lines[connection];
    if (line->state == LINE_FREE) return;
    control_coordinator_drop(b, connection);
    control_stream_deinit(&line->stream);
    control_wipe(&line->handshake, sizeof(line->handshake));
    line->state = LINE_FREE;
}

void control_coordinator_handle(control_coordinator *b, const control_event *e, int64_t now)
{
    switch (e->kind) {
    case CONTROL_BYTES:
        ASSERT(e->connection >= 0 && e->connection < b->line_count);
        on_bytes(b, e, now);
        break;
    case CONTROL_CLOSED:
        ASSERT(e->connection >= 0 && e->connection < b->line_count);
        on_closed(b, e->connection);
        break;
    case CONTROL_EXITED:
        if (e->rank >= 0 && e->rank < b->config.ranks && !b->members[e->rank].has_left) {
            b->seen[e->rank].is_gone = b->phase != COORDINATOR_JOINING;
        }
        break;
    case CONTROL_OPENED:
    case CONTROL_TICK:
        break;
    }
    control_coordinator_advance(b, now);
}
