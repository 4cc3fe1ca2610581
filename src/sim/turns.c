// Ranks that share the cores of a host: all of them are simulated, each with its place in the mesh,
// and work on the compute stream needs cores.
//
// The simulator of a step (sim/step.c) lets the ranks of a stage work in lockstep, each with its
// share of the cores. That gives the time of the step, but not its waits: where more threads want
// to run than there are cores, ranks take turns, and a rank that reaches an exchange waits until
// the others have had theirs.
//
//   core 0   rank 0 ====#  rank 2 ======#  rank 0 ...      # an exchange of ranks 0 and 1:
//   core 1   rank 3 ======#  rank 1 ====#  rank 1 ...        rank 0 waits for rank 1's turn
//
// Here time passes from event to event: work on a core ends, the time of its turn ends, or a
// transfer ends. Threads that wait for cores stand in one queue; a thread has its cores until it
// waits for something, or until its turn ends while others stand in the queue. Other programs of
// the machine are threads that always want to run. Transfers need no core.
#include "base/hash.h"
#include "sim/sim.h"
#include "sim/streams.h"

#include <string.h>

enum {
    TURN_NS = 3000000, // the base slice of Linux' scheduler
    STEPS = 8,         // simulated, of which the last COUNTED count: lots make steps differ
    COUNTED = 6
};

typedef enum stream_state {
    STREAM_IDLE,
    STREAM_QUEUED,
    STREAM_RUNNING,
    STREAM_TIMED,
    STREAM_ARRIVED
} stream_state;

// A stream of a rank.
typedef struct stream {
    int32_t rank, number;
    const int32_t *actions; // in order
    int32_t count, at, step;
    stream_state state;
    int64_t free;             // end of its last action
    int64_t begin;            // when all that its action waits for was done
    const plan_action *cause; // that its action waited for longest; NULL: none
    int64_t end;              // STREAM_TIMED
} stream;

// A thread that wants cores: thread r is the compute stream of rank r, and other programs follow.
typedef struct thread {
    int32_t stream;        // -1: another program
    bool runs, has_begun;  // has_begun: its action has had a turn
    int64_t left;          // work of its action
    int64_t turn;          // left of its turn
    int64_t wants_from;    // since when it stands in the queue
    int64_t woken, waited; // time there for its action: before it began, and in all
} thread;

typedef struct rendezvous {
    plan_group group;
    int32_t first, size, arrived; // ranks
    int32_t *streams;             // [size]
} rendezvous;

typedef struct rank_state {
    const plan *p;
    const sim_prices *prices;
    int64_t *end;           // [step * actions + action]; -1: not done
    int32_t *rendezvous_of; // [row of run->groups] -1: no action uses the group
} rank_state;

typedef struct turns {
    arena *a;
    sim_cores how;
    rank_state *ranks;
    stream *streams;
    thread *threads;
    rendezvous *all_rendezvous;
    int32_t *queue; // of threads
    int64_t drawn;  // lots
    int32_t rank_count, stream_count, thread_count, rendezvous_count, queue_count;
    int64_t now;
    int64_t *step_end; // [step] the latest end of work on a compute stream
    sim_turns *out;
} turns;

// ---- setup --------------------------------------------------------------------------------------

static status streams_make(turns *s, int32_t r)
{
    sim_stream *all = NULL;
    int32_t count = 0;
    TRY(sim_streams_make(s->a, s->ranks[r].p, &all, &count));
    for (int32_t n = 0; n < count; n++) {
        if (all[n].count == 0) continue;
        if (n == STREAM_COMPUTE) s->threads[r].stream = s->stream_count;
        s->streams[s->stream_count++] =
            (stream){.rank = r, .number = n, .actions = all[n].actions, .count = all[n].count};
    }
    return ST_OK;
}

// The rendezvous of a rank's group: ranks with other coordinates have other groups of this kind.
static status rendezvous_find(turns *s, const plan_mesh *mesh, const plan_group *g, int32_t *out)
{
    const int64_t size = plan_group_size(mesh, g), first = plan_group_member(mesh, g, 0);
    for (*out = 0; *out < s->rendezvous_count; ++*out) {
        const rendezvous *m = &s->all_rendezvous[*out];
        if (m->first == first && m->size == size && plan_group_equal(&m->group, g)) return ST_OK;
    }
    rendezvous *m = &s->all_rendezvous[s->rendezvous_count++];
    *m = (rendezvous){.group = *g, .first = (int32_t)first, .size = (int32_t)size};
    return arena_new(s->a, size, &m->streams);
}

static status rendezvous_make(turns *s, int32_t r, const plan_mesh *mesh)
{
    rank_state *rank = &s->ranks[r];
    const plan_table *run = rank->p->run;
    TRY(arena_new(s->a, run->group_count + 1, &rank->rendezvous_of));
    for (int64_t g = 0; g < run->group_count; g++) rank->rendezvous_of[g] = -1;
    for (int64_t i = 0; i < rank->p->comm_count; i++) {
        const int32_t g = rank->p->comms[i].group;
        if (rank->rendezvous_of[g] >= 0) continue;
        TRY(rendezvous_find(s, mesh, &run->groups[g], &rank->rendezvous_of[g]));
    }
    return ST_OK;
}

static status rank_make(turns *s, int32_t r, const sim_rank *stages, const sim_prices *prices)
{
    const plan_mesh mesh = plan_mesh_from(&stages[0].mesh, r);
    rank_state *rank = &s->ranks[r];
    rank->p = stages[mesh.at[AXIS_PP]].p;
    rank->prices = &prices[mesh.at[AXIS_PP]];
    const int64_t rows = rank->p->action_count * STEPS;
    TRY(arena_new(s->a, rows + 1, &rank->end));
    for (int64_t i = 0; i < rows; i++) rank->end[i] = -1;
    TRY(streams_make(s, r));
    return rendezvous_make(s, r, &mesh);
}

static status prepare(turns *s, const sim_rank *stages, int32_t count, const sim_prices *prices)
{
    int64_t groups = 0;
    for (int32_t i = 0; i < count; i++) groups = max_i64(groups, stages[i].p->run->group_count);
    s->thread_count = s->rank_count + s->how.others;
    TRY(arena_new(s->a, s->rank_count, &s->ranks));
    TRY(arena_new(s->a, s->rank_count * (STREAM_GROUPS + groups), &s->streams));
    TRY(arena_new(s->a, s->rank_count * groups + 1, &s->all_rendezvous));
    TRY(arena_new(s->a, s->thread_count, &s->threads));
    TRY(arena_new(s->a, s->thread_count, &s->queue));
    TRY(arena_new(s->a, STEPS, &s->step_end));
    for (int32_t i = 0; i < s->thread_count; i++) s->threads[i].stream = -1;
    for (int32_t r = 0; r < s->rank_count; r++) TRY(rank_make(s, r, stages, prices));
    return ST_OK;
}

// ---- accounting ---------------------------------------------------------------------------------

// Where a wait for this action counts; NULL: for no other action.
static int64_t *wait_for(sim_turn *t, const plan *p, const plan_action *x)
{
    if (x == NULL || x->kind != ACTION_COMMUNICATE) return &t->data;
    return &t->waits[traffic_of(p->run->groups[p->comms[x->comm].group].axes)];
}

// Counts an action of a compute stream that has ended now.
static void compute_count(turns *s, const stream *l, const plan_action *x)
{
    const plan *p = s->ranks[l->rank].p;
    const thread *own = &s->threads[l->rank];
    sim_turn *t = &s->out->ranks[l->rank];
    // A thread that waits sleeps, and has waited until it runs again.
    const int64_t gap = l->begin - l->free + own->woken, work = s->now - l->begin - own->woken;
    const int64_t cores = own->waited - own->woken;
    t->length += s->now - l->free;
    if (x->kind == ACTION_COMMUNICATE) {
        *wait_for(t, p, x) += gap + work;
        return;
    }
    *wait_for(t, p, l->cause) += gap;
    t->cores += cores;
    t->compute += work - cores;
}

// ---- the loop -----------------------------------------------------------------------------------

static const plan_action *action_at(const turns *s, const stream *l)
{
    return &s->ranks[l->rank].p->actions[l->actions[l->at]];
}

static void action_end(turns *s, stream *l)
{
    rank_state *rank = &s->ranks[l->rank];
    rank->end[sim_row(rank->p, l->step, l->actions[l->at])] = s->now;
    if (l->number == STREAM_COMPUTE) {
        s->step_end[l->step] = s->now;
        if (l->step >= STEPS - COUNTED) compute_count(s, l, action_at(s, l));
    }
    l->free = s->now;
    l->state = STREAM_IDLE;
    if (++l->at == l->count) {
        l->at = 0;
        l->step++;
    }
}

// Whether all that the stream's next action waits for is done.
static bool is_ready(const turns *s, stream *l)
{
    const rank_state *rank = &s->ranks[l->rank];
    const plan_action *x = action_at(s, l);
    l->begin = l->free;
    l->cause = NULL;
    for (int32_t i = 0; i < x->waits_count; i++) {
        const int32_t on = rank->p->waits[x->waits_begin + i];
        const int32_t step = on >= 0 ? l->step : l->step - 1;
        if (step < 0) continue;
        const int32_t action = on >= 0 ? on : -1 - on;
        const int64_t end = rank->end[sim_row(rank->p, step, action)];
        if (end < 0) return false;
        if (end <= l->begin) continue;
        l->begin = end;
        l->cause = &rank->p->actions[action];
    }
    return true;
}

static void queue_put(turns *s, int32_t number)
{
    s->threads[number].wants_from = s->now;
    s->queue[s->queue_count++] = number;
}

static void work_begin(turns *s, stream *l, int64_t ns)
{
    thread *t = &s->threads[l->rank];
    t->left = ns;
    t->woken = t->waited = 0;
    t->has_begun = t->runs;
    l->state = t->runs ? STREAM_RUNNING : STREAM_QUEUED; // its turn goes on
    if (!t->runs) queue_put(s, l->rank);
}

// A member arrives; the last one begins the transfer for all.
static void meet(turns *s, int32_t number, int64_t ns)
{
    stream *l = &s->streams[number];
    const rank_state *rank = &s->ranks[l->rank];
    rendezvous *m =
        &s->all_rendezvous[rank->rendezvous_of[rank->p->comms[action_at(s, l)->comm].group]];
    l->state = STREAM_ARRIVED;
    m->streams[m->arrived++] = number;
    if (m->arrived < m->size) return;
    for (int32_t i = 0; i < m->size; i++) {
        stream *of = &s->streams[m->streams[i]];
        if (of->number == STREAM_COMPUTE) {
            work_begin(s, of, ns);
            continue;
        }
        of->state = STREAM_TIMED;
        of->end = s->now + ns;
    }
    m->arrived = 0;
}

static void stream_begin(turns *s, int32_t number)
{
    stream *l = &s->streams[number];
    rank_state *rank = &s->ranks[l->rank];
    const plan_action *x = action_at(s, l);
    const int32_t action = l->actions[l->at];
    const int64_t ns = rank->prices->ns[action] + sim_held(rank->prices, action);
    if (x->kind == ACTION_COMMUNICATE) {
        meet(s, number, ns);
        return;
    }
    if (l->number != STREAM_COMPUTE) {
        l->state = STREAM_TIMED;
        l->end = s->now + ns;
        return;
    }
    work_begin(s, l, (int64_t)((double)ns * s->how.speed));
}

// Begins all that can begin now. A thread whose stream waits gives up its cores.
static void streams_begin(turns *s)
{
    for (int32_t i = 0; i < s->stream_count; i++) {
        stream *l = &s->streams[i];
        if (l->state == STREAM_IDLE && l->step < STEPS && is_ready(s, l)) stream_begin(s, i);
    }
    for (int32_t r = 0; r < s->rank_count; r++) {
        thread *t = &s->threads[r];
        if (t->runs && s->streams[t->stream].state != STREAM_RUNNING) t->runs = false;
    }
}

// Takes one of those who stand in the queue, by lot: which of them a system takes depends on
// credits and on the queues of single cores.
static int32_t queue_take(turns *s)
{
    const uint32_t drawn = (uint32_t)(hash64(&s->drawn, (int64_t)sizeof(s->drawn), 1) >> 32);
    const int32_t at = (int32_t)(drawn % (uint32_t)s->queue_count);
    const int32_t taken = s->queue[at];
    s->drawn++;
    s->queue[at] = s->queue[--s->queue_count];
    return taken;
}

// Gives free cores to those who stand in the queue.
static void cores_give(turns *s)
{
    int32_t running = 0;
    const int32_t most = (int32_t)max_i64(1, s->how.cores / s->how.threads);
    for (int32_t i = 0; i < s->thread_count; i++) running += s->threads[i].runs;
    for (; running < most && s->queue_count > 0; running++) {
        thread *t = &s->threads[queue_take(s)];
        t->runs = true;
        t->turn = TURN_NS;
        t->woken = t->has_begun ? t->woken : s->now - t->wants_from;
        t->has_begun = true;
        t->waited += s->now - t->wants_from;
        if (t->stream >= 0) s->streams[t->stream].state = STREAM_RUNNING;
    }
}

// The time until something happens; -1: nothing will.
static int64_t next_event(const turns *s)
{
    int64_t ns = INT64_MAX;
    for (int32_t i = 0; i < s->stream_count; i++) {
        if (s->streams[i].state == STREAM_TIMED) ns = min_i64(ns, s->streams[i].end - s->now);
    }
    for (int32_t i = 0; i < s->thread_count; i++) {
        const thread *t = &s->threads[i];
        if (!t->runs) continue;
        if (t->stream >= 0) ns = min_i64(ns, t->left);
        if (s->queue_count > 0) ns = min_i64(ns, t->turn);
    }
    return ns == INT64_MAX ? -1 : ns;
}

static void time_pass(turns *s, int64_t ns)
{
    s->now += ns;
    for (int32_t i = 0; i < s->stream_count; i++) {
        stream *l = &s->streams[i];
        if (l->state == STREAM_TIMED && l->end <= s->now) action_end(s, l);
    }
    for (int32_t i = 0; i < s->thread_count; i++) {
        thread *t = &s->threads[i];
        if (!t->runs) continue;
        t->turn = max_i64(0, t->turn - ns);
        if (t->stream >= 0) {
            t->left -= ns;
            if (t->left <= 0) action_end(s, &s->streams[t->stream]);
        }
    }
}

// Those whose turn has ended go to the end of the queue if others stand in it.
static void turns_end(turns *s)
{
    const int32_t others = s->queue_count;
    for (int32_t i = 0, gone = 0; i < s->thread_count && gone < others; i++) {
        thread *t = &s->threads[i];
        if (!t->runs || t->turn > 0) continue;
        t->runs = false;
        if (t->stream >= 0) s->streams[t->stream].state = STREAM_QUEUED;
        queue_put(s, i);
        gone++;
    }
}

static bool is_done(const turns *s)
{
    for (int32_t i = 0; i < s->stream_count; i++) {
        if (s->streams[i].step < STEPS) return false;
    }
    return true;
}

status sim_turns_run(arena *a, const sim_rank *stages, int32_t count, const sim_prices *prices,
                     const sim_cores *how, sim_turns *out)
{
    turns s = {.a = a, .how = *how, .out = out};
    const int64_t ranks = plan_mesh_ranks(&stages[0].mesh);
    ASSERT(count > 0 && how->cores > 0 && how->threads > 0 && how->others >= 0);
    ASSERT(ranks <= SIM_TURNS_RANKS);
    s.rank_count = out->count = (int32_t)ranks;
    TRY(arena_new(a, ranks, &out->ranks));
    TRY(prepare(&s, stages, count, prices));
    for (int32_t i = s.rank_count; i < s.thread_count; i++) queue_put(&s, i);
    streams_begin(&s);
    while (!is_done(&s)) {
        cores_give(&s);
        const int64_t ns = next_event(&s);
        if (ns < 0) return fail(ST_INTERNAL, "ranks that take turns wait for each other");
        time_pass(&s, ns);
        streams_begin(&s);
        turns_end(&s);
    }
    out->step_ns = (s.step_end[STEPS - 1] - s.step_end[STEPS - 1 - COUNTED]) / COUNTED;
    return ST_OK;
}
