// Functions for all schedules: limits, the stages of chunks, and the check of lists.
#include "plan/schedule/schedule_internal.h"

#include <stdio.h>

status schedule_push(arena *a, schedule_list *list, schedule_kind kind, int32_t chunk,
                     int32_t microbatch)
{
    ASSERT(kind != SCHEDULE_BOTH);
    TRY(arena_grow(a, (void **)&list->actions, &list->capacity, list->count + 1,
                   sizeof(schedule_action)));
    list->actions[list->count++] = (schedule_action){
        .kind = kind, .chunk = chunk, .microbatch = microbatch, .chunk_b = -1, .microbatch_b = -1};
    return ST_OK;
}

status schedule_push_both(arena *a, schedule_list *list, int32_t chunk, int32_t microbatch,
                          int32_t chunk_b, int32_t microbatch_b)
{
    TRY(schedule_push(a, list, SCHEDULE_FORWARD, chunk, microbatch));
    schedule_action *x = &list->actions[list->count - 1];
    x->kind = SCHEDULE_BOTH;
    x->chunk_b = chunk_b;
    x->microbatch_b = microbatch_b;
    return ST_OK;
}

static status check_chunks(const plan_schedule *s, const schedule_request *r)
{
    if (r->chunks >= s->chunks_min && r->chunks <= s->chunks_max) return ST_OK;
    const int32_t nearest = r->chunks < s->chunks_min ? s->chunks_min : s->chunks_max;
    if (s->chunks_max == 1) {
        return fail(ST_CONFIG_CONFLICT,
                    "layout.vpp: %s has one chunk of the model per rank, got %d; take 1, or "
                    "layout.schedule=interleaved",
                    s->name, r->chunks);
    }
    if (s->chunks_min == s->chunks_max) {
        return fail(ST_CONFIG_CONFLICT,
                    "layout.vpp: %s has %d chunks of the model per rank, got %d; take %d", s->name,
                    s->chunks_min, r->chunks, nearest);
    }
    return fail(ST_CONFIG_CONFLICT,
                "layout.vpp: %s has %d to %d chunks of the model per rank, got %d; take %d%s",
                s->name, s->chunks_min, s->chunks_max, r->chunks, nearest,
                r->chunks == 1 ? ", or layout.schedule=1f1b" : "");
}

status plan_schedule_check(const plan_schedule *s, const schedule_request *r)
{
    if (r->stages < 1 || r->stages > SCHEDULE_MAX_STAGES) {
        return fail(ST_CONFIG_RANGE, "layout.pp: expected 1 to %d stages, got %d",
                    SCHEDULE_MAX_STAGES, r->stages);
    }
    if (r->microbatches < 1 || r->microbatches > SCHEDULE_MAX_MICROBATCHES) {
        return fail(
            ST_CONFIG_RANGE,
            "train.micro_batch: expected 1 to %d micro-batches in a step of one rank, got %d",
            SCHEDULE_MAX_MICROBATCHES, r->microbatches);
    }
    TRY(check_chunks(s, r));
    if (3 * (int64_t)r->microbatches * r->chunks > SCHEDULE_MAX_ACTIONS) {
        return fail(
            ST_CONFIG_RANGE,
            "layout.schedule: %d micro-batches of %d chunks are more than %d actions of a rank",
            r->microbatches, r->chunks, SCHEDULE_MAX_ACTIONS);
    }
    return s->check != NULL ? s->check(s, r) : ST_OK;
}

status plan_schedule_emit(const plan_schedule *s, const schedule_request *r, int32_t rank, arena *a,
                          schedule_list *out)
{
    ASSERT(rank >= 0 && rank < r->stages);
    ASSERT(r->chunks >= s->chunks_min && r->chunks <= s->chunks_max);
    *out = (schedule_list){0};
    // An upper bound, so the list does not move while it grows.
    TRY(arena_grow(a, (void **)&out->actions, &out->capacity,
                   3 * (int64_t)r->microbatches * r->chunks, sizeof(schedule_action)));
    return s->emit(s, r, rank, a, out);
}

// --- stages of chunks ----------------------------------------------------------------------------
int32_t plan_schedule_depth(const plan_schedule *s, const schedule_request *r)
{
    return s->shape == SHAPE_TWO ? r->stages : r->stages * r->chunks;
}

int32_t plan_schedule_stage(const plan_schedule *s, const schedule_request *r, int32_t rank,
                            int32_t chunk)
{
    ASSERT(rank >= 0 && rank < r->stages && chunk >= 0 && chunk < r->chunks);
    if (s->shape == SHAPE_LOOP) return chunk * r->stages + rank;
    if (chunk == 0) return rank;
    return (s->shape == SHAPE_V ? 2 : 1) * r->stages - 1 - rank;
}

void plan_schedule_holder(const plan_schedule *s, const schedule_request *r, int32_t stage,
                          int32_t direction, int32_t *rank, int32_t *chunk)
{
    ASSERT(stage >= 0 && stage < plan_schedule_depth(s, r));
    if (s->shape == SHAPE_TWO) {
        *rank = direction == 0 ? stage : r->stages - 1 - stage;
        *chunk = direction;
        return;
    }
    *chunk = stage / r->stages;
    *rank = stage % r->stages;
    if (s->shape == SHAPE_V && *chunk == 1) *rank = r->stages - 1 - *rank;
}

void plan_schedule_share(const plan_schedule *s, const schedule_request *r, int32_t chunk,
                         int32_t *first, int32_t *count)
{
    const int32_t half = r->microbatches / 2;
    *first = s->shape == SHAPE_TWO && chunk == 1 ? half : 0;
    *count = s->shape != SHAPE_TWO ? r->microbatches : chunk == 0 ? half : r->microbatches - half;
}

// --- the check of lists --------------------------------------------------------------------------
const char *schedule_place(const plan_schedule *s, int32_t rank, char buffer[256])
{
    const int64_t line = plan_schedule_line(s, rank);
    if (line > 0) {
        snprintf(buffer, 256, "%.200s:%lld: rank %d", s->name, (long long)line, rank);
    } else {
        snprintf(buffer, 256, "%.200s: rank %d", s->name, rank);
    }
    return buffer;
}

const char *plan_schedule_action_print(const schedule_action *x, char buffer[48])
{
    static const char letter[] = {[SCHEDULE_FORWARD] = 'F',
                                  [SCHEDULE_BACKWARD] = 'B',
                                  [SCHEDULE_BACKWARD_INPUT] = 'I',
                                  [SCHEDULE_BACKWARD_WEIGHT] = 'W',
                                  [SCHEDULE_BOTH] = 'F'};
    const int n = snprintf(buffer, 48, "%c%d.%d", letter[x->kind], x->chunk, x->microbatch);
    if (x->kind == SCHEDULE_BOTH) {
        snprintf(buffer + n, (size_t)(48 - n), "+B%d.%d", x->chunk_b, x->microbatch_b);
    }
    return buffer;
}

enum { SEEN_FORWARD = 1, SEEN_INPUT = 2, SEEN_WEIGHT = 4, SEEN_ALL = 7 };

typedef struct walk {
    const plan_schedule *s;
    const schedule_request *r;
    int32_t rank;
    int64_t action;
    const schedule_list *list;
    uint8_t *seen;                     // [chunk * microbatches + microbatch]
    int32_t next[SCHEDULE_MAX_CHUNKS]; // [chunk] the micro-batch whose gradients are added next
} walk;

static status complain(const walk *w, const char *why)
{
    char place[256], name[48];
    return fail(ST_CONFIG, "%s, action %lld, %s: %s", schedule_place(w->s, w->rank, place),
                (long long)w->action + 1,
                plan_schedule_action_print(&w->list->actions[w->action], name), why);
}

static status walk_part(walk *w, int32_t chunk, int32_t i, int parts)
{
    if (chunk < 0 || chunk >= w->r->chunks) return complain(w, "there is no such chunk");
    if (i < 0 || i >= w->r->microbatches) return complain(w, "there is no such micro-batch");
    int32_t first, count;
    plan_schedule_share(w->s, w->r, chunk, &first, &count);
    if (i < first || i >= first + count) {
        return complain(w, "this micro-batch goes the other way, through the other chunk");
    }
    uint8_t *seen = &w->seen[(int64_t)chunk * w->r->microbatches + i];
    if ((*seen & parts) != 0) return complain(w, "this has been done before");
    if (parts != SEEN_FORWARD && (*seen & SEEN_FORWARD) == 0) {
        return complain(w, "a backward without its forward before it");
    }
    if (parts == SEEN_WEIGHT && (*seen & SEEN_INPUT) == 0) {
        return complain(w, "gradients of weights need those of the input (I) before them");
    }
    if ((parts & SEEN_WEIGHT) != 0 && i != first + w->next[chunk]++) {
        return complain(w,
                        "a chunk's gradients of weights are added in the order of micro-batches");
    }
    *seen |= (uint8_t)parts;
    return ST_OK;
}

status schedule_list_validate(const plan_schedule *s, const schedule_request *r, int32_t rank,
                              const schedule_list *list, uint8_t *seen)
{
    static const int parts[] = {
        [SCHEDULE_FORWARD] = SEEN_FORWARD,      [SCHEDULE_BACKWARD] = SEEN_INPUT | SEEN_WEIGHT,
        [SCHEDULE_BACKWARD_INPUT] = SEEN_INPUT, [SCHEDULE_BACKWARD_WEIGHT] = SEEN_WEIGHT,
        [SCHEDULE_BOTH] = SEEN_FORWARD,
    };
    walk w = {.s = s, .r = r, .rank = rank, .list = list, .seen = seen};
    for (int64_t i = 0; i < (int64_t)r->chunks * r->microbatches; i++) seen[i] = 0;
    for (w.action = 0; w.action < list->count; w.action++) {
        const schedule_action *x = &list->actions[w.action];
        // The backward in such a pair cannot be that of its forward.
        if (x->kind == SCHEDULE_BOTH) {
            TRY(walk_part(&w, x->chunk_b, x->microbatch_b, SEEN_INPUT | SEEN_WEIGHT));
        }
        TRY(walk_part(&w, x->chunk, x->microbatch, parts[x->kind]));
    }
    char place[256];
    for (int32_t c = 0; c < r->chunks; c++) {
        int32_t first, count;
        plan_schedule_share(s, r, c, &first, &count);
        for (int32_t i = first; i < first + count; i++) {
            const int got = seen[(int64_t)c * r->microbatches + i];
            if (got == SEEN_ALL) continue;
            return fail(ST_CONFIG, "%s: the %s of chunk %d, micro-batch %d is missing",
                        schedule_place(s, rank, place),
                        (got & SEEN_FORWARD) == 0 ? "forward"
                        : (got & SEEN_INPUT) == 0 ? "backward"
                                                  : "backward of the weights (W)",
                        c, i);
        }
    }
    return ST_OK;
}

status plan_schedule_validate(const plan_schedule *s, const schedule_request *r, arena *a)
{
    uint8_t *seen;
    TRY(plan_schedule_check(s, r));
    TRY(arena_new(a, (int64_t)r->chunks * r->microbatches, &seen));
    for (int32_t rank = 0; rank < r->stages; rank++) {
        schedule_list list;
        TRY(plan_schedule_emit(s, r, rank, a, &list));
        TRY(schedule_list_validate(s, r, rank, &list, seen));
    }
    return ST_OK;
}
