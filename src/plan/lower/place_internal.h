// Shared by the files of pass 5: place.c (the attempts), _orders (places in one order), _copies
// (tensors of slots), _overlaps (which are live with which), _pools (what passes) and _bound (the
// least that any assignment needs).
#ifndef PLAN_LOWER_PLACE_INTERNAL_H
#define PLAN_LOWER_PLACE_INTERNAL_H

#include "plan/lower/place.h"

// Tensors that are fused, or a span that is placed alone.
typedef struct unit {
    int64_t bytes, offset, area;
    live_interval *spans; // sorted, disjoint
    int64_t span_count;
    int32_t leader;
    int32_t number; // among those that are placed
} unit;

typedef struct copy_group copy_group;

typedef struct placing {
    unit *units; // [tensor]; only leaders are placed. Behind them spans that are placed one by one
    int64_t count, unit_count, unit_capacity;
    int32_t *order;
    int64_t order_count;
    int64_t *best; // [tensor] offsets of the best order so far
    // [number * words + word] bits of those whose spans meet its own; NULL: too many units
    uint64_t *meets;
    int64_t words;
    copy_group *groups; // [class]
    unit *old;          // [tensor] before spans were dealt
    bool *is_odd;       // [unit] its spans stay
    bool *is_pooled;    // [tensor] it passes, and its spans know their units; NULL: none is
} placing;

static inline int32_t unit_leader(const placing *pl, int32_t row)
{
    while (pl->units[row].leader != row) row = pl->units[row].leader;
    return row;
}

// Fills meets and words, and the units' numbers; of too many units there is no table.
NODISCARD status meets_find(arena *a, placing *pl);
// Do two units overlap anywhere but at the single points where `from` hands its bytes to `to` (link
// not NULL)?
bool spans_meet(const unit *a, const unit *b, const inplace_link *link, int64_t *touches);

// Tries `count` orders from number `first` on, and keeps the best of them and of what `total` has
// been so far. The first ORDERS_PLAIN are by size and time, the others those shaken.
enum { ORDERS_PLAIN = 4, ORDERS_SHAKEN = 24 };
NODISCARD status orders_try(arena *a, placing *pl, int first, int count, int64_t enough,
                            int64_t *total);

// The largest sum of live bytes at any time, and what it is of: fills live_bytes, live_by_kind and
// the like.
NODISCARD status place_bound(plan *p, arena *a, placing *fused);

// How spans are dealt to tensors that are alike.
typedef enum distribution {
    DISTRIBUTE_SLOTS,  // all stay in their slots
    DISTRIBUTE_SHARE,  // to the first tensor of as many bytes, of any name, that is free
    DISTRIBUTE_PIECES, // each is placed alone, with one tensor for each place
    DISTRIBUTE_COUNT
} distribution;
// DISTRIBUTE_SLOTS: nothing is dealt, but it is known which could be.
NODISCARD status copies_make(arena *a, const lifetime_table *lifetimes, distribution how,
                             placing *pl);
// Tells lifetimes and tensors where they went.
NODISCARD status copies_settle(plan *p, arena *a, const lifetime_table *lifetimes,
                               const placing *pl);

// What is done with the spans of what passes: each stays in its tensor, they are dealt to few
// units, or each is placed alone.
typedef enum pooling { POOL_NONE, POOL_SHARE, POOL_PIECES } pooling;
NODISCARD status pools_make(const plan *p, arena *a, const lifetime_table *lifetimes, pooling how,
                            placing *pl);
// Tells lifetimes and tensors where they went.
NODISCARD status pools_settle(plan *p, arena *a, const lifetime_table *lifetimes,
                              const placing *pl);

#endif
