// Shared by the files of memory assignment: memory.c (places), _copies (tensors of slots), _meets (who is in use
// with whom) and _pools (what passes).
#ifndef PLAN_LOWER_MEMORY_INTERNAL_H
#define PLAN_LOWER_MEMORY_INTERNAL_H

#include "plan/plan_internal.h"

// Tensors that are fused, or a span that is placed alone.
typedef struct unit {
    int64_t bytes, offset, area;
    life_span *spans; // sorted, disjoint
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
    uint64_t *
        meets; // [number * words + word] bits of those whose spans meet its own; NULL: too many units
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

// How spans are dealt to tensors that are alike.
typedef enum deal {
    DEAL_SLOTS,  // all stay in their slots
    DEAL_SHARE,  // to the first tensor of as many bytes, of any name, that is free
    DEAL_PIECES, // each is placed alone, and there are as many tensors as places that are found
    DEAL_COUNT
} deal;
// DEAL_SLOTS: nothing is dealt, but it is known which could be.
NODISCARD status copies_make(arena *a, const life_table *lives, deal how, placing *pl);
// Tells lives and tensors where they went.
NODISCARD status copies_settle(plan *p, arena *a, const life_table *lives, const placing *pl);

// What is done with the spans of what passes: each stays in its tensor, they are dealt to few units, or each is
// placed alone.
typedef enum pooling { POOL_NONE, POOL_SHARE, POOL_PIECES } pooling;
NODISCARD status pools_make(const plan *p, arena *a, const life_table *lives, pooling how,
                            placing *pl);
// Tells lives and tensors where they went.
NODISCARD status pools_settle(plan *p, arena *a, const life_table *lives, const placing *pl);

#endif
