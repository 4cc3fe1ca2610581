// Pass 5 of lowering: tries one order after the other. Each unit gets the lowest offset at which no
// conflicting unit lies. The order decides how well the units pack; the best of a few orders is
// kept (greedy by size is rarely more than 2% above the bound: Pisarchyk and Lee 2020,
// arXiv:2001.03288).
#include "base/hash.h"
#include "plan/lower/place_internal.h"

#include <stdlib.h>
#include <string.h>

// Sort keys of the units, largest first.
typedef enum order_key {
    ORDER_BYTES,
    ORDER_AREA,
    ORDER_HULL, // bytes x time from the first use to the last; gaps count
    ORDER_BEGIN,
    ORDER_KEY_COUNT,
    // The orders after these are random perturbations of the first three. Among a few orders close
    // to a good one, one is nearly always better.
    ORDER_PERTURBED_COUNT = ORDER_KEY_COUNT + ORDERS_PERTURBED
} order_key;
_Static_assert((int)ORDER_KEY_COUNT == (int)ORDERS_PLAIN, "plain orders");
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

// Scales the key by a pseudo-random factor of 1 to 1.5, the same on all machines.
static int64_t perturbed(int64_t key, int32_t row, int turn)
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
    case ORDER_PERTURBED_COUNT:
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
                           : perturbed(key_of(u, (order_key)(key % ORDER_BEGIN)), row, (int)key);
    }
    qsort(items, (size_t)pl->order_count, sizeof(*items), compare_items);
    for (int64_t i = 0; i < pl->order_count; i++) pl->order[i] = items[i].row;
}

typedef struct stretch {
    int64_t begin, end; // bytes
} stretch;

// The units placed so far, by offset, so gaps are found in that order without sorting.
typedef struct placed {
    stretch *at;        // [placed]
    int32_t *number;    // [placed] number of the unit
    int32_t *row;       // [number]
    int32_t *conflicts; // placed units that conflict with the current one
} placed;

// Lists in all->conflicts which of the `count` placed units overlap `u` in time. The branch would
// be unpredictable, so the loop has none.
static int64_t conflicts_find(const placing *pl, const unit *u, placed *all, int64_t count)
{
    int64_t n = 0, touches = 0;
    if (pl->overlaps == NULL) {
        for (int64_t j = 0; j < count; j++) {
            const unit *other = &pl->units[all->row[all->number[j]]];
            all->conflicts[n] = (int32_t)j;
            n += intervals_overlap(u, other, NULL, &touches) ? 1 : 0;
        }
        return n;
    }
    const uint64_t *row = &pl->overlaps[u->number * pl->words];
    for (int64_t j = 0; j < count; j++) {
        const uint32_t number = (uint32_t)all->number[j];
        all->conflicts[n] = (int32_t)j;
        n += (int64_t)(row[number / 64] >> (number % 64) & 1);
    }
    return n;
}

// Offset of the narrowest gap with enough bytes, which keeps large gaps whole; otherwise the end.
static int64_t place_find(const placed *all, int64_t count, int64_t bytes)
{
    int64_t at = 0, best_at = -1, best_gap = INT64_MAX;
    for (int64_t j = 0; j < count; j++) {
        const stretch x = all->at[all->conflicts[j]];
        if (x.begin - at >= bytes && x.begin - at < best_gap) { // rare
            best_gap = x.begin - at;
            best_at = at;
        }
        at = max_i64(at, x.end);
    }
    return best_at >= 0 ? best_at : at;
}

static void placed_insert(placed *all, int64_t count, const unit *u)
{
    int64_t low = 0, high = count; // after all that begin at the same offset
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

// Places the units in the given order. Returns the bytes needed, or stops at `limit` or more.
static int64_t place_in_order(placing *pl, placed *all, int64_t limit)
{
    int64_t total = 0;
    for (int64_t i = 0; i < pl->order_count && total < limit; i++) {
        unit *u = &pl->units[pl->order[i]];
        u->offset = place_find(all, conflicts_find(pl, u, all, i), u->bytes);
        total = max_i64(total, u->offset + u->bytes);
        placed_insert(all, i, u);
    }
    return total;
}

status orders_try(arena *a, placing *pl, int first, int count, int64_t enough, int64_t *total)
{
    sort_item *items = NULL;
    placed all = {0};
    TRY(arena_new(a, pl->order_count + 1, &items));
    TRY(arena_new(a, pl->order_count + 1, &all.at));
    TRY(arena_new(a, pl->order_count + 1, &all.number));
    TRY(arena_new(a, pl->order_count + 1, &all.row));
    TRY(arena_new(a, pl->order_count + 1, &all.conflicts));
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
