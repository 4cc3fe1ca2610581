// The simulator: runs the actions of all stages in virtual time as the executor would.
//
// A stream takes its actions one after the other, each after its dependencies are done. A
// collective begins when all its ranks have arrived and ends for all at the same time. Only groups
// that span stages need a rendezvous; the ranks of other groups are in lockstep. The host is always
// ahead, as it is while no queue is full, unless the prices give the time to issue an action.
//
// Streams belong to an event loop (base/event_loop.h): a stream stops at its next action until
// actions of its rank or of the ranks in a rendezvous are done. Times follow from prices alone.
#include "sim/sim.h"
#include "sim/streams.h"

#include <string.h>

typedef struct stream {
    int32_t rank, number;
    const int32_t *actions; // in order
    int32_t count, at, step;
} stream;

// A group that spans stages.
typedef struct rendezvous {
    plan_group group;
    int32_t members;
    event_rendezvous at;
} rendezvous;

// Fields of an action that the loop reads often, gathered from its plan and its prices to save
// memory traffic.
typedef struct timed_action {
    int64_t ns; // its delay included
    int32_t waits_begin, waits_count;
    int32_t rendezvous; // EVENT_NONE: none, or in lockstep
} timed_action;

typedef struct rank_state {
    const plan *p;
    const sim_prices *prices;
    timed_action *actions;
    sim_span *spans;        // [step * actions + action]
    int32_t *rendezvous_of; // [row of run->groups]; EVENT_NONE: its ranks are in lockstep
    int64_t issued;         // time until which the host has issued actions of the compute stream
} rank_state;

typedef struct simulator {
    arena *a;
    const sim_rank *given;
    rank_state *ranks;
    int32_t rank_count, stream_count, rendezvous_count, steps;
    int64_t host_ns;
    stream *streams; // [stream]
    event_loop loop;
    rendezvous *all_rendezvous;
    int64_t *step_end; // [step] latest end of a compute action over all ranks
    sim_step *out;
} simulator;

// ---- setup -------------------------------------------------------------------------------------

static status streams_of_rank(simulator *s, int32_t r)
{
    sim_stream *all = NULL;
    int32_t count = 0;
    TRY(sim_streams_make(s->a, s->ranks[r].p, &all, &count));
    for (int32_t n = 0; n < count; n++) {
        if (all[n].count == 0) continue;
        s->streams[s->stream_count++] =
            (stream){.rank = r, .number = n, .actions = all[n].actions, .count = all[n].count};
    }
    return ST_OK;
}

static status rendezvous_find(simulator *s, const plan_group *g, int32_t *out)
{
    for (*out = 0; *out < s->rendezvous_count; ++*out) {
        if (plan_group_equal(&s->all_rendezvous[*out].group, g)) break;
    }
    if (*out == s->rendezvous_count)
        s->all_rendezvous[s->rendezvous_count++] = (rendezvous){.group = *g};
    rendezvous *m = &s->all_rendezvous[*out];
    m->members++;
    return ST_OK;
}

// Groups along pp that this rank uses.
static status rendezvous_of_rank(simulator *s, int32_t r)
{
    rank_state *rank = &s->ranks[r];
    const plan_table *run = rank->p->run;
    TRY(arena_new(s->a, run->group_count + 1, &rank->rendezvous_of));
    for (int64_t g = 0; g < run->group_count; g++) rank->rendezvous_of[g] = EVENT_NONE;
    for (int64_t i = 0; i < rank->p->comm_count; i++) {
        const int32_t g = rank->p->comms[i].group;
        const bool spans = (run->groups[g].axes & MESH_AXIS(AXIS_PP)) != 0;
        if (!spans || rank->rendezvous_of[g] != EVENT_NONE) continue;
        TRY(rendezvous_find(s, &run->groups[g], &rank->rendezvous_of[g]));
    }
    return ST_OK;
}

static status actions_of_rank(simulator *s, int32_t r)
{
    rank_state *rank = &s->ranks[r];
    const plan *p = rank->p;
    const sim_prices *prices = rank->prices;
    TRY(arena_new(s->a, p->action_count + 1, &rank->actions));
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *x = &p->actions[i];
        const bool sends = x->kind == ACTION_COMMUNICATE;
        rank->actions[i] = (timed_action){
            .ns = prices->ns[i] + sim_held(prices, i),
            .waits_begin = x->waits_begin,
            .waits_count = x->waits_count,
            .rendezvous = sends ? rank->rendezvous_of[p->comms[x->comm].group] : EVENT_NONE};
    }
    return ST_OK;
}

static status prepare(simulator *s)
{
    int64_t streams = 0, groups = 0;
    for (int32_t r = 0; r < s->rank_count; r++) {
        streams += STREAM_GROUPS + s->given[r].p->run->group_count;
        groups += s->given[r].p->run->group_count;
    }
    TRY(arena_new(s->a, streams, &s->streams));
    TRY(arena_new(s->a, groups + 1, &s->all_rendezvous));
    TRY(arena_new(s->a, s->steps, &s->step_end));
    for (int32_t r = 0; r < s->rank_count; r++) {
        rank_state *rank = &s->ranks[r];
        const int64_t all = rank->p->action_count * s->steps;
        TRY(arena_new(s->a, all + 1, &rank->spans));
        for (int64_t i = 0; i < all; i++) rank->spans[i] = event_span_open();
        TRY(streams_of_rank(s, r));
        TRY(rendezvous_of_rank(s, r));
        TRY(actions_of_rank(s, r));
    }
    for (int32_t i = 0; i < s->rendezvous_count; i++) {
        TRY(event_rendezvous_make(s->a, s->all_rendezvous[i].members, &s->all_rendezvous[i].at));
    }
    TRY(event_loop_add(s->a, &s->loop, s->stream_count));
    event_loop_wake_all(&s->loop);
    return ST_OK;
}

// ---- where a step's time goes ------------------------------------------------------------------

// Accounts for the time from `from` to `to` in which the compute stream waited for action `on` of
// this or the last step.
static void gap_count(const rank_state *rank, sim_times *t, const plan_action *on,
                      const sim_span *span, int64_t from, int64_t to)
{
    if (to <= from) return;
    if (on == NULL || on->kind == ACTION_COPY || on->kind == ACTION_READBACK) {
        t->data += to - from;
        return;
    }
    if (on->kind != ACTION_COMMUNICATE) { // impossible: a stream's own actions run in order
        t->bubble += to - from;
        return;
    }
    const int32_t group = rank->p->comms[on->comm].group;
    const traffic kind = traffic_of(rank->p->run->groups[group].axes);
    // Until all ranks have arrived, the rank waits for the others; ranks in lockstep do not wait.
    const bool spans = rank->rendezvous_of[group] != EVENT_NONE;
    const int64_t under_way = spans ? max_i64(0, min_i64(to - from, to - span->begin)) : to - from;
    t->exposed[kind] += under_way;
    t->bubble += to - from - under_way;
}

static void times_add(sim_times *to, const sim_times *t)
{
    to->length += t->length;
    to->compute += t->compute;
    to->bubble += t->bubble;
    to->data += t->data;
    to->host += t->host;
    for (int k = 0; k < TRAFFIC_COUNT; k++) to->exposed[k] += t->exposed[k];
}

// Accounts for an action of the compute stream in the last step, delayed by the host for `late`;
// `cause`: row of the action that it waited for longest before.
static void compute_count(simulator *s, int32_t number, int64_t begin, int64_t end, int64_t late,
                          int64_t cause)
{
    const stream *l = &s->streams[number];
    const int64_t free = s->loop.streams[number].free;
    const rank_state *rank = &s->ranks[l->rank];
    const int32_t action = l->actions[l->at];
    const plan_action *x = &rank->p->actions[action];
    const sim_span *span = cause >= 0 ? &rank->spans[cause] : NULL;
    const sim_rank *given = &s->given[l->rank];
    sim_times its = {0}, *t = &its;
    const int64_t host = l->at == 0 ? s->host_ns : 0;
    const int64_t held = sim_held(rank->prices, action), own = end - begin - held - host;
    const int64_t on = cause >= 0 ? cause % rank->p->action_count : 0;
    gap_count(rank, t, cause >= 0 ? &rank->p->actions[on] : NULL, span, free, begin - late);
    t->length += end - free;
    t->host += host + late;
    for (int k = 0; k < TRAFFIC_COUNT && held > 0; k++) {
        t->exposed[k] += rank->prices->held[k] != NULL ? rank->prices->held[k][action] : 0;
    }
    if (x->kind == ACTION_COMMUNICATE) {
        const uint32_t axes = rank->p->run->groups[rank->p->comms[x->comm].group].axes;
        t->exposed[traffic_of(axes)] += own;
    } else {
        t->compute += own;
    }
    times_add(&s->out->times[l->rank], t);
    const bool is_some =
        x->microbatch >= given->first && x->microbatch < given->first + given->count;
    if (is_some) times_add(&s->out->some[l->rank], t);
}

// ---- the loop ----------------------------------------------------------------------------------

static int32_t action_of(const stream *l)
{
    return l->actions[l->at];
}

// Accounts for the stream's next action, which took `ns`, in the last step.
static void sent_count(simulator *s, const stream *l, int64_t ns)
{
    const rank_state *rank = &s->ranks[l->rank];
    const plan_action *x = &rank->p->actions[action_of(l)];
    if (x->kind != ACTION_COMMUNICATE) return;
    const uint32_t axes = rank->p->run->groups[rank->p->comms[x->comm].group].axes;
    const bool has_tail = sim_tail(rank->prices, action_of(l)) > 0;
    s->out->times[l->rank].sent[traffic_of(axes)] += has_tail ? rank->prices->ns[action_of(l)] : ns;
}

// The stream's next action has its times.
static void action_end(simulator *s, int32_t number, int64_t begin, int64_t end)
{
    stream *l = &s->streams[number];
    rank_state *rank = &s->ranks[l->rank];
    const int32_t action = action_of(l);
    const int64_t row = sim_row(rank->p, l->step, action);
    event_loop_end(&s->loop, &rank->spans[row], begin, end);
    s->loop.streams[number].free = end;
    if (l->number == STREAM_COMPUTE) s->step_end[l->step] = max_i64(s->step_end[l->step], end);
    if (l->step == s->steps - 1) sent_count(s, l, end - begin);
    if (++l->at == l->count) {
        l->at = 0;
        l->step++;
    }
}

// Computes when the stream's next action can begin as far as its own rank is concerned. false: a
// dependency is not done, and the stream is registered as a waiter. *cause: the action whose end
// decides; -1: that of the stream's own last action.
static bool begin_of(simulator *s, int32_t number, int64_t *begin, int64_t *cause)
{
    stream *l = &s->streams[number];
    rank_state *rank = &s->ranks[l->rank];
    const timed_action *x = &rank->actions[action_of(l)];
    *begin = s->loop.streams[number].free;
    *cause = EVENT_NONE;
    for (int32_t i = 0; i < x->waits_count; i++) {
        const int32_t on = rank->p->waits[x->waits_begin + i];
        const int32_t step = on >= 0 ? l->step : l->step - 1;
        if (step < 0) continue;
        const int64_t row = sim_row(rank->p, step, on >= 0 ? on : -1 - (int64_t)on);
        if (!event_loop_wait(&s->loop, number, &rank->spans[row])) return false;
        if (rank->spans[row].end <= *begin) continue;
        *begin = rank->spans[row].end;
        *cause = row;
    }
    return true;
}

// true: the stream arrived last, and all members have their times.
static bool arrive(simulator *s, int32_t number, event_rendezvous *m, int64_t begin, int64_t ns)
{
    if (!event_loop_arrive(&s->loop, number, m, begin, ns)) return false;
    for (int32_t i = 0; i < m->members; i++) {
        action_end(s, m->streams[i], m->begin, m->begin + m->ns);
    }
    return true;
}

// The host's delay of the compute stream's next action, which could begin at `begin`. The host
// issues the first action of a step when the device reaches it, because it reads the result of the
// step before.
static int64_t late_of(const simulator *s, rank_state *rank, const stream *l, int64_t begin)
{
    const sim_prices *prices = rank->prices;
    if (prices->issue == NULL) return 0;
    if (l->at == 0) rank->issued = max_i64(rank->issued, begin) + s->host_ns;
    rank->issued += prices->issue[action_of(l)];
    return l->at == 0 ? 0 : max_i64(0, rank->issued - begin);
}

static void stream_run(simulator *s, int32_t number)
{
    stream *l = &s->streams[number];
    rank_state *rank = &s->ranks[l->rank];
    event_stream *state = &s->loop.streams[number];
    while (l->step < s->steps) {
        const int32_t action = action_of(l);
        const timed_action *x = &rank->actions[action];
        int64_t begin = 0, cause = EVENT_NONE, ns = x->ns;
        if (!begin_of(s, number, &begin, &cause)) return;
        const int64_t tail = sim_tail(rank->prices, action);
        if (tail > 0) ns = max_i64(ns, state->waited + tail - begin);
        if (x->rendezvous != EVENT_NONE) {
            if (!arrive(s, number, &s->all_rendezvous[x->rendezvous].at, begin, ns)) return;
            continue;
        }
        if (l->number == STREAM_COMPUTE) {
            // A transfer delays the stream from the end of its last work on, even while it waits
            // for something else.
            const int64_t ready = begin, sent = sim_sent(rank->prices, action);
            begin = max_i64(state->free, ready - sent);
            const int64_t issued = ready + late_of(s, rank, l, ready);
            const int64_t late = max_i64(state->free, issued - sent) - begin;
            begin += late;
            if (l->at == 0) ns += s->host_ns;
            if (l->step == s->steps - 1) compute_count(s, number, begin, begin + ns, late, cause);
            if (rank->prices->issue != NULL && rank->prices->waits[action]) {
                rank->issued = max_i64(rank->issued, begin + ns);
            }
        }
        action_end(s, number, begin, begin + ns);
    }
}

// ---- results -----------------------------------------------------------------------------------

static status stuck_name(const simulator *s)
{
    for (int32_t i = 0; i < s->stream_count; i++) {
        const stream *l = &s->streams[i];
        if (l->step == s->steps) continue;
        return fail(ST_INTERNAL,
                    "the plan waits for itself: stage %d, stream %d, action %d, step %d", l->rank,
                    l->number, action_of(l), l->step + 1);
    }
    return ST_OK;
}

static status step_make(simulator *s)
{
    sim_step *out = s->out;
    const int32_t last = s->steps - 1;
    out->ranks = s->rank_count;
    out->first_ns = s->step_end[0];
    out->step_ns = s->step_end[last] - (last > 0 ? s->step_end[last - 1] : 0);
    TRY(arena_new(s->a, s->rank_count, &out->spans));
    for (int32_t r = 0; r < s->rank_count; r++) {
        out->spans[r] = s->ranks[r].spans + sim_row(s->ranks[r].p, last, 0);
    }
    return ST_OK;
}

status sim_step_run(arena *a, const sim_rank *ranks, int32_t count, const sim_prices *prices,
                    int64_t host_ns, int32_t steps, sim_step **out)
{
    simulator s = {.a = a, .given = ranks, .rank_count = count, .steps = steps, .host_ns = host_ns};
    ASSERT(count > 0 && steps > 0 && host_ns >= 0);
    TRY(arena_new(a, 1, &s.out));
    TRY(arena_new(a, count, &s.out->times));
    TRY(arena_new(a, count, &s.out->some));
    TRY(arena_new(a, count, &s.ranks));
    for (int32_t r = 0; r < count; r++) {
        s.ranks[r].p = ranks[r].p;
        s.ranks[r].prices = &prices[r];
    }
    TRY(prepare(&s));
    for (int32_t i; (i = event_loop_next(&s.loop)) != EVENT_NONE;) stream_run(&s, i);
    TRY(stuck_name(&s));
    TRY(step_make(&s));
    *out = s.out;
    return ST_OK;
}
