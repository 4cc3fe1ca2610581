// Pass 5 of lowering: equivalent tensors of slots.
//
// Each slot of a pipeline has its own tensor of each name. A tensor's contents mean nothing between
// two of its live intervals, so intervals may be distributed anew: each to the first tensor of as
// many bytes that is free (DISTRIBUTE_SHARE), or each is placed alone (DISTRIBUTE_PIECES). Tensors
// that were fused differently in different slots stay where they are.
#include "plan/lower/place_internal.h"

#include <string.h>

// The units of one class of equivalent tensors, for the slots that have a live interval.
struct copy_group {
    int32_t *slot, *leader;
    int32_t count;
    int64_t first;    // the first class among those fused with it
    int32_t *unit_of; // [interval of the group]; NULL: intervals stay in their slots
    int32_t span_count;
};

static status group_find(const placing *pl, const lifetime_table *lifetimes, arena *a,
                         int64_t class, copy_group *out)
{
    const slot_copies *c = &lifetimes->copies;
    *out = (copy_group){0};
    TRY(arena_new(a, c->slots, &out->slot));
    TRY(arena_new(a, c->slots, &out->leader));
    for (int32_t s = 0; s < c->slots; s++) {
        const int32_t row = c->rows[class * c->slots + s];
        if (row >= lifetimes->capacity || lifetimes->rows[row].count == 0) continue;
        out->slot[out->count] = s;
        out->leader[out->count++] = unit_leader(pl, row);
    }
    return ST_OK;
}

// Checks that tensors were fused with the same classes in every slot, and with no others. `owner`:
// the first class in each unit, which identifies the unit.
static void groups_check(const placing *pl, const lifetime_table *lifetimes, int64_t *owner)
{
    const slot_copies *c = &lifetimes->copies;
    for (int64_t i = 0; i < pl->count; i++) {
        const bool equivalent = i < c->tensors && c->class_of[i] >= 0;
        if (!equivalent && i < lifetimes->capacity && lifetimes->rows[i].count > 0) {
            pl->is_odd[unit_leader(pl, (int32_t)i)] = true;
        }
        owner[i] = -1;
    }
    for (int64_t k = 0; k < c->count; k++) {
        copy_group *g = &pl->groups[k];
        if (g->count == 0) continue;
        g->first = owner[g->leader[0]] >= 0 ? owner[g->leader[0]] : k;
        const copy_group *first = &pl->groups[g->first];
        bool same = g->count == first->count;
        for (int32_t i = 0; i < g->count && same; i++) {
            same = g->leader[i] == first->leader[i] && g->slot[i] == first->slot[i];
        }
        for (int32_t i = 0; i < g->count; i++) {
            int64_t *mine = &owner[g->leader[i]];
            if (*mine < 0) *mine = g->first;
            same = same && *mine == g->first;
        }
        for (int32_t i = 0; i < g->count && !same; i++) {
            const copy_group *other = &pl->groups[owner[g->leader[i]]];
            for (int32_t j = 0; j < other->count; j++) pl->is_odd[other->leader[j]] = true;
            pl->is_odd[g->leader[i]] = true;
        }
    }
}

// One odd unit keeps its whole group unchanged.
static bool group_is_odd(const placing *pl, const copy_group *g)
{
    for (int32_t i = 0; i < g->count; i++) {
        if (pl->is_odd[g->leader[i]]) return true;
    }
    return false;
}

static status unit_push(placing *pl, arena *a, int64_t bytes, live_interval *spans, int64_t count,
                        int32_t *out)
{
    TRY(arena_grow(a, (void **)&pl->units, &pl->unit_capacity, pl->unit_count + 1,
                   (int64_t)sizeof(unit)));
    *out = (int32_t)pl->unit_count++;
    pl->units[*out] = (unit){.bytes = bytes, .spans = spans, .span_count = count, .leader = *out};
    return ST_OK;
}

// An interval, and the place where its unit is recorded.
typedef struct shared_span {
    live_interval span;
    int64_t bytes;
    int32_t *unit;
} shared_span;

// Sorts by bytes, the largest first, then by beginning.
static status shares_sort(arena *a, shared_span **all, int64_t count)
{
    int64_t *keys = NULL, *sizes = NULL, last = 0, size_count = 0, capacity = 0;
    int32_t *by_time = NULL, *by_size = NULL;
    shared_span *sorted = NULL;
    TRY(arena_new(a, count + 1, &keys));
    TRY(arena_new(a, count + 1, &sorted));
    for (int64_t i = 0; i < count; i++) {
        keys[i] = (*all)[i].span.begin;
        last = max_i64(last, keys[i]);
    }
    TRY(rows_sort(a, keys, count, last, &by_time));
    for (int64_t i = 0; i < count; i++) {
        const int64_t bytes = (*all)[i].bytes;
        int64_t at = 0;
        while (at < size_count && sizes[at] > bytes) at++;
        if (at < size_count && sizes[at] == bytes) continue; // there are few sizes
        TRY(arena_grow(a, (void **)&sizes, &capacity, size_count + 1, (int64_t)sizeof(*sizes)));
        memmove(&sizes[at + 1], &sizes[at], (size_t)(size_count++ - at) * sizeof(*sizes));
        sizes[at] = bytes;
    }
    for (int64_t i = 0; i < count; i++) {
        keys[i] = 0;
        while (sizes[keys[i]] != (*all)[by_time[i]].bytes) keys[i]++;
    }
    TRY(rows_sort(a, keys, count, size_count, &by_size));
    for (int64_t i = 0; i < count; i++) sorted[i] = (*all)[by_time[by_size[i]]];
    *all = sorted;
    return ST_OK;
}

// The units of one size, while intervals are assigned to them in order of their beginning.
typedef struct unit_ends {
    int64_t *busy;  // [busy_count] end << UNIT_BITS | unit: a heap with the first end on top
    uint64_t *free; // [unit / 64] bits of the free units
    int64_t busy_count, count;
} unit_ends;
enum { UNIT_BITS = 24 };

static void busy_push(unit_ends *e, int64_t item)
{
    int64_t at = e->busy_count++;
    for (; at > 0 && e->busy[(at - 1) / 2] > item; at = (at - 1) / 2) {
        e->busy[at] = e->busy[(at - 1) / 2];
    }
    e->busy[at] = item;
}

static int64_t busy_pop(unit_ends *e)
{
    const int64_t top = e->busy[0], last = e->busy[--e->busy_count];
    int64_t at = 0;
    for (int64_t child = 1; child < e->busy_count; child = 2 * at + 1) {
        child += child + 1 < e->busy_count && e->busy[child + 1] < e->busy[child] ? 1 : 0;
        if (e->busy[child] >= last) break;
        e->busy[at] = e->busy[child];
        at = child;
    }
    e->busy[at] = last;
    return top;
}

// The first unit that is free when the interval begins; a new one if none is.
static int32_t unit_take(unit_ends *e, const live_interval *span)
{
    while (e->busy_count > 0 && e->busy[0] >> UNIT_BITS < span->begin) {
        const uint64_t ended = (uint64_t)busy_pop(e) & ((UINT64_C(1) << UNIT_BITS) - 1);
        e->free[ended / 64] |= UINT64_C(1) << ended % 64;
    }
    int64_t word = 0;
    while (word <= e->count / 64 && e->free[word] == 0) word++;
    int64_t to = e->count;
    if (word <= e->count / 64) {
        to = 64 * word + __builtin_ctzll(e->free[word]);
        e->free[word] &= e->free[word] - 1;
    } else {
        e->count++;
    }
    busy_push(e, span->end << UNIT_BITS | to);
    return (int32_t)to;
}

// Assigns intervals of one size, in the order of their beginning, to the first free unit. So there
// are as many units as intervals live at once, and the last units are free most of the time.
static status spans_share(placing *pl, arena *a, const shared_span *all, int64_t count)
{
    int64_t *ends = NULL, *sizes = NULL, units = 0;
    live_interval *spans = NULL;
    unit_ends busy = {.count = 0};
    ASSERT(count < 1 << UNIT_BITS);
    TRY(arena_new(a, count, &ends));
    TRY(arena_new(a, count, &sizes));
    TRY(arena_new(a, count, &spans));
    TRY(arena_new(a, count, &busy.busy));
    TRY(arena_new(a, count / 64 + 2, &busy.free));
    for (int64_t k = 0; k < count; k++) {
        const int32_t to = unit_take(&busy, &all[k].span);
        sizes[to]++;
        *all[k].unit = to;
    }
    units = busy.count;
    for (int64_t u = 0, at = 0; u < units; at += sizes[u++]) {
        int32_t row = 0;
        TRY(unit_push(pl, a, all->bytes, &spans[at], sizes[u], &row));
        ends[u] = at;
    }
    for (int64_t k = 0; k < count; k++) {
        const int32_t to = *all[k].unit;
        spans[ends[to]++] = all[k].span;
        *all[k].unit = (int32_t)(pl->unit_count - units + to);
    }
    return ST_OK;
}

// Distributes the intervals of all groups whose tensors leave their slots.
static status shares_distribute(placing *pl, arena *a, int64_t classes)
{
    shared_span *all = NULL;
    int64_t count = 0;
    for (int64_t k = 0; k < classes; k++) count += pl->groups[k].span_count;
    TRY(arena_new(a, count + 1, &all));
    count = 0;
    for (int64_t k = 0; k < classes; k++) {
        copy_group *g = &pl->groups[k];
        if (g->unit_of == NULL) continue;
        for (int32_t i = 0; i < g->count; i++) {
            unit *u = &pl->units[g->leader[i]];
            for (int64_t s = 0; s < u->span_count; s++) {
                all[count++] = (shared_span){u->spans[s], u->bytes, &g->unit_of[u->spans[s].copy]};
            }
            u->span_count = 0;
        }
    }
    TRY(shares_sort(a, &all, count));
    for (int64_t from = 0, end = 0; from < count; from = end) {
        while (end < count && all[end].bytes == all[from].bytes) end++;
        TRY(spans_share(pl, a, &all[from], end - from));
    }
    return ST_OK;
}

// Spans leave their slots: each becomes a unit of its own, or shares_distribute() finds it one.
static status spans_part(placing *pl, arena *a, copy_group *g, distribution how)
{
    int32_t total = 0, k = 0;
    for (int32_t i = 0; i < g->count; i++) total += (int32_t)pl->units[g->leader[i]].span_count;
    g->span_count = total;
    TRY(arena_new(a, total + 1, &g->unit_of));
    for (int32_t i = 0; i < g->count; i++) {
        const unit u = pl->units[g->leader[i]];
        for (int64_t s = 0; s < u.span_count; s++, k++) {
            u.spans[s].copy = k;
            if (how == DISTRIBUTE_PIECES)
                TRY(unit_push(pl, a, u.bytes, &u.spans[s], 1, &g->unit_of[k]));
        }
        if (how == DISTRIBUTE_PIECES) pl->units[g->leader[i]].span_count = 0;
    }
    return ST_OK;
}

status copies_make(arena *a, const lifetime_table *lifetimes, distribution how, placing *pl)
{
    const int64_t classes = lifetimes->copies.count;
    int64_t *owner = NULL; // [unit]
    if (classes == 0) return ST_OK;
    TRY(arena_new(a, classes, &pl->groups));
    TRY(arena_new(a, pl->count + 1, &owner));
    TRY(arena_new(a, pl->count + 1, &pl->is_odd));
    TRY(arena_new(a, pl->count + 1, &pl->old));
    for (int64_t k = 0; k < classes; k++) TRY(group_find(pl, lifetimes, a, k, &pl->groups[k]));
    groups_check(pl, lifetimes, owner);
    memcpy(pl->old, pl->units, (size_t)pl->count * sizeof(unit));
    for (int64_t k = 0; k < classes; k++) {
        copy_group *g = &pl->groups[k];
        if (g->count == 0 || g->first != k) continue;
        const bool stays = how == DISTRIBUTE_SLOTS || group_is_odd(pl, g);
        if (!stays) TRY(spans_part(pl, a, g, how));
        for (int32_t i = 0; i < g->count && stays; i++) pl->is_odd[g->leader[i]] = true;
    }
    return how == DISTRIBUTE_SHARE ? shares_distribute(pl, a, classes) : ST_OK;
}

// Finds the tensor of each live interval of a class from the intervals of its unit. `to_row`:
// tensors of the unit's intervals.
static void spans_follow(const lifetime_table *lifetimes, const placing *pl, int64_t class,
                         const int32_t *to_row)
{
    const copy_group *g = &pl->groups[class];
    for (int32_t i = 0; i < g->count; i++) {
        lifetime *l =
            &lifetimes->rows[lifetimes->copies.rows[class * lifetimes->copies.slots + g->slot[i]]];
        l->is_distributed = true;
        const unit *u = &pl->old[g->leader[i]];
        int64_t at = 0;
        for (int64_t k = 0; k < l->count; k++) { // both are sorted
            while (u->spans[at].end < l->spans[k].begin) at++;
            ASSERT(at < u->span_count);
            l->spans[k].copy = to_row[u->spans[at].copy];
        }
    }
}

// Makes a tensor for each offset that intervals of a class have. `to_row`: the tensor of each
// interval.
static status spans_place(plan *p, arena *a, const slot_copies *c, const placing *pl, int64_t class,
                          int32_t *to_row)
{
    const copy_group *first = &pl->groups[pl->groups[class].first];
    int32_t *rows = NULL, count = 0;
    TRY(arena_new(a, first->span_count + 1, &rows));
    for (int64_t k = 0; k < first->span_count; k++) {
        const int64_t offset = pl->best[first->unit_of[k]];
        int32_t at = 0;
        while (at < count && p->tensors[rows[at]].offset != offset) at++;
        if (at == count && at < c->slots) rows[count++] = c->rows[class * c->slots + at];
        if (at == count) {
            const plan_tensor copy = p->tensors[c->rows[class * c->slots]];
            TRY(plan_tensor_push(p, &copy, &rows[count++]));
        }
        p->tensors[rows[at]].offset = offset;
        to_row[k] = rows[at];
    }
    return ST_OK;
}

status copies_apply(plan *p, arena *a, const lifetime_table *lifetimes, const placing *pl)
{
    const slot_copies *c = &lifetimes->copies;
    for (int64_t k = 0; k < c->count; k++) {
        const copy_group *g = &pl->groups[k];
        if (g->count == 0 || group_is_odd(pl, g)) continue;
        const copy_group *first = &pl->groups[g->first];
        int32_t *to_row = NULL;
        TRY(arena_new(a, first->span_count + 1, &to_row));
        TRY(spans_place(p, a, c, pl, k, to_row));
        spans_follow(lifetimes, pl, k, to_row);
    }
    return ST_OK;
}
