// Buffers at stage boundaries: each interval of simulated time goes to a buffer that is free.
//
//   an input       from the time when it is made until the chunk's last action on the micro-batch
//   its gradient   from two forwards before it is made until the same action
//   a sent tensor  from the beginning of the action that makes it until two forwards after its end
//
// An input's buffer becomes free no sooner than its slot. If inputs were received two forwards
// earlier, steps would be 0.4% shorter in the median of 130 simulated ones.
//
// The two forwards leave time for the transfer and for stages of unequal duration: with one
// forward, 1 of 120 plans with uneven layers was 0.3% slower than with separate buffers; with two,
// none was (sim/step_test.c).
//
// In the first simulation a gradient takes as long as a forward, in the second half as long again.
// A tensor takes a buffer that is free in both; if several are, the one that has been free longest.
#include "plan/lower/boundary.h"

#include <stdlib.h>
#include <string.h>

enum { TRANSFER_TICKS = 4 };
static const timeline_cost costs_of[BOUNDARY_TIMELINES] = {{2, 2, 2}, {2, 3, 2}};

// A schedule action with a forward and a backward becomes two consecutive actions, as in a plan.
static status list_split(arena *a, const schedule_list *from, schedule_list *out)
{
    TRY(arena_new(a, 2 * from->count + 1, &out->actions));
    for (int64_t i = 0; i < from->count; i++) {
        const schedule_action *x = &from->actions[i];
        const bool both = x->kind == SCHEDULE_BOTH;
        out->actions[out->count++] =
            (schedule_action){both ? SCHEDULE_FORWARD : x->kind, x->chunk, x->microbatch, -1, -1};
        if (!both) continue;
        out->actions[out->count++] =
            (schedule_action){SCHEDULE_BACKWARD, x->chunk_b, x->microbatch_b, -1, -1};
    }
    return ST_OK;
}

status plan_boundary_simulate(arena *a, const plan_schedule *s, const schedule_request *r,
                              const schedule_list *lists, bool forward_only,
                              boundary_timelines *out)
{
    schedule_list *split = NULL;
    *out = (boundary_timelines){.schedule = s, .shape = *r, .forward_only = forward_only};
    TRY(arena_new(a, r->stages, &split));
    for (int32_t i = 0; i < r->stages; i++) TRY(list_split(a, &lists[i], &split[i]));
    for (int k = 0; k < BOUNDARY_TIMELINES; k++) {
        const timeline_costs costs = {.each = costs_of[k]};
        plan_timeline *t = NULL;
        const status st = plan_timeline_lists(a, s, r, &costs, split, &t);
        if (st == ST_CONFIG) { // a deadlock, which the verifier reports
            error_record why;
            error_take(&why);
            return ST_OK;
        }
        TRY(st);
        out->timelines[k] = t;
    }
    return ST_OK;
}

// ---- intervals of the buffers -------------------------------------------------------------------

typedef struct boundary_use {
    int64_t begin[BOUNDARY_TIMELINES], end[BOUNDARY_TIMELINES];
    int64_t at; // chunk * micro-batches + micro-batch
    boundary_kind kind;
} boundary_use;

typedef struct boundary_walk {
    const boundary_timelines *t;
    int32_t rank;
    bool linked[SCHEDULE_MAX_CHUNKS][BOUNDARY_COUNT];
    boundary_use *uses; // [kind * chunks * micro-batches + at]
    int64_t items;      // chunks * micro-batches
} boundary_walk;

static void links_find(boundary_walk *w)
{
    const schedule_request *r = &w->t->shape;
    const plan_schedule *s = w->t->schedule;
    const int32_t depth = plan_schedule_depth(s, r);
    for (int32_t c = 0; c < r->chunks; c++) {
        for (int step = -1; step <= 1; step += 2) {
            const int32_t stage = plan_schedule_stage(s, r, w->rank, c) + step;
            int32_t other = 0, its = 0;
            if (stage < 0 || stage >= depth) continue;
            plan_schedule_holder(s, r, stage, plan_schedule_direction(s, c), &other, &its);
            if (other == w->rank) continue;
            w->linked[c][step > 0 ? BOUNDARY_OUT : BOUNDARY_IN] = true;
            w->linked[c][step > 0 ? BOUNDARY_D_OUT : BOUNDARY_D_IN] = !w->t->forward_only;
        }
    }
}

// Records the intervals that an action of the rank begins or ends in one simulation.
static void action_note(boundary_walk *w, int idx, const schedule_action *x, timeline_span span)
{
    const plan_timeline *t = w->t->timelines[idx];
    const int64_t m = w->t->shape.microbatches, at = x->chunk * m + x->microbatch;
    const int64_t stage = plan_schedule_stage(w->t->schedule, &w->t->shape, w->rank, x->chunk);
    boundary_use *in = &w->uses[BOUNDARY_IN * w->items + at];
    boundary_use *d_out = &w->uses[BOUNDARY_D_OUT * w->items + at];
    boundary_use *out = &w->uses[BOUNDARY_OUT * w->items + at];
    boundary_use *d_in = &w->uses[BOUNDARY_D_IN * w->items + at];
    const bool input = x->kind == SCHEDULE_BACKWARD || x->kind == SCHEDULE_BACKWARD_INPUT;
    const bool weight = x->kind == SCHEDULE_BACKWARD || x->kind == SCHEDULE_BACKWARD_WEIGHT;
    if (x->kind == SCHEDULE_FORWARD) {
        if (w->linked[x->chunk][BOUNDARY_IN]) {
            in->begin[idx] = t->output[(stage - 1) * m + x->microbatch];
        }
        out->begin[idx] = span.begin;
        out->end[idx] = span.end + TRANSFER_TICKS;
        if (w->t->forward_only) in->end[idx] = span.end;
    }
    if (input) {
        if (w->linked[x->chunk][BOUNDARY_D_OUT]) {
            d_out->begin[idx] = t->gradient[(stage + 1) * m + x->microbatch] - TRANSFER_TICKS;
        }
        d_in->begin[idx] = span.begin;
        d_in->end[idx] = span.end + TRANSFER_TICKS;
    }
    if (weight) in->end[idx] = d_out->end[idx] = span.end;
}

static int compare_uses(const void *a, const void *b)
{
    const boundary_use *x = a, *y = b;
    if (x->begin[0] != y->begin[0]) return x->begin[0] < y->begin[0] ? -1 : 1;
    if (x->kind != y->kind) return (int)x->kind - (int)y->kind;
    return x->at < y->at ? -1 : x->at > y->at;
}

// True if the micro-batch goes through the chunk. Without backward one of two directions does all
// micro-batches.
static bool goes_through(const boundary_timelines *t, int32_t chunk, int32_t microbatch)
{
    int32_t first = 0, count = 0;
    if (t->forward_only) return t->schedule->shape != SHAPE_TWO || chunk == 0;
    plan_schedule_share(t->schedule, &t->shape, chunk, &first, &count);
    return microbatch >= first && microbatch < first + count;
}

// Moves the existing uses to the front of the array, sorts them by beginning and returns their
// number.
static int64_t uses_gather(boundary_walk *w)
{
    const int32_t m = w->t->shape.microbatches;
    int64_t count = 0;
    for (int kind = 0; kind < BOUNDARY_COUNT; kind++) {
        for (int64_t at = 0; at < w->items; at++) {
            const int32_t chunk = (int32_t)(at / m);
            if (!w->linked[chunk][kind] || !goes_through(w->t, chunk, (int32_t)(at % m))) continue;
            boundary_use use = w->uses[kind * w->items + at];
            use.kind = (boundary_kind)kind;
            use.at = at;
            w->uses[count++] = use; // an entry that has been read already
        }
    }
    qsort(w->uses, (size_t)count, sizeof(*w->uses), compare_uses);
    return count;
}

static bool is_free(const boundary_use *held, const boundary_use *next)
{
    for (int k = 0; k < BOUNDARY_TIMELINES; k++) {
        if (held->end[k] > next->begin[k]) return false;
    }
    return true;
}

// True if both uses are at the same boundary of the same chunk.
static bool same_boundary(const boundary_walk *w, const boundary_use *a, const boundary_use *b)
{
    const int64_t m = w->t->shape.microbatches;
    return a->kind == b->kind && a->at / m == b->at / m;
}

// If stages lie in a V, both directions of a boundary transfer activations and gradients, in the
// order in which the neighbours send. There a buffer that moves from one boundary to another could
// close a cycle of waits (zb-v with 4 stages and 16 micro-batches), so only the same boundary
// shares.
static status uses_assign(arena *a, boundary_walk *w, int64_t count, plan_boundary_buffers *out)
{
    boundary_use *last = NULL; // [buffer]
    const bool same_only = w->t->schedule->shape != SHAPE_LOOP;
    TRY(arena_new(a, count + 1, &last));
    for (int64_t i = 0; i < count; i++) {
        const boundary_use *use = &w->uses[i];
        int32_t best = out->count;
        for (int32_t b = 0; b < out->count && w->t->timelines[0] != NULL; b++) {
            if (!is_free(&last[b], use) || (same_only && !same_boundary(w, &last[b], use)))
                continue;
            if (best == out->count || last[b].end[0] < last[best].end[0]) best = b;
        }
        if (best == out->count) out->count++;
        last[best] = *use;
        out->buffer[use->kind][use->at] = best;
    }
    return ST_OK;
}

status plan_boundary_assign(arena *a, const boundary_timelines *t, int32_t rank,
                            const bool *crosses, plan_boundary_buffers *out)
{
    boundary_walk *w = NULL;
    *out = (plan_boundary_buffers){.count = 0};
    TRY(arena_new(a, 1, &w));
    w->t = t;
    w->rank = rank;
    w->items = (int64_t)t->shape.chunks * t->shape.microbatches;
    TRY(arena_new(a, BOUNDARY_COUNT * w->items, &w->uses));
    links_find(w);
    for (int32_t c = 0; c < t->shape.chunks && crosses != NULL; c++) {
        memcpy(w->linked[c], crosses + (ptrdiff_t)c * BOUNDARY_COUNT, sizeof(w->linked[c]));
    }
    for (int kind = 0; kind < BOUNDARY_COUNT; kind++) {
        TRY(arena_new(a, w->items, &out->buffer[kind]));
        memset(out->buffer[kind], -1, (size_t)w->items * sizeof(int32_t));
    }
    for (int k = 0; k < BOUNDARY_TIMELINES && t->timelines[k] != NULL; k++) {
        const timeline_rank *mine = &t->timelines[k]->ranks[rank];
        for (int64_t i = 0; i < mine->list.count; i++) {
            action_note(w, k, &mine->list.actions[i], mine->spans[i]);
        }
    }
    return uses_assign(a, w, uses_gather(w), out);
}
