// What a sum holds: terms, each at most once. Of gradients a term is what one use of a weight gives
// for some sequences of the global batch on one rank of those that share them (its cell); of the
// loss, tokens; of the norm, elements of a weight; of what is updated, bytes.
#ifndef PLAN_VERIFY_VERIFY_TERMS_H
#define PLAN_VERIFY_VERIFY_TERMS_H

#include "base/base.h"

typedef struct verify_term {
    int32_t source, cell;
    int64_t begin, end;
} verify_term;

// Sorted by source, cell and begin; neighbours that touch are one.
typedef struct verify_terms {
    const verify_term *rows; // never changed where they stand: sums may share them
    int32_t count;
} verify_terms;

// What a stretch of a tensor's bytes holds.
typedef struct verify_value {
    int64_t begin, end; // bytes from the tensor's beginning
    verify_terms terms;
    int32_t maker; // action that made it so
    bool taken;    // something has used it since
    // Of weights and states: whose they are (weight and kind), how much further on in it than here,
    // and whether this step has updated them. Those that it has not are noted where they were
    // gathered.
    int32_t weight, kind;
    int64_t shift;
    bool updated;
} verify_value;

// Of a tensor: sorted, apart. Bytes that none covers hold nothing.
typedef struct verify_values {
    verify_value *rows;
    int64_t count, capacity;
} verify_values;

// a + b. What both hold is in *twice, its source -1 if there is nothing.
NODISCARD status verify_terms_add(arena *a, const verify_terms *x, const verify_terms *y,
                                  verify_terms *out, verify_term *twice);
// The first stretch of [begin, end) of a source and cell that is not there; false: all is.
bool verify_terms_lack(const verify_terms *t, int32_t source, int32_t cell, int64_t begin,
                       int64_t end, verify_term *lack);

// Cuts values at both ends of [begin, end), and gives the rows between: [*first, *last).
NODISCARD status verify_values_cut(arena *a, verify_values *v, int64_t begin, int64_t end,
                                   int64_t *first, int64_t *last);
// These bytes hold nothing.
NODISCARD status verify_values_clear(arena *a, verify_values *v, int64_t begin, int64_t end);
// These bytes hold this now, and nothing else.
NODISCARD status verify_values_set(arena *a, verify_values *v, const verify_value *value);

#endif
