// The member is one rank's end of control: a small state machine with one connection.
//
// It also monitors the coordinator. If the coordinator is silent for too long or its connection
// ends, the member itself gives the verdict on the coordinator's rank, because the coordinator
// cannot report its own failure. The end of a local peer's process arrives as CONTROL_EXITED from
// the kernel within a millisecond, and the member forwards it.
#include "control/message.h"

#include "base/fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_LIMIT = 1 << 20, SILENT_LATE_FACTOR = 2, WAITING_SILENCE_MS = 10000 };

enum { AGREEMENTS_PENDING = 16 };
typedef struct agreement { // it was decided, and its step has not come yet
    control_agreement kind;
    int64_t after; // the last step before it
    uint64_t argument;
} agreement;

struct control_member {
    control_member_config config;
    control_state state;
    uint8_t digest[CONTROL_FACT_KINDS][CONTROL_DIGEST_BYTES];
    control_handshake handshake;
    control_stream stream;
    bool is_connected, has_proved, is_condemned, was_welcomed;
    char coordinator_host[CONTROL_HOST_BYTES];
    int coordinator_rank;
    uint64_t coordinator_machine;
    control_peer *peers; // ranks, from WELCOME on
    uint8_t *told;       // last verdict per rank that the owner was told
    bool is_coordinator_told;
    int lost; // a rank that is dead or stopped; -1: none
    int64_t heard_at, beat_at, handled_at;
    control_report report;
    struct {
        bool is_running, is_over;
        control_group of;
        int64_t bytes;
        status result;
        uint8_t *all;
    } swap;
    int64_t begun, promised;                  // steps; promised: INT64_MAX without an open question
    int open_questions;                       // asked by the coordinator, not decided yet
    agreement agreements[AGREEMENTS_PENDING]; // in the order of the decisions
    int agreement_count;
    status code;
    char text[CONTROL_TEXT_BYTES];
    notice_queue notices;
};

status control_member_create(const control_member_config *config, int64_t now, control_member **out)
{
    ASSERT(config->ranks >= 1 && config->ranks <= CONTROL_RANKS_MAX);
    ASSERT(config->rank >= 0 && config->rank < config->ranks);
    TRY(fault_point("control.member.create"));
    control_member *m = calloc(1, sizeof(*m));
    if (m == NULL) return fail(ST_NO_MEMORY, "no memory for control");
    m->peers = calloc((size_t)config->ranks, sizeof(*m->peers));
    m->told = calloc((size_t)config->ranks, sizeof(*m->told));
    if (m->peers == NULL || m->told == NULL) {
        control_member_destroy(m);
        return fail(ST_NO_MEMORY, "no memory for a list of %d ranks", config->ranks);
    }
    m->config = *config;
    control_limits_complete(&m->config.limits);
    control_facts_digest(config->facts, config->fact_count, m->digest);
    m->promised = INT64_MAX;
    m->lost = -1;
    control_member_reset(m, now);
    *out = m;
    return ST_OK;
}

void control_member_destroy(control_member *m)
{
    if (m == NULL) return;
    control_stream_deinit(&m->stream);
    control_wipe(&m->handshake, sizeof(m->handshake));
    free(m->swap.all);
    free(m->peers);
    free(m->told);
    free(m);
}

void control_member_reset(control_member *m, int64_t now)
{
    control_stream_deinit(&m->stream);
    control_stream_init(&m->stream, CONTROL_TO_RANK_MAX, OUT_LIMIT);
    control_handshake_begin(&m->handshake, m->config.key, m->config.job, m->config.epoch);
    m->state = CONTROL_JOINING;
    m->is_connected = m->has_proved = m->is_condemned = false;
    m->heard_at = m->beat_at = m->handled_at = now;
}

bool control_member_may_retry(const control_member *m)
{
    return m->state == CONTROL_OVER && !m->is_condemned && !m->was_welcomed;
}

// Ends this member: it sends and accepts nothing afterwards.
static void end(control_member *m, status code, const char *format, ...) PRINTF_LIKE(3, 4);
static void end(control_member *m, status code, const char *format, ...)
{
    if (m->state == CONTROL_OVER || m->state == CONTROL_LEFT) return;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(m->text, sizeof(m->text), format, args);
    va_end(args);
    m->state = CONTROL_OVER;
    m->code = code;
    m->is_connected = false;
}

static void send(control_member *m, control_type type, control_span a, control_span b)
{
    if (!m->has_proved || !m->is_connected) return;
    const status st = control_stream_put(&m->stream, type, a, b);
    if (st != ST_OK) end(m, st, "%s", error_last()->text);
}

static void push_verdict(control_member *m, int rank, control_verdict v, const char *said)
{
    control_notice n = {.kind = CONTROL_NOTE_VERDICT, .rank = rank, .verdict = v};
    (void)snprintf(n.text, sizeof(n.text), "%s", said);
    control_notice_push(&m->notices, &n);
    const bool is_lost = v != CONTROL_SLOW && v != CONTROL_FINE;
    if (is_lost && m->swap.is_running) {
        m->swap.is_running = false;
        m->swap.is_over = true;
        m->swap.result = ST_PEER_LOST;
    }
}

// Reports each verdict once. A stopped rank may still die.
static void tell_verdict(control_member *m, int rank, control_verdict v, const char *said)
{
    if (rank == CONTROL_COORDINATOR) {
        if (!m->is_coordinator_told) push_verdict(m, rank, v, said);
        m->is_coordinator_told = true;
        return;
    }
    if (m->told[rank] == v || m->told[rank] == CONTROL_DEAD) return;
    m->told[rank] = (uint8_t)v;
    if (v == CONTROL_DEAD || v == CONTROL_STOPPED) m->lost = rank;
    push_verdict(m, rank, v, said);
}

// ---- joining ------------------------------------------------------------------------------------
static void send_hello(control_member *m, control_hello_type type)
{
    control_hello hello = {.type = type,
                           .job = m->config.job,
                           .epoch = m->config.epoch,
                           .rank = m->config.rank,
                           .ranks = m->config.ranks,
                           .pid = m->config.self.pid,
                           .started = m->config.self.started,
                           .machine = m->config.self.machine};
    uint8_t frame[CONTROL_HELLO_BYTES];
    memcpy(hello.digest, m->digest, sizeof(hello.digest));
    memcpy(hello.host, m->config.self.host, sizeof(hello.host));
    status st = m->config.h->api->random_fill(m->config.h, hello.nonce, sizeof(hello.nonce));
    control_hello_print(&hello, frame);
    control_handshake_seal(&m->handshake, frame);
    if (st == ST_OK) st = control_stream_put_raw(&m->stream, frame, sizeof(frame));
    if (st != ST_OK) end(m, st, "%s", error_last()->text);
}

static void condemn_key(control_member *m, uint64_t job)
{
    m->is_condemned = true;
    end(m, ST_SECURITY,
        "rank %d (%s) was refused: its key is not the key of job %016llx, epoch %u, or a message was "
        "changed on the way; %s",
        m->config.rank, m->config.self.host, (unsigned long long)m->config.job, m->config.epoch,
        job != m->config.job
            ? "the coordinator is of another job: all ranks must spell its address in the same way"
            : "TRIREME_KEY must name the same key on every rank");
}

// Tells the coordinator that its challenge proved nothing. This frame is not sealed: it can only
// refuse.
static void refuse_coordinator(control_member *m)
{
    const control_hello hello = {.type = CONTROL_REJECT,
                                 .job = m->config.job,
                                 .epoch = m->config.epoch,
                                 .rank = m->config.rank,
                                 .ranks = m->config.ranks,
                                 .code = ST_SECURITY};
    uint8_t frame[CONTROL_HELLO_BYTES];
    control_hello_print(&hello, frame);
    if (control_stream_put_raw(&m->stream, frame, sizeof(frame)) != ST_OK) error_clear();
}

static void on_hello(control_member *m, const uint8_t *frame)
{
    control_hello hello;
    const bool is_one = control_hello_parse(frame, &hello);
    if (is_one && hello.type == CONTROL_REJECT) {
        // A REJECT frame is not sealed, so it can only refuse.
        if (hello.code == ST_SECURITY || hello.code == ST_OK) {
            condemn_key(m, hello.job);
            return;
        }
        m->is_condemned = true;
        end(m, (status)hello.code,
            hello.ranks != m->config.ranks
                ? "rank %d (%s) was refused: it was started for a job of %d ranks, the others "
                  "for %d"
                : "rank %d (%s) was refused: another process has this rank of %d, or it came after "
                  "the job of %d ranks was complete",
            m->config.rank, m->config.self.host, m->config.ranks, hello.ranks);
        return;
    }
    if (!is_one || hello.type != CONTROL_CHALLENGE) {
        refuse_coordinator(m);
        m->is_condemned = true;
        end(m, ST_SECURITY,
            "rank %d (%s): the process at the coordinator's address is not the coordinator of a job, "
            "or its message was changed on the way",
            m->config.rank, m->config.self.host);
        return;
    }
    if (hello.job != m->config.job || hello.epoch != m->config.epoch ||
        !control_handshake_check(&m->handshake, frame)) {
        refuse_coordinator(m);
        condemn_key(m, hello.job);
        return;
    }
    send_hello(m, CONTROL_PROOF);
    if (m->state != CONTROL_JOINING) return;
    memcpy(m->coordinator_host, hello.host, sizeof(m->coordinator_host));
    m->coordinator_rank = hello.rank;
    control_stream_key(&m->stream, m->config.key, &m->handshake, m->config.epoch, false);
    control_wipe(&m->handshake, sizeof(m->handshake));
    m->has_proved = true;
    m->state = CONTROL_WAITING;
}

// ---- frames -------------------------------------------------------------------------------------
static bool on_welcome(control_member *m, const control_frame *f)
{
    const int ranks = m->config.ranks;
    if (m->state != CONTROL_WAITING || f->bytes != 16 + (int64_t)ranks * PEER_BYTES) return false;
    if (control_get32(f->payload) != (uint32_t)ranks) return false;
    m->coordinator_rank = (int32_t)control_get32(f->payload + 4);
    m->coordinator_machine = control_get64(f->payload + 8);
    if (m->coordinator_rank < CONTROL_COORDINATOR || m->coordinator_rank >= ranks) return false;
    for (int r = 0; r < ranks; r++) {
        if (!control_peer_parse(f->payload + 16 + (int64_t)r * PEER_BYTES, &m->peers[r]))
            return false;
    }
    m->state = CONTROL_RUNNING;
    m->was_welcomed = true;
    return true;
}

static bool on_end(control_member *m, const control_frame *f)
{
    if (f->bytes < 4) return false;
    char said[CONTROL_TEXT_BYTES];
    const uint32_t code = control_get32(f->payload);
    control_text_parse(f->payload + 4, f->bytes - 4, said);
    m->is_condemned = true;
    end(m, code > 0 && code < STATUS_COUNT ? (status)code : ST_INTERNAL, "%s", said);
    return true;
}

static bool on_swapped(control_member *m, const control_frame *f)
{
    if (f->bytes < 8) return false;
    // The answer to a swap that was given up here may still arrive.
    if (!m->swap.is_running || control_get64(f->payload) != m->swap.of.key) return true;
    const int64_t bytes = f->bytes - 8;
    if (bytes != m->swap.bytes * m->swap.of.count) return false;
    if (bytes > 0) memcpy(m->swap.all, f->payload + 8, (size_t)bytes);
    m->swap.is_running = false;
    m->swap.is_over = true;
    m->swap.result = ST_OK;
    return true;
}

static bool on_ask_step(control_member *m, const control_frame *f)
{
    if (f->bytes != 4) return false;
    uint8_t answer[12];
    // The promise covers the running step and the next, so training does not wait while the
    // coordinator decides.
    m->promised = min_i64(m->promised, m->begun + 1);
    m->open_questions++;
    memcpy(answer, f->payload, 4);
    control_put64(answer + 4, (uint64_t)m->promised);
    send(m, CONTROL_MSG_PROMISE, (control_span){answer, sizeof(answer)}, (control_span){0});
    return true;
}

static bool on_decided(control_member *m, const control_frame *f)
{
    if (f->bytes != 24) return false;
    const uint32_t kind = control_get32(f->payload + 4);
    if (kind >= CONTROL_AGREEMENTS || m->open_questions == 0) return false;
    if (m->agreement_count == AGREEMENTS_PENDING) return false;
    m->agreements[m->agreement_count++] =
        (agreement){.kind = (control_agreement)kind,
                    .argument = control_get64(f->payload + 8),
                    .after = (int64_t)control_get64(f->payload + 16)};
    if (--m->open_questions == 0) m->promised = INT64_MAX;
    return true;
}

static bool on_verdict(control_member *m, const control_frame *f)
{
    if (f->bytes < 12) return false;
    const int rank = (int32_t)control_get32(f->payload);
    const uint32_t verdict = control_get32(f->payload + 4), code = control_get32(f->payload + 8);
    if (rank < 0 || rank >= m->config.ranks) return false;
    if (verdict == CONTROL_FINE || verdict >= CONTROL_VERDICTS || code >= STATUS_COUNT)
        return false;
    control_notice n = {.kind = CONTROL_NOTE_FAILED, .rank = rank, .code = (status)code};
    control_text_parse(f->payload + 12, f->bytes - 12, n.text);
    // The rank gives its own reason; report that cause before the verdict that follows.
    if (code != ST_OK) {
        control_notice_push(&m->notices, &n);
        m->told[rank] = CONTROL_FINE;
    }
    tell_verdict(m, rank, (control_verdict)verdict, n.text);
    if (rank == m->config.rank && (verdict == CONTROL_DEAD || verdict == CONTROL_STOPPED)) {
        m->is_condemned = true;
        end(m, ST_PEER_LOST, "the other ranks gave up rank %d: %s", rank, n.text);
    }
    return true;
}

static void send_record(control_member *m)
{
    arena *a = NULL;
    status st = arena_create("fingerprint record", 0, &a);
    text record = {.a = a};
    if (st == ST_OK) st = control_record_print(m->config.facts, m->config.fact_count, &record);
    // Without the record, the coordinator still knows which digest differs.
    if (st == ST_OK) {
        send(m, CONTROL_MSG_RECORD, (control_span){record.bytes, record.length}, (control_span){0});
    } else {
        send(m, CONTROL_MSG_RECORD, (control_span){0}, (control_span){0});
        error_clear();
    }
    arena_destroy(a);
}

// Returns false if the frame is malformed or not allowed in this state.
static bool on_frame(control_member *m, const control_frame *f)
{
    switch (f->type) {
    case CONTROL_MSG_BEAT:
        return f->bytes == 0;
    case CONTROL_MSG_ASK_RECORD:
        send_record(m);
        return f->bytes == 0;
    case CONTROL_MSG_WELCOME:
        return on_welcome(m, f);
    case CONTROL_MSG_END:
        return on_end(m, f);
    case CONTROL_MSG_SWAPPED:
        return on_swapped(m, f);
    case CONTROL_MSG_ASK_STEP:
        return on_ask_step(m, f);
    case CONTROL_MSG_DECIDED:
        return on_decided(m, f);
    case CONTROL_MSG_VERDICT:
        return on_verdict(m, f);
    case CONTROL_MSG_BYE:
        if (m->state != CONTROL_LEAVING) return false;
        m->state = CONTROL_LEFT;
        return f->bytes == 0;
    case CONTROL_MSG_NONE: // all others go to the coordinator
    case CONTROL_MSG_RECORD:
    case CONTROL_MSG_SWAP:
    case CONTROL_MSG_REQUEST:
    case CONTROL_MSG_PROMISE:
    case CONTROL_MSG_LOST:
    case CONTROL_MSG_FAILED:
    case CONTROL_MSG_LEAVE:
    case CONTROL_MSG_COUNCIL:
    case CONTROL_MSG_COUNT:
        break;
    }
    return false;
}

static void on_bytes(control_member *m, const void *bytes, int64_t count)
{
    status st = control_stream_take(&m->stream, bytes, count);
    while (st == ST_OK && m->state != CONTROL_OVER && m->state != CONTROL_LEFT) {
        if (!m->has_proved) {
            const uint8_t *frame = control_stream_hello(&m->stream);
            if (frame == NULL) return;
            on_hello(m, frame);
            continue;
        }
        control_frame f;
        bool has = false;
        st = control_stream_next(&m->stream, &f, &has);
        if (st != ST_OK || !has) break;
        if (!on_frame(m, &f)) {
            end(m, ST_SECURITY, "the coordinator sent a malformed message (type %d, %lld bytes)",
                f.type, (long long)f.bytes);
        }
    }
    if (st == ST_SECURITY && m->state == CONTROL_WAITING) {
        m->is_condemned = true; // to try again would only repeat it until the time is over
        end(m, st, "rank %d (%s) was refused, or a message to it was changed on the way: %s",
            m->config.rank, m->config.self.host, error_last()->text);
    }
    if (st != ST_OK) end(m, st, "%s", error_last()->text);
}

// ---- monitoring the coordinator -----------------------------------------------------------------
static const char *coordinator_name(const control_member *m, char out[CONTROL_HOST_BYTES + 32])
{
    if (m->coordinator_rank == CONTROL_COORDINATOR) {
        (void)snprintf(out, CONTROL_HOST_BYTES + 32, "the launcher (%s)", m->coordinator_host);
    } else {
        (void)snprintf(out, CONTROL_HOST_BYTES + 32, "rank %d (%s)", m->coordinator_rank,
                       m->coordinator_host);
    }
    return out;
}

static void lose_coordinator(control_member *m, control_verdict v, const char *why)
{
    char name[CONTROL_HOST_BYTES + 32], said[CONTROL_TEXT_BYTES];
    if (m->state == CONTROL_JOINING || m->state == CONTROL_WAITING) {
        end(m, ST_PEER_LOST, "the coordinator of the job was lost before all ranks had joined: %s",
            why);
        return;
    }
    (void)snprintf(said, sizeof(said), "%s is %s: %s, and it was the job's coordinator",
                   coordinator_name(m, name), control_verdict_name(v), why);
    tell_verdict(m, m->coordinator_rank, v, said);
    end(m, ST_PEER_LOST, "%s", said);
}

static void on_tick(control_member *m, int64_t now, int64_t late)
{
    if (m->state == CONTROL_OVER || m->state == CONTROL_LEFT || !m->is_connected) return;
    const int64_t silent = now - m->heard_at - late;
    if (m->state == CONTROL_JOINING) {
        if (silent > (int64_t)CONTROL_HANDSHAKE_MS * 1000000) {
            end(m, ST_TIMEOUT,
                "the process at the coordinator's address did not answer within %d ms",
                CONTROL_HANDSHAKE_MS);
        }
        return;
    }
    if (now >= m->beat_at) {
        uint8_t payload[REPORT_BYTES_MAX];
        m->beat_at = now + m->config.limits.beat_ns;
        const int64_t bytes = control_report_print(&m->report, payload);
        send(m, CONTROL_MSG_BEAT, (control_span){payload, bytes}, (control_span){0});
    }
    // A longer limit costs nothing before all ranks have joined, and machines are busiest during
    // startup.
    const int64_t limit = m->state == CONTROL_WAITING ? (int64_t)WAITING_SILENCE_MS * 1000000
                                                      : m->config.limits.silence_ns;
    if (silent > limit) {
        const bool is_local =
            m->coordinator_machine != 0 && m->coordinator_machine == m->config.self.machine;
        const bool may_be_starved = is_local && m->coordinator_rank != CONTROL_COORDINATOR &&
                                    m->config.runs != NULL && silent < m->config.limits.starved_ns;
        if (may_be_starved && m->config.runs(&m->peers[m->coordinator_rank])) return;
        lose_coordinator(m, is_local ? CONTROL_STOPPED : CONTROL_DEAD,
                         "it has been silent for too long");
    }
}

static void on_exited(control_member *m, int rank)
{
    char said[CONTROL_TEXT_BYTES];
    uint8_t payload[4];
    if (m->state != CONTROL_RUNNING || rank < 0 || rank >= m->config.ranks) return;
    (void)snprintf(said, sizeof(said), "rank %d (%s) is dead: its process ended", rank,
                   m->peers[rank].host);
    control_put32(payload, (uint32_t)rank);
    send(m, CONTROL_MSG_LOST, (control_span){payload, sizeof(payload)}, (control_span){0});
    tell_verdict(m, rank, CONTROL_DEAD, said);
}

void control_member_handle(control_member *m, const control_event *e, int64_t now)
{
    // A member that ran late suspects no rank: unread messages may lie in its socket.
    const int64_t gap = now - m->handled_at, usual = SILENT_LATE_FACTOR * m->config.limits.beat_ns;
    const int64_t late = gap > usual ? gap - m->config.limits.beat_ns : 0;
    if (late > 0) m->heard_at += late;
    m->handled_at = now;
    switch (e->kind) {
    case CONTROL_OPENED:
        m->is_connected = true;
        m->heard_at = now;
        send_hello(m, CONTROL_HELLO);
        break;
    case CONTROL_BYTES:
        m->heard_at = now;
        on_bytes(m, e->bytes, e->count);
        break;
    case CONTROL_CLOSED:
        if (m->is_connected && m->state != CONTROL_LEFT)
            lose_coordinator(m, CONTROL_DEAD, "its connection ended");
        m->is_connected = false;
        break;
    case CONTROL_EXITED:
        on_exited(m, e->rank);
        break;
    case CONTROL_TICK:
        on_tick(m, now, 0);
        break;
    }
}

int64_t control_member_wake(const control_member *m)
{
    return m->state == CONTROL_JOINING ? m->handled_at + m->config.limits.beat_ns : m->beat_at;
}

control_span control_member_output(const control_member *m)
{
    return control_stream_output(&m->stream);
}

void control_member_sent(control_member *m, int64_t count)
{
    control_stream_sent(&m->stream, count);
}

bool control_member_notice(control_member *m, control_notice *out)
{
    return control_notice_pop(&m->notices, out);
}

control_state control_member_state(const control_member *m)
{
    return m->state;
}

status control_member_error(const control_member *m, const char **said)
{
    *said = m->text;
    return m->state == CONTROL_OVER ? m->code : ST_OK;
}

const control_peer *control_member_peer(const control_member *m, int rank)
{
    ASSERT(rank >= 0 && rank < m->config.ranks);
    return &m->peers[rank];
}

int control_member_coordinator_rank(const control_member *m)
{
    return m->coordinator_rank;
}

// ---- requests of the owner ----------------------------------------------------------------------
void control_member_report(control_member *m, const control_report *report)
{
    m->report = *report;
    m->report.edge_count = report->edge_count < 0                   ? 0
                           : report->edge_count > CONTROL_EDGES_MAX ? CONTROL_EDGES_MAX
                                                                    : report->edge_count;
    m->report.doing[CONTROL_DOING_BYTES - 1] = '\0';
}

status control_member_swap(control_member *m, const control_group *g, const void *mine,
                           int64_t bytes)
{
    ASSERT(!m->swap.is_running && bytes >= 0);
    ASSERT(g->count >= 1 && g->count <= m->config.ranks && g->place >= 0 && g->place < g->count);
    if (bytes > CONTROL_SWAP_BYTES_MAX || bytes * g->count > CONTROL_TO_RANK_MAX - 8) {
        return fail(
            ST_USAGE,
            "a swap of %lld bytes on each of %d ranks is too large, at most %d each and %d in "
            "total are allowed",
            (long long)bytes, g->count, CONTROL_SWAP_BYTES_MAX, CONTROL_TO_RANK_MAX);
    }
    if (m->state != CONTROL_RUNNING)
        return fail(ST_PEER_LOST, "the swap cannot begin: %s", m->text);
    if (m->lost >= 0) {
        return fail(ST_PEER_LOST, "the swap cannot begin: rank %d (%s) is lost", m->lost,
                    m->peers[m->lost].host);
    }
    const size_t all = (size_t)max_i64(bytes * g->count, 1);
    uint8_t *grown = realloc(m->swap.all, all);
    if (grown == NULL) return fail(ST_NO_MEMORY, "no memory for a swap of %zu bytes", all);
    m->swap.all = grown;
    m->swap.is_running = true;
    m->swap.is_over = false;
    m->swap.of = *g;
    m->swap.bytes = bytes;
    uint8_t head[16];
    control_put64(head, g->key);
    control_put32(head + 8, (uint32_t)g->place);
    control_put32(head + 12, (uint32_t)g->count);
    send(m, CONTROL_MSG_SWAP, (control_span){head, sizeof(head)}, (control_span){mine, bytes});
    return ST_OK;
}

bool control_member_swapped(control_member *m, status *st, const uint8_t **all)
{
    if (m->swap.is_running && m->state == CONTROL_OVER) {
        m->swap.is_running = false;
        m->swap.is_over = true;
        m->swap.result = m->code;
    }
    if (!m->swap.is_over) return false;
    *st = m->swap.result;
    *all = m->swap.all;
    return true;
}

void control_member_request(control_member *m, control_agreement kind, uint64_t argument)
{
    uint8_t payload[12];
    control_put32(payload, (uint32_t)kind);
    control_put64(payload + 4, argument);
    send(m, CONTROL_MSG_REQUEST, (control_span){payload, sizeof(payload)}, (control_span){0});
}

bool control_member_step(control_member *m, int64_t step, control_decision *due)
{
    if (m->open_questions > 0 && step > m->promised && m->state == CONTROL_RUNNING) return false;
    for (int i = 0; i < CONTROL_AGREEMENTS; i++) due[i] = (control_decision){0};
    int kept = 0;
    for (int i = 0; i < m->agreement_count; i++) {
        const agreement a = m->agreements[i];
        if (step > a.after) {
            due[a.kind] = (control_decision){.is_due = true, .argument = a.argument};
        } else {
            m->agreements[kept++] = a;
        }
    }
    m->agreement_count = kept;
    m->begun = max_i64(m->begun, step);
    return true;
}

void control_member_fail(control_member *m, status code, const char *said)
{
    uint8_t payload[4];
    control_put32(payload, (uint32_t)code);
    const int64_t bytes = (int64_t)strnlen(said, CONTROL_TEXT_BYTES - 1);
    send(m, CONTROL_MSG_FAILED, (control_span){payload, sizeof(payload)},
         (control_span){said, bytes});
    m->is_condemned = true;
    end(m, code, "%s", said); // pending output is still sent
}

void control_member_leave(control_member *m)
{
    if (m->state != CONTROL_RUNNING) return;
    m->state = CONTROL_LEAVING;
    send(m, CONTROL_MSG_LEAVE, (control_span){0}, (control_span){0});
}
