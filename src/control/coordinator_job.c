// The coordinator after ranks have proved themselves: it compares facts, welcomes ranks, gathers
// swaps, decides agreements and gives verdicts.
#include "control/coordinator_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FINDINGS_MAX = 16, COMPARE_MS = 2000, CLAIM_MS = 2000, NAMES_MAX = 8 };

// ---- comparing ----------------------------------------------------------------------------------
static bool is_like(const control_coordinator *b, int x, int y)
{
    return memcmp(b->members[x].digest, b->members[y].digest, sizeof(b->members[x].digest)) == 0;
}

static void welcome(control_coordinator *b, int64_t now)
{
    const int ranks = b->config.ranks;
    uint8_t head[16];
    uint8_t *list = calloc((size_t)(unsigned)ranks, PEER_BYTES);
    if (list == NULL) {
        control_coordinator_end(b, ST_NO_MEMORY,
                                "the coordinator has no memory for the list of ranks");
        return;
    }
    for (int r = 0; r < ranks; r++) {
        control_peer_print(&b->members[r].peer, list + (int64_t)r * PEER_BYTES);
        b->seen[r].moved_at = now;
    }
    control_put32(head, (uint32_t)ranks);
    control_put32(head + 4, (uint32_t)b->config.rank);
    control_put64(head + 8, b->config.self.machine);
    b->phase = COORDINATOR_RUNNING;
    control_coordinator_send_all(b, CONTROL_MSG_WELCOME, (control_span){head, sizeof(head)},
                                 (control_span){list, (int64_t)ranks * PEER_BYTES});
    free(list);
}

static void ask_record(control_coordinator *b, int rank)
{
    b->members[rank].is_asked = true;
    control_coordinator_send(b, rank, CONTROL_MSG_ASK_RECORD, (control_span){0}, (control_span){0});
}

// Finds the largest set of ranks with equal digests; among equal sets, the one with the lowest
// rank. O(ranks * sets).
void control_coordinator_compare(control_coordinator *b, int64_t now)
{
    const int ranks = b->config.ranks;
    int most = 0;
    b->odd = -1;
    for (int r = 0; r < ranks; r++) {
        bool is_new = true;
        for (int q = 0; q < r && is_new; q++) is_new = !is_like(b, q, r);
        int count = 0;
        for (int q = r; is_new && q < ranks; q++) count += is_like(b, q, r);
        if (count > most) {
            most = count;
            b->usual = r;
        }
        if (most == ranks) break;
    }
    if (most == ranks) {
        welcome(b, now);
        return;
    }
    for (int r = ranks - 1; r >= 0; r--) {
        if (!is_like(b, r, b->usual)) b->odd = r;
    }
    b->usual_count = most;
    b->phase = COORDINATOR_COMPARING;
    b->compare_until = now + (int64_t)COMPARE_MS * 1000000;
    ask_record(b, b->usual);
    ask_record(b, b->odd);
}

static void end_compare(control_coordinator *b)
{
    const coordinator_member *odd = &b->members[b->odd], *usual = &b->members[b->usual];
    unsigned kinds = 0;
    for (unsigned k = 0; k < CONTROL_FACT_KINDS; k++) {
        if (memcmp(odd->digest[k], usual->digest[k], CONTROL_DIGEST_BYTES) != 0) kinds |= 1u << k;
    }
    const control_side odd_side = {b->odd, 1, odd->peer.host, odd->record, odd->record_bytes};
    const control_side usual_side = {b->usual, b->usual_count, usual->peer.host, usual->record,
                                     usual->record_bytes};
    char said[CONTROL_TEXT_BYTES];
    control_facts_explain(&odd_side, &usual_side, kinds, said, sizeof(said));
    control_coordinator_refuse(b, b->odd, ST_REFUSED, "%s", said);
    control_coordinator_end(b, ST_REFUSED, said);
}

static bool on_record(control_coordinator *b, int rank, const control_frame *f)
{
    coordinator_member *m = &b->members[rank];
    if (b->phase != COORDINATOR_COMPARING || !m->is_asked || m->record != NULL) return false;
    if (f->bytes > CONTROL_RECORD_BYTES_MAX) return false;
    m->record = malloc((size_t)f->bytes + 1);
    if (m->record == NULL) return true; // the text then names the kind and not the key
    if (f->bytes > 0) memcpy(m->record, f->payload, (size_t)f->bytes);
    m->record_bytes = f->bytes;
    if (b->members[b->odd].record != NULL && b->members[b->usual].record != NULL) end_compare(b);
    return true;
}

// ---- verdicts -----------------------------------------------------------------------------------
static void report_verdict(control_coordinator *b, control_notice_kind kind, int rank,
                           control_verdict v, status code, const char *said)
{
    uint8_t head[12];
    control_notice n = {.kind = kind, .rank = rank, .verdict = v, .code = code};
    (void)snprintf(n.text, sizeof(n.text), "%s", said);
    control_notice_push(&b->notices, &n);
    control_put32(head, (uint32_t)rank);
    control_put32(head + 4, (uint32_t)v);
    control_put32(head + 8, (uint32_t)code);
    control_coordinator_send_all(b, CONTROL_MSG_VERDICT, (control_span){head, sizeof(head)},
                                 (control_span){n.text, (int64_t)strlen(n.text)});
}

static void apply_finding(control_coordinator *b, const control_finding *f)
{
    coordinator_member *m = &b->members[f->rank];
    if (m->told == f->verdict || m->told == CONTROL_DEAD) return;
    m->told = f->verdict;
    report_verdict(b, CONTROL_NOTE_VERDICT, f->rank, f->verdict, ST_OK, f->text);
    if (f->verdict != CONTROL_DEAD && f->verdict != CONTROL_STOPPED) return;
    // The rank is fenced: it is told the verdict if it still listens, and all it says later is
    // ignored.
    m->is_fenced = true;
    if (m->line >= 0) control_coordinator_drop(b, m->line);
    b->seen[f->rank].is_gone = true;
}

static bool on_failed(control_coordinator *b, int rank, const control_frame *f)
{
    if (f->bytes < 4) return false;
    const uint32_t code = control_get32(f->payload);
    if (code == ST_OK || code >= STATUS_COUNT) return false;
    coordinator_member *m = &b->members[rank];
    if (b->phase != COORDINATOR_RUNNING || m->told == CONTROL_DEAD) return true;
    char why[CONTROL_TEXT_BYTES], said[CONTROL_TEXT_BYTES];
    control_text_parse(f->payload + 4, f->bytes - 4, why);
    if (snprintf(said, sizeof(said), "rank %d (%s) failed: %s", rank, m->peer.host, why) < 0) {
        return false;
    }
    m->told = CONTROL_DEAD;
    report_verdict(b, CONTROL_NOTE_FAILED, rank, CONTROL_DEAD, (status)code, said);
    return true;
}

static bool on_lost(control_coordinator *b, int rank, const control_frame *f)
{
    (void)rank;
    if (f->bytes != 4) return false;
    const uint32_t other = control_get32(f->payload);
    if (other >= (uint32_t)b->config.ranks) return false;
    // A member monitors only ranks of its own machine. A rank that has left may end.
    const coordinator_member *m = &b->members[other];
    if (b->phase == COORDINATOR_RUNNING && !m->has_left &&
        m->peer.machine == b->members[rank].peer.machine) {
        b->seen[other].is_gone = true;
    }
    return true;
}

// ---- swaps --------------------------------------------------------------------------------------
// Returns the waiting swap of this key, or a new one; NULL without memory.
static coordinator_swap *swap_find(control_coordinator *b, int rank, const control_group *g,
                                   int64_t bytes)
{
    for (coordinator_swap *s = b->swaps; s != NULL; s = s->next) {
        if (s->key == g->key) return s;
    }
    const size_t count = (size_t)(unsigned)g->count;
    coordinator_swap *s = calloc(1, sizeof(*s) + count * sizeof(*s->ranks) + (size_t)bytes * count);
    if (s == NULL) return NULL;
    s->key = g->key;
    s->bytes = bytes;
    s->count = g->count;
    s->first = rank;
    s->ranks = (int32_t *)(void *)(s + 1);
    s->all = (uint8_t *)(s->ranks + count);
    for (int i = 0; i < g->count; i++) s->ranks[i] = -1;
    s->next = b->swaps;
    b->swaps = s;
    return s;
}

// Sends the bytes of all members to each of them.
static void swap_end(control_coordinator *b, coordinator_swap *s)
{
    uint8_t head[8];
    coordinator_swap **at = &b->swaps;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    control_put64(head, s->key);
    for (int i = 0; i < s->count; i++) {
        b->members[s->ranks[i]].is_swapping = false;
        control_coordinator_send(b, s->ranks[i], CONTROL_MSG_SWAPPED,
                                 (control_span){head, sizeof(head)},
                                 (control_span){s->all, s->bytes * s->count});
    }
    free(s);
}

static bool on_swap(control_coordinator *b, int rank, const control_frame *f)
{
    if (b->phase != COORDINATOR_RUNNING || f->bytes < 16 || b->members[rank].is_swapping)
        return false;
    const uint32_t place = control_get32(f->payload + 8), count = control_get32(f->payload + 12);
    const int64_t bytes = f->bytes - 16;
    char said[CONTROL_TEXT_BYTES];
    if (count < 1 || count > (uint32_t)b->config.ranks || place >= count) return false;
    if (bytes > CONTROL_SWAP_BYTES_MAX || bytes * count > CONTROL_TO_RANK_MAX - 8) return false;
    const control_group g = {control_get64(f->payload), (int)place, (int)count};
    coordinator_swap *s = swap_find(b, rank, &g, bytes);
    if (s == NULL) {
        control_coordinator_end(b, ST_NO_MEMORY, "the coordinator has no memory for a swap");
        return true;
    }
    if (s->bytes != bytes || s->count != g.count || s->ranks[place] >= 0) {
        (void)snprintf(
            said, sizeof(said),
            "ranks disagree in a swap: rank %d (%s) sends %lld bytes as member %d of %d, "
            "rank %d (%s) sent %lld as one of %d",
            rank, b->members[rank].peer.host, (long long)bytes, g.place, g.count, s->first,
            b->members[s->first].peer.host, (long long)s->bytes, s->count);
        control_coordinator_end(b, ST_DIVERGED, said);
        return true;
    }
    b->members[rank].is_swapping = true;
    s->ranks[place] = rank;
    if (bytes > 0) memcpy(s->all + bytes * place, f->payload + 16, (size_t)bytes);
    if (++s->here == s->count) swap_end(b, s);
    return true;
}

// ---- agreements ---------------------------------------------------------------------------------
// Asks every rank up to which step it promises to go without a decision. The decision is the
// largest of these steps, so no rank has begun a step beyond it.
static void ask_step(control_coordinator *b)
{
    uint8_t payload[4];
    if (b->is_asking || b->question_count == 0) return;
    b->is_asking = true;
    control_put32(payload, ++b->question);
    for (int r = 0; r < b->config.ranks; r++) b->members[r].has_promised = false;
    control_coordinator_send_all(b, CONTROL_MSG_ASK_STEP, (control_span){payload, sizeof(payload)},
                                 (control_span){0});
}

static bool on_request(control_coordinator *b, const control_frame *f)
{
    if (b->phase != COORDINATOR_RUNNING || f->bytes != 12) return false;
    const coordinator_question q = {control_get32(f->payload), control_get64(f->payload + 4)};
    if (q.kind >= CONTROL_AGREEMENTS) return false;
    for (int i = 0; i < b->question_count; i++) { // all ranks got the same signal: one decision
        if (b->questions[i].kind == q.kind && b->questions[i].argument == q.argument) return true;
    }
    if (b->question_count < QUESTIONS_MAX) b->questions[b->question_count++] = q;
    ask_step(b);
    return true;
}

static void decide(control_coordinator *b)
{
    int64_t furthest = INT64_MIN;
    for (int r = 0; r < b->config.ranks; r++) {
        const coordinator_member *m = &b->members[r];
        if (m->line < 0) continue; // the rank left or is gone
        if (!m->has_promised) return;
        furthest = max_i64(furthest, m->promised);
    }
    uint8_t payload[24];
    control_put32(payload, b->question);
    control_put32(payload + 4, b->questions[0].kind);
    control_put64(payload + 8, b->questions[0].argument);
    control_put64(payload + 16, (uint64_t)furthest);
    control_coordinator_send_all(b, CONTROL_MSG_DECIDED, (control_span){payload, sizeof(payload)},
                                 (control_span){0});
    b->is_asking = false;
    b->question_count--;
    memmove(b->questions, b->questions + 1, (size_t)b->question_count * sizeof(b->questions[0]));
    ask_step(b);
}

static bool on_promise(control_coordinator *b, int rank, const control_frame *f)
{
    if (f->bytes != 12 || !b->is_asking || control_get32(f->payload) != b->question) return false;
    b->members[rank].has_promised = true;
    b->members[rank].promised = (int64_t)control_get64(f->payload + 4);
    decide(b);
    return true;
}

// ---- messages -----------------------------------------------------------------------------------
static bool on_beat(control_coordinator *b, int rank, const control_frame *f, int64_t now)
{
    control_report r;
    control_seen *s = &b->seen[rank];
    if (!control_report_parse(f->payload, f->bytes, b->config.ranks, &r)) return false;
    // A rank whose progress was not checked until now starts afresh.
    if (r.counter != s->report.counter || s->report.step_ns == 0) s->moved_at = now;
    if (r.sequence != s->report.sequence) control_history_add(&b->history, rank, &r, now);
    s->report = r;
    return true;
}

// Ends the job once all connected ranks have left or are lost for good.
static void leave_together(control_coordinator *b)
{
    if (b->phase != COORDINATOR_RUNNING) return;
    bool is_one_left = false;
    for (int r = 0; r < b->config.ranks; r++) {
        const coordinator_member *m = &b->members[r];
        // A rank that was found to be stuck will not leave.
        const bool is_lost = m->told != CONTROL_FINE && m->told != CONTROL_SLOW;
        if (m->line >= 0 && !m->is_leaving && !is_lost) return;
        is_one_left = is_one_left || m->is_leaving;
    }
    for (int r = 0; r < b->config.ranks; r++) {
        b->members[r].has_left = b->members[r].is_leaving;
    }
    for (int r = 0; is_one_left && r < b->config.ranks; r++) {
        if (!b->members[r].is_leaving) continue;
        control_coordinator_send(b, r, CONTROL_MSG_BYE, (control_span){0}, (control_span){0});
    }
    b->phase = COORDINATOR_OVER;
    for (int i = 0; i < b->line_count; i++) {
        if (b->lines[i].state != LINE_FREE) b->lines[i].state = LINE_CLOSING;
    }
}

bool control_coordinator_message(control_coordinator *b, int rank, const control_frame *f,
                                 int64_t now)
{
    switch (f->type) {
    case CONTROL_MSG_BEAT:
        return on_beat(b, rank, f, now);
    case CONTROL_MSG_RECORD:
        return on_record(b, rank, f);
    case CONTROL_MSG_SWAP:
        return on_swap(b, rank, f);
    case CONTROL_MSG_REQUEST:
        return on_request(b, f);
    case CONTROL_MSG_PROMISE:
        return on_promise(b, rank, f);
    case CONTROL_MSG_LOST:
        return on_lost(b, rank, f);
    case CONTROL_MSG_FAILED:
        return on_failed(b, rank, f);
    case CONTROL_MSG_LEAVE:
        if (b->phase != COORDINATOR_RUNNING || f->bytes != 0) return false;
        b->members[rank].is_leaving = true;
        b->seen[rank].is_here = false; // the coordinator expects nothing more of it
        return true;
    case CONTROL_MSG_NONE: // all others go to the member
    case CONTROL_MSG_ASK_RECORD:
    case CONTROL_MSG_WELCOME:
    case CONTROL_MSG_END:
    case CONTROL_MSG_SWAPPED:
    case CONTROL_MSG_ASK_STEP:
    case CONTROL_MSG_DECIDED:
    case CONTROL_MSG_VERDICT:
    case CONTROL_MSG_BYE:
    case CONTROL_MSG_COUNCIL:
    case CONTROL_MSG_COUNT:
        break;
    }
    return false;
}

// ---- deadlines ----------------------------------------------------------------------------------
static void expire(control_coordinator *b, int64_t now)
{
    for (int i = 0; i < b->line_count; i++) {
        coordinator_line *line = &b->lines[i];
        const bool is_pending = line->state == LINE_STRANGER || line->state == LINE_CLAIMED;
        if (is_pending && now >= line->until) {
            control_coordinator_refuse(
                b, -1, ST_SECURITY,
                "a connection that did not authenticate within %d ms was closed",
                CONTROL_HANDSHAKE_MS);
            control_coordinator_drop(b, i);
        }
    }
}

// Ends the job if a claim of a missing rank failed and no other process has joined as that rank.
static void check_claims(control_coordinator *b, int64_t now)
{
    char said[CONTROL_TEXT_BYTES];
    for (int r = 0; r < b->config.ranks && b->phase == COORDINATOR_JOINING; r++) {
        const coordinator_member *m = &b->members[r];
        if (m->refused_at == 0 || now - m->refused_at < (int64_t)CLAIM_MS * 1000000) continue;
        (void)snprintf(
            said, sizeof(said),
            "rank %d (%s, process %lld) was refused, because its key is not the job's or "
            "its message was changed on the way, and no other process joined as rank %d; "
            "TRIREME_KEY must name the same key on every rank",
            r, m->claimed.host, (long long)m->claimed.pid, r);
        control_coordinator_end(b, ST_SECURITY, said);
    }
}

// Tells which ranks are missing: once while there is hope, and in the end.
static void join_missing_tell(control_coordinator *b, const char *verb,
                              char said[CONTROL_TEXT_BYTES])
{
    char missing[CONTROL_TEXT_BYTES / 2] = "";
    int named = 0;
    for (int r = 0; r < b->config.ranks && named < NAMES_MAX; r++) {
        if (b->members[r].has_joined) continue;
        const size_t used = strlen(missing);
        (void)snprintf(missing + used, sizeof(missing) - used, "%s%d", named == 0 ? "" : ", ", r);
        named++;
    }
    const int absent = b->config.ranks - b->joined;
    (void)snprintf(said, CONTROL_TEXT_BYTES, "rank%s %s%s %s within %.0f s; %d of %d have joined",
                   text_plural(absent, "s"), missing, absent > named ? ", ..." : "", verb,
                   (double)b->config.join_ns / 1e9, b->joined, b->config.ranks);
    control_notice n = {.kind = CONTROL_NOTE_REFUSED, .rank = -1, .code = ST_TIMEOUT};
    (void)snprintf(n.text, sizeof(n.text), "%s", said);
    control_notice_push(&b->notices, &n);
}

static void join_wait(control_coordinator *b, int64_t now)
{
    static const int64_t hope_ns = INT64_C(5000000000); // a process starts in less
    char said[CONTROL_TEXT_BYTES];
    if (now >= b->join_until) {
        join_missing_tell(b, "did not join", said);
        control_coordinator_end(b, ST_TIMEOUT, said);
    } else if (!b->has_told_missing && now - (b->join_until - b->config.join_ns) >= hope_ns) {
        b->has_told_missing = true;
        join_missing_tell(b, "must still join", said);
    }
}

// Asks the kernel about quiet ranks of this machine before they are suspected: a busy machine can
// starve a thread for more than a second.
static void ask_kernel(control_coordinator *b, int64_t now)
{
    const control_coordinator_config *c = &b->config;
    for (int r = 0; c->runs != NULL && r < c->ranks; r++) {
        control_seen *s = &b->seen[r];
        const bool is_quiet = s->is_here && now - s->heard_at > c->limits.silence_ns / 2;
        const control_peer *peer = &b->members[r].peer;
        s->is_running = is_quiet && peer->machine == c->self.machine && c->runs(peer);
    }
}

static void detect_failures(control_coordinator *b, int64_t now, int64_t late)
{
    control_finding found[FINDINGS_MAX];
    ask_kernel(b, now);
    const int count = control_detect_failures(b->seen, b->config.ranks, b->config.self.machine, now,
                                              late, &b->config.limits, found, FINDINGS_MAX);
    for (int i = 0; i < count; i++) apply_finding(b, &found[i]);
    if (control_history_check(&b->history, b->seen, b->config.ranks, now, found)) {
        apply_finding(b, found);
    }
}

static void tick(control_coordinator *b, int64_t now)
{
    const int64_t beat = b->config.limits.beat_ns, gap = now - b->ticked_at;
    const int64_t late = gap > 2 * beat ? gap - beat : 0;
    b->ticked_at = now;
    b->tick_at = now + beat;
    // A late failure detector credits every rank with the time that it lost, because their messages
    // may still lie unread. The times are capped at `now`: a message that was read before this tick
    // is not from the future, and a rank that was frozen too must not appear idle for that long.
    for (int r = 0; late > 0 && r < b->config.ranks; r++) {
        b->seen[r].heard_at = min_i64(b->seen[r].heard_at + late, now);
        b->seen[r].moved_at = min_i64(b->seen[r].moved_at + late, now);
    }
    expire(b, now);
    check_claims(b, now);
    if (b->phase == COORDINATOR_JOINING) join_wait(b, now);
    if (b->phase == COORDINATOR_COMPARING && now >= b->compare_until) end_compare(b);
    if (b->phase == COORDINATOR_RUNNING) detect_failures(b, now, 0);
    if (b->phase != COORDINATOR_OVER) {
        control_coordinator_send_all(b, CONTROL_MSG_BEAT, (control_span){0}, (control_span){0});
    }
}

void control_coordinator_advance(control_coordinator *b, int64_t now)
{
    if (now >= b->tick_at) {
        tick(b, now);
    } else if (b->phase == COORDINATOR_RUNNING) {
        // A process's end is reported at once, not at the next heartbeat.
        for (int r = 0; r < b->config.ranks; r++) {
            const control_seen *s = &b->seen[r];
            if (!s->is_gone || b->members[r].told == CONTROL_DEAD || b->members[r].is_leaving)
                continue;
            control_finding f = {.rank = r, .verdict = CONTROL_DEAD};
            (void)snprintf(f.text, sizeof(f.text),
                           "rank %d (%s) is dead: its process or its connection ended in step %lld",
                           r, s->host, (long long)s->report.step);
            apply_finding(b, &f);
        }
    }
    if (b->is_asking) decide(b);
    leave_together(b);
}
