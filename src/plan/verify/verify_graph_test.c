// Compares the verifier's graph with brute force on small random programs, sound and broken ones.
// An exhaustive search over all interleavings of two steps finds deadlocks, races, mismatched
// collectives and overlapping operations of one port. The verifier must agree on every program.
#include "base/rng.h"
#include "plan/verify/verify_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    RANKS = 3,
    STREAMS = 3,
    ACTIONS = 6, // per rank
    PORTS = 3,
    SPANS = 4,
    ENTRIES = 2 * ACTIONS, // per stream, in two steps
    STATES = 1 << 19
};

typedef struct program {
    verify_rank ranks[RANKS];
    verify_action actions[RANKS][ACTIONS];
    int32_t waits[RANKS][4 * ACTIONS];
    int32_t wait_count[RANKS];
    verify_span spans[RANKS][SPANS];
    verify_use uses[RANKS][2 * ACTIONS];
    int32_t use_count[RANKS];
    verify_port ports[PORTS];
    int32_t members[PORTS][RANKS];
    verify_graph graph;
} program;

// ---- random programs ----------------------------------------------------------------------------

typedef struct dice {
    uint64_t state;
} dice;

static int32_t roll(dice *d, int32_t sides)
{
    d->state = d->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int32_t)((d->state >> 33) % (uint64_t)sides);
}

static void action_push(program *p, int32_t r, verify_action action)
{
    verify_rank *rank = &p->ranks[r];
    if (rank->action_count == ACTIONS) return;
    p->actions[r][rank->action_count++] = action;
}

static bool is_member(const program *p, int32_t port, int32_t rank)
{
    for (int32_t i = 0; i < p->ports[port].member_count; i++) {
        if (p->members[port][i] == rank) return true;
    }
    return false;
}

static void waits_draw(program *p, dice *d, int32_t r, int32_t i)
{
    verify_action *action = &p->actions[r][i];
    action->waits_begin = p->wait_count[r];
    for (int32_t k = roll(d, 3); k > 0; k--) {
        const bool before = roll(d, 4) == 0;
        if (!before && i == 0) continue;
        const int32_t on = roll(d, before ? p->ranks[r].action_count : i);
        p->waits[r][p->wait_count[r]++] = before ? -1 - on : on;
        action->waits_count++;
    }
}

static void uses_draw(program *p, dice *d, int32_t r, int32_t i, int32_t often)
{
    verify_action *action = &p->actions[r][i];
    action->uses_begin = p->use_count[r];
    for (int32_t k = 0; k < 2; k++) {
        if (roll(d, 100) >= often) continue;
        p->uses[r][p->use_count[r]++] = (verify_use){roll(d, SPANS), roll(d, 2) == 0};
        action->uses_count++;
    }
}

static void rank_settle(program *p, int32_t r, int32_t streams)
{
    p->ranks[r].actions = p->actions[r];
    p->ranks[r].waits = p->waits[r];
    p->ranks[r].spans = p->spans[r];
    p->ranks[r].span_count = SPANS;
    p->ranks[r].uses = p->uses[r];
    p->ranks[r].stream_count = streams;
}

// Two streams of rank 0 access the same bytes, and only a reply of rank 1 orders them: sound,
// unless a random change removes a wait.
static void answer_draw(program *p, dice *d)
{
    memset(p, 0, sizeof(*p));
    for (int32_t i = 0; i < 2; i++) {
        p->members[i][0] = 0;
        p->members[i][1] = 1;
        p->ports[i] = (verify_port){p->members[i], 2};
    }
    const int32_t sends = roll(d, 4) == 0 ? 2 : 0, answers = roll(d, 4) == 0 ? 1 : 0;
    action_push(p, 0, (verify_action){.stream = 0, .items = 1, .port = -1});
    action_push(p, 0, (verify_action){.stream = sends, .items = 1, .port = 0});
    action_push(p, 0, (verify_action){.stream = 1, .items = 1, .port = 1});
    action_push(p, 0, (verify_action){.stream = 1, .items = 1, .port = -1});
    action_push(p, 1, (verify_action){.stream = 0, .items = 1, .port = 0});
    action_push(p, 1, (verify_action){.stream = answers, .items = 1, .port = 1});
    if (roll(d, 4) != 0) { // the next step waits
        p->waits[0][p->wait_count[0]++] = -1 - 3;
        p->actions[0][0].waits_count = 1;
    }
    for (int32_t i = 0; i < 4; i += 3) {
        p->actions[0][i].uses_begin = p->use_count[0];
        p->actions[0][i].uses_count = 1;
        p->uses[0][p->use_count[0]++] = (verify_use){0, i == 0 || roll(d, 2) == 0};
    }
    p->spans[0][0] = (verify_span){0, 4};
    for (int32_t r = 0; r < 2; r++) rank_settle(p, r, STREAMS);
    p->graph = (verify_graph){p->ranks, 2, p->ports, 2, 0};
}

// Two ports with a stream each, in a different order on each rank: sound, unless a full queue keeps
// the host from posting to the other stream.
static void shuffle_draw(program *p, dice *d)
{
    memset(p, 0, sizeof(*p));
    int32_t rendezvous[2];
    for (int32_t i = 0; i < 2; i++) {
        p->members[i][0] = 0;
        p->members[i][1] = 1;
        p->ports[i] = (verify_port){p->members[i], 2};
        rendezvous[i] = 1 + roll(d, 3);
    }
    for (int32_t r = 0; r < 2; r++) {
        int32_t left[2] = {rendezvous[0], rendezvous[1]};
        while (left[0] + left[1] > 0) {
            const int32_t port = left[0] == 0 || (left[1] > 0 && roll(d, 2) == 0) ? 1 : 0;
            left[port]--;
            action_push(p, r, (verify_action){.stream = port, .items = 1, .port = port});
        }
        rank_settle(p, r, STREAMS);
    }
    p->graph = (verify_graph){p->ranks, 2, p->ports, 2, 0};
}

static void ports_draw(program *p, dice *d, int32_t ranks, int32_t ports)
{
    for (int32_t i = 0; i < ports; i++) {
        const int32_t left_out = ranks == 3 ? roll(d, 4) : 3;
        for (int32_t r = 0; r < ranks; r++) {
            if (r != left_out) p->members[i][p->ports[i].member_count++] = r;
        }
        p->ports[i].members = p->members[i];
    }
}

// Makes a random mistake: swaps two actions, drops the last, or changes the first.
static void mistake_draw(program *p, dice *d, int32_t r)
{
    verify_rank *rank = &p->ranks[r];
    if (rank->action_count > 1 && roll(d, 4) == 0) {
        const int32_t at = roll(d, rank->action_count - 1);
        const verify_action one = p->actions[r][at];
        p->actions[r][at] = p->actions[r][at + 1];
        p->actions[r][at + 1] = one;
    }
    if (rank->action_count == 0) return;
    if (roll(d, 16) == 0) rank->action_count--;
    if (roll(d, 24) == 0) p->actions[r][0].what += 7;
}

// Collectives are distributed to their members in one order, which is sound; then mistakes are
// made.
static void program_draw(program *p, dice *d)
{
    memset(p, 0, sizeof(*p));
    const int32_t ranks = 1 + roll(d, RANKS), ports = ranks == 1 ? 0 : 1 + roll(d, PORTS);
    const int32_t streams = 1 + roll(d, STREAMS), often = 20 * roll(d, 4);
    ports_draw(p, d, ranks, ports);
    const int32_t events = 2 + roll(d, 4);
    for (int32_t k = 0; k < events; k++) {
        const int32_t port = ports == 0 || roll(d, 3) == 0 ? -1 : roll(d, ports);
        for (int32_t r = 0; r < ranks; r++) {
            if (port >= 0 ? !is_member(p, port, r) : roll(d, 2) == 0) continue;
            const int32_t stream = port >= 0 && roll(d, 4) != 0 ? port % streams : roll(d, streams);
            action_push(
                p, r,
                (verify_action){.stream = stream, .items = 1, .port = port, .what = (uint64_t)k});
        }
    }
    for (int32_t r = 0; r < ranks; r++) {
        mistake_draw(p, d, r);
        for (int32_t i = 0; i < SPANS; i++) {
            const int64_t begin = roll(d, 6);
            p->spans[r][i] = (verify_span){begin, begin + 1 + roll(d, 3)};
        }
        for (int32_t i = 0; i < p->ranks[r].action_count; i++) {
            waits_draw(p, d, r, i);
            uses_draw(p, d, r, i, often);
        }
        rank_settle(p, r, streams);
    }
    p->graph = (verify_graph){p->ranks, ranks, p->ports, ports, 0};
}

// ---- brute force --------------------------------------------------------------------------------

// One action of one step, on its stream.
typedef struct entry {
    int32_t rank, action, step;
    int32_t stream, place; // row of streams, and the number of entries before it there
    int32_t number;        // index among its rank's entries in its port, over both steps
} entry;

enum { FOUND_DEADLOCK = 1, FOUND_RACE = 2, FOUND_MIXED = 4, FOUND_OVERLAP = 8 };

typedef struct search {
    const program *p;
    entry entries[RANKS * ENTRIES];
    int32_t entry_count;
    int32_t stream_entries[RANKS * STREAMS][ENTRIES], stream_length[RANKS * STREAMS];
    int32_t row_of[RANKS][2][ACTIONS]; // entry
    uint8_t *seen;
    uint32_t *stack;
    int32_t rank_entries[RANKS][2 * ACTIONS], rank_length[RANKS]; // in the order of the list
    int32_t queue; // capacity of a stream's queue; 0: no limit
    int64_t depth, states, limit;
    uint32_t found;
} search;

// progress[stream]: 2 * entries that have ended, + 1 where the next one has begun.
static bool state_decode(const search *s, uint32_t state, int32_t *progress)
{
    for (int32_t l = 0; l < RANKS * STREAMS; l++) {
        const uint32_t radix = 2 * (uint32_t)s->stream_length[l] + 1;
        progress[l] = (int32_t)(state % radix);
        state /= radix;
    }
    return state == 0;
}

static void state_push(search *s, const int32_t *progress)
{
    uint64_t state = 0;
    for (int32_t l = RANKS * STREAMS - 1; l >= 0; l--) {
        state = state * (2 * (uint64_t)s->stream_length[l] + 1) + (uint64_t)progress[l];
    }
    assert_true((int64_t)state < s->limit);
    if ((s->seen[state / 8] >> (state % 8) & 1) != 0) return;
    s->seen[state / 8] |= (uint8_t)(1u << (state % 8));
    s->stack[s->depth++] = (uint32_t)state;
    s->states++;
}

static bool has_ended(const int32_t *progress, const entry *e)
{
    return progress[e->stream] / 2 > e->place;
}

static bool is_running(const int32_t *progress, const entry *e)
{
    return progress[e->stream] == 2 * e->place + 1;
}

static const verify_action *action_of(const search *s, const entry *e)
{
    return &s->p->actions[e->rank][e->action];
}

// Whether the host has posted it: it posts in the order of the list and waits for a full queue.
static bool is_posted(const search *s, const int32_t *progress, const entry *e)
{
    int32_t waiting[RANKS * STREAMS] = {0};
    for (int32_t i = 0; i < s->rank_length[e->rank]; i++) {
        const entry *next = &s->entries[s->rank_entries[e->rank][i]];
        if (s->queue > 0 && waiting[next->stream] == s->queue) return false;
        if (!has_ended(progress, next)) waiting[next->stream]++;
        if (next == e) return true;
    }
    return false;
}

static bool may_begin(const search *s, const int32_t *progress, const entry *e)
{
    if (!is_posted(s, progress, e)) return false;
    const verify_action *a = action_of(s, e);
    for (int32_t k = 0; k < a->waits_count; k++) {
        const int32_t w = s->p->waits[e->rank][a->waits_begin + k];
        const int32_t step = w >= 0 ? e->step : e->step - 1;
        if (step < 0) continue;
        const entry *on = &s->entries[s->row_of[e->rank][step][w >= 0 ? w : -1 - w]];
        if (!has_ended(progress, on)) return false;
    }
    return true;
}

// Returns the entry of that rank that matches e; NULL: there is none.
static const entry *partner_of(const search *s, const entry *e, int32_t rank)
{
    for (int32_t i = 0; i < s->entry_count; i++) {
        const entry *other = &s->entries[i];
        if (other->rank == rank && other->number == e->number &&
            action_of(s, other)->port == action_of(s, e)->port) {
            return other;
        }
    }
    return NULL;
}

static bool may_end(search *s, const int32_t *progress, const entry *e)
{
    const verify_action *a = action_of(s, e);
    if (a->port < 0) return true;
    for (int32_t m = 0; m < s->p->ports[a->port].member_count; m++) {
        const entry *other = partner_of(s, e, s->p->members[a->port][m]);
        if (other == NULL) return false;
        if (!is_running(progress, other) && !has_ended(progress, other)) return false;
        if (action_of(s, other)->what != a->what) s->found |= FOUND_MIXED;
    }
    return true;
}

static bool do_race(const program *p, int32_t rank, const verify_action *a, const verify_action *b)
{
    for (int32_t i = 0; i < a->uses_count; i++) {
        for (int32_t k = 0; k < b->uses_count; k++) {
            const verify_use *x = &p->uses[rank][a->uses_begin + i];
            const verify_use *y = &p->uses[rank][b->uses_begin + k];
            const verify_span *u = &p->spans[rank][x->span], *v = &p->spans[rank][y->span];
            if ((x->writes || y->writes) && u->begin < v->end && v->begin < u->end) return true;
        }
    }
    return false;
}

// Finds an error in a state: two entries that run at once, or one that began before its turn in its
// port.
static void state_check(search *s, const int32_t *progress)
{
    for (int32_t i = 0; i < s->entry_count; i++) {
        const entry *e = &s->entries[i];
        if (!is_running(progress, e)) continue;
        for (int32_t k = 0; k < s->entry_count; k++) {
            const entry *o = &s->entries[k];
            if (k == i || o->rank != e->rank) continue;
            const verify_action *a = action_of(s, e), *b = action_of(s, o);
            if (k > i && is_running(progress, o) && do_race(s->p, e->rank, a, b)) {
                s->found |= FOUND_RACE;
            }
            if (a->port < 0 || a->port != b->port) continue;
            if (o->number < e->number && !has_ended(progress, o)) s->found |= FOUND_OVERLAP;
        }
    }
}

static void state_expand(search *s, uint32_t state)
{
    int32_t progress[RANKS * STREAMS];
    bool moved = false, done = true;
    assert_true(state_decode(s, state, progress));
    state_check(s, progress);
    for (int32_t l = 0; l < RANKS * STREAMS; l++) {
        const int32_t at = progress[l] / 2;
        if (at == s->stream_length[l]) continue;
        done = false;
        const entry *e = &s->entries[s->stream_entries[l][at]];
        const bool may =
            is_running(progress, e) ? may_end(s, progress, e) : may_begin(s, progress, e);
        if (!may) continue;
        moved = true;
        progress[l]++;
        state_push(s, progress);
        progress[l]--;
    }
    if (!moved && !done) s->found |= FOUND_DEADLOCK;
}

// Returns false if the program is too large for the search.
static bool search_prepare(search *s, const program *p)
{
    s->p = p;
    s->entry_count = 0;
    s->found = 0;
    memset(s->stream_length, 0, sizeof(s->stream_length));
    memset(s->rank_length, 0, sizeof(s->rank_length));
    for (int32_t r = 0; r < p->graph.rank_count; r++) {
        int32_t numbers[PORTS] = {0};
        for (int32_t step = 0; step < 2; step++) {
            for (int32_t i = 0; i < p->ranks[r].action_count; i++) {
                const verify_action *a = &p->actions[r][i];
                const int32_t stream = r * STREAMS + a->stream;
                s->row_of[r][step][i] = s->entry_count;
                s->rank_entries[r][s->rank_length[r]++] = s->entry_count;
                s->stream_entries[stream][s->stream_length[stream]] = s->entry_count;
                s->entries[s->entry_count++] = (entry){r,
                                                       i,
                                                       step,
                                                       stream,
                                                       s->stream_length[stream]++,
                                                       a->port >= 0 ? numbers[a->port]++ : -1};
            }
        }
    }
    uint64_t states = 1;
    for (int32_t l = 0; l < RANKS * STREAMS; l++) states *= 2 * (uint64_t)s->stream_length[l] + 1;
    s->limit = (int64_t)states;
    return states < STATES;
}

static uint32_t search_run(search *s)
{
    const int32_t none[RANKS * STREAMS] = {0};
    s->found = 0;
    memset(s->seen, 0, (size_t)s->limit / 8 + 1);
    s->depth = 0;
    state_push(s, none);
    while (s->depth > 0) state_expand(s, s->stack[--s->depth]);
    return s->found;
}

static void verifier_agrees_with_all_interleavings(void **state)
{
    (void)state;
    enum { PROGRAMS = 10000 };
    program *p = malloc(sizeof(*p));
    search *s = malloc(sizeof(*s));
    assert_true(p != NULL && s != NULL);
    memset(s, 0, sizeof(*s));
    s->seen = malloc(STATES / 8);
    s->stack = malloc(STATES * sizeof(uint32_t));
    assert_true(s->seen != NULL && s->stack != NULL);
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    int64_t kinds[VERIFY_RACE + 1] = {0}, far = 0, full = 0;
    for (int32_t n = 0; n < PROGRAMS; n++) {
        dice d = {.state = (uint64_t)n * 977 + 5};
        for (int k = 0; k < 4; k++) (void)roll(&d, 2);
        if (n % 16 == 0) {
            answer_draw(p, &d);
        } else if (n % 16 == 8) {
            shuffle_draw(p, &d);
        } else {
            program_draw(p, &d);
        }
        if (!search_prepare(s, p)) continue;
        const uint32_t found = search_run(s);
        verify_result result;
        arena_reset(a);
        assert_int_equal(verify_graph_run(a, &p->graph, &result), ST_OK);
        const verify_kind kind = result.finding.kind;
        kinds[kind]++;
        if (kind == VERIFY_SOUND && result.far) far++;
        if ((kind == VERIFY_SOUND) != (found == 0)) {
            print_error("program %d: verifier %d, search %u\n", n, (int)kind, found);
        }
        assert_true((kind == VERIFY_SOUND) == (found == 0));
        if (kind == VERIFY_CYCLE || kind == VERIFY_MISSING) {
            assert_true((found & (FOUND_DEADLOCK | FOUND_OVERLAP | FOUND_MIXED)) != 0);
        }
        if (kind == VERIFY_CYCLE) assert_true(result.finding.cycle_count >= 1);
        if (kind == VERIFY_RACE) assert_true((found & FOUND_RACE) != 0);
        if (kind == VERIFY_UNORDERED) assert_true((found & FOUND_OVERLAP) != 0);
        if (kind != VERIFY_SOUND) continue;
        // A sound program is checked again with queues of one and of two entries.
        s->queue = p->graph.queue_items = 1 + n / 16 % 2;
        const bool blocks = (search_run(s) & FOUND_DEADLOCK) != 0;
        arena_reset(a);
        assert_int_equal(verify_graph_run(a, &p->graph, &result), ST_OK);
        assert_true((result.finding.kind == VERIFY_CYCLE) == blocks);
        assert_true(result.finding.queues == blocks);
        full += blocks;
        s->queue = 0;
    }
    // The random programs must include enough of each kind.
    print_message("sound %lld (%lld by other ranks' order) differs %lld missing %lld cycle %lld "
                  "unordered %lld race %lld, full streams %lld, %lld states\n",
                  (long long)kinds[VERIFY_SOUND], (long long)far, (long long)kinds[VERIFY_DIFFERS],
                  (long long)kinds[VERIFY_MISSING], (long long)kinds[VERIFY_CYCLE],
                  (long long)kinds[VERIFY_UNORDERED], (long long)kinds[VERIFY_RACE],
                  (long long)full, (long long)s->states);
    assert_true(full > 20);
    assert_true(kinds[VERIFY_SOUND] > 500 && far > 20);
    assert_true(kinds[VERIFY_DIFFERS] > 50 && kinds[VERIFY_MISSING] > 50);
    assert_true(kinds[VERIFY_CYCLE] > 50 && kinds[VERIFY_UNORDERED] > 50);
    assert_true(kinds[VERIFY_RACE] > 500);
    arena_destroy(a);
    free(s->stack);
    free(s->seen);
    free(s);
    free(p);
}

static void a_wait_for_what_comes_later_is_named(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    const verify_action actions[] = {{.stream = 0, .items = 1, .port = -1, .waits_count = 1},
                                     {.stream = 1, .items = 1, .port = -1}};
    const int32_t waits[][1] = {{1}, {0}, {2}, {-3}};
    for (int i = 0; i < 4; i++) {
        const verify_rank rank = {
            .actions = actions, .action_count = 2, .waits = waits[i], .stream_count = 2};
        const verify_graph g = {&rank, 1, NULL, 0, 0};
        verify_result result;
        assert_int_equal(verify_graph_run(a, &g, &result), ST_OK);
        assert_int_equal(result.finding.kind, VERIFY_LATER);
        assert_int_equal(result.finding.a.action, 0);
    }
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verifier_agrees_with_all_interleavings),
        cmocka_unit_test(a_wait_for_what_comes_later_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
