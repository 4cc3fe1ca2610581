// One member of a group that agrees by majority. The header says why its rules are safe; here are
// the messages in order:
//
//   follower          others                   leader              others
//   PROBE term+1  ->                           ENTRY (t, i, v)  ->
//                 <-  PROBED yes or no                          <- TAKEN yes
//   ASK term+1    ->                           a majority has it: agreed
//                 <-  VOTED yes or no          ENTRY, agreed    -> agreed
//
// A probe changes no member, so one that is cut off raises no term and disturbs no leader when it
// is back. A member that hears its leader says no to probes.
#include "control/quorum.h"

int control_quorum_majority(int count)
{
    return count / 2 + 1;
}

static int yes_count(uint64_t yes)
{
    int n = 0;
    for (; yes != 0; yes &= yes - 1) n++;
    return n;
}

static bool has_majority(const control_quorum *q)
{
    return yes_count(q->yes) >= control_quorum_majority(q->count);
}

static bool is_older(const control_quorum_entry *a, const control_quorum_entry *b)
{
    return a->term != b->term ? a->term < b->term : a->index < b->index;
}

void control_quorum_check(const control_quorum *q)
{
    ASSERT(q->count >= 1 && q->count <= CONTROL_QUORUM_MAX);
    ASSERT(q->self >= 0 && q->self < q->count);
    ASSERT(q->out_count >= 0 && q->out_count <= CONTROL_QUORUM_OUT);
    ASSERT(q->entry.term <= q->term);
    ASSERT(q->agreed.index <= q->entry.index);
    ASSERT(q->role != CONTROL_LEADS || q->leader == q->self);
    ASSERT(q->role != CONTROL_LEADS || q->entry.index == 0 || q->entry.term == q->term);
    ASSERT(!q->is_back || q->role == CONTROL_FOLLOWS);
}

void control_quorum_init(control_quorum *q, int self, int count, control_quorum_message *out)
{
    *q = (control_quorum){.self = self, .count = count, .voted = -1, .leader = -1, .out = out};
    control_quorum_check(q);
}

void control_quorum_return(control_quorum *q, int self, int count, control_quorum_message *out)
{
    control_quorum_init(q, self, count, out);
    q->is_back = true;
}

void control_quorum_admit(control_quorum *q)
{
    ASSERT(q->agreed.index > 0);
    q->is_back = false;
}

// Drops the message if the owner has not emptied the queue: a message may be lost at any time.
static void send(control_quorum *q, control_quorum_kind kind, int to, uint64_t term, bool is_yes)
{
    if (q->out_count == CONTROL_QUORUM_OUT || to == q->self) return;
    q->out[q->out_count++] = (control_quorum_message){
        .kind = kind, .from = q->self, .to = to, .term = term, .entry = q->entry, .is_yes = is_yes};
}

static void send_all(control_quorum *q, control_quorum_kind kind, uint64_t term, bool is_yes)
{
    for (int m = 0; m < q->count; m++) send(q, kind, m, term, is_yes);
}

static bool is_agreed(const control_quorum *q)
{
    return q->agreed.index == q->entry.index && q->agreed.term == q->entry.term;
}

static void follow(control_quorum *q, uint64_t term, int leader)
{
    if (term > q->term) q->voted = -1;
    q->term = term;
    q->leader = leader;
    q->role = CONTROL_FOLLOWS;
    q->yes = 0;
}

static void agree_if_majority(control_quorum *q)
{
    if (q->entry.index == 0 || is_agreed(q) || !has_majority(q)) return;
    q->agreed = q->entry;
    control_quorum_beat(q); // the others need not wait for the next beat
}

static void lead(control_quorum *q)
{
    q->role = CONTROL_LEADS;
    q->leader = q->self;
    q->yes = UINT64_C(1) << q->self;
    if (q->entry.index > 0) q->entry.term = q->term;
    control_quorum_beat(q);
    agree_if_majority(q); // a member alone
}

static void ask(control_quorum *q)
{
    q->role = CONTROL_ASKS;
    q->term++;
    q->voted = q->self;
    q->leader = -1;
    q->yes = UINT64_C(1) << q->self;
    send_all(q, CONTROL_QUORUM_ASK, q->term, false);
    if (has_majority(q)) lead(q);
}

void control_quorum_timeout(control_quorum *q)
{
    if (q->role == CONTROL_LEADS || q->is_back) return;
    q->role = CONTROL_PROBES;
    q->leader = -1;
    q->yes = UINT64_C(1) << q->self;
    send_all(q, CONTROL_QUORUM_PROBE, q->term + 1, false);
    if (has_majority(q)) ask(q);
}

void control_quorum_beat(control_quorum *q)
{
    if (q->role == CONTROL_LEADS) send_all(q, CONTROL_QUORUM_ENTRY, q->term, is_agreed(q));
}

void control_quorum_retire(control_quorum *q)
{
    if (q->role == CONTROL_LEADS) follow(q, q->term, -1);
}

bool control_quorum_may_propose(const control_quorum *q)
{
    return q->role == CONTROL_LEADS && is_agreed(q);
}

bool control_quorum_propose(control_quorum *q, uint64_t value)
{
    if (!control_quorum_may_propose(q)) return false;
    q->entry = (control_quorum_entry){.term = q->term, .index = q->entry.index + 1, .value = value};
    q->yes = UINT64_C(1) << q->self;
    control_quorum_beat(q);
    agree_if_majority(q);
    return true;
}

// ---- messages -----------------------------------------------------------------------------------

static void on_probe(control_quorum *q, const control_quorum_message *m)
{
    const bool is_yes = !q->is_back && q->leader < 0 && !is_older(&m->entry, &q->entry);
    if (m->term > q->term) {
        send(q, CONTROL_QUORUM_PROBED, m->from, m->term, is_yes);
    } else { // tells it of the term
        send(q, CONTROL_QUORUM_VOTED, m->from, q->term, false);
    }
}

static void on_ask(control_quorum *q, const control_quorum_message *m)
{
    const bool is_free = !q->is_back && (q->voted < 0 || q->voted == m->from);
    const bool is_yes = is_free && !is_older(&m->entry, &q->entry);
    if (is_yes) q->voted = m->from;
    send(q, CONTROL_QUORUM_VOTED, m->from, q->term, is_yes);
}

static void on_entry(control_quorum *q, const control_quorum_message *m)
{
    // Another message of this leader that was overtaken by a later one.
    const bool is_late = is_older(&m->entry, &q->entry);
    follow(q, m->term, m->from);
    if (!is_late) q->entry = m->entry;
    if (!is_late && m->is_yes) q->agreed = m->entry;
    send(q, CONTROL_QUORUM_TAKEN, m->from, q->term, !is_late && !q->is_back);
}

static void on_answer(control_quorum *q, const control_quorum_message *m)
{
    if (!m->is_yes) return;
    q->yes |= UINT64_C(1) << m->from;
    if (q->role == CONTROL_PROBES) {
        if (has_majority(q)) ask(q);
    } else if (q->role == CONTROL_ASKS) {
        if (has_majority(q)) lead(q);
    } else {
        agree_if_majority(q);
    }
}

static bool is_answer_wanted(const control_quorum *q, const control_quorum_message *m)
{
    switch (m->kind) {
    case CONTROL_QUORUM_PROBED:
        return q->role == CONTROL_PROBES && m->term == q->term + 1;
    case CONTROL_QUORUM_VOTED:
        return q->role == CONTROL_ASKS;
    case CONTROL_QUORUM_TAKEN:
        return q->role == CONTROL_LEADS && m->entry.index == q->entry.index &&
               m->entry.term == q->entry.term;
    case CONTROL_QUORUM_PROBE:
    case CONTROL_QUORUM_ASK:
    case CONTROL_QUORUM_ENTRY:
    case CONTROL_QUORUM_KINDS:
        break;
    }
    return false;
}

bool control_quorum_handle(control_quorum *q, const control_quorum_message *m)
{
    if (m->from < 0 || m->from >= q->count || m->from == q->self || m->to != q->self) return false;
    if (m->kind == CONTROL_QUORUM_PROBE) {
        on_probe(q, m);
        return true;
    }
    const bool is_of_term = m->kind != CONTROL_QUORUM_PROBED;
    if (is_of_term && m->term > q->term) follow(q, m->term, -1);
    if (is_of_term && m->term < q->term) {
        // Its sender learns of the term by the answer, and leads or asks no longer.
        if (m->kind == CONTROL_QUORUM_ENTRY) send(q, CONTROL_QUORUM_TAKEN, m->from, q->term, false);
        if (m->kind == CONTROL_QUORUM_ASK) send(q, CONTROL_QUORUM_VOTED, m->from, q->term, false);
        return false;
    }
    if (m->kind == CONTROL_QUORUM_ASK) {
        on_ask(q, m);
    } else if (m->kind == CONTROL_QUORUM_ENTRY) {
        on_entry(q, m);
    } else if (is_answer_wanted(q, m)) {
        on_answer(q, m);
    } else {
        return false;
    }
    return true;
}
