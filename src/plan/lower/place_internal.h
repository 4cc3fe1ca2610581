// Shared by the files of pass 5: place.c (the attempts), _orders (placement in one order), _copies
// (tensors of slots), _overlaps (units that are live at the same time), _pools (unsharded tensors)
// and _bound (the least that any assignment needs).
#ifndef PLAN_LOWER_PLACE_INTERNAL_H
#define PLAN_LOWER_PLACE_INTERNAL_H

#include "plan/lower/place.h"

// Fused tensors, or a live interval that is placed alone.
typedef struct unit {
    int64_t bytes, offset, area;
    live_interval *spans; // sorted, disjoint
    int64_t span_count;
    int32_t leader;
    int32_t number; // number among the placed units
} unit;

typedef struct copy_group copy_group;

typedef struct placing {
    unit *units; // [tensor]; only leaders are placed. Intervals that are placed alone follow them
    int64_t count, unit_count, unit_capacity;
    int32_t *order;
    int64_t order_count;
    int64_t *best; // [tensor] offsets of the best order so far
    // [number * words + word] bits of the units whose intervals overlap its own; NULL: too many
    // units
    uint64_t *overlaps;
    int64_t words;
    copy_group *groups; // [class]
    unit *old;          // [tensor] before intervals were distributed
    bool *is_odd;       // [unit] its intervals stay
    bool *is_pooled;    // [tensor] unsharded, and its intervals record their units; NULL: none is
} placing;

static inline int32_t unit_leader(const placing *pl, int32_t row)
{
    while (pl->units[row].leader != row) row = pl->units[row].leader;
    return row;
}

// Fills the table of overlaps and the units' numbers; with too many units there is no table.
NODISCARD status overlaps_find(arena *a, placing *pl);
// True if two units overlap anywhere but at the single times when `from` passes its bytes to `to`
// (if link is not NULL).
bool intervals_overlap(const unit *a, const unit *b, const inplace_link *link, int64_t *touches);

// Tries `count` orders from number `first` on, and keeps the best of them if it needs less than
// `total`. The first ORDERS_PLAIN orders are by size and time, the others are random perturbations
// of these.
enum { ORDERS_PLAIN = 4, ORDERS_PERTURBED = 24 };
NODISCARD status orders_try(arena *a, placing *pl, int first, int count, int64_t enough,
                            int64_t *total);

// Fills live_bytes, live_by_kind and the other sums at the fullest moment.
NODISCARD status place_bound(plan *p, arena *a, placing *fused);

// How live intervals are distributed over equivalent tensors.
typedef enum distribution {
    DISTRIBUTE_SLOTS,  // each stays in its slot
    DISTRIBUTE_SHARE,  // to the first free tensor of as many bytes, of any name
    DISTRIBUTE_PIECES, // each is placed alone, with one tensor for each place
    DISTRIBUTE_COUNT
} distribution;
// Makes the units of an attempt. With DISTRIBUTE_SLOTS it only finds which intervals could move.
NODISCARD status copies_make(arena *a, const lifetime_table *lifetimes, distribution how,
                             placing *pl);
// Tells lifetimes and tensors where they went.
NODISCARD status copies_apply(plan *p, arena *a, const lifetime_table *lifetimes,
                              const placing *pl);

// How live intervals of unsharded tensors are distributed: each stays in its tensor, they share few
// units, or each is placed alone.
typedef enum pooling { POOL_NONE, POOL_SHARE, POOL_PIECES } pooling;
NODISCARD status pools_make(const plan *p, arena *a, const lifetime_table *lifetimes, pooling how,
                            placing *pl);
// Tells lifetimes and tensors where they went.
NODISCARD status pools_apply(plan *p, arena *a, const lifetime_table *lifetimes, const placing *pl);

#endif
