// Offsets: which transient tensors share bytes.
//
// Every tensor has its spans of time (plan_internal.h); two may share bytes only if no span of one
// meets a span of the other. First, tensors that a node may overwrite in place are fused into one
// *unit*. Then units are placed, each at the lowest offset that no conflicting unit already placed
// covers. The order decides how well they pack; the best of a few orders is kept (greedy by size is
// rarely more than 2% above the bound: Pisarchyk and Lee 2020, arXiv:2001.03288). The bound itself,
// the largest sum of live bytes at any time, is computed too, and a test holds the arena to it.
#include "plan/plan_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct unit {
    int64_t bytes, offset, area;
    life_span *spans; // sorted, disjoint
    int64_t span_count;
    int32_t leader;
    int32_t number; // among those that are placed
} unit;

typedef struct placing {
    unit *units; // [tensor]; only leaders are placed
    int64_t count;
    int32_t *order;
    int64_t order_count;
    int64_t *best; // [tensor] offsets of the best order so far
    uint64_t *
        meets; // [number * words + word] bits of those whose spans meet its own; NULL: too many units
    int64_t words;
} placing;

status life_touch(life_table *t, int64_t row, int64_t time)
{
    ASSERT(row >= 0);
    if (row >= t->capacity) {
        const int64_t before = t->capacity;
        TRY(arena_grow(t->a, (void **)&t->lives, &t->capacity, row + 1, (int64_t)sizeof(life)));
        memset(t->lives + before, 0, (size_t)(t->capacity - before) * sizeof(life));
    }
    life *l = &t->lives[row];
    if (l->open) {
        life_span *last = &l->spans[l->count - 1];
        if (time > last->end) last->end = time;
        return ST_OK;
    }
    TRY(arena_grow(t->a, (void **)&l->spans, &l->capacity, l->count + 1,
                   (int64_t)sizeof(life_span)));
    l->spans[l->count++] = (life_span){time, time};
    l->open = true;
    return ST_OK;
}

void life_close(life_table *t, int64_t row)
{
    if (row >= 0 && row < t->capacity) t->lives[row].open = false;
}

static int32_t leader_of(const placing *pl, int32_t row)
{
    while (pl->units[row].leader != row) row = pl->units[row].leader;
    return row;
}

// Do the spans meet anywhere but at the single points where `from` hands its bytes to `to`?
static bool spans_meet(const unit *a, const unit *b, const life_link *link, int64_t *touches)
{
    int64_t i = 0, j = 0;
    *touches = 0;
    while (i < a->span_count && j < b->span_count) {
        const life_span x = a->spans[i], y = b->spans[j];
        if (x.end < y.begin) {
            i++;
        } else if (y.end < x.begin) {
            j++;
        } else {
            if (link == NULL || x.end != y.begin) return true;
            *touches += 1;
            i++;
        }
    }
    return false;
}

static int compare_spans(const void *a, const void *b)
{
    const life_span *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

// One unit for `from` and `to` if nowhere both matter at once.
static status fuse(const plan *p, arena *a, placing *pl, const life_link *link)
{
    const int32_t x = leader_of(pl, link->from), y = leader_of(pl, link->to);
    if (x == y || pl->units[x].bytes != pl->units[y].bytes) return ST_OK;
    if (p->tensors[link->from].bytes != p->tensors[link->to].bytes) return ST_OK;
    int64_t touches = 0;
    if (spans_meet(&pl->units[x], &pl->units[y], link, &touches) || touches == 0) return ST_OK;
    unit *u = &pl->units[x], *v = &pl->units[y];
    life_span *all = NULL;
    TRY(arena_new(a, u->span_count + v->span_count, &all));
    memcpy(all, u->spans, (size_t)u->span_count * sizeof(life_span));
    memcpy(all + u->span_count, v->spans, (size_t)v->span_count * sizeof(life_span));
    const int64_t n = u->span_count + v->span_count;
    qsort(all, (size_t)n, sizeof(life_span), compare_spans);
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        if (kept > 0 && all[i].begin <= all[kept - 1].end) {
            all[kept - 1].end = max_i64(all[kept - 1].end, all[i].end);
        } else {
            all[kept++] = all[i];
        }
    }
    u->spans = all;
    u->span_count = kept;
    v->leader = x;
    return ST_OK;
}

// What the units are sorted by, largest first; set through a file-local key to keep qsort's form.
typedef enum order_key { ORDER_BYTES, ORDER_AREA, ORDER_BEGIN, ORDER_KEY_COUNT } order_key;
typedef struct sort_item {
    int64_t key, tie;
    int32_t row;
} sort_item;

static int compare_items(const void *a, const void *b)
{
    const sort_item *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    if (x->tie != y->tie) return x->tie > y->tie ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static void sort_units(placing *pl, sort_item *items, order_key key)
{
    for (int64_t i = 0; i < pl->order_count; i++) {
        const int32_t row = pl->order[i];
        const unit *u = &pl->units[row];
        items[i].row = row;
        items[i].tie = u->bytes;
        items[i].key = key == ORDER_BYTES  ? u->bytes
                       : key == ORDER_AREA ? u->area
                                           : -(u->span_count > 0 ? u->spans[0].begin : 0);
    }
    qsort(items, (size_t)pl->order_count, sizeof(*items), compare_items);
    for (int64_t i = 0; i < pl->order_count; i++) pl->order[i] = items[i].row;
}

// Turns 64 x 64 bits over their diagonal (Hacker's Delight, 7-3).
static void bits_transpose(uint64_t x[64])
{
    uint64_t mask = UINT64_C(0x00000000ffffffff);
    for (int j = 32; j != 0; j >>= 1, mask ^= mask << j) {
        for (int k = 0; k < 64; k = ((k | j) + 1) & ~j) {
            const uint64_t t = (x[k] >> j ^ x[k | j]) & mask;
            x[k] ^= t << j;
            x[k | j] ^= t;
        }
    }
}

// What meets is known to both: each block is added to its mirror.
static void meets_mirror(placing *pl)
{
    const int64_t n = pl->order_count, words = pl->words;
    uint64_t block[64];
    for (int64_t i = 0; i < words; i++) {
        for (int64_t j = 0; j < words; j++) {
            for (int64_t k = 0; k < 64; k++) {
                block[k] = 64 * i + k < n ? pl->meets[(64 * i + k) * words + j] : 0;
            }
            bits_transpose(block);
            for (int64_t k = 0; k < 64 && 64 * j + k < n; k++) {
                pl->meets[(64 * j + k) * words + i] |= block[k];
            }
        }
    }
}

typedef struct border {
    int64_t time;
    int32_t number;
    bool begins;
} border;

static int compare_borders(const void *a, const void *b)
{
    const border *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return (int)y->begins - (int)x->begins; // who begins as another ends meets it
}

// Which units meet, once for all orders: a bit for each pair. Through time from border to border: who begins
// meets all that have begun and not ended.
static status meets_find(arena *a, placing *pl)
{
    enum { MOST = 1 << 14 }; // units: 32 MiB of bits
    const int64_t n = pl->order_count;
    border *borders = NULL;
    uint64_t *open = NULL;
    int64_t count = 0, i = 0;
    for (int64_t k = 0; k < n; k++) {
        pl->units[pl->order[k]].number = (int32_t)k;
        count += 2 * pl->units[pl->order[k]].span_count;
    }
    if (n > MOST) return ST_OK;
    pl->words = (n + 63) / 64;
    TRY(arena_new(a, n * pl->words, &pl->meets));
    TRY(arena_new(a, pl->words + 1, &open));
    TRY(arena_new(a, count + 1, &borders));
    for (int64_t k = 0; k < n; k++) {
        const unit *u = &pl->units[pl->order[k]];
        for (int64_t s = 0; s < u->span_count; s++) {
            borders[i++] = (border){u->spans[s].begin, (int32_t)k, true};
            borders[i++] = (border){u->spans[s].end, (int32_t)k, false};
        }
    }
    qsort(borders, (size_t)count, sizeof(*borders), compare_borders);
    for (i = 0; i < count; i++) {
        const int64_t number = borders[i].number;
        const uint64_t bit = UINT64_C(1) << (number % 64);
        uint64_t *row = &pl->meets[number * pl->words];
        for (int64_t w = 0; w < pl->words && borders[i].begins; w++) row[w] |= open[w];
        if (borders[i].begins) {
            open[number / 64] |= bit;
        } else {
            open[number / 64] &= ~bit;
        }
    }
    meets_mirror(pl);
    return ST_OK;
}

// A unit that has its place.
typedef struct placed {
    int64_t begin, end; // bytes
    int32_t row, number;
} placed;

// As above, of units that are in the table of bits.
static bool row_meets(const uint64_t *row, const placed *b)
{
    const uint32_t number = (uint32_t)b->number;
    return (row[number / 64] >> (number % 64) & 1) != 0;
}

static bool units_meet(const placing *pl, const unit *a, const placed *b)
{
    int64_t touches = 0;
    return spans_meet(a, &pl->units[b->row], NULL, &touches);
}

// Places the units in the given order. Returns the bytes needed. `all` keeps what has its place, by
// offset, so that holes are met in that order without sorting.
static int64_t place_in_order(placing *pl, placed *all)
{
    int64_t total = 0;
    for (int64_t i = 0; i < pl->order_count; i++) {
        unit *u = &pl->units[pl->order[i]];
        const uint64_t *row = pl->meets != NULL ? &pl->meets[u->number * pl->words] : NULL;
        int64_t at = 0, best_at = -1, best_gap = INT64_MAX;
        for (int64_t j = 0; j < i; j++) { // nobody can guess which of them meet: few branches
            const bool meets = row != NULL ? row_meets(row, &all[j]) : units_meet(pl, u, &all[j]);
            const int64_t gap = all[j].begin - at;
            if (meets & (gap >= u->bytes) & (gap < best_gap)) { // best fit keeps large holes whole
                best_gap = gap;
                best_at = at;
            }
            at = max_i64(at, meets ? all[j].end : 0);
        }
        u->offset = best_at >= 0 ? best_at : at;
        total = max_i64(total, u->offset + u->bytes);
        int64_t to = i;
        for (; to > 0 && all[to - 1].begin > u->offset; to--) all[to] = all[to - 1];
        all[to] = (placed){u->offset, u->offset + u->bytes, pl->order[i], u->number};
    }
    return total;
}

typedef struct live_event {
    int64_t time, bytes; // bytes > 0: begins at time; < 0: ended before time
} live_event;

static int compare_events(const void *a, const void *b)
{
    const live_event *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; // ends first
}

// The largest sum of live bytes at any time: no assignment can need less.
static status live_bound(arena *a, const placing *pl, int64_t *bytes, int64_t *when)
{
    int64_t count = 0, i = 0;
    for (int64_t k = 0; k < pl->order_count; k++) count += pl->units[pl->order[k]].span_count;
    live_event *events = NULL;
    TRY(arena_new(a, 2 * count + 1, &events));
    for (int64_t k = 0; k < pl->order_count; k++) {
        const unit *u = &pl->units[pl->order[k]];
        for (int64_t s = 0; s < u->span_count; s++) {
            events[i++] = (live_event){u->spans[s].begin, u->bytes};
            events[i++] = (live_event){u->spans[s].end + 1, -u->bytes};
        }
    }
    qsort(events, (size_t)i, sizeof(*events), compare_events);
    int64_t live = 0;
    *bytes = 0;
    *when = 0;
    for (int64_t k = 0; k < i; k++) {
        live += events[k].bytes;
        if (live > *bytes) {
            *bytes = live;
            *when = events[k].time;
        }
    }
    ASSERT(live == 0);
    return ST_OK;
}

// What the bytes of the fullest moment are for.
static void live_kinds(plan *p, const placing *pl, int64_t when)
{
    for (int64_t k = 0; k < pl->order_count; k++) {
        const unit *u = &pl->units[pl->order[k]];
        for (int64_t s = 0; s < u->span_count; s++) {
            if (u->spans[s].begin > when || u->spans[s].end < when) continue;
            p->live_by_kind[p->tensors[pl->order[k]].kind] += u->bytes;
        }
    }
}

static status units_make(const plan *p, arena *a, const life_table *lives, placing *pl)
{
    pl->count = p->tensor_count;
    TRY(arena_new(a, pl->count + 1, &pl->units));
    TRY(arena_new(a, pl->count + 1, &pl->order));
    TRY(arena_new(a, pl->count + 1, &pl->best));
    for (int64_t i = 0; i < pl->count; i++) {
        unit *u = &pl->units[i];
        u->leader = (int32_t)i;
        u->bytes = p->tensors[i].bytes;
        if (i < lives->capacity) {
            u->spans = lives->lives[i].spans;
            u->span_count = lives->lives[i].count;
        }
    }
    for (int64_t i = 0; i < lives->link_count; i++) TRY(fuse(p, a, pl, &lives->links[i]));
    for (int64_t i = 0; i < pl->count; i++) {
        unit *u = &pl->units[i];
        if (u->leader != i || u->span_count == 0 || u->bytes == 0) continue;
        pl->order[pl->order_count++] = (int32_t)i;
        for (int64_t s = 0; s < u->span_count; s++) {
            u->area += (u->spans[s].end - u->spans[s].begin + 1) * (u->bytes / ALIGN_TENSOR);
        }
    }
    return ST_OK;
}

status plan_memory_assign(plan *p, life_table *lives)
{
    arena *a = NULL;
    TRY(arena_create("plan memory", 0, &a));
    placing pl = {0};
    sort_item *items = NULL;
    placed *all = NULL;
    status st = ST_OK;
    TRY_TO(done, units_make(p, a, lives, &pl));
    TRY_TO(done, meets_find(a, &pl));
    TRY_TO(done, arena_new(a, pl.order_count + 1, &items));
    TRY_TO(done, arena_new(a, pl.order_count + 1, &all));
    int64_t fullest = 0;
    TRY_TO(done, live_bound(a, &pl, &p->live_bytes, &fullest));
    live_kinds(p, &pl, fullest);
    p->transient_bytes = INT64_MAX;
    for (int key = 0; key < ORDER_KEY_COUNT; key++) {
        sort_units(&pl, items, (order_key)key);
        const int64_t total = place_in_order(&pl, all);
        if (total >= p->transient_bytes) continue;
        p->transient_bytes = total;
        for (int64_t i = 0; i < pl.order_count; i++) {
            pl.best[pl.order[i]] = pl.units[pl.order[i]].offset;
        }
        if (total == p->live_bytes) break;
    }
    for (int64_t i = 0; i < pl.count; i++) {
        if (p->tensors[i].is_part) continue;
        p->tensors[i].offset = pl.best[leader_of(&pl, (int32_t)i)];
    }
done:
    arena_destroy(a);
    return st;
}
