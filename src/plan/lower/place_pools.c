// Pass 5 of lowering: unsharded weights and gradients.
//
// Whole weights and gradients exist only around the layer that needs them (ZeRO-2, ZeRO-3). One
// place for all intervals of a tensor would have to be free at each of them. The tensors of all
// layers are equivalent, so their intervals are distributed over as few units as are live at once,
// each to the first free unit, and these units are almost always in use (POOL_SHARE). Or each
// interval is a unit (POOL_PIECES), which packs better with other short intervals but takes longer.
#include "plan/lower/place_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct pool_row {
    int64_t bytes;
    int32_t kind, row;
} pool_row;

static int compare_pool_rows(const void *a, const void *b)
{
    const pool_row *x = a, *y = b;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->row < y->row ? -1 : 1;
}

// Consecutive intervals of one tensor that stay together because one begins when the one before
// ends (a visit without work).
typedef struct pool_span {
    live_interval *first;
    int64_t count, begin, end;
} pool_span;

static bool is_equivalent(const pool_row *a, const pool_row *b)
{
    return a->kind == b->kind && a->bytes == b->bytes;
}

static status pool_rows_find(const plan *p, arena *a, const lifetime_table *lifetimes,
                             const placing *pl, pool_row **out, int64_t *count)
{
    bool *joins = NULL; // [tensor] other tensors were fused with it
    TRY(arena_new(a, pl->count + 1, &joins));
    TRY(arena_new(a, pl->count + 1, out));
    for (int32_t i = 0; i < pl->count; i++) {
        const int32_t leader = unit_leader(pl, i);
        if (leader != i) joins[i] = joins[leader] = true;
    }
    *count = 0;
    for (int32_t i = 0; i < pl->count && i < lifetimes->capacity; i++) {
        const plan_tensor *t = &p->tensors[i];
        if (!t->is_unsharded || joins[i] || lifetimes->rows[i].count == 0) continue;
        (*out)[(*count)++] = (pool_row){t->bytes, (int32_t)t->kind, i};
    }
    qsort(*out, (size_t)*count, sizeof(**out), compare_pool_rows);
    return ST_OK;
}

// Gathers the intervals of `count` tensors; `out` and `sorted` have space for all of them. `sorted`
// gets them, `*total` in number, in the order of their beginning.
static status spans_gather(arena *a, placing *pl, const pool_row *rows, int64_t count,
                           pool_span *out, pool_span *sorted, int64_t *total)
{
    int64_t n = 0, last = 0, *keys = NULL;
    int32_t *order = NULL;
    for (int64_t i = 0; i < count; i++) {
        unit *u = &pl->units[rows[i].row];
        for (int64_t k = 0; k < u->span_count; k++) {
            live_interval *s = &u->spans[k];
            if (k == 0 || s->begin > out[n - 1].end) {
                out[n++] = (pool_span){.first = s, .begin = s->begin, .end = s->end};
            }
            out[n - 1].count++;
            out[n - 1].end = max_i64(out[n - 1].end, s->end);
        }
        u->span_count = 0;
    }
    TRY(arena_new(a, n + 1, &keys));
    for (int64_t i = 0; i < n; i++) {
        keys[i] = out[i].begin;
        last = max_i64(last, keys[i]);
    }
    TRY(rows_sort(a, keys, n, last, &order));
    for (int64_t i = 0; i < n; i++) sorted[i] = out[order[i]];
    *total = n;
    return ST_OK;
}

static live_interval *span_of(const pool_span *s, live_interval *spans)
{
    *spans = (live_interval){s->begin, s->end, -1};
    return spans;
}

// Makes each interval a unit after the existing ones.
static status pool_part(arena *a, placing *pl, pool_span *all, int64_t n, int64_t bytes)
{
    live_interval *spans = NULL;
    TRY(arena_new(a, n + 1, &spans));
    TRY(arena_grow(a, (void **)&pl->units, &pl->unit_capacity, pl->unit_count + n,
                   (int64_t)sizeof(unit)));
    for (int64_t k = 0; k < n; k++) {
        const int32_t row = (int32_t)pl->unit_count++;
        pl->units[row] = (unit){
            .bytes = bytes, .spans = span_of(&all[k], &spans[k]), .span_count = 1, .leader = row};
        for (int64_t s = 0; s < all[k].count; s++) all[k].first[s].copy = row;
    }
    return ST_OK;
}

// Assigns each interval to the first free unit of the `count` tensors.
static status pool_share(arena *a, placing *pl, const pool_row *rows, int64_t count, pool_span *all,
                         int64_t n)
{
    int64_t *taken = NULL, *last = NULL; // end of the unit's last interval
    int32_t *unit_of = NULL;
    TRY(arena_new(a, count + 1, &taken));
    TRY(arena_new(a, count + 1, &last));
    TRY(arena_new(a, n + 1, &unit_of));
    for (int64_t k = 0; k < n; k++) {
        int32_t to = 0;
        while (taken[to] > 0 && last[to] >= all[k].begin) to++;
        ASSERT(to < count); // its own unit is free at the latest
        last[to] = all[k].end;
        taken[to]++;
        unit_of[k] = rows[to].row;
        for (int64_t s = 0; s < all[k].count; s++) all[k].first[s].copy = rows[to].row;
    }
    for (int64_t i = 0; i < count && taken[i] > 0; i++) {
        TRY(arena_new(a, taken[i], &pl->units[rows[i].row].spans));
    }
    for (int64_t k = 0; k < n; k++) {
        unit *u = &pl->units[unit_of[k]];
        (void)span_of(&all[k], &u->spans[u->span_count++]);
    }
    return ST_OK;
}

// Distributes the intervals of `count` tensors; `copy` of each becomes the unit that it was
// assigned to.
static status pool_distribute(arena *a, placing *pl, const pool_row *rows, int64_t count,
                              pooling how)
{
    pool_span *spans = NULL, *all = NULL;
    int64_t total = 0, n = 0;
    for (int64_t i = 0; i < count; i++) total += pl->units[rows[i].row].span_count;
    TRY(arena_new(a, total + 1, &spans));
    TRY(arena_new(a, total + 1, &all));
    TRY(spans_gather(a, pl, rows, count, spans, all, &n));
    if (how == POOL_PIECES) return pool_part(a, pl, all, n, rows->bytes);
    return pool_share(a, pl, rows, count, all, n);
}

status pools_make(const plan *p, arena *a, const lifetime_table *lifetimes, pooling how,
                  placing *pl)
{
    pool_row *rows = NULL;
    int64_t count = 0;
    if (how == POOL_NONE) return ST_OK;
    TRY(pool_rows_find(p, a, lifetimes, pl, &rows, &count));
    TRY(arena_new(a, pl->count + 1, &pl->is_pooled));
    for (int64_t from = 0, end = 0; from < count; from = end) {
        for (end = from; end < count && is_equivalent(&rows[from], &rows[end]); end++) {
            pl->is_pooled[rows[end].row] = true;
        }
        TRY(pool_distribute(a, pl, &rows[from], end - from, how));
    }
    return ST_OK;
}

// Makes a tensor, with the name of its weight, for each offset that intervals of one tensor were
// placed at.
status pools_apply(plan *p, arena *a, const lifetime_table *lifetimes, const placing *pl)
{
    int32_t *rows = NULL;
    int64_t capacity = 0;
    for (int64_t i = 0; i < pl->count && pl->is_pooled != NULL; i++) {
        if (!pl->is_pooled[i]) continue;
        lifetime *l = &lifetimes->rows[i];
        int64_t count = 0;
        TRY(arena_grow(a, (void **)&rows, &capacity, l->count + 1, (int64_t)sizeof(*rows)));
        l->is_distributed = true;
        for (int64_t k = 0; k < l->count; k++) {
            const int64_t offset = pl->best[l->spans[k].copy];
            int64_t at = 0;
            while (at < count && p->tensors[rows[at]].offset != offset) at++;
            if (at == count && at == 0) rows[count++] = (int32_t)i;
            if (at == count) {
                const plan_tensor copy = p->tensors[i];
                TRY(plan_tensor_push(p, &copy, &rows[count++]));
            }
            p->tensors[rows[at]].offset = offset;
            l->spans[k].copy = rows[at];
        }
    }
    return ST_OK;
}
