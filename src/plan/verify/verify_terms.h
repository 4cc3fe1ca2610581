// Sets of terms. A sum has each term at most once. A term of a gradient is one use of a weight on
// some sequences of the global batch, on one of the ranks that share them (its cell). Terms of the
// loss are tokens, those of the norm are elements of a weight, and those of an update are bytes.
#ifndef PLAN_VERIFY_VERIFY_TERMS_H
#define PLAN_VERIFY_VERIFY_TERMS_H

#include "base/base.h"

typedef struct verify_term {
    int32_t source, cell;
    int64_t begin, end;
} verify_term;

// Sorted by source, cell and begin; adjacent ranges are merged.
typedef struct verify_terms {
    const verify_term *rows; // immutable, because sums may share them
    int32_t count;
} verify_terms;

// The terms in a range of a tensor's bytes.
typedef struct verify_value {
    int64_t begin, end; // bytes from the tensor's beginning
    verify_terms terms;
    int32_t maker; // action that wrote it last
    bool taken;    // an action has used it since
    // For weights and states: the weight and kind that the bytes belong to, their offset in it
    // relative to here, and whether this step has updated them. Bytes that are not updated are
    // recorded only where they were gathered.
    int32_t weight, kind;
    int64_t shift;
    bool updated;
} verify_value;

// The values of a tensor: sorted and disjoint. Other bytes have no terms.
typedef struct verify_values {
    verify_value *rows;
    int64_t count, capacity;
} verify_values;

// Adds two sets. *twice is a term that both have; its source is -1 if there is none.
NODISCARD status verify_terms_add(arena *a, const verify_terms *x, const verify_terms *y,
                                  verify_terms *out, verify_term *twice);
// Finds the first missing range in [begin, end) of a source and cell; false: none is missing.
bool verify_terms_lack(const verify_terms *t, int32_t source, int32_t cell, int64_t begin,
                       int64_t end, verify_term *lack);

// Cuts values at both ends of [begin, end) and returns the rows between them: [*first, *last).
NODISCARD status verify_values_cut(arena *a, verify_values *v, int64_t begin, int64_t end,
                                   int64_t *first, int64_t *last);
// Removes the terms of these bytes.
NODISCARD status verify_values_clear(arena *a, verify_values *v, int64_t begin, int64_t end);
// Replaces the terms of these bytes.
NODISCARD status verify_values_set(arena *a, verify_values *v, const verify_value *value);

#endif
