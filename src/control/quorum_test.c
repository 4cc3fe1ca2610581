// Members that agree by majority, explored.
//
//   all      every order of messages, timeouts, crashes and lost connections of three members, two
//            of which may crash and come back, up to a number of each; each state is checked once
//   random   three to seven members by seeds: messages late, lost, overtaken and repeated, members
//            that crash and come back, stop and go on, and groups that are cut off and come back
//
// A value is a number and the incarnation of each member, counted from 0: a leader proposes one
// with the new incarnation of a member that is back, which admits it. What its earlier incarnation
// sent may come later.
//
// Safety, after each event: a term has one leader, an index one value, a member's agreed index
// never falls until it crashes, and a message of an earlier term changes nothing. Progress: when
// the faults are over and a majority lives, it agrees on another value and admits who is back.
#include "control/quorum.h"

#include "base/hash.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef control_quorum_message message;

enum { MEMBERS_MAX = 7, TERMS_MAX = 4096, VALUES_MAX = 4096 };

enum { INCARNATION_BITS = 4, NUMBER_BITS = 16 };

static uint64_t number_of(uint64_t value)
{
    return value & ((UINT64_C(1) << NUMBER_BITS) - 1);
}

static int incarnation_of(uint64_t value, int m)
{
    return (int)(value >> (NUMBER_BITS + INCARNATION_BITS * m) & 15U);
}

// The leader's next value: another number, or the incarnations of members that are back. False:
// none.
static bool propose(control_quorum *q, uint64_t number, const int *incarnations, int count)
{
    uint64_t value = number;
    for (int m = 0; m < count; m++)
        value |= (uint64_t)incarnations[m] << (NUMBER_BITS + INCARNATION_BITS * m);
    return control_quorum_propose(q, value);
}

// The owner of a member that is back admits it when the agreed value names its incarnation.
static void admit_if_named(control_quorum *q, int incarnation)
{
    if (q->is_back && q->agreed.index > 0 &&
        incarnation_of(q->agreed.value, q->self) == incarnation)
        control_quorum_admit(q);
}

// ---- safety -------------------------------------------------------------------------------------

typedef struct facts { // what has been seen of a group; 0: nothing
    uint8_t leader[TERMS_MAX];
    uint64_t value[VALUES_MAX];
} facts;

static void facts_check(facts *f, const control_quorum *q, uint64_t agreed_before)
{
    control_quorum_check(q);
    assert_true(q->term < TERMS_MAX && q->agreed.index < VALUES_MAX);
    assert_true(q->agreed.index >= agreed_before);
    if (q->role == CONTROL_LEADS) {
        const uint8_t name = (uint8_t)(q->self + 1);
        if (f->leader[q->term] == 0) f->leader[q->term] = name;
        assert_int_equal(f->leader[q->term], name);
    }
    if (q->agreed.index == 0) return;
    if (f->value[q->agreed.index] == 0) f->value[q->agreed.index] = q->agreed.value;
    assert_int_equal(f->value[q->agreed.index], q->agreed.value);
}

// A message of an earlier term has no effect but an answer.
static void handle(control_quorum *q, const message *m)
{
    const control_quorum_entry entry = q->entry, agreed = q->agreed;
    const uint64_t term = q->term;
    const bool is_old = m->term < q->term && m->kind != CONTROL_QUORUM_PROBED;
    const bool is_taken = control_quorum_handle(q, m);
    if (!is_old) return;
    assert_false(is_taken && m->kind != CONTROL_QUORUM_PROBE);
    assert_memory_equal(&entry, &q->entry, sizeof(entry));
    assert_memory_equal(&agreed, &q->agreed, sizeof(agreed));
    assert_int_equal(term, q->term);
}

// ---- every order of events ----------------------------------------------------------------------

enum { THREE = 3, LINE_MAX = 5, SEEN_BITS = 21, NIGHT_BITS = 25, SMALL = 16 };

static message out[CONTROL_QUORUM_OUT]; // of the member that acts

typedef struct limits {
    int timeouts, beats, proposals, crashes, cuts, returns;
} limits;

typedef struct line { // from one member to another, in order
    int count;
    message m[LINE_MAX];
} line;

typedef struct group {
    control_quorum q[THREE];
    line to[THREE][THREE]; // by sender and receiver
    bool is_dead[THREE];
    int incarnation[THREE];
    limits left;
    bool has_begun;
    uint64_t next_value;
    uint8_t leader[SMALL];
    uint64_t value[SMALL];
} group;

typedef struct search {
    uint64_t *seen; // a hash table of the hashes of states, 2^bits
    int bits;
    int64_t states, ends, agreed_most;
    facts f;
} search;

static uint8_t *entry_print(const control_quorum_entry *e, uint8_t *at)
{
    *at++ = (uint8_t)e->term;
    *at++ = (uint8_t)e->index;
    for (int shift = 0; shift < NUMBER_BITS + INCARNATION_BITS * THREE; shift += 8)
        *at++ = (uint8_t)(e->value >> shift);
    return at;
}

// All numbers are small here.
static uint64_t group_hash(const group *g)
{
    uint8_t bytes[2048], *at = bytes;
    const limits *l = &g->left;
    const int left[] = {l->timeouts, l->beats, l->proposals, l->crashes, l->cuts, l->returns};
    for (int i = 0; i < COUNT_OF(left); i++) *at++ = (uint8_t)left[i];
    for (int m = 0; m < THREE; m++) {
        const control_quorum *q = &g->q[m];
        const uint64_t own[] = {
            (uint64_t)q->role, q->term,    (uint64_t)q->voted,         (uint64_t)q->leader, q->yes,
            g->is_dead[m],     q->is_back, (uint64_t)g->incarnation[m]};
        for (int i = 0; i < COUNT_OF(own); i++) *at++ = (uint8_t)own[i];
        at = entry_print(&q->entry, at);
        at = entry_print(&q->agreed, at);
        for (int to = 0; to < THREE; to++) {
            *at++ = (uint8_t)g->to[m][to].count;
            for (int i = 0; i < g->to[m][to].count; i++) {
                const message *w = &g->to[m][to].m[i];
                *at++ = (uint8_t)w->kind;
                *at++ = (uint8_t)w->term;
                *at++ = w->is_yes;
                at = entry_print(&w->entry, at);
            }
        }
    }
    memcpy(at, g->leader, SMALL);
    at += SMALL;
    memcpy(at, g->value, sizeof(g->value));
    at += sizeof(g->value);
    return hash64(bytes, at - bytes, 0) | 1;
}

// True the first time. A full table would make the search endless, so it fails instead.
static bool is_new(search *s, uint64_t hash)
{
    const uint64_t mask = (UINT64_C(1) << s->bits) - 1;
    assert_true(s->states < (int64_t)(mask / 4 * 3));
    for (uint64_t at = hash & mask;; at = (at + 1) & mask) {
        if (s->seen[at] == hash) return false;
        if (s->seen[at] != 0) continue;
        s->seen[at] = hash;
        s->states++;
        return true;
    }
}

static void group_check(search *s, group *g, int m, uint64_t agreed_before)
{
    control_quorum *q = &g->q[m];
    assert_true(q->term < SMALL && q->agreed.index < SMALL);
    memset(&s->f, 0, offsetof(facts, leader) + SMALL);
    memcpy(s->f.leader, g->leader, SMALL);
    memcpy(s->f.value, g->value, sizeof(g->value));
    facts_check(&s->f, q, agreed_before);
    admit_if_named(q, g->incarnation[m]);
    memcpy(g->leader, s->f.leader, SMALL);
    memcpy(g->value, s->f.value, sizeof(g->value));
    s->agreed_most = max_i64(s->agreed_most, (int64_t)q->agreed.index);
    for (int i = 0; i < q->out_count; i++) {
        line *l = &g->to[m][q->out[i].to];
        if (!g->is_dead[q->out[i].to] && l->count < LINE_MAX) l->m[l->count++] = q->out[i];
    }
    q->out_count = 0;
}

static message line_take(line *l)
{
    const message m = l->m[0];
    l->count--;
    memmove(l->m, l->m + 1, sizeof(l->m[0]) * (size_t)l->count);
    return m;
}

// All connections work and no member crashes any more: the living majority agrees on a value.
static void heal(search *s, group *g)
{
    const uint64_t wanted = 1000;
    int able = 0;
    for (int m = 0; m < THREE; m++) able += !g->is_dead[m] && !g->q[m].is_back;
    if (able < 2) return;
    for (int turn = 0; turn < 40; turn++) {
        int leader = -1, back = 0;
        bool is_done = false;
        for (bool is_busy = true; is_busy;) {
            is_busy = false;
            for (int i = 0; i < THREE * THREE; i++) {
                const int a = i / THREE, b = i % THREE;
                if (g->to[a][b].count == 0 || g->is_dead[b]) continue;
                const message m = line_take(&g->to[a][b]);
                const uint64_t before = g->q[b].agreed.index;
                handle(&g->q[b], &m);
                group_check(s, g, b, before);
                is_busy = true;
            }
        }
        for (int m = 0; m < THREE; m++) {
            const control_quorum *q = &g->q[m];
            if (g->is_dead[m]) continue;
            is_done = is_done || number_of(q->agreed.value) == wanted;
            back += q->is_back;
            if (q->role == CONTROL_LEADS && (leader < 0 || q->term > g->q[leader].term)) leader = m;
        }
        if (is_done && back == 0) return;
        const int m = turn % THREE;
        if (leader >= 0) {
            (void)propose(&g->q[leader], wanted, g->incarnation, THREE);
            control_quorum_beat(&g->q[leader]);
            group_check(s, g, leader, g->q[leader].agreed.index);
        }
        // A leader that no member hears is given up, and a member that hears none asks.
        if (turn % 7 == 6 && leader >= 0) control_quorum_retire(&g->q[leader]);
        const bool is_alone = leader < 0 || g->q[m].leader != leader;
        if (!g->is_dead[m] && is_alone && turn % 2 == 0) control_quorum_timeout(&g->q[m]);
        if (!g->is_dead[m]) group_check(s, g, m, g->q[m].agreed.index);
    }
    fail_msg("no progress after the faults");
}

static void visit(search *s, const group *g);

static void act(search *s, const group *g, int kind, int m)
{
    group next = *g;
    control_quorum *q = &next.q[m];
    const uint64_t before = q->agreed.index;
    if (kind == 0) {
        // The members differ in their numbers alone, so the first one to ask is member 0.
        if (next.left.timeouts-- <= 0 || (!g->has_begun && m > 0)) return;
        next.has_begun = true;
        if (q->role == CONTROL_LEADS) {
            control_quorum_retire(q);
        } else {
            control_quorum_timeout(q);
        }
    } else if (kind == 1) {
        if (q->role != CONTROL_LEADS || next.left.beats-- <= 0) return;
        control_quorum_beat(q);
    } else if (kind == 2) {
        int incarnations[THREE]; // as this member's entry has them
        for (int i = 0; i < THREE; i++) incarnations[i] = incarnation_of(q->entry.value, i);
        if (next.left.proposals-- <= 0 || !propose(q, next.next_value, incarnations, THREE)) return;
        next.next_value++;
    } else if (kind == 3) {
        bool is_new = false;
        for (int i = 0; i < THREE; i++)
            is_new = is_new || incarnation_of(q->entry.value, i) != g->incarnation[i];
        if (!is_new || !propose(q, number_of(q->entry.value), g->incarnation, THREE)) return;
    } else {
        if (next.left.crashes-- <= 0) return;
        next.is_dead[m] = true;
        for (int from = 0; from < THREE; from++) next.to[from][m].count = 0;
    }
    group_check(s, &next, m, before);
    visit(s, &next);
}

// A member that crashed starts again. What it has sent before still arrives.
static void come_back(search *s, const group *g, int m)
{
    group next = *g;
    if (next.left.returns-- <= 0) return;
    next.is_dead[m] = false;
    next.incarnation[m]++;
    control_quorum_return(&next.q[m], m, THREE, out);
    visit(s, &next);
}

static void visit(search *s, const group *g)
{
    bool is_quiet = true;
    if (!is_new(s, group_hash(g))) return;
    for (int a = 0; a < THREE; a++) {
        for (int b = 0; b < THREE; b++) {
            if (g->to[a][b].count == 0 || g->is_dead[b]) continue;
            is_quiet = false;
            group next = *g;
            const message m = line_take(&next.to[a][b]);
            const uint64_t before = next.q[b].agreed.index;
            handle(&next.q[b], &m);
            group_check(s, &next, b, before);
            visit(s, &next);
            if (g->left.cuts == 0 || a > b) continue;
            group cut = *g; // the connection ends, with all that it holds
            cut.left.cuts--;
            cut.to[a][b].count = cut.to[b][a].count = 0;
            visit(s, &cut);
        }
    }
    for (int m = 0; m < THREE; m++) {
        for (int kind = 0; kind < 5 && !g->is_dead[m]; kind++) act(s, g, kind, m);
        if (g->is_dead[m]) come_back(s, g, m);
    }
    if (!is_quiet && s->states % 64 != 0) return;
    group healed = *g;
    s->ends++;
    heal(s, &healed);
}

static void explore(const char *name, int bits, limits left)
{
    search s = {.seen = calloc(UINT64_C(1) << bits, sizeof(uint64_t)), .bits = bits};
    group g = {.left = left, .next_value = 1};
    assert_non_null(s.seen);
    for (int m = 0; m < THREE; m++) control_quorum_init(&g.q[m], m, THREE, out);
    visit(&s, &g);
    print_message("%s: %lld states, %lld healed, up to %lld values agreed\n", name,
                  (long long)s.states, (long long)s.ends, (long long)s.agreed_most);
    assert_true(s.agreed_most >= min_i64(1, left.proposals));
    free(s.seen);
}

static void every_order(void **state)
{
    (void)state;
    explore("two crashes", SEEN_BITS, (limits){.timeouts = 2, .proposals = 1, .crashes = 2});
    explore("a crash and a return", SEEN_BITS, (limits){.timeouts = 2, .crashes = 1, .returns = 1});
    if (getenv("EXPLORE_SEEDS") == NULL) return;
    explore("a lost connection", NIGHT_BITS, (limits){.timeouts = 2, .proposals = 1, .cuts = 1});
    explore("beats", NIGHT_BITS, (limits){.timeouts = 1, .beats = 1, .proposals = 2});
    explore("two crashes and two values", NIGHT_BITS,
            (limits){.timeouts = 2, .proposals = 2, .crashes = 2});
    explore("a crash, two values and a return", NIGHT_BITS,
            (limits){.timeouts = 1, .proposals = 2, .crashes = 1, .returns = 1});
    explore("two crashes and a return", NIGHT_BITS,
            (limits){.timeouts = 2, .crashes = 2, .returns = 1});
}

// ---- random -------------------------------------------------------------------------------------

enum { WIRE_MAX = 512, EVENTS = 800, HEAL_EVENTS = 4000 };

typedef struct crowd {
    control_quorum q[MEMBERS_MAX];
    int count, wire_count, incarnation[MEMBERS_MAX];
    bool is_dead[MEMBERS_MAX], is_stopped[MEMBERS_MAX];
    uint32_t side; // bit m: member m is on the other side of a cut
    bool is_one_way;
    message wire[WIRE_MAX];
    uint64_t seed, draws, next_value;
    facts f;
} crowd;

static uint32_t draw(crowd *c, uint32_t below)
{
    return rng_word(c->seed, 11, c->draws++) % below;
}

static bool is_cut(const crowd *c, int from, int to)
{
    const bool a = (c->side >> from & 1U) != 0, b = (c->side >> to & 1U) != 0;
    return c->is_one_way ? a && !b : a != b;
}

static void take_out(crowd *c, int m, uint64_t before)
{
    control_quorum *q = &c->q[m];
    facts_check(&c->f, q, before);
    admit_if_named(q, c->incarnation[m]);
    for (int i = 0; i < q->out_count && c->wire_count < WIRE_MAX; i++) {
        if (!is_cut(c, m, q->out[i].to)) c->wire[c->wire_count++] = q->out[i];
    }
    q->out_count = 0;
}

// One message in any order; sometimes it is lost, or comes twice.
static void deliver(crowd *c, bool is_fair)
{
    if (c->wire_count == 0) return;
    const int i = is_fair ? 0 : (int)draw(c, (uint32_t)c->wire_count);
    const message m = c->wire[i];
    const uint32_t luck = is_fair ? 9 : draw(c, 20);
    if (luck != 0) {
        c->wire_count--;
        memmove(c->wire + i, c->wire + i + 1, sizeof(m) * (size_t)(c->wire_count - i));
    }
    if (luck == 1 || c->is_dead[m.to] || c->is_stopped[m.to]) return;
    const uint64_t before = c->q[m.to].agreed.index;
    handle(&c->q[m.to], &m);
    take_out(c, m.to, before);
}

static int unable(const crowd *c)
{
    int n = 0;
    for (int m = 0; m < c->count; m++) n += c->is_dead[m] || c->q[m].is_back;
    return n;
}

static void event(crowd *c)
{
    const int m = (int)draw(c, (uint32_t)c->count);
    control_quorum *q = &c->q[m];
    const uint64_t before = q->agreed.index;
    const uint32_t what = draw(c, 100);
    if (what < 70) {
        deliver(c, false);
        return;
    }
    if (what == 99) c->side = draw(c, 2) == 0 ? draw(c, 1U << c->count) : 0;
    if (what == 98) c->is_one_way = draw(c, 2) == 0;
    if (what == 97) c->is_stopped[m] = !c->is_stopped[m];
    const bool may_die = 2 * (unable(c) + 1) < c->count; // a majority lives, with its votes
    if (what == 96 && may_die && !c->is_dead[m] && draw(c, 2) == 0) c->is_dead[m] = true;
    if (what == 95 && c->is_dead[m] && c->incarnation[m] < (1 << INCARNATION_BITS) - 1) {
        c->is_dead[m] = false;
        c->incarnation[m]++;
        control_quorum_return(q, m, c->count, out);
        return;
    }
    if (c->is_dead[m] || c->is_stopped[m]) return;
    if (what < 78) {
        control_quorum_timeout(q);
    } else if (what < 86) {
        control_quorum_beat(q);
    } else if (what < 94) {
        if (propose(q, c->next_value, c->incarnation, c->count)) c->next_value++;
    } else if (what < 95) {
        control_quorum_retire(q);
    }
    take_out(c, m, before);
}

static bool is_agreed(const crowd *c, uint64_t number)
{
    for (int m = 0; m < c->count; m++) {
        const control_quorum *q = &c->q[m];
        if (!c->is_dead[m] && (q->is_back || number_of(q->agreed.value) < number)) return false;
    }
    return true;
}

static bool progresses(crowd *c)
{
    const uint64_t wanted = c->next_value = VALUES_MAX - 1;
    c->side = 0;
    memset(c->is_stopped, 0, sizeof(c->is_stopped));
    for (int k = 0; k < HEAL_EVENTS; k++) {
        if (is_agreed(c, wanted)) return true;
        for (int i = 0; i < 40; i++) deliver(c, true);
        const int m = (int)draw(c, (uint32_t)c->count);
        if (c->is_dead[m]) continue;
        control_quorum *q = &c->q[m];
        const uint64_t before = q->agreed.index;
        if (q->role == CONTROL_LEADS) {
            if (number_of(q->agreed.value) < wanted || unable(c) > 0)
                (void)propose(q, wanted, c->incarnation, c->count);
            control_quorum_beat(q);
        } else if (q->leader < 0 || c->is_dead[q->leader] ||
                   c->q[q->leader].role != CONTROL_LEADS) {
            control_quorum_timeout(q);
        }
        take_out(c, m, before);
    }
    return false;
}

static void seeds(void **state)
{
    (void)state;
    const char *given = getenv("EXPLORE_SEEDS");
    const int64_t count = given != NULL ? strtoll(given, NULL, 10) : 2000;
    int64_t agreed = 0, elected = 0;
    crowd *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    for (int64_t seed = 1; seed <= count; seed++) {
        memset(c, 0, sizeof(*c));
        c->seed = (uint64_t)seed;
        c->next_value = 1;
        c->count = 3 + (int)draw(c, MEMBERS_MAX - 2);
        for (int m = 0; m < c->count; m++) control_quorum_init(&c->q[m], m, c->count, out);
        for (int i = 0; i < EVENTS; i++) event(c);
        for (int m = 0; m < c->count; m++) agreed = max_i64(agreed, (int64_t)c->q[m].agreed.index);
        for (int t = 0; t < TERMS_MAX; t++) elected += c->f.leader[t] != 0;
        if (!progresses(c)) fail_msg("seed %lld: no progress", (long long)seed);
    }
    print_message("%lld seeds: %lld leaders, up to %lld values agreed under faults\n",
                  (long long)count, (long long)elected, (long long)agreed);
    assert_true(elected > count && agreed > 2);
    free(c);
}

// Five members, cut into three and two: only the larger side agrees, and when the cut is over the
// smaller one has the same history.
static void a_minority_agrees_on_nothing(void **state)
{
    (void)state;
    crowd *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    c->count = 5;
    c->seed = 3;
    for (int m = 0; m < c->count; m++) control_quorum_init(&c->q[m], m, c->count, out);
    control_quorum_timeout(&c->q[0]);
    take_out(c, 0, 0);
    while (c->wire_count > 0) deliver(c, true);
    assert_int_equal(c->q[0].role, CONTROL_LEADS);
    c->side = 3; // members 0 and 1
    assert_true(control_quorum_propose(&c->q[0], 7));
    take_out(c, 0, 0);
    for (int m = 3; m < 5; m++) { // they hear no leader either, and their questions are lost
        control_quorum_timeout(&c->q[m]);
        c->q[m].out_count = 0;
    }
    control_quorum_timeout(&c->q[2]);
    take_out(c, 2, 0);
    while (c->wire_count > 0) deliver(c, true);
    int leader = -1;
    for (int m = 2; m < 5; m++) leader = c->q[m].role == CONTROL_LEADS ? m : leader;
    assert_true(leader >= 2);
    assert_true(control_quorum_propose(&c->q[leader], 8));
    take_out(c, leader, 0);
    while (c->wire_count > 0) deliver(c, true);
    assert_int_equal(c->q[0].agreed.index, 0);
    assert_int_equal(c->q[1].agreed.index, 0);
    assert_int_equal(c->q[leader].agreed.value, 8);
    c->side = 0;
    control_quorum_beat(&c->q[0]); // the old leader does not know yet
    take_out(c, 0, 0);
    while (c->wire_count > 0) deliver(c, true);
    assert_int_not_equal(c->q[0].role, CONTROL_LEADS);
    control_quorum_beat(&c->q[leader]);
    take_out(c, leader, 1);
    while (c->wire_count > 0) deliver(c, true);
    for (int m = 0; m < 5; m++) assert_int_equal(c->q[m].agreed.value, 8);
    free(c);
}

// Moves the messages from one member to another one; the rest waits.
static void hand_over(crowd *c, int from, int to)
{
    for (int i = 0; i < c->wire_count;) {
        const message m = c->wire[i];
        if (m.from != from || m.to != to) {
            i++;
            continue;
        }
        c->wire_count--;
        memmove(c->wire + i, c->wire + i + 1, sizeof(m) * (size_t)(c->wire_count - i));
        const uint64_t before = c->q[to].agreed.index;
        handle(&c->q[to], &m);
        take_out(c, to, before);
    }
}

// Member 1 votes for member 2 and crashes, and the vote arrives late. Back again it hears of a
// value that was agreed before its crash, from the old leader. That must not admit it: the old
// leader could agree with it on a value of which member 2 knows nothing.
static void a_value_from_before_the_crash_admits_no_member(void **state)
{
    (void)state;
    crowd *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    c->count = 3;
    for (int m = 0; m < c->count; m++) control_quorum_init(&c->q[m], m, c->count, out);
    control_quorum_timeout(&c->q[0]);
    take_out(c, 0, 0);
    while (c->wire_count > 0) deliver(c, true);
    assert_true(propose(&c->q[0], 7, c->incarnation, c->count));
    take_out(c, 0, 0);
    hand_over(c, 0, 2);
    hand_over(c, 2, 0);
    assert_int_equal(c->q[0].agreed.index, 1);
    c->wire_count = 0;
    control_quorum_timeout(&c->q[1]); // it does not hear its leader
    c->q[1].out_count = 0;
    control_quorum_timeout(&c->q[2]);
    take_out(c, 2, c->q[2].agreed.index);
    hand_over(c, 2, 1); // the probe
    hand_over(c, 1, 2);
    hand_over(c, 2, 1); // the question for its vote
    assert_int_equal(c->q[1].voted, 2);
    message vote = {.from = -1};
    for (int i = 0; i < c->wire_count; i++) {
        if (c->wire[i].from == 1 && c->wire[i].to == 2) vote = c->wire[i];
    }
    assert_true(vote.from == 1 && vote.is_yes);
    c->wire_count = 0;
    c->incarnation[1]++;
    control_quorum_return(&c->q[1], 1, c->count, out);
    control_quorum_beat(&c->q[0]);
    take_out(c, 0, 1);
    hand_over(c, 0, 1);
    assert_int_equal(c->q[1].agreed.index, 1);
    assert_true(c->q[1].is_back);
    assert_true(propose(&c->q[0], 8, c->incarnation, c->count));
    take_out(c, 0, 1);
    hand_over(c, 0, 1);
    hand_over(c, 1, 0);
    assert_int_equal(c->q[0].agreed.index, 1); // with member 1 there would be two
    c->wire_count = 0;
    handle(&c->q[2], &vote);
    take_out(c, 2, c->q[2].agreed.index);
    assert_int_equal(c->q[2].role, CONTROL_LEADS);
    while (c->wire_count > 0) deliver(c, true);
    assert_true(propose(&c->q[2], 9, c->incarnation, c->count));
    take_out(c, 2, 1);
    while (c->wire_count > 0) deliver(c, true);
    for (int m = 0; m < c->count; m++) {
        assert_int_equal(number_of(c->q[m].agreed.value), 9);
        assert_false(c->q[m].is_back);
    }
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order),
        cmocka_unit_test(seeds),
        cmocka_unit_test(a_minority_agrees_on_nothing),
        cmocka_unit_test(a_value_from_before_the_crash_admits_no_member),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
