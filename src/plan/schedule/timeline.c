// Timelines by an event loop (base/event_loop.h). Each rank is a stream: it runs until it needs an
// output or a gradient that does not exist yet, and resumes when another rank has made it.
#include "plan/schedule/timeline.h"

#include "base/event_loop.h"
#include "plan/schedule/schedule_internal.h"

#include <stdio.h>

enum { CYCLE_SHOWN = 6 };

typedef struct simulation {
    const plan_schedule *s;
    const schedule_request *r;
    const timeline_costs *costs;
    plan_timeline *t;
    int64_t depth;
    event_span *output, *gradient; // [stage * microbatches + micro-batch]
    int64_t *next;                 // [rank] action
    event_loop loop;               // of ranks
} simulation;

// An input of an action.
typedef struct need {
    event_span *made; // NULL: nothing
    int32_t from;     // the rank that makes it
    schedule_action what;
} need;

static need need_of(const simulation *p, int32_t chunk, int32_t i, int32_t rank, bool is_backward)
{
    const int32_t stage = plan_schedule_stage(p->s, p->r, rank, chunk);
    const int32_t direction = plan_schedule_direction(p->s, chunk);
    const bool is_last = stage == p->depth - 1;
    // The last stage's gradient comes from its own loss, which a complete list computes before.
    if (is_backward ? is_last : stage == 0) return (need){0};
    const int32_t other = is_backward ? stage + 1 : stage - 1;
    const int64_t at = other * (int64_t)p->r->microbatches + i;
    need n = {.made = is_backward ? &p->gradient[at] : &p->output[at],
              .what = {.kind = is_backward ? SCHEDULE_BACKWARD_INPUT : SCHEDULE_FORWARD,
                       .microbatch = i}};
    plan_schedule_holder(p->s, p->r, other, direction, &n.from, &n.what.chunk);
    return n;
}

// Finds the inputs of an action: of its forward [0], of its backward [1].
static void needs_of(const simulation *p, int32_t rank, const schedule_action *x, need needs[2])
{
    const bool has_forward = x->kind == SCHEDULE_FORWARD || x->kind == SCHEDULE_BOTH;
    const bool has_input = !has_forward && x->kind != SCHEDULE_BACKWARD_WEIGHT;
    needs[0] = needs[1] = (need){0};
    if (has_forward) needs[0] = need_of(p, x->chunk, x->microbatch, rank, false);
    if (has_input) needs[1] = need_of(p, x->chunk, x->microbatch, rank, true);
    if (x->kind == SCHEDULE_BOTH) needs[1] = need_of(p, x->chunk_b, x->microbatch_b, rank, true);
}

static const timeline_cost *cost_of(const simulation *p, int32_t rank, int32_t chunk)
{
    const timeline_costs *c = p->costs;
    return c->stages != NULL ? &c->stages[plan_schedule_stage(p->s, p->r, rank, chunk)] : &c->each;
}

static int64_t length_of(const simulation *p, int32_t rank, const schedule_action *x)
{
    const timeline_cost *c = cost_of(p, rank, x->chunk);
    switch (x->kind) {
    case SCHEDULE_FORWARD:
        return c->forward;
    case SCHEDULE_BACKWARD:
        return c->backward_input + c->backward_weight;
    case SCHEDULE_BACKWARD_INPUT:
        return c->backward_input;
    case SCHEDULE_BACKWARD_WEIGHT:
        return c->backward_weight;
    case SCHEDULE_BOTH:
        break;
    }
    const timeline_cost *b = cost_of(p, rank, x->chunk_b);
    return c->forward + b->backward_input + b->backward_weight -
           min_i64(p->costs->hidden, c->forward);
}

static void make(simulation *p, int32_t rank, const schedule_action *x, int64_t begin, int64_t end)
{
    const int64_t m = p->r->microbatches;
    if (x->kind == SCHEDULE_BACKWARD_WEIGHT) return;
    if (x->kind == SCHEDULE_FORWARD || x->kind == SCHEDULE_BOTH) {
        const int64_t at = plan_schedule_stage(p->s, p->r, rank, x->chunk) * m + x->microbatch;
        event_loop_end(&p->loop, &p->output[at], begin, end);
    }
    if (x->kind != SCHEDULE_FORWARD) {
        const int64_t at = plan_schedule_stage(p->s, p->r, rank, schedule_backward_chunk(x)) * m +
                           schedule_backward_microbatch(x);
        event_loop_end(&p->loop, &p->gradient[at], begin, end);
    }
}

static void run(simulation *p, int32_t rank)
{
    timeline_rank *t = &p->t->ranks[rank];
    event_stream *stream = &p->loop.streams[rank];
    while (p->next[rank] < t->list.count) {
        const int64_t k = p->next[rank];
        const schedule_action *x = &t->list.actions[k];
        need needs[2];
        needs_of(p, rank, x, needs);
        int64_t begin = stream->free;
        for (int i = 0; i < 2; i++) {
            if (needs[i].made == NULL) continue;
            if (!event_loop_wait(&p->loop, rank, needs[i].made)) return;
            const int64_t latency = needs[i].from != rank ? p->costs->latency : 0;
            begin = max_i64(begin, needs[i].made->end + latency);
        }
        const int64_t length = length_of(p, rank, x);
        t->spans[k] = (timeline_span){.begin = begin, .end = begin + length};
        t->busy += length;
        stream->free = begin + length;
        p->next[rank]++;
        make(p, rank, x, begin, begin + length);
    }
}

// --- deadlocks -----------------------------------------------------------------------------------
// Returns the first missing input of a blocked rank.
static need blocked_on(const simulation *p, int32_t rank)
{
    need needs[2];
    needs_of(p, rank, &p->t->ranks[rank].list.actions[p->next[rank]], needs);
    const int i = needs[0].made != NULL && needs[0].made->end == EVENT_NOT_YET ? 0 : 1;
    ASSERT(needs[i].made != NULL && needs[i].made->end == EVENT_NOT_YET);
    return needs[i];
}

static status cycle_fail(arena *a, const simulation *p, int32_t rank)
{
    // Follow the waits: after as many steps as there are ranks, the walk is on the cycle.
    for (int32_t i = 0; i < p->r->stages; i++) rank = blocked_on(p, rank).from;
    text t = {.a = a};
    int32_t at = rank, shown = 0;
    do {
        const need n = blocked_on(p, at);
        const int64_t k = p->next[at];
        char place[256], mine[48];
        if (shown++ < CYCLE_SHOWN) {
            TRY(text_add(&t, "%s%s, action %lld, %s waits for the %s of %d.%d from rank %d",
                         shown > 1 ? "; " : "", schedule_place(p->s, at, place), (long long)k + 1,
                         plan_schedule_action_print(&p->t->ranks[at].list.actions[k], mine),
                         n.what.kind == SCHEDULE_FORWARD ? "output" : "gradient", n.what.chunk,
                         n.what.microbatch, n.from));
        }
        at = n.from;
    } while (at != rank);
    if (shown > CYCLE_SHOWN) TRY(text_add(&t, "; and so on, %d ranks in a cycle", shown));
    return fail(ST_CONFIG, "the schedule waits for itself: %s", t.bytes);
}

// --- the results ---------------------------------------------------------------------------------
static int32_t live_peak(const schedule_list *list)
{
    int32_t live = 0, peak = 0;
    for (int64_t k = 0; k < list->count; k++) {
        const schedule_kind kind = list->actions[k].kind;
        if (kind == SCHEDULE_FORWARD || kind == SCHEDULE_BOTH) live++;
        if (live > peak) peak = live;
        if (kind == SCHEDULE_BACKWARD || kind == SCHEDULE_BACKWARD_WEIGHT ||
            kind == SCHEDULE_BOTH) {
            live--;
        }
    }
    return peak;
}

static void sum_up(plan_timeline *t)
{
    int64_t busy = 0, window = 0;
    for (int32_t i = 0; i < t->request.stages; i++) {
        timeline_rank *rank = &t->ranks[i];
        rank->begin = rank->spans[0].begin;
        rank->end = rank->spans[rank->list.count - 1].end;
        t->length = max_i64(t->length, rank->end);
    }
    for (int32_t i = 0; i < t->request.stages; i++) {
        timeline_rank *rank = &t->ranks[i];
        const int64_t all = t->length - rank->busy, own = rank->end - rank->begin - rank->busy;
        rank->bubble = t->costs.optimizer_barrier ? all : own;
        rank->live_peak = live_peak(&rank->list);
        busy += rank->busy;
        window = max_i64(window, rank->end - rank->begin);
        if (rank->live_peak > t->live_peak) t->live_peak = rank->live_peak;
    }
    const int64_t stages = t->request.stages, mean = (busy + stages / 2) / stages;
    t->bubble = (t->costs.optimizer_barrier ? t->length : window) - mean;
    t->barrier = t->length - window;
}

static status prepare(arena *a, simulation *p, const schedule_list *lists)
{
    const int64_t ranks = p->r->stages, items = p->depth * p->r->microbatches;
    TRY(arena_new(a, ranks, &p->t->ranks));
    for (int32_t i = 0; i < ranks; i++) {
        timeline_rank *rank = &p->t->ranks[i];
        rank->list = lists[i];
        TRY(arena_new(a, rank->list.count, &rank->spans));
    }
    TRY(arena_new(a, items, &p->output));
    TRY(arena_new(a, items, &p->gradient));
    TRY(arena_new(a, ranks, &p->next));
    for (int64_t i = 0; i < items; i++) p->output[i] = p->gradient[i] = event_span_open();
    return event_loop_add(a, &p->loop, p->r->stages);
}

// Keeps the times when outputs and gradients were made.
static status ends_keep(arena *a, const simulation *p)
{
    const int64_t items = p->depth * p->r->microbatches;
    int64_t *output = NULL, *gradient = NULL;
    TRY(arena_new(a, items, &output));
    TRY(arena_new(a, items, &gradient));
    for (int64_t i = 0; i < items; i++) {
        output[i] = p->output[i].end;
        gradient[i] = p->gradient[i].end;
    }
    p->t->output = output;
    p->t->gradient = gradient;
    return ST_OK;
}

status plan_timeline_lists(arena *a, const plan_schedule *s, const schedule_request *r,
                           const timeline_costs *costs, const schedule_list *lists,
                           plan_timeline **out)
{
    simulation p = {.s = s, .r = r, .costs = costs};
    p.depth = plan_schedule_depth(s, r);
    TRY(arena_new(a, 1, &p.t));
    p.t->schedule = s;
    p.t->request = *r;
    p.t->costs = *costs;
    TRY(prepare(a, &p, lists));
    event_loop_wake_all(&p.loop);
    for (int32_t i; (i = event_loop_next(&p.loop)) != EVENT_NONE;) run(&p, i);
    for (int32_t i = 0; i < r->stages; i++) {
        if (p.next[i] < p.t->ranks[i].list.count) return cycle_fail(a, &p, i);
    }
    sum_up(p.t);
    TRY(ends_keep(a, &p));
    *out = p.t;
    return ST_OK;
}

status plan_timeline_simulate(arena *a, const plan_schedule *s, const schedule_request *r,
                              const timeline_costs *costs, plan_timeline **out)
{
    schedule_list *lists = NULL;
    uint8_t *seen = NULL;
    TRY(plan_schedule_check(s, r));
    if (3 * (int64_t)r->stages * r->chunks * r->microbatches > TIMELINE_MAX_ACTIONS) {
        return fail(
            ST_CONFIG_RANGE,
            "a timeline of %d ranks x %d chunks x %d micro-batches has more than %d actions",
            r->stages, r->chunks, r->microbatches, TIMELINE_MAX_ACTIONS);
    }
    TRY(arena_new(a, (int64_t)r->chunks * r->microbatches, &seen));
    TRY(arena_new(a, r->stages, &lists));
    for (int32_t i = 0; i < r->stages; i++) {
        TRY(plan_schedule_emit(s, r, i, a, &lists[i]));
        TRY(schedule_list_validate(s, r, i, &lists[i], seen));
    }
    return plan_timeline_lists(a, s, r, costs, lists, out);
}
