// Lowering, very many micro-batches of which bytes alone are asked: fewer are lowered, and what lives in a round of
// them is repeated.
//
//   list of all    a a a a [ b b ] [ b b ] [ b b ] ... [ b b ] c c c c
//   list of few    a a a a [ b b ] [ b b ] c c c c              [ ]: a round, of later micro-batches each time
//                          at      at + period    until: so far both are the same
//
// The list of few is that of all without some rounds (plan_schedule_fold). Lives of it are those of all
//   that begin before `at`: as they are;
//   that begin in the first round: as often as there are rounds, each as much later as a round takes;
//   that begin later: as much later as all that is left out.
// Tensors of a slot are then those of the slot that the micro-batch has in the list of all. What is not so makes the
// whole be lowered as if nobody had tried: a round whose lives are not those of the round before it, or that
// reach to where the lists differ; another number of slots, or of buffers between stages, whose lists are played in
// full. So a plan's bytes are to the last one those of all micro-batches (train/repeat_test.c), and tensors are placed
// by the lives of all.
#include "plan/lower/lower.h"

#include <string.h>

// As few as fill the pipeline, hold a life after that, and empty it: of 1F1B and of V-shaped ones rounds are single
// micro-batches, of others as many as there are stages.
static int32_t few_of(const schedule_request *shape, int32_t round)
{
    const int32_t pp = shape->stages;
    const int32_t least = round == 1 ? 4 * pp + 20 : 7 * pp;
    return least + (shape->microbatches - least) % round;
}

// Plans that are executed, or whose actions are asked for, have all of them; so have those that note other lives.
static bool may_repeat(const lowering *l)
{
    const plan_request *r = l->r;
    const plan_schedule *s = l->pipe.schedule;
    const int64_t own = l->pipe.shape.microbatches;
    return l->repeat.is_tried && r->use == PLAN_BYTES && r->optimizer != NULL && s != NULL &&
           s->file == NULL && !r->strict && r->codec == NULL && r->panels == NULL &&
           (r->most_microbatches == 0 ||
            (r->most_microbatches == own && r->fewest_microbatches == own));
}

status lower_repeat_find(lowering *l)
{
    lower_repeat *x = &l->repeat;
    const schedule_request *shape = &l->pipe.shape;
    const int32_t rounds[] = {1, shape->stages};
    for (int i = 0; i < COUNT_OF(rounds) && x->rounds == 0 && may_repeat(l); i++) {
        schedule_request of_few = *shape;
        schedule_list few = {0};
        schedule_fold fold;
        of_few.microbatches = few_of(shape, rounds[i]);
        const int32_t more = shape->microbatches - of_few.microbatches;
        if (of_few.microbatches > shape->microbatches / 2) continue;
        TRY(plan_schedule_emit(l->pipe.schedule, &of_few, l->r->mesh.at[AXIS_PP], l->a, &few));
        if (!plan_schedule_fold(&few, &l->list, more / rounds[i], rounds[i], &fold)) continue;
        *x = (lower_repeat){.is_tried = true,
                            .few = of_few.microbatches,
                            .round = rounds[i],
                            .rounds = more / rounds[i],
                            .at = fold.from + (rounds[i] == 1 ? 8 : 1) * fold.period,
                            .period = fold.period,
                            .until = fold.until};
        if (x->at + 2 * x->period > x->until) x->rounds = 0;
    }
    return ST_OK;
}

status lower_repeat_begin(lowering *l)
{
    lower_repeat *x = &l->repeat;
    x->slot_count = l->slot_count;
    x->buffer_count = l->borders.count;
    TRY(arena_new(l->a, l->chunk_count, &x->slot_of));
    for (int32_t c = 0; c < l->chunk_count; c++) x->slot_of[c] = l->chunks[c].slot_of;
    l->pipe.shape.microbatches = x->few;
    return ST_OK;
}

void lower_repeat_note(lowering *l, int64_t i)
{
    lower_repeat *x = &l->repeat;
    for (int k = 0; k < REPEAT_TIMES && x->rounds > 0; k++) {
        const int64_t at = k < REPEAT_UNTIL ? x->at + k * x->period : x->until;
        if (i == at) x->action[k] = l->p->action_count;
        if (i == at) x->tensors[k] = l->p->tensor_count;
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
} slot_tensors;

// Of one tensor of a layer's program. A layer's input is the output of the one below, and has its class then.
static void class_add(const lowering *l, int32_t layer_row, tensor_id t, slot_tensors *out)
{
    const layer_state *state = &l->layers[layer_row];
    const int32_t first = state->slots[0].tensor[t];
    if (first < 0 || first == state->slots[1].tensor[t] || out->class_of[first] >= 0) return;
    if (first < l->is_border_capacity && l->is_border[first]) return;
    for (int32_t s = 0; s < out->slots; s++) {
        const int32_t row = state->slots[s].tensor[t];
        out->class_of[row] = (int32_t)out->count;
        out->rows[out->count * out->slots + s] = row;
    }
    out->chunk[out->count++] = state->chunk;
}

static status slot_tensors_find(lowering *l, slot_tensors *out)
{
    int64_t most = 1;
    *out = (slot_tensors){.slots = l->slot_count};
    for (int32_t i = 0; i < l->m->layer_count; i++) {
        if (l->layers[i].is_here) most += l->m->programs[l->m->layers[i].program]->tensor_count;
    }
    TRY(arena_new(l->a, l->p->tensor_count + 1, &out->class_of));
    TRY(arena_new(l->a, most * out->slots, &out->rows));
    TRY(arena_new(l->a, most, &out->chunk));
    memset(out->class_of, -1, (size_t)l->p->tensor_count * sizeof(*out->class_of));
    for (int32_t i = 0; i < l->m->layer_count && out->slots > 1; i++) {
        const op_program *program = l->m->programs[l->m->layers[i].program];
        for (tensor_id t = 0; t < program->tensor_count && l->layers[i].is_here; t++) {
            class_add(l, i, t, out);
        }
    }
    return ST_OK;
}

// ---- spans ----------------------------------------------------------------------------------------

typedef struct noted_span {
    life_span span;
    int32_t row;
} noted_span;

typedef struct repeating {
    const lowering *l;
    slot_tensors slots;
    noted_span *
        spans; // of all tensors, in the order of their beginning; a class' side by side at equal times
    int64_t count;
    int64_t first, second, rest; // of spans: those of a round, of the one behind it, and the others
    life *out;                   // [transient tensor]
} repeating;

static status spans_sort(lowering *l, repeating *x)
{
    const life_table *lives = &l->lives;
    int64_t *keys = NULL, i = 0;
    int32_t *order = NULL;
    noted_span *all = NULL;
    for (int64_t row = 0; row < lives->capacity; row++) x->count += lives->lives[row].count;
    TRY(arena_new(l->a, x->count + 1, &keys));
    TRY(arena_new(l->a, x->count + 1, &all));
    TRY(arena_new(l->a, x->count + 1, &x->spans));
    for (int32_t row = 0; row < lives->capacity; row++) {
        for (int64_t k = 0; k < lives->lives[row].count; k++, i++) {
            all[i] = (noted_span){lives->lives[row].spans[k], row};
            keys[i] = all[i].span.begin;
        }
    }
    TRY(rows_sort(l->a, keys, x->count, lives->now, &order));
    for (i = 0; i < x->count; i++) x->spans[i] = all[order[i]];
    for (i = 0; i < x->count; i++) {
        const int64_t begin = x->spans[i].span.begin;
        if (begin < l->repeat.time[0]) x->first = i + 1;
        if (begin < l->repeat.time[1]) x->second = i + 1;
        if (begin < l->repeat.time[2]) x->rest = i + 1;
    }
    return ST_OK;
}

// Does `b` live as `a` did, a round before?
static bool is_next(const repeating *x, const noted_span *a, const noted_span *b)
{
    const lower_repeat *r = &x->l->repeat;
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
    const lowering *l = x->l;
    const lower_repeat *r = &l->repeat;
    const int64_t count = x->second - x->first;
    if (r->tensors[0] != r->tensors[2] || x->rest - x->second != count) return false;
    for (int64_t i = 0; i < count; i++) {
        if (!is_next(x, &x->spans[x->first + i], &x->spans[x->second + i])) return false;
    }
    for (int64_t i = 0; i < x->count; i++) {
        const noted_span *s = &x->spans[i];
        if (x->slots.class_of[s->row] >= 0 && s->span.copy < 0) return false;
        if (i >= x->rest || s->span.end < r->time[REPEAT_UNTIL]) continue;
        const bool is_of_step = i < x->first && x->slots.class_of[s->row] < 0; // it ends with it
        if (!is_of_step || l->lives.lives[s->row].count > 1) return false;
    }
    return true;
}

// Of a micro-batch so many later: its slot's tensor.
static int32_t row_later(const repeating *x, const noted_span *s, int32_t microbatches)
{
    const int32_t class = x->slots.class_of[s->row];
    if (class < 0) return s->row;
    const int32_t *slot_of = x->l->repeat.slot_of[x->slots.chunk[class]];
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
    const lower_repeat *r = &x->l->repeat;
    const int64_t round = r->time[1] - r->time[0], left_out = r->rounds * round;
    for (int64_t i = 0; i < x->first; i++) {
        const noted_span *s = &x->spans[i];
        const bool is_of_step = s->span.end >= r->time[REPEAT_UNTIL];
        span_put(x, s->row, s->span.begin, s->span.end + (is_of_step ? left_out : 0));
    }
    for (int64_t k = 0; k <= r->rounds; k++) {
        for (int64_t i = x->first; i < x->second; i++) {
            const noted_span *s = &x->spans[i];
            span_put(x, row_later(x, s, (int32_t)k * r->round), s->span.begin + k * round,
                     s->span.end + k * round);
        }
    }
    for (int64_t i = x->second; i < x->count; i++) {
        const noted_span *s = &x->spans[i];
        const int32_t row = row_later(x, s, (int32_t)r->rounds * r->round);
        span_put(x, row, s->span.begin + left_out, s->span.end + left_out);
    }
}

status lower_repeat_lives(lowering *l)
{
    life_table *lives = &l->lives;
    lower_repeat *r = &l->repeat;
    repeating x = {.l = l};
    if (r->rounds == 0) return ST_OK;
    for (int k = 0; k < REPEAT_TIMES; k++) r->time[k] = l->begins[r->action[k]];
    TRY(slot_tensors_find(l, &x.slots));
    TRY(spans_sort(l, &x));
    r->is_broken = !is_steady(&x);
    if (r->is_broken) return ST_OK;
    TRY(arena_new(l->a, lives->capacity + 1, &x.out));
    spans_put(&x);
    for (int64_t row = 0; row < lives->capacity; row++) {
        life *to = &x.out[row];
        if (to->count == 0) continue;
        TRY(arena_new(l->a, to->count, &to->spans));
        to->capacity = to->count;
        to->count = 0;
    }
    spans_put(&x);
    lives->lives = x.out;
    lives->now += r->rounds * (r->time[1] - r->time[0]);
    l->p->repeated = (int64_t)r->rounds * r->round;
    return ST_OK;
}
