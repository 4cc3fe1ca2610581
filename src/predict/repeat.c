// The bytes of a step with very many micro-batches: fewer are lowered, and what is live in a round of them is repeated.
//
//   list of all    a a a a [ b b ] [ b b ] [ b b ] ... [ b b ] c c c c
//   list of few    a a a a [ b b ] [ b b ] c c c c              [ ]: a round, of later micro-batches each time
//                          at      at + period    until: so far both are the same
//
// The list of few is that of all without some rounds (plan_schedule_fold). Live intervals of it are those of all
//   that begin before `at`: as they are;
//   that begin in the first round: as often as there are rounds, each as much later as a round takes;
//   that begin later: as much later as all that is left out.
// Tensors of a slot are then those of the slot that the micro-batch has in the list of all. Where that does not hold the
// whole is planned: where the intervals of a round are not those of the round before it, or reach to where the lists differ;
// where there is another number of slots, or of buffers between stages, whose lists are simulated in full. So a plan's
// bytes are to the last one those of all micro-batches (tests/plan_repeat_test.c), and tensors are placed by the intervals of all.
#include "predict/repeat.h"

#include "plan/lower/passes.h"

#include <string.h>

enum { REPEAT_UNTIL = 3, REPEAT_TIMES = 4 };

typedef struct repeat {
    int32_t few, round;         // micro-batches that are lowered, and those of a round
    int32_t rounds;             // that are left out; 0: none is
    int64_t at, period;         // the list's actions [at, at + period) are the round
    int64_t until;              // so far the list is that of all micro-batches
    bound_slots all;            // of all micro-batches
    int64_t time[REPEAT_TIMES]; // when the round, the two behind it and action `until` begin
} repeat;

// As few as fill the pipeline, hold a live interval after that, and empty it: of 1F1B and of V-shaped ones rounds are single
// micro-batches, of others as many as there are stages.
static int32_t few_of(const schedule_request *shape, int32_t round)
{
    const int32_t pp = shape->stages;
    const int32_t least = round == 1 ? 4 * pp + 20 : 7 * pp;
    return least + (shape->microbatches - least) % round;
}

// Plans whose intervals are recorded otherwise have all of them.
static bool may_repeat(const lower_input *in)
{
    const plan_request *r = in->r;
    const plan_schedule *s = in->pipe.schedule;
    const int64_t own = in->pipe.shape.microbatches;
    return r->optimizer != NULL && s != NULL && s->file == NULL && !r->strict && r->codec == NULL &&
           r->panels == NULL &&
           (r->most_microbatches == 0 ||
            (r->most_microbatches == own && r->fewest_microbatches == own));
}

// all: of all micro-batches.
static status repeat_find(const lower_input *in, const expanded *all, repeat *x)
{
    const schedule_request *shape = &in->pipe.shape;
    const int32_t rounds[] = {1, shape->stages};
    for (int i = 0; i < COUNT_OF(rounds) && x->rounds == 0; i++) {
        schedule_request of_few = *shape;
        schedule_list few = {0};
        schedule_fold fold;
        of_few.microbatches = few_of(shape, rounds[i]);
        const int32_t more = shape->microbatches - of_few.microbatches;
        if (of_few.microbatches > shape->microbatches / 2) continue;
        TRY(plan_schedule_emit(in->pipe.schedule, &of_few, in->r->mesh.at[AXIS_PP], in->a, &few));
        if (!plan_schedule_fold(&few, &all->list, more / rounds[i], rounds[i], &fold)) continue;
        *x = (repeat){.few = of_few.microbatches,
                      .round = rounds[i],
                      .rounds = more / rounds[i],
                      .at = fold.from + (rounds[i] == 1 ? 8 : 1) * fold.period,
                      .period = fold.period,
                      .until = fold.until};
        if (x->at + 2 * x->period > x->until) x->rounds = 0;
    }
    return ST_OK;
}

// When actions of the schedule's list begin.
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

// ---- tensors of slots -----------------------------------------------------------------------------

// Transient tensors that slots have, one each.
typedef struct slot_tensors {
    int32_t *class_of; // [transient tensor]; -1: it is no slot's
    int32_t *rows;     // [class * slots + slot]
    int32_t *chunk;    // [class]
    int64_t count;
    int32_t slots;
    bool *is_buffer; // [transient tensor] of messages between stages
} slot_tensors;

// Of one tensor of a layer's program. A layer's input is the output of the one below, and has its class then.
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
    for (int32_t k = 0; k < s->b.slots.borders.count; k++) {
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

// ---- intervals -------------------------------------------------------------------------------------

typedef struct row_span {
    life_span span;
    int32_t row;
} row_span;

typedef struct repeating {
    const lower_passes *s;
    const repeat *r;
    slot_tensors slots;
    row_span *
        spans; // of all tensors, in the order of their beginning; a class' side by side at equal times
    int64_t count;
    int64_t first, second, rest; // of spans: those of a round, of the one behind it, and the others
    life *out;                   // [transient tensor]
} repeating;

static status spans_sort(repeating *x)
{
    arena *a = x->s->in.a;
    const life_table *lives = &x->s->lives;
    int64_t *keys = NULL, i = 0;
    int32_t *order = NULL;
    row_span *all = NULL;
    for (int64_t row = 0; row < lives->capacity; row++) x->count += lives->lives[row].count;
    TRY(arena_new(a, x->count + 1, &keys));
    TRY(arena_new(a, x->count + 1, &all));
    TRY(arena_new(a, x->count + 1, &x->spans));
    for (int32_t row = 0; row < lives->capacity; row++) {
        for (int64_t k = 0; k < lives->lives[row].count; k++, i++) {
            all[i] = (row_span){lives->lives[row].spans[k], row};
            keys[i] = all[i].span.begin;
        }
    }
    TRY(rows_sort(a, keys, x->count, lives->now, &order));
    for (i = 0; i < x->count; i++) x->spans[i] = all[order[i]];
    for (i = 0; i < x->count; i++) {
        const int64_t begin = x->spans[i].span.begin;
        if (begin < x->r->time[0]) x->first = i + 1;
        if (begin < x->r->time[1]) x->second = i + 1;
        if (begin < x->r->time[2]) x->rest = i + 1;
    }
    return ST_OK;
}

// Does `b` live as `a` did, a round before?
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

// Is the round repeated by the one behind it, and nothing of them, or of what slots had before, still there where the
// lists differ?
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
        const bool is_of_step = i < x->first && x->slots.class_of[s->row] < 0; // it ends with it
        if (!is_of_step || x->s->lives.lives[s->row].count > 1) return false;
    }
    return true;
}

// Of a micro-batch so many later: its slot's tensor.
static int32_t row_later(const repeating *x, const row_span *s, int32_t microbatches)
{
    const int32_t class = x->slots.class_of[s->row];
    if (class < 0) return s->row;
    const int32_t *slot_of = x->r->all.slot_of[x->slots.chunk[class]];
    return x->slots.rows[(int64_t) class * x->slots.slots + slot_of[s->span.copy + microbatches]];
}

static void span_put(repeating *x, int32_t row, int64_t begin, int64_t end)
{
    life *to = &x->out[row];
    if (to->spans != NULL) to->spans[to->count] = (life_span){begin, end, -1};
    to->count++;
}

// All spans in the order of their beginning: counted, where there is no room for them yet.
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

// Intervals of few become those of all. False: they do not repeat.
static status lives_repeat(lower_passes *s, const repeat *r, bool *done)
{
    life_table *lives = &s->lives;
    repeating x = {.s = s, .r = r};
    TRY(slot_tensors_find(s, &x.slots));
    TRY(spans_sort(&x));
    *done = is_steady(&x);
    if (!*done) return ST_OK;
    TRY(arena_new(s->in.a, lives->capacity + 1, &x.out));
    spans_put(&x);
    for (int64_t row = 0; row < lives->capacity; row++) {
        life *to = &x.out[row];
        if (to->count == 0) continue;
        TRY(arena_new(s->in.a, to->count, &to->spans));
        to->capacity = to->count;
        to->count = 0;
    }
    spans_put(&x);
    lives->lives = x.out;
    lives->now += r->rounds * (r->time[1] - r->time[0]);
    s->in.p->repeated = (int64_t)r->rounds * r->round;
    return ST_OK;
}

// ---- the plan -----------------------------------------------------------------------------------

// *done: false where all micro-batches are to be planned.
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
    s->local.fewest_microbatches = s->local.most_microbatches = 0; // all ranks have as many
    TRY(plan_lower_collect(s));
    if (s->b.slots.slot_count != x.all.slot_count ||
        s->b.slots.borders.count != x.all.borders.count) {
        return ST_OK;
    }
    TRY(plan_lower_live(s));
    times_find(s, &x);
    TRY(lives_repeat(s, &x, done));
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
    arena *const lent = request->rooms != NULL ? request->rooms->lists : NULL, *work = lent;
    bool done = false;
    if (work == NULL) TRY(arena_create("lowering", 0, &work));
    const status st = few_make(a, work, request, run, out, &done);
    plan_room_leave(work, lent);
    TRY(st);
    return done ? ST_OK : plan_create(a, request, run, out);
}
