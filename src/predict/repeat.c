// Computes the bytes of a step with very many micro-batches: lowers fewer of them and repeats the
// live intervals of one round.
//
//   list of all    a a a a [ b b ] [ b b ] [ b b ] ... [ b b ] c c c c
//   list of few    a a a a [ b b ] [ b b ] c c c c              [ ]: a round, of later
//                          at      at + period    until          micro-batches each time
//
// The list of few equals that of all without some rounds (plan_schedule_repeat), up to `until`
// literally. Its live intervals become those of all:
//   intervals that begin before `at` stay as they are;
//   those that begin in the first round occur once per round, each a round's time later;
//   those that begin later move by the time of all omitted rounds.
//
// A tensor of a slot then belongs to the slot that the micro-batch has in the list of all. The
// whole step is planned if this does not hold: if the intervals of a round differ from those of the
// round before or extend to where the lists differ, or if the numbers of slots or of boundary
// buffers differ (their lists are simulated in full). A plan's bytes therefore equal those of all
// micro-batches exactly (tests/plan_repeat_test.c), and tensors are placed by the intervals of all.
#include "predict/repeat.h"

#include "plan/lower/passes.h"

#include <string.h>

enum { REPEAT_UNTIL = 3, REPEAT_TIMES = 4 };

typedef struct repeat {
    int32_t few, round;         // micro-batches that are lowered, and those of a round
    int32_t rounds;             // omitted rounds; 0: none
    int64_t at, period;         // the round is actions [at, at + period) of the list
    int64_t until;              // up to here both lists are equal
    bound_slots all;            // for all micro-batches
    int64_t time[REPEAT_TIMES]; // begin of the round, of the two after it and of action `until`
} repeat;

// Enough micro-batches to fill the pipeline, hold a live interval after that, and empty it. Rounds
// of 1F1B and of V-shaped schedules are single micro-batches; those of others have as many as there
// are stages.
static int32_t few_of(const schedule_request *shape, int32_t round)
{
    const int32_t pp = shape->stages;
    const int32_t least = round == 1 ? 4 * pp + 20 : 7 * pp;
    return least + (shape->microbatches - least) % round;
}

// Plans whose intervals are recorded in another way have all of them.
static bool may_repeat(const lower_input *in)
{
    const plan_request *r = in->r;
    const plan_schedule *s = in->pipe.schedule;
    const int64_t own = in->pipe.shape.microbatches;
    return r->optimizer != NULL && s != NULL && s->file == NULL && !r->strict && r->codec == NULL &&
           r->packed_bytes == NULL &&
           (r->most_microbatches == 0 ||
            (r->most_microbatches == own && r->fewest_microbatches == own));
}

// all: the list of all micro-batches.
static status repeat_find(const lower_input *in, const expanded *all, repeat *x)
{
    const schedule_request *shape = &in->pipe.shape;
    const int32_t rounds[] = {1, shape->stages};
    for (int i = 0; i < COUNT_OF(rounds) && x->rounds == 0; i++) {
        schedule_request of_few = *shape;
        schedule_list few = {0};
        schedule_repeat loop;
        of_few.microbatches = few_of(shape, rounds[i]);
        const int32_t more = shape->microbatches - of_few.microbatches;
        if (of_few.microbatches > shape->microbatches / 2) continue;
        TRY(plan_schedule_emit(in->pipe.schedule, &of_few, in->r->mesh.at[AXIS_PP], in->a, &few));
        if (!plan_schedule_repeat(&few, &all->list, more / rounds[i], rounds[i], &loop)) continue;
        *x = (repeat){.few = of_few.microbatches,
                      .round = rounds[i],
                      .rounds = more / rounds[i],
                      .at = loop.from + (rounds[i] == 1 ? 8 : 1) * loop.period,
                      .period = loop.period,
                      .until = loop.until};
        if (x->at + 2 * x->period > x->until) x->rounds = 0;
    }
    return ST_OK;
}

// Finds when actions of the schedule's list begin.
static void times_find(const lower_passes *s, repeat *x)
{
    const schedule_list *list = &s->x.list;
    int64_t visit = 0;
    for (int64_t i = 0; i <= list->count; i++) {
        for (int k = 0; k < REPEAT_TIMES; k++) {
            const int64_t at = k < REPEAT_UNTIL ? x->at + k * x->period : x->until;
            if (i == at) x->time[k] = s->begins[s->c.visit_action[visit]];
        }
        if (i == list->count) return;
        const schedule_action *a = &list->actions[i];
        const expand_chunk *c = &s->x.chunks[a->chunk];
        visit += c->end_layer - c->first_layer;
        if (a->kind != SCHEDULE_BOTH) continue;
        c = &s->x.chunks[a->chunk_b];
        visit += c->end_layer - c->first_layer;
    }
}

// ---- tensors of slots --------------------------------------------------------------------------

// Transient tensors of slots, one per slot.
typedef struct slot_tensors {
    int32_t *class_of; // [transient tensor]; -1: not of a slot
    int32_t *rows;     // [class * slots + slot]
    int32_t *chunk;    // [class]
    int64_t count;
    int32_t slots;
    bool *is_buffer; // [transient tensor] a boundary buffer between stages
} slot_tensors;

// Adds the class of one tensor of a layer's program. A layer's input is the output of the layer
// below and has its class.
static void class_add(const lower_passes *s, int32_t layer, tensor_id t, slot_tensors *out)
{
    const layer_slot *slots = s->b.layers[layer].slots;
    const int32_t first = slots[0].tensor[t];
    if (first < 0 || first == slots[1].tensor[t] || out->class_of[first] >= 0) return;
    if (out->is_buffer[first]) return;
    for (int32_t k = 0; k < out->slots; k++) {
        const int32_t row = slots[k].tensor[t];
        out->class_of[row] = (int32_t)out->count;
        out->rows[out->count * out->slots + k] = row;
    }
    out->chunk[out->count++] = s->x.chunk_of[layer];
}

static status slot_tensors_find(const lower_passes *s, slot_tensors *out)
{
    const lower_input *in = &s->in;
    const op_model *m = in->m;
    int64_t most = 1;
    *out = (slot_tensors){.slots = s->b.slots.slot_count};
    for (int32_t i = 0; i < m->layer_count; i++) {
        if (s->x.chunk_of[i] >= 0) most += m->programs[m->layers[i].program]->tensor_count;
    }
    TRY(arena_new(in->a, in->p->tensor_count + 1, &out->class_of));
    TRY(arena_new(in->a, in->p->tensor_count + 1, &out->is_buffer));
    TRY(arena_new(in->a, most * out->slots, &out->rows));
    TRY(arena_new(in->a, most, &out->chunk));
    memset(out->class_of, -1, (size_t)in->p->tensor_count * sizeof(*out->class_of));
    for (int32_t k = 0; k < s->b.slots.boundary.count; k++) {
        out->is_buffer[s->b.slots.buffer_ref[k]] = true;
    }
    for (int32_t i = 0; i < m->layer_count && out->slots > 1; i++) {
        const op_program *program = m->programs[m->layers[i].program];
        for (tensor_id t = 0; t < program->tensor_count && s->x.chunk_of[i] >= 0; t++) {
            class_add(s, i, t, out);
        }
    }
    return ST_OK;
}

// ---- intervals ---------------------------------------------------------------------------------

typedef struct row_span {
    live_interval span;
    int32_t row;
} row_span;

typedef struct repeating {
    const lower_passes *s;
    const repeat *r;
    slot_tensors slots;
    // of all tensors, in the order of their beginning; at equal times a class is contiguous
    row_span *spans;
    int64_t count;
    int64_t first, second,
        rest;      // index of the first span of a round, of the next round, and of the others
    lifetime *out; // [transient tensor]
} repeating;

static status spans_sort(repeating *x)
{
    arena *a = x->s->in.a;
    const lifetime_table *lifetimes = &x->s->lifetimes;
    int64_t *keys = NULL, i = 0;
    int32_t *order = NULL;
    row_span *all = NULL;
    for (int64_t row = 0; row < lifetimes->capacity; row++) x->count += lifetimes->rows[row].count;
    TRY(arena_new(a, x->count + 1, &keys));
    TRY(arena_new(a, x->count + 1, &all));
    TRY(arena_new(a, x->count + 1, &x->spans));
    for (int32_t row = 0; row < lifetimes->capacity; row++) {
        for (int64_t k = 0; k < lifetimes->rows[row].count; k++, i++) {
            all[i] = (row_span){lifetimes->rows[row].spans[k], row};
            keys[i] = all[i].span.begin;
        }
    }
    TRY(rows_sort(a, keys, x->count, lifetimes->now, &order));
    for (i = 0; i < x->count; i++) x->spans[i] = all[order[i]];
    for (i = 0; i < x->count; i++) {
        const int64_t begin = x->spans[i].span.begin;
        if (begin < x->r->time[0]) x->first = i + 1;
        if (begin < x->r->time[1]) x->second = i + 1;
        if (begin < x->r->time[2]) x->rest = i + 1;
    }
    return ST_OK;
}

// True if `b` lives as `a` did, a round later.
static bool is_next(const repeating *x, const row_span *a, const row_span *b)
{
    const repeat *r = x->r;
    const int64_t later = r->time[1] - r->time[0];
    const int32_t class = x->slots.class_of[a->row];
    if (a->span.begin + later != b->span.begin || a->span.end + later != b->span.end) return false;
    if (class < 0) return a->row == b->row;
    return class == x->slots.class_of[b->row] && a->span.copy >= 0 &&
           a->span.copy + r->round == b->span.copy;
}

// True if the next round repeats the round, and no interval of them or of the slots' earlier
// contents extends to where the lists differ.
static bool is_steady(const repeating *x)
{
    const repeat *r = x->r;
    const int64_t count = x->second - x->first;
    if (x->rest - x->second != count) return false;
    for (int64_t i = 0; i < count; i++) {
        if (!is_next(x, &x->spans[x->first + i], &x->spans[x->second + i])) return false;
    }
    for (int64_t i = 0; i < x->count; i++) {
        const row_span *s = &x->spans[i];
        if (x->slots.class_of[s->row] >= 0 && s->span.copy < 0) return false;
        if (i >= x->rest || s->span.end < r->time[REPEAT_UNTIL]) continue;
        const bool is_of_step =
            i < x->first && x->slots.class_of[s->row] < 0; // the interval ends with the step
        if (!is_of_step || x->s->lifetimes.rows[s->row].count > 1) return false;
    }
    return true;
}

// The tensor of the slot for a micro-batch that is later by `microbatches`.
static int32_t row_later(const repeating *x, const row_span *s, int32_t microbatches)
{
    const int32_t class = x->slots.class_of[s->row];
    if (class < 0) return s->row;
    const int32_t *slot_of = x->r->all.slot_of[x->slots.chunk[class]];
    return x->slots.rows[(int64_t) class * x->slots.slots + slot_of[s->span.copy + microbatches]];
}

static void span_put(repeating *x, int32_t row, int64_t begin, int64_t end)
{
    lifetime *to = &x->out[row];
    if (to->spans != NULL) to->spans[to->count] = (live_interval){begin, end, -1};
    to->count++;
}

// Puts all spans in the order of their beginning; only counts them if there is no array yet.
static void spans_put(repeating *x)
{
    const repeat *r = x->r;
    const int64_t round = r->time[1] - r->time[0], left_out = r->rounds * round;
    for (int64_t i = 0; i < x->first; i++) {
        const row_span *s = &x->spans[i];
        const bool is_of_step = s->span.end >= r->time[REPEAT_UNTIL];
        span_put(x, s->row, s->span.begin, s->span.end + (is_of_step ? left_out : 0));
    }
    for (int64_t k = 0; k <= r->rounds; k++) {
        for (int64_t i = x->first; i < x->second; i++) {
            const row_span *s = &x->spans[i];
            span_put(x, row_later(x, s, (int32_t)k * r->round), s->span.begin + k * round,
                     s->span.end + k * round);
        }
    }
    for (int64_t i = x->second; i < x->count; i++) {
        const row_span *s = &x->spans[i];
        const int32_t row = row_later(x, s, (int32_t)r->rounds * r->round);
        span_put(x, row, s->span.begin + left_out, s->span.end + left_out);
    }
}

// Turns the intervals of few into those of all. false: they do not repeat.
static status lifetimes_repeat(lower_passes *s, const repeat *r, bool *done)
{
    lifetime_table *lifetimes = &s->lifetimes;
    repeating x = {.s = s, .r = r};
    TRY(slot_tensors_find(s, &x.slots));
    TRY(spans_sort(&x));
    *done = is_steady(&x);
    if (!*done) return ST_OK;
    TRY(arena_new(s->in.a, lifetimes->capacity + 1, &x.out));
    spans_put(&x);
    for (int64_t row = 0; row < lifetimes->capacity; row++) {
        lifetime *to = &x.out[row];
        if (to->count == 0) continue;
        TRY(arena_new(s->in.a, to->count, &to->spans));
        to->capacity = to->count;
        to->count = 0;
    }
    spans_put(&x);
    lifetimes->rows = x.out;
    lifetimes->now += r->rounds * (r->time[1] - r->time[0]);
    s->in.p->repeated = (int64_t)r->rounds * r->round;
    return ST_OK;
}

// ---- the plan ----------------------------------------------------------------------------------

// *done is false if all micro-batches must be planned.
static status few_make(arena *a, arena *work, const plan_request *request, plan_table *run,
                       plan **out, bool *done)
{
    lower_passes *s = NULL;
    place_input place;
    expanded all;
    repeat x = {.rounds = 0};
    TRY(arena_new(work, 1, &s));
    TRY(plan_lower_begin(a, work, request, run, s));
    *done = false;
    if (!may_repeat(&s->in)) return ST_OK;
    TRY(plan_expand_chunks(&s->in, &all));
    TRY(repeat_find(&s->in, &all, &x));
    if (x.rounds == 0) return ST_OK;
    TRY(plan_bind_slots(&s->in, &all, &x.all));
    s->in.pipe.shape.microbatches = x.few;
    s->local.fewest_microbatches = s->local.most_microbatches = 0; // all ranks have the same number
    TRY(plan_lower_collect(s));
    if (s->b.slots.slot_count != x.all.slot_count ||
        s->b.slots.boundary.count != x.all.boundary.count) {
        return ST_OK;
    }
    TRY(plan_lower_live(s));
    times_find(s, &x);
    TRY(lifetimes_repeat(s, &x, done));
    if (!*done) return ST_OK;
    TRY(plan_lower_place_input(s, &place));
    TRY(plan_place_sizes(&place));
    plan *p = *out = s->in.p;
    p->action_count = p->binding_count = p->wait_count = 0; // they are those of few
    p->comm_count = p->item_count = p->leaf_count = 0;
    return plan_lower_keep(p);
}

status predict_plan_bytes(arena *a, const plan_request *request, plan_table *run, plan **out)
{
    arena *const lent = request->scratch != NULL ? request->scratch->lists : NULL, *work = lent;
    bool done = false;
    if (work == NULL) TRY(arena_create("lowering", 0, &work));
    const status st = few_make(a, work, request, run, out, &done);
    plan_arena_release(work, lent);
    TRY(st);
    return done ? ST_OK : plan_create(a, request, run, out);
}
