// Finds deadlocks, mismatched collectives and races of actions.
//
// The rendezvous are made first. Then two steps are simulated: an action is due when all actions
// that it needs have ended, which is a walk in topological order. An action that is never due waits
// for ever, and following the waits from it leads to a cycle. During the simulation each action
// gets its clock, and its uses are compared with the last ones of the same bytes: a write, and a
// read per stream. Bytes that only one stream touches need no comparison.
#include "plan/verify/verify_graph.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, STREAM_BITS = 64 };

// Bytes that several streams of a rank touch, cut where any span begins or ends.
typedef struct shadow {
    int64_t wrote;     // clock position of the last write; -1: none
    int32_t wrote_at;  // its stream
    int32_t wrote_use; // row of the rank's uses
} shadow;

typedef struct shadow_read {
    int64_t position;
    int32_t use;
} shadow_read;

typedef struct rank_state {
    int32_t *first, *last; // [stream] action; -1: none
    int32_t *next;         // [action] on its stream; -1: none in this step
    int32_t *before;       // [action] the one before it in its port, on this rank; -1: the first
    int32_t *port_last;    // [action] of a port's first action: the port's last
    // [action] The actions that wait for it: rows of waiting.
    int32_t *waiting_begin, *waiting; // 2 * action + (1: of the next step)
    // [step * actions + action] The last action before it on its stream that must have ended for
    // the queue to have space for it, as step * actions + action; -1: none.
    int32_t *space_after;
    int32_t cursor; // actions that the host has begun to post
    // [span] its shared pieces
    int32_t *piece_begin, *piece_end;
    shadow *shadows;
    shadow_read *reads; // [piece * streams + stream]
} rank_state;

typedef struct simulation {
    arena *a;
    const verify_graph *g;
    verify_result *out;
    int32_t *base;
    int32_t *rank_of; // [action over all ranks]
    int32_t total;
    int32_t *rendezvous_of; // [action over all ranks]; -1
    rank_state *ranks;
    // [step * total + action] in both steps.
    int32_t *needs;
    bool *begun, *ended;
    int32_t *queue;
    int32_t queue_head, queue_tail;
    int32_t *arrived;                  // [step * rendezvous_count + rendezvous]
    int64_t *clock, *rendezvous_clock; // rows of `width`
    int32_t width;
    int32_t *clock_stream; // [rank] where its streams begin in a row
    bool far, limited;     // limited: queues are; bytes and clocks are not checked then
    int32_t *order;
    int32_t order_count;
} simulation;

static const verify_action *action_at(const simulation *p, int32_t number)
{
    const int32_t rank = p->rank_of[number];
    return &p->g->ranks[rank].actions[number - p->base[rank]];
}

static verify_at at_of(const simulation *p, int32_t number, int32_t step)
{
    const int32_t rank = p->rank_of[number];
    return (verify_at){.rank = rank, .action = number - p->base[rank], .step = step};
}

static bool found(simulation *p, verify_kind kind, verify_at a, verify_at b)
{
    p->out->finding = (verify_finding){.kind = kind, .a = a, .b = b, .span_a = -1, .span_b = -1};
    return true;
}

// ---- the input ----------------------------------------------------------------------------------

static status numbers_make(simulation *p)
{
    TRY(arena_new(p->a, p->g->rank_count + 1, &p->base));
    for (int32_t r = 0; r < p->g->rank_count; r++) {
        p->base[r + 1] = p->base[r] + p->g->ranks[r].action_count;
    }
    p->total = p->base[p->g->rank_count];
    TRY(arena_new(p->a, p->total + 1, &p->rank_of));
    for (int32_t r = 0; r < p->g->rank_count; r++) {
        for (int32_t i = p->base[r]; i < p->base[r + 1]; i++) p->rank_of[i] = r;
    }
    p->out->base = p->base;
    return ST_OK;
}

// Finds a wait for an action that is posted later: waiting on an unrecorded event does not block.
static bool waits_are_late(simulation *p)
{
    for (int32_t r = 0; r < p->g->rank_count; r++) {
        const verify_rank *rank = &p->g->ranks[r];
        for (int32_t i = 0; i < rank->action_count; i++) {
            const verify_action *action = &rank->actions[i];
            for (int32_t k = 0; k < action->waits_count; k++) {
                const int32_t w = rank->waits[action->waits_begin + k];
                const int32_t on = w >= 0 ? w : -1 - w;
                if (on < (w >= 0 ? i : rank->action_count)) continue;
                const verify_at a = {r, i, 0};
                return found(p, VERIFY_LATER, a, (verify_at){r, on, 0});
            }
        }
    }
    return false;
}

static status streams_make(simulation *p, int32_t r)
{
    const verify_rank *rank = &p->g->ranks[r];
    rank_state *s = &p->ranks[r];
    TRY(arena_new(p->a, rank->stream_count + 1, &s->first));
    TRY(arena_new(p->a, rank->stream_count + 1, &s->last));
    TRY(arena_new(p->a, rank->action_count + 1, &s->next));
    for (int32_t l = 0; l < rank->stream_count; l++) s->first[l] = s->last[l] = -1;
    for (int32_t i = 0; i < rank->action_count; i++) {
        const int32_t stream = rank->actions[i].stream;
        ASSERT(stream >= 0 && stream < rank->stream_count);
        s->next[i] = -1;
        if (s->last[stream] >= 0) s->next[s->last[stream]] = i;
        if (s->first[stream] < 0) s->first[stream] = i;
        s->last[stream] = i;
    }
    return ST_OK;
}

// Inverts the waits: lists the waiting actions of each action.
static status waiting_make(simulation *p, int32_t r)
{
    const verify_rank *rank = &p->g->ranks[r];
    rank_state *s = &p->ranks[r];
    int64_t waits = 0;
    TRY(arena_new(p->a, rank->action_count + 2, &s->waiting_begin));
    for (int32_t i = 0; i < rank->action_count; i++) {
        for (int32_t k = 0; k < rank->actions[i].waits_count; k++) {
            const int32_t w = rank->waits[rank->actions[i].waits_begin + k];
            s->waiting_begin[(w >= 0 ? w : -1 - w) + 2]++;
            waits++;
        }
    }
    TRY(arena_new(p->a, waits + 1, &s->waiting));
    for (int32_t i = 2; i <= rank->action_count; i++) {
        s->waiting_begin[i] += s->waiting_begin[i - 1];
    }
    for (int32_t i = 0; i < rank->action_count; i++) {
        for (int32_t k = 0; k < rank->actions[i].waits_count; k++) {
            const int32_t w = rank->waits[rank->actions[i].waits_begin + k];
            s->waiting[s->waiting_begin[(w >= 0 ? w : -1 - w) + 1]++] = 2 * i + (w >= 0 ? 0 : 1);
        }
    }
    return ST_OK;
}

// ---- rendezvous ---------------------------------------------------------------------------------

typedef struct port_lists {
    int32_t *begin;   // [port]
    int32_t *actions; // by port, then by rank and place in its list
} port_lists;

static status port_lists_make(simulation *p, port_lists *lists)
{
    const int32_t ports = p->g->port_count;
    TRY(arena_new(p->a, ports + 2, &lists->begin));
    for (int32_t i = 0; i < p->total; i++) {
        const int32_t port = action_at(p, i)->port;
        ASSERT(port < ports);
        if (port >= 0) lists->begin[port + 2]++;
    }
    for (int32_t i = 2; i <= ports; i++) lists->begin[i] += lists->begin[i - 1];
    TRY(arena_new(p->a, p->total + 1, &lists->actions));
    for (int32_t i = 0; i < p->total; i++) {
        const int32_t port = action_at(p, i)->port;
        if (port >= 0) lists->actions[lists->begin[port + 1]++] = i;
    }
    return ST_OK;
}

// Chains a rank's actions in a port.
static void port_chain(simulation *p, const int32_t *actions, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        const int32_t rank = p->rank_of[actions[i]], own = actions[i] - p->base[rank];
        const bool first = i == 0 || p->rank_of[actions[i - 1]] != rank;
        p->ranks[rank].before[own] = first ? -1 : actions[i - 1] - p->base[rank];
        int32_t last = i;
        while (first && last + 1 < count && p->rank_of[actions[last + 1]] == rank) last++;
        if (first) p->ranks[rank].port_last[own] = actions[last] - p->base[rank];
    }
}

static bool rendezvous_is_wrong(simulation *p, const int32_t *const *lists, const int32_t *counts,
                                const verify_port *port, int32_t k)
{
    int32_t some = 0;
    while (counts[some] <= k) some++;
    const int32_t one = lists[some][k];
    for (int32_t m = 0; m < port->member_count; m++) {
        if (counts[m] > k) {
            if (action_at(p, lists[m][k])->what == action_at(p, one)->what) continue;
            return found(p, VERIFY_DIFFERS, at_of(p, one, 0), at_of(p, lists[m][k], 0));
        }
        const verify_at none = {.rank = port->members[m], .action = -1};
        return found(p, VERIFY_MISSING, at_of(p, one, 0),
                     counts[m] > 0 ? at_of(p, lists[m][counts[m] - 1], 0) : none);
    }
    return false;
}

// Makes the rendezvous of a port: the n-th actions of all members are the n-th one.
static status port_match(simulation *p, const int32_t *actions, int32_t count, int32_t row,
                         verify_rendezvous *rendezvous, int32_t *rendezvous_count)
{
    const verify_port *port = &p->g->ports[row];
    const int32_t **lists = NULL;
    int32_t *counts = NULL, most = 0;
    TRY(arena_new(p->a, port->member_count, &lists));
    TRY(arena_new(p->a, port->member_count, &counts));
    for (int32_t m = 0, i = 0; m < port->member_count; m++) { // members and actions ascend by rank
        lists[m] = &actions[i];
        while (i < count && p->rank_of[actions[i]] == port->members[m]) i++;
        counts[m] = (int32_t)(&actions[i] - lists[m]);
        if (counts[m] > most) most = counts[m];
    }
    for (int32_t k = 0; k < most; k++) {
        if (rendezvous_is_wrong(p, lists, counts, port, k)) return ST_OK;
        int32_t *members = NULL;
        TRY(arena_new(p->a, port->member_count, &members));
        for (int32_t m = 0; m < port->member_count; m++) {
            members[m] = lists[m][k];
            p->rendezvous_of[members[m]] = *rendezvous_count;
        }
        rendezvous[(*rendezvous_count)++] = (verify_rendezvous){
            .port = row, .members = members, .member_count = port->member_count};
    }
    return ST_OK;
}

static status rendezvous_make(simulation *p)
{
    port_lists lists = {0};
    verify_rendezvous *rendezvous = NULL;
    TRY(port_lists_make(p, &lists));
    TRY(arena_new(p->a, p->total + 1, &rendezvous));
    TRY(arena_new(p->a, p->total + 1, &p->rendezvous_of));
    memset(p->rendezvous_of, -1, (size_t)p->total * sizeof(int32_t));
    for (int32_t r = 0; r < p->g->rank_count; r++) {
        const int32_t count = p->g->ranks[r].action_count;
        TRY(arena_new(p->a, count + 1, &p->ranks[r].before));
        TRY(arena_new(p->a, count + 1, &p->ranks[r].port_last));
        memset(p->ranks[r].before, -1, (size_t)count * sizeof(int32_t));
        memset(p->ranks[r].port_last, -1, (size_t)count * sizeof(int32_t));
    }
    for (int32_t i = 0; i < p->g->port_count; i++) {
        const int32_t *actions = &lists.actions[lists.begin[i]];
        const int32_t count = lists.begin[i + 1] - lists.begin[i];
        port_chain(p, actions, count);
        TRY(port_match(p, actions, count, i, rendezvous, &p->out->rendezvous_count));
        if (p->out->finding.kind != VERIFY_SOUND) return ST_OK;
    }
    p->out->rendezvous = rendezvous;
    return ST_OK;
}

// ---- bytes --------------------------------------------------------------------------------------

static int compare_i64(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

int32_t verify_edges_sort(int64_t *edges, int32_t count)
{
    int32_t kept = 0;
    qsort(edges, (size_t)count, sizeof(*edges), compare_i64);
    for (int32_t i = 0; i < count; i++) {
        if (kept == 0 || edges[kept - 1] != edges[i]) edges[kept++] = edges[i];
    }
    return kept;
}

int32_t verify_edge_find(const int64_t *edges, int32_t count, int64_t value)
{
    int32_t low = 0, high = count;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (edges[middle] < value) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// Marks the streams that use each span, and whether any of them writes.
static void span_streams(const verify_rank *rank, uint64_t *streams, bool *written)
{
    for (int32_t i = 0; i < rank->action_count; i++) {
        const verify_action *action = &rank->actions[i];
        const int bit = action->stream < STREAM_BITS ? action->stream : STREAM_BITS - 1;
        for (int32_t k = 0; k < action->uses_count; k++) {
            const verify_use *use = &rank->uses[action->uses_begin + k];
            streams[use->span] |= UINT64_C(1) << bit;
            // Streams beyond the mask count as several.
            if (action->stream >= STREAM_BITS - 1) streams[use->span] |= 3;
            written[use->span] |= use->writes;
        }
    }
}

// Cuts the arena at all edges of spans and numbers the pieces that several streams touch and at
// least one writes.
static status pieces_make(simulation *p, int32_t r)
{
    const verify_rank *rank = &p->g->ranks[r];
    rank_state *s = &p->ranks[r];
    int64_t *edges = NULL;
    uint64_t *span_mask = NULL, *mask = NULL;
    bool *span_written = NULL, *written = NULL;
    int32_t *number = NULL;
    TRY(arena_new(p->a, 2 * (int64_t)rank->span_count + 1, &edges));
    for (int32_t i = 0; i < rank->span_count; i++) {
        edges[2 * i] = rank->spans[i].begin;
        edges[2 * i + 1] = rank->spans[i].end;
    }
    const int32_t edge_count = verify_edges_sort(edges, 2 * rank->span_count);
    TRY(arena_new(p->a, rank->span_count + 1, &span_mask));
    TRY(arena_new(p->a, rank->span_count + 1, &span_written));
    TRY(arena_new(p->a, edge_count + 1, &mask));
    TRY(arena_new(p->a, edge_count + 1, &written));
    TRY(arena_new(p->a, edge_count + 1, &number));
    TRY(arena_new(p->a, rank->span_count + 1, &s->piece_begin));
    TRY(arena_new(p->a, rank->span_count + 1, &s->piece_end));
    span_streams(rank, span_mask, span_written);
    for (int32_t i = 0; i < rank->span_count; i++) {
        s->piece_begin[i] = verify_edge_find(edges, edge_count, rank->spans[i].begin);
        s->piece_end[i] = verify_edge_find(edges, edge_count, rank->spans[i].end);
        for (int32_t k = s->piece_begin[i]; k < s->piece_end[i]; k++) {
            mask[k] |= span_mask[i];
            written[k] |= span_written[i];
        }
    }
    int32_t shared = 0;
    for (int32_t k = 0; k <= edge_count; k++) {
        number[k] = shared;
        if (written[k] && (mask[k] & (mask[k] - 1)) != 0) shared++;
    }
    for (int32_t i = 0; i < rank->span_count; i++) {
        s->piece_begin[i] = number[s->piece_begin[i]];
        s->piece_end[i] = number[s->piece_end[i]];
    }
    TRY(arena_new(p->a, shared + 1, &s->shadows));
    TRY(arena_new(p->a, (int64_t)shared * rank->stream_count + 1, &s->reads));
    for (int32_t k = 0; k < shared; k++) s->shadows[k].wrote = -1;
    for (int64_t k = 0; k < (int64_t)shared * rank->stream_count; k++) s->reads[k].position = -1;
    return ST_OK;
}

// ---- clocks -------------------------------------------------------------------------------------

// The position of an action on the clock of its stream; it grows along the stream and with the
// step.
static int64_t position_of(const simulation *p, int32_t number, int32_t step)
{
    const int32_t rank = p->rank_of[number];
    return (int64_t)step * p->g->ranks[rank].action_count + (number - p->base[rank]);
}

static verify_at at_position(const simulation *p, int32_t rank, int64_t position)
{
    const int32_t count = p->g->ranks[rank].action_count;
    return (verify_at){rank, (int32_t)(position % count), (int32_t)(position / count)};
}

static int64_t *clock_at(const simulation *p, int32_t number, int32_t step)
{
    return &p->clock[((int64_t)step * p->total + number) * p->width];
}

static void clock_join(int64_t *into, const int64_t *from, int32_t width)
{
    for (int32_t i = 0; i < width; i++) into[i] = max_i64(into[i], from[i]);
}

// Records in a clock that an action has ended.
static void clock_join_end(const simulation *p, int64_t *into, int32_t number, int32_t step)
{
    const int32_t row = p->rendezvous_of[number], rank = p->rank_of[number];
    const int64_t *from = clock_at(p, number, step);
    if (p->far && row >= 0) {
        from = &p->rendezvous_clock[((int64_t)step * p->out->rendezvous_count + row) * p->width];
    }
    clock_join(into, from, p->width);
    int64_t *own = &into[p->clock_stream[rank] + action_at(p, number)->stream];
    *own = max_i64(*own, position_of(p, number, step));
}

static bool is_before(const simulation *p, int32_t rank, int32_t stream, int64_t position,
                      const int64_t *clock)
{
    return position <= clock[p->clock_stream[rank] + stream];
}

static void clock_make(simulation *p, int32_t number, int32_t step)
{
    const int32_t rank = p->rank_of[number], own = number - p->base[rank];
    const verify_rank *given = &p->g->ranks[rank];
    const verify_action *action = &given->actions[own];
    const rank_state *s = &p->ranks[rank];
    int64_t *clock = clock_at(p, number, step);
    for (int32_t i = 0; i < p->width; i++) clock[i] = -1;
    // s->last holds the last action of the stream so far in the simulation.
    const int32_t before = s->last[action->stream];
    if (before >= 0) {
        const int32_t count = given->action_count;
        clock_join_end(p, clock, p->base[rank] + before % count, before / count);
    }
    for (int32_t k = 0; k < action->waits_count; k++) {
        const int32_t w = given->waits[action->waits_begin + k];
        const int32_t on_step = w >= 0 ? step : step - 1;
        if (on_step < 0) continue;
        clock_join_end(p, clock, p->base[rank] + (w >= 0 ? w : -1 - w), on_step);
    }
    p->ranks[rank].last[action->stream] = (int32_t)position_of(p, number, step);
}

// ---- checks when an action begins ---------------------------------------------------------------

static bool race_found(simulation *p, verify_at a, int32_t use_a, verify_at b, int32_t use_b)
{
    const verify_rank *rank = &p->g->ranks[a.rank];
    (void)found(p, VERIFY_RACE, a, b);
    p->out->finding.span_a = rank->uses[use_a].span;
    p->out->finding.span_b = rank->uses[use_b].span;
    return true;
}

static bool use_races(simulation *p, int32_t number, int32_t step, int32_t use_row)
{
    const int32_t rank = p->rank_of[number];
    const verify_rank *given = &p->g->ranks[rank];
    const verify_use *use = &given->uses[use_row];
    rank_state *s = &p->ranks[rank];
    const int32_t stream = action_at(p, number)->stream;
    const int64_t *clock = clock_at(p, number, step);
    const int64_t position = position_of(p, number, step);
    for (int32_t k = s->piece_begin[use->span]; k < s->piece_end[use->span]; k++) {
        shadow *sh = &s->shadows[k];
        shadow_read *reads = &s->reads[(int64_t)k * given->stream_count];
        if (sh->wrote >= 0 && sh->wrote_at != stream &&
            !is_before(p, rank, sh->wrote_at, sh->wrote, clock)) {
            return race_found(p, at_position(p, rank, sh->wrote), sh->wrote_use,
                              at_of(p, number, step), use_row);
        }
        if (!use->writes) {
            reads[stream] = (shadow_read){position, use_row};
            continue;
        }
        for (int32_t l = 0; l < given->stream_count; l++) {
            if (l == stream || is_before(p, rank, l, reads[l].position, clock)) continue;
            return race_found(p, at_position(p, rank, reads[l].position), reads[l].use,
                              at_of(p, number, step), use_row);
        }
        *sh = (shadow){position, stream, use_row};
    }
    return false;
}

static bool port_is_unordered(simulation *p, int32_t number, int32_t step)
{
    const int32_t rank = p->rank_of[number], own = number - p->base[rank];
    const rank_state *s = &p->ranks[rank];
    int32_t before = s->before[own], before_step = step;
    if (p->rendezvous_of[number] < 0) return false;
    if (before < 0) {
        before = s->port_last[own];
        before_step = step - 1;
    }
    if (before_step < 0) return false;
    const int32_t other = p->base[rank] + before;
    if (is_before(p, rank, action_at(p, other)->stream, position_of(p, other, before_step),
                  clock_at(p, number, step))) {
        return false;
    }
    return found(p, VERIFY_UNORDERED, at_of(p, other, before_step), at_of(p, number, step));
}

static bool begin_is_wrong(simulation *p, int32_t number, int32_t step)
{
    const verify_action *action = action_at(p, number);
    clock_make(p, number, step);
    if (port_is_unordered(p, number, step)) return true;
    for (int32_t k = 0; k < action->uses_count; k++) {
        if (use_races(p, number, step, action->uses_begin + k)) return true;
    }
    return false;
}

// ---- the simulation -----------------------------------------------------------------------------

static void needs_one_less(simulation *p, int32_t number, int32_t step)
{
    const int32_t id = step * p->total + number;
    ASSERT(p->needs[id] > 0);
    if (--p->needs[id] == 0) p->queue[p->queue_tail++] = id;
}

// The host posts further actions as far as the queues have space.
static void cursor_advance(simulation *p, int32_t rank)
{
    rank_state *s = &p->ranks[rank];
    const int32_t count = p->g->ranks[rank].action_count;
    while (p->limited && s->cursor < STEPS * count) {
        if (s->cursor > 0 && s->space_after[s->cursor - 1] >= 0) {
            const int32_t place = s->space_after[s->cursor - 1];
            if (!p->ended[place / count * p->total + p->base[rank] + place % count]) return;
        }
        const int32_t next = s->cursor++;
        needs_one_less(p, p->base[rank] + next % count, next / count);
    }
}

static status space_after_make(simulation *p, int32_t r)
{
    const verify_rank *rank = &p->g->ranks[r];
    rank_state *s = &p->ranks[r];
    int64_t *posted = NULL; // [place] queue entries of its stream up to its end
    int64_t *sum = NULL;    // [stream]
    int32_t *oldest = NULL; // [stream] place of the oldest action that may still be in the queue
    const int32_t all = STEPS * rank->action_count;
    TRY(arena_new(p->a, all + 1, &s->space_after));
    TRY(arena_new(p->a, all + 1, &posted));
    TRY(arena_new(p->a, rank->stream_count, &sum));
    TRY(arena_new(p->a, rank->stream_count, &oldest));
    for (int32_t l = 0; l < rank->stream_count; l++) oldest[l] = s->first[l];
    for (int32_t i = 0; i < all; i++) {
        const verify_action *action = &rank->actions[i % rank->action_count];
        const int32_t stream = action->stream;
        posted[i] = sum[stream] += action->items;
        s->space_after[i] = -1;
        while (oldest[stream] < i && posted[oldest[stream]] <= posted[i] - p->g->queue_items) {
            s->space_after[i] = oldest[stream];
            const int32_t own = oldest[stream] % rank->action_count;
            const int32_t before = oldest[stream] - own;
            oldest[stream] = s->next[own] >= 0 ? before + s->next[own]
                                               : before + rank->action_count + s->first[stream];
        }
    }
    return ST_OK;
}

static void action_end(simulation *p, int32_t number, int32_t step)
{
    const int32_t rank = p->rank_of[number], own = number - p->base[rank];
    const rank_state *s = &p->ranks[rank];
    p->ended[step * p->total + number] = true;
    if (s->next[own] >= 0) {
        needs_one_less(p, p->base[rank] + s->next[own], step);
    } else if (step + 1 < STEPS) {
        needs_one_less(p, p->base[rank] + s->first[action_at(p, number)->stream], step + 1);
    }
    const int32_t end = s->waiting_begin[own + 1];
    for (int32_t k = own == 0 ? 0 : s->waiting_begin[own]; k < end; k++) {
        const int32_t waiter = s->waiting[k] / 2, later = s->waiting[k] % 2;
        if (step + later < STEPS) needs_one_less(p, p->base[rank] + waiter, step + later);
    }
    cursor_advance(p, rank);
}

static void action_begin(simulation *p, int32_t number, int32_t step)
{
    const int32_t row = p->rendezvous_of[number];
    p->begun[step * p->total + number] = true;
    if (row < 0) {
        if (step == 0) p->order[p->order_count++] = number;
        action_end(p, number, step);
        return;
    }
    const int64_t at = (int64_t)step * p->out->rendezvous_count + row;
    const verify_rendezvous *rendezvous = &p->out->rendezvous[row];
    if (p->far)
        clock_join(&p->rendezvous_clock[at * p->width], clock_at(p, number, step), p->width);
    if (++p->arrived[at] < rendezvous->member_count) return;
    if (step == 0) p->order[p->order_count++] = -1 - row;
    for (int32_t m = 0; m < rendezvous->member_count; m++)
        action_end(p, rendezvous->members[m], step);
}

// Counts the actions and posts that must end before each action, in both steps.
static void needs_count(simulation *p)
{
    for (int32_t step = 0; step < STEPS; step++) {
        for (int32_t i = 0; i < p->total; i++) {
            const int32_t rank = p->rank_of[i], own = i - p->base[rank];
            const verify_rank *given = &p->g->ranks[rank];
            const verify_action *action = &given->actions[own];
            int32_t needs = step > 0 || p->ranks[rank].first[action->stream] != own ? 1 : 0;
            if (p->limited) needs++;
            for (int32_t k = 0; k < action->waits_count; k++) {
                if (step > 0 || given->waits[action->waits_begin + k] >= 0) needs++;
            }
            p->needs[step * p->total + i] = needs;
            if (needs == 0) p->queue[p->queue_tail++] = step * p->total + i;
        }
    }
}

// Returns an action that never ends and for which the given one, which never ends either, waits.
static int32_t blocker_of(const simulation *p, int32_t id)
{
    const int32_t number = id % p->total, step = id / p->total;
    const int32_t rank = p->rank_of[number], own = number - p->base[rank];
    const verify_rank *given = &p->g->ranks[rank];
    const verify_action *action = &given->actions[own];
    const rank_state *s = &p->ranks[rank];
    if (p->limited &&
        step * given->action_count + own >= s->cursor) { // not posted: its queue is full
        const int32_t place = s->space_after[s->cursor - 1];
        return place / given->action_count * p->total + p->base[rank] + place % given->action_count;
    }
    if (p->begun[id]) {
        const verify_rendezvous *rendezvous = &p->out->rendezvous[p->rendezvous_of[number]];
        for (int32_t m = 0; m < rendezvous->member_count; m++) {
            const int32_t other = step * p->total + rendezvous->members[m];
            if (!p->begun[other]) return other;
        }
    }
    for (int32_t k = 0; k < action->waits_count; k++) {
        const int32_t w = given->waits[action->waits_begin + k];
        const int32_t on_step = w >= 0 ? step : step - 1;
        const int32_t other = on_step * p->total + p->base[rank] + (w >= 0 ? w : -1 - w);
        if (on_step >= 0 && !p->ended[other]) return other;
    }
    for (int32_t i = own - 1; i >= 0; i--) {
        if (given->actions[i].stream != action->stream) continue;
        if (!p->ended[step * p->total + p->base[rank] + i]) return id - own + i;
        break;
    }
    ASSERT(step > 0); // it waits for the last action of the stream in the step before
    for (int32_t i = given->action_count - 1;; i--) {
        ASSERT(i >= 0);
        if (given->actions[i].stream == action->stream) return id - own + i - p->total;
    }
}

static status cycle_find(simulation *p)
{
    const int32_t all = STEPS * p->total;
    int32_t id = 0, count = 0;
    int32_t *seen = NULL; // [id] when, from 1
    verify_at *cycle = NULL;
    TRY(arena_new(p->a, all, &seen));
    TRY(arena_new(p->a, all, &cycle));
    while (p->ended[id]) id++;
    for (; seen[id] == 0; id = blocker_of(p, id)) {
        seen[id] = ++count;
        cycle[count - 1] = at_of(p, id % p->total, id / p->total);
    }
    const int32_t from = seen[id] - 1;
    (void)found(p, VERIFY_CYCLE, cycle[from], cycle[count - 1]);
    p->out->finding.cycle = &cycle[from];
    p->out->finding.cycle_count = count - from;
    return ST_OK;
}

static status clocks_make(simulation *p)
{
    TRY(arena_new(p->a, p->g->rank_count + 1, &p->clock_stream));
    p->width = 1;
    for (int32_t r = 0, streams = 0; r < p->g->rank_count; r++) {
        p->clock_stream[r] = p->far ? streams : 0;
        streams += p->g->ranks[r].stream_count;
        if (p->far || p->g->ranks[r].stream_count > p->width) {
            p->width = p->far ? streams : p->g->ranks[r].stream_count;
        }
    }
    TRY(arena_new(p->a, (int64_t)STEPS * p->total * p->width, &p->clock));
    if (!p->far) return ST_OK;
    const int64_t all = (int64_t)STEPS * p->out->rendezvous_count * p->width;
    TRY(arena_new(p->a, all + 1, &p->rendezvous_clock));
    memset(p->rendezvous_clock, -1, (size_t)all * sizeof(int64_t));
    return ST_OK;
}

static status simulation_make(simulation *p)
{
    const int64_t all = (int64_t)STEPS * p->total;
    TRY(arena_new(p->a, all + 1, &p->needs));
    TRY(arena_new(p->a, all + 1, &p->begun));
    TRY(arena_new(p->a, all + 1, &p->ended));
    TRY(arena_new(p->a, all + 1, &p->queue));
    TRY(arena_new(p->a, p->total + 1, &p->order));
    TRY(arena_new(p->a, (int64_t)STEPS * p->out->rendezvous_count + 1, &p->arrived));
    p->queue_head = p->queue_tail = p->order_count = 0;
    p->out->finding = (verify_finding){.kind = VERIFY_SOUND};
    if (p->limited) {
        for (int32_t r = 0; r < p->g->rank_count; r++) TRY(space_after_make(p, r));
        return ST_OK;
    }
    TRY(clocks_make(p));
    for (int32_t r = 0; r < p->g->rank_count; r++) {
        TRY(pieces_make(p, r));
        memset(p->ranks[r].last, -1, (size_t)p->g->ranks[r].stream_count * sizeof(int32_t));
    }
    return ST_OK;
}

static status simulate(simulation *p)
{
    TRY(simulation_make(p));
    needs_count(p);
    for (int32_t r = 0; r < p->g->rank_count; r++) cursor_advance(p, r);
    // A cycle is reported before a race, because a race may be a consequence of it.
    bool wrong = p->limited;
    verify_finding first = {0};
    while (p->queue_head < p->queue_tail) {
        const int32_t id = p->queue[p->queue_head++];
        const int32_t number = id % p->total, step = id / p->total;
        if (!wrong && begin_is_wrong(p, number, step)) {
            wrong = true;
            first = p->out->finding;
        }
        action_begin(p, number, step);
    }
    if (p->queue_tail < STEPS * p->total) return cycle_find(p);
    p->out->finding = first;
    p->out->order = p->order;
    p->out->order_count = p->order_count;
    return ST_OK;
}

status verify_graph_run(arena *a, const verify_graph *g, verify_result *out)
{
    simulation p = {.a = a, .g = g, .out = out};
    memset(out, 0, sizeof(*out));
    TRY(numbers_make(&p));
    if (p.total == 0 || waits_are_late(&p)) return ST_OK;
    ASSERT(p.total < INT32_MAX / STEPS - 1);
    TRY(arena_new(a, g->rank_count + 1, &p.ranks));
    TRY(rendezvous_make(&p));
    if (out->finding.kind != VERIFY_SOUND) return ST_OK;
    for (int32_t r = 0; r < g->rank_count; r++) {
        TRY(streams_make(&p, r));
        TRY(waiting_make(&p, r));
    }
    TRY(simulate(&p));
    if (out->finding.kind == VERIFY_RACE || out->finding.kind == VERIFY_UNORDERED) {
        p.far = out->far = true; // other ranks may order them
        TRY(simulate(&p));
    }
    if (out->finding.kind != VERIFY_SOUND || g->queue_items == 0) return ST_OK;
    p.far = false;
    p.limited = true;
    TRY(simulate(&p));
    out->finding.queues = out->finding.kind == VERIFY_CYCLE;
    return ST_OK;
}
