// Pass 5 of lowering: offsets of the transient tensors, from their live intervals.
#ifndef PLAN_LOWER_PLACE_H
#define PLAN_LOWER_PLACE_H

#include "plan/lower/bind.h"
#include "plan/lower/live.h"

typedef struct place_input {
    plan *p;
    lifetime_table *lifetimes;
    bool pools;     // all intervals of a step are recorded, so unsharded tensors may move
    int64_t enough; // transient bytes at which the search for better offsets stops; 0: never
    arena *scratch; // for temporary data, empty before and after; NULL: its own
} place_input;

// Fills transient_bytes, live_bytes and the other sums of bytes.
NODISCARD status plan_place_sizes(const place_input *in);
// Also gives every transient tensor its offset, and assigns each interval of equivalent tensors to
// one of them.
NODISCARD status plan_place_offsets(const place_input *in);

// Finds the equivalent tensors of slots; call it before placing.
NODISCARD status place_find_copies(const lower_input *in, const expanded *x, const bound *b,
                                   slot_copies *out);
// Gives actions and communications the tensors that their intervals were assigned to; call it after
// plan_place_offsets.
NODISCARD status place_moves(const lower_input *in, const lifetime_table *lifetimes,
                             const int64_t *begins);
// The tensor that holds `row` between two times, both within one live interval.
int32_t lifetime_row_at(const lifetime_table *t, int32_t row, int64_t begin, int64_t end);

// Sorts rows [0, count) by their keys, which are 0 to `most`; equal keys keep the order of rows.
// The keys are times, with a few rows for each, so this counting sort is used: a sort by comparison
// took a quarter of the time of placing.
NODISCARD status rows_sort(arena *a, const int64_t *keys, int64_t count, int64_t most,
                           int32_t **out);

#endif
