// Offsets: which transient tensors share bytes.
//
// Every tensor has its spans of time (plan_internal.h); two may share bytes only if no span of one
// meets a span of the other. First, tensors that a node may overwrite in place are fused into one
// *unit*. Units of a pipeline's slots may exchange spans (`deal` says how): what lives from the input half of a
// backward to its weight half would else meet its like of each other slot at some time, and zb-h2 takes 25%
// more than the bound, in whatever order units are placed; in DualPipe a forward fills a slot as a backward
// empties one, which takes up to 60%. (memory_copies.c.) So may those that only pass (memory_pools.c). Then units are placed, each
// at the lowest offset that no conflicting unit already placed covers. The order decides how well they pack; the
// best of a few orders is kept (greedy by size is rarely more than 2% above the bound: Pisarchyk and Lee 2020,
// arXiv:2001.03288). The bound itself, the largest sum of live bytes at any time, is computed too, and a test
// holds the arena to it.
#include "base/hash.h"
#include "plan/lower/memory_internal.h"

#include <stdlib.h>
#include <string.h>

int32_t life_moved(const life_table *t, int32_t row, int64_t begin, int64_t end)
{
    if (row < 0 || row >= t->capacity || !t->lives[row].dealt) return row;
    const life *l = &t->lives[row];
    int64_t low = 0, high = l->count; // the first span that ends at `begin` or later
    while (low < high) {
        const int64_t i = low + (high - low) / 2;
        if (l->spans[i].end < begin) {
            low = i + 1;
        } else {
            high = i;
        }
    }
    // One that a message ended as this action began is not what its later nodes made anew.
    while (low + 1 < l->count && l->spans[low + 1].begin <= end &&
           l->spans[low + 1].begin > l->spans[low].end) {
        low++;
    }
    if (low == l->count || l->spans[low].begin > end) return row;
    return l->spans[low].copy >= 0 ? l->spans[low].copy : row;
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

// One unit for `from` and `to` if nowhere both matter at once.
static status fuse(const plan *p, arena *a, placing *pl, const life_link *link)
{
    const int32_t x = unit_leader(pl, link->from), y = unit_leader(pl, link->to);
    if (x == y || pl->units[x].bytes != pl->units[y].bytes) return ST_OK;
    if (p->tensors[link->from].bytes != p->tensors[link->to].bytes) return ST_OK;
    int64_t touches = 0;
    if (spans_meet(&pl->units[x], &pl->units[y], link, &touches) || touches == 0) return ST_OK;
    unit *u = &pl->units[x], *v = &pl->units[y];
    life_span *all = NULL;
    TRY(arena_new(a, u->span_count + v->span_count, &all));
    int64_t kept = 0;
    for (int64_t i = 0, k = 0; i < u->span_count || k < v->span_count;) {
        const bool is_first =
            k == v->span_count || (i < u->span_count && u->spans[i].begin <= v->spans[k].begin);
        const life_span next = is_first ? u->spans[i++] : v->spans[k++];
        if (kept > 0 && next.begin <= all[kept - 1].end) {
            all[kept - 1].end = max_i64(all[kept - 1].end, next.end);
        } else {
            all[kept++] = next;
        }
    }
    u->spans = all;
    u->span_count = kept;
    v->leader = x;
    return ST_OK;
}

// ---- placing ------------------------------------------------------------------------------------

// What the units are sorted by, largest first; set through a file-local key to keep qsort's form.
typedef enum order_key {
    ORDER_BYTES,
    ORDER_AREA,
    ORDER_HULL, // bytes x time from the first use to the last: what comes and goes keeps its place
    ORDER_BEGIN,
    ORDER_KEY_COUNT,
    // From there on the first three shaken: of a few that are near a good one some are nearly always better.
    // More units than MOST_SHAKEN are not worth the time, for placing takes their square.
    ORDER_SHAKEN_COUNT = ORDER_KEY_COUNT + 24
} order_key;
enum { MOST_SHAKEN = 1500 };
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

// By up to half as much again, the same on all machines.
static int64_t shaken(int64_t key, int32_t row, int turn)
{
    const uint64_t what[] = {(uint64_t)row, (uint64_t)turn};
    return key + (int64_t)((double)(hash64(what, sizeof(what), 0) >> 40) * 0x1p-25 * (double)key);
}

static int64_t key_of(const unit *u, order_key key)
{
    const int64_t begin = u->spans[0].begin, end = u->spans[u->span_count - 1].end;
    switch (key) {
    case ORDER_BYTES:
        return u->bytes;
    case ORDER_AREA:
        return u->area;
    case ORDER_HULL:
        return (end - begin + 1) * (u->bytes / ALIGN_TENSOR);
    case ORDER_BEGIN:
    case ORDER_KEY_COUNT:
    case ORDER_SHAKEN_COUNT:
    default:
        return -begin;
    }
}

static void sort_units(placing *pl, sort_item *items, order_key key)
{
    for (int64_t i = 0; i < pl->order_count; i++) {
        const int32_t row = pl->order[i];
        const unit *u = &pl->units[row];
        items[i].row = row;
        items[i].tie = u->bytes;
        items[i].key = key < ORDER_KEY_COUNT
                           ? key_of(u, key)
                           : shaken(key_of(u, (order_key)(key % ORDER_BEGIN)), row, (int)key);
    }
    qsort(items, (size_t)pl->order_count, sizeof(*items), compare_items);
    for (int64_t i = 0; i < pl->order_count; i++) pl->order[i] = items[i].row;
}

typedef struct stretch {
    int64_t begin, end; // bytes
} stretch;

// Units that have their places, by offset, so that holes are met in that order without sorting.
typedef struct placed {
    stretch *at;     // [placed]
    int32_t *number; // [placed] its bit
    int32_t *row;    // [number]
    int32_t *met;    // those of a unit
} placed;

// Which of `count` placed ones `u` meets, into all->met. Nobody can guess it, so nothing is decided by it.
static int64_t met_find(const placing *pl, const unit *u, placed *all, int64_t count)
{
    int64_t n = 0, touches = 0;
    if (pl->meets == NULL) {
        for (int64_t j = 0; j < count; j++) {
            const unit *other = &pl->units[all->row[all->number[j]]];
            all->met[n] = (int32_t)j;
            n += spans_meet(u, other, NULL, &touches) ? 1 : 0;
        }
        return n;
    }
    const uint64_t *row = &pl->meets[u->number * pl->words];
    for (int64_t j = 0; j < count; j++) {
        const uint32_t number = (uint32_t)all->number[j];
        all->met[n] = (int32_t)j;
        n += (int64_t)(row[number / 64] >> (number % 64) & 1);
    }
    return n;
}

// The narrowest hole that takes so many bytes, which keeps large ones whole; or behind all.
static int64_t place_find(const placed *all, int64_t count, int64_t bytes)
{
    int64_t at = 0, best_at = -1, best_gap = INT64_MAX;
    for (int64_t j = 0; j < count; j++) {
        const stretch x = all->at[all->met[j]];
        if (x.begin - at >= bytes && x.begin - at < best_gap) { // seldom
            best_gap = x.begin - at;
            best_at = at;
        }
        at = max_i64(at, x.end);
    }
    return best_at >= 0 ? best_at : at;
}

static void placed_insert(placed *all, int64_t count, const unit *u)
{
    int64_t low = 0, high = count; // behind all that begin where it does
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        const bool is_behind = all->at[middle].begin > u->offset;
        if (is_behind) high = middle;
        if (!is_behind) low = middle + 1;
    }
    memmove(&all->at[low + 1], &all->at[low], (size_t)(count - low) * sizeof(*all->at));
    memmove(&all->number[low + 1], &all->number[low], (size_t)(count - low) * sizeof(*all->number));
    all->at[low] = (stretch){u->offset, u->offset + u->bytes};
    all->number[low] = u->number;
}

// Places the units in the given order. Returns the bytes needed, or gives up where they are `limit` or more.
static int64_t place_in_order(placing *pl, placed *all, int64_t limit)
{
    int64_t total = 0;
    for (int64_t i = 0; i < pl->order_count && total < limit; i++) {
        unit *u = &pl->units[pl->order[i]];
        u->offset = place_find(all, met_find(pl, u, all, i), u->bytes);
        total = max_i64(total, u->offset + u->bytes);
        placed_insert(all, i, u);
    }
    return total;
}

// Is it a whole weight, or a whole gradient, that comes and goes?
static uint32_t passing_of(const plan *p, int32_t row)
{
    const plan_tensor *t = &p->tensors[row];
    if (!t->passes) return 0;
    return t->kind == BYTES_WEIGHTS ? PLAN_PASSING_WEIGHTS : PLAN_PASSING_GRADIENTS;
}

// The largest sum of live bytes at any time: no assignment can need less. What it would be without what passes,
// too.
static status live_bound(arena *a, plan *p, const placing *pl, int64_t *when)
{
    int64_t last = 0, live[PLAN_PASSING_COUNT] = {0};
    int64_t *more[PLAN_PASSING_COUNT] = {0}; // [what passes][time] than a moment before
    uint32_t all = 0;                        // that pass
    for (int64_t k = 0; k < pl->order_count; k++) {
        const unit *u = &pl->units[pl->order[k]];
        last = max_i64(last, u->spans[u->span_count - 1].end);
    }
    for (int64_t k = 0; k < pl->order_count; k++) {
        const unit *u = &pl->units[pl->order[k]];
        const uint32_t passing = passing_of(p, pl->order[k]);
        if (more[passing] == NULL) TRY(arena_new(a, last + 2, &more[passing]));
        all |= passing;
        for (int64_t s = 0; s < u->span_count; s++) {
            more[passing][u->spans[s].begin] += u->bytes;
            more[passing][u->spans[s].end + 1] -= u->bytes;
        }
    }
    memset(p->live_without, 0, sizeof(p->live_without));
    *when = 0;
    for (int64_t time = 0; time <= last; time++) {
        for (uint32_t bits = 0; bits < PLAN_PASSING_COUNT; bits++) {
            if (more[bits] != NULL) live[bits] += more[bits][time];
        }
        for (uint32_t without = 0; without <= all; without++) {
            int64_t sum = 0;
            for (uint32_t bits = 0; bits < PLAN_PASSING_COUNT; bits++) {
                sum += (bits & without) == 0 ? live[bits] : 0;
            }
            if (sum <= p->live_without[without]) continue;
            p->live_without[without] = sum;
            if (without == 0) *when = time;
        }
    }
    for (uint32_t without = all + 1; without < PLAN_PASSING_COUNT; without++) {
        p->live_without[without] = p->live_without[without & all];
    }
    p->live_bytes = p->live_without[0];
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
            if (passing_of(p, pl->order[k]) == 0) continue;
            p->passing_by_kind[p->tensors[pl->order[k]].kind] += u->bytes;
        }
    }
}

enum { MOST_UNITS = 4096 }; // of another way than the first: placing takes their square

static int64_t area_of(const unit *u)
{
    int64_t area = 0;
    for (int64_t s = 0; s < u->span_count; s++) {
        area += (u->spans[s].end - u->spans[s].begin + 1) * (u->bytes / ALIGN_TENSOR);
    }
    return area;
}

// A way to make units: how spans of slots are dealt, and whether those of what passes are.
typedef struct attempt {
    deal how;
    pooling pools;
} attempt;

// Tensors that a node may overwrite in place are fused: once for all attempts.
static status units_fuse(const plan *p, arena *a, const life_table *lives, placing *pl)
{
    *pl = (placing){.count = p->tensor_count, .unit_count = p->tensor_count};
    TRY(arena_grow(a, (void **)&pl->units, &pl->unit_capacity, pl->count + 1,
                   (int64_t)sizeof(unit)));
    for (int64_t i = 0; i < pl->count; i++) {
        pl->units[i] = (unit){.leader = (int32_t)i, .bytes = p->tensors[i].bytes};
        if (i >= lives->capacity) continue;
        pl->units[i].spans = lives->lives[i].spans;
        pl->units[i].span_count = lives->lives[i].count;
    }
    for (int64_t i = 0; i < lives->link_count; i++) TRY(fuse(p, a, pl, &lives->links[i]));
    return ST_OK;
}

static status units_order(arena *a, placing *pl)
{
    TRY(arena_new(a, pl->unit_count + 1, &pl->order));
    TRY(arena_new(a, pl->unit_count + 1, &pl->best));
    for (int64_t i = 0; i < pl->unit_count; i++) {
        unit *u = &pl->units[i];
        if (u->leader != i || u->span_count == 0 || u->bytes == 0) continue;
        pl->order[pl->order_count++] = (int32_t)i;
        u->area = area_of(u);
    }
    return ST_OK;
}

// Of fused ones.
static status units_make(const plan *p, arena *a, const life_table *lives, const placing *fused,
                         const attempt *how, placing *pl)
{
    *pl = (placing){.count = fused->count, .unit_count = fused->count};
    TRY(arena_grow(a, (void **)&pl->units, &pl->unit_capacity, pl->count + 1,
                   (int64_t)sizeof(unit)));
    memcpy(pl->units, fused->units, (size_t)pl->count * sizeof(unit));
    for (int64_t i = 0; i < pl->count; i++) {
        unit *u = &pl->units[i];
        for (int64_t k = 0; k < u->span_count; k++) u->spans[k].copy = -1;
    }
    TRY(copies_make(a, lives, how->how, pl));
    TRY(pools_make(p, a, lives, how->pools, pl));
    return units_order(a, pl);
}

// The best of a few orders, and of what `total` has been so far.
static status orders_try(arena *a, placing *pl, int first, int count, int64_t enough,
                         int64_t *total)
{
    sort_item *items = NULL;
    placed all = {0};
    TRY(arena_new(a, pl->order_count + 1, &items));
    TRY(arena_new(a, pl->order_count + 1, &all.at));
    TRY(arena_new(a, pl->order_count + 1, &all.number));
    TRY(arena_new(a, pl->order_count + 1, &all.row));
    TRY(arena_new(a, pl->order_count + 1, &all.met));
    for (int64_t i = 0; i < pl->order_count; i++) {
        all.row[pl->units[pl->order[i]].number] = pl->order[i];
    }
    const int end = first + count;
    for (int key = first; key < end && enough < *total; key++) {
        sort_units(pl, items, (order_key)key);
        const int64_t bytes = place_in_order(pl, &all, *total);
        if (bytes >= *total) continue;
        *total = bytes;
        for (int64_t i = 0; i < pl->order_count; i++) {
            pl->best[pl->order[i]] = pl->units[pl->order[i]].offset;
        }
    }
    return ST_OK;
}

static status units_place(arena *a, placing *pl, int64_t enough, int64_t *total)
{
    TRY(meets_find(a, pl));
    *total = INT64_MAX;
    return orders_try(a, pl, 0, ORDER_KEY_COUNT, enough, total);
}

// One behind the other they need no more than this.
static int64_t units_bytes(const placing *pl)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < pl->order_count; i++) bytes += pl->units[pl->order[i]].bytes;
    return bytes;
}

// What is still far after all of these is shaken.
static status units_shake(arena *a, placing *pl, int64_t enough, int64_t *total)
{
    if (pl->order_count > MOST_SHAKEN) return ST_OK;
    return orders_try(a, pl, ORDER_KEY_COUNT, ORDER_SHAKEN_COUNT - ORDER_KEY_COUNT, enough, total);
}

// Dealing in another way is for what is far from the bound, in thousandths.
static bool is_far(const plan *p, deal how, int64_t enough)
{
    if (p->transient_bytes <= enough) return false;
    static const int64_t most[DEAL_COUNT] = {
        [DEAL_SLOTS] = 5, [DEAL_SHARE] = 20, [DEAL_PIECES] = 40};
    const int64_t over = p->transient_bytes - p->live_bytes;
    return p->transient_bytes == INT64_MAX || over > p->live_bytes / 1000 * most[how];
}

static bool has_passing(const plan *p)
{
    for (int64_t i = 0; i < p->tensor_count; i++) {
        if (p->tensors[i].passes) return true;
    }
    return false;
}

// Which are worth it, the quickest first.
static const attempt alone[] = {{DEAL_SLOTS, POOL_NONE}};
static const attempt alike[] = {
    {DEAL_SHARE, POOL_NONE}, {DEAL_SLOTS, POOL_NONE}, {DEAL_PIECES, POOL_NONE}};
static const attempt passing[] = {
    {DEAL_SHARE, POOL_SHARE}, {DEAL_SHARE, POOL_PIECES}, {DEAL_PIECES, POOL_PIECES}};

// The largest sum of live bytes, and what it is of.
static status fullest_find(plan *p, arena *a, placing *fused)
{
    int64_t fullest = 0;
    TRY(units_order(a, fused));
    TRY(live_bound(a, p, fused, &fullest));
    live_kinds(p, fused, fullest);
    return ST_OK;
}

// The tensors' offsets, and where their spans are spent.
static status places_settle(plan *p, arena *a, const life_table *lives, const placing *pl)
{
    for (int64_t i = 0; i < pl->count; i++) {
        if (p->tensors[i].is_part) continue;
        p->tensors[i].offset = pl->best[unit_leader(pl, (int32_t)i)];
    }
    TRY(copies_settle(p, a, lives, pl));
    return pools_settle(p, a, lives, pl);
}

status plan_memory_assign(plan *p, life_table *lives, int64_t enough, arena *room)
{
    arena *a = room;
    if (a == NULL) TRY(arena_create("plan memory", 0, &a));
    placing fused = {0}, best = {0}, pl = {0};
    status st = ST_OK;
    attempt taken = {0};
    p->transient_bytes = INT64_MAX;
    const bool pools = lives->is_complete && has_passing(p);
    const bool copies = lives->copies.count > 0;
    const attempt *all = pools ? passing : copies ? alike : alone;
    const int count = pools ? COUNT_OF(passing) : copies ? COUNT_OF(alike) : COUNT_OF(alone);
    TRY_TO(done, units_fuse(p, a, lives, &fused));
    TRY_TO(done, fullest_find(p, a, &fused));
    for (int i = 0; i < count; i++) {
        int64_t total = 0;
        const attempt next = all[i];
        if (!is_far(p, next.how, enough)) break;
        TRY_TO(done, units_make(p, a, lives, &fused, &next, &pl));
        if (i > 0 && pl.order_count > MOST_UNITS) continue;
        total = units_bytes(&pl);
        const bool is_enough = lives->sizes_only && total <= enough; // wherever they are
        if (!is_enough) {
            TRY_TO(done, units_place(a, &pl, max_i64(p->live_bytes, enough), &total));
        }
        if (total >= p->transient_bytes) continue;
        p->transient_bytes = total;
        best = pl;
        taken = next;
    }
    const int64_t near = max_i64(p->live_bytes / 100 * 103, enough);
    TRY_TO(done, units_shake(a, &best, near, &p->transient_bytes));
    if (lives->sizes_only) goto done;
    const int64_t *offsets = best.best;
    if (count > 1)
        TRY_TO(done, units_make(p, a, lives, &fused, &taken, &best)); // the lives say so again
    for (int64_t i = 0; i < best.unit_count; i++) best.best[i] = offsets[i];
    TRY_TO(done, places_settle(p, a, lives, &best));
done:
    plan_room_leave(a, room);
    return st;
}
