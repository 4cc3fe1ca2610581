// Pass 5 of lowering: offsets of the transient tensors, from their live intervals.
#ifndef PLAN_LOWER_PLACE_H
#define PLAN_LOWER_PLACE_H

#include "plan/lower/bind.h"
#include "plan/lower/live.h"

typedef struct place_input {
    plan *p;
    lifetime_table *lifetimes;
    bool pools;     // all intervals of a step are recorded, so what passes may change its place
    int64_t enough; // transient bytes: with no more, no better places are looked for; 0: the best
    arena *scratch; // to work in, empty before and after; NULL: its own
} place_input;

// Fills transient_bytes, live_bytes and the like.
NODISCARD status plan_place_sizes(const place_input *in);
// Gives every transient tensor its offset, too, and spends each interval of tensors that are alike
// in one of them.
NODISCARD status plan_place_offsets(const place_input *in);

// Before: tensors of slots that are alike.
NODISCARD status place_find_copies(const lower_input *in, const expanded *x, const bound *b,
                                   slot_copies *out);
// After plan_place_offsets: actions and communications get the tensors of their time.
NODISCARD status place_moves(const lower_input *in, const lifetime_table *lifetimes,
                             const int64_t *begins);
// The tensor that `row` is to be between two times, all of one interval of it.
int32_t lifetime_row_at(const lifetime_table *t, int32_t row, int64_t begin, int64_t end);

// Rows [0, count) in the order of their keys, which are 0 to `most`; where these are equal, in
// their own. Times are such keys: there are a few for each interval, and to compare intervals took
// a quarter of the time of placing them.
NODISCARD status rows_sort(arena *a, const int64_t *keys, int64_t count, int64_t most,
                           int32_t **out);

#endif
