// Extents of tensors: constants, symbols that a plan binds, and bounds whose live count only the
// device knows.
#ifndef OP_EXTENT_H
#define OP_EXTENT_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t tensor_id; // a row of the program's tensor table
#define TENSOR_NONE ((tensor_id)-1)

// An extent: scale times the value of the symbol. A *bounded* one, of dim 0, is an upper bound:
// only the device knows the number of rows, as element count_at of the integer tensor `count` of
// the same program. Shapes, bytes and costs use the bound; kernels neither read nor write a row
// from the live count on.
typedef enum extent_symbol {
    EXTENT_ONE,        // a constant
    EXTENT_TOKENS,     // rows of the micro-batch: sequences * seq
    EXTENT_SEQS,       // sequences of the micro-batch
    EXTENT_CACHE,      // sequences * the longest cached sequence
    EXTENT_TOKENS_CUT, // rows of which each rank of AXIS_TP has its positions of every sequence
    EXTENT_SYMBOL_COUNT
} extent_symbol;
typedef struct extent {
    int64_t scale;
    extent_symbol symbol;
    bool bounded;
    int32_t count_at;
    tensor_id count;
    int64_t likely; // of a bounded extent whose count is usually smaller: its scale then; 0: scale
} extent;
// Makes an exact extent.
static inline extent extent_make(int64_t scale, extent_symbol symbol)
{
    extent e;
    e.scale = scale;
    e.symbol = symbol;
    e.bounded = false;
    e.count_at = 0;
    e.count = TENSOR_NONE;
    e.likely = 0;
    return e;
}
static inline extent extent_of(int64_t count)
{
    return extent_make(count, EXTENT_ONE);
}
static inline extent extent_tokens(int64_t per_token)
{
    return extent_make(per_token, EXTENT_TOKENS);
}
// Makes an extent of at most `bound`; element `at` of `count` has the live number.
static inline extent extent_bounded(extent bound, tensor_id count, int32_t at)
{
    extent e = bound;
    e.bounded = true;
    e.count_at = at;
    e.count = count;
    return e;
}
typedef struct extent_binding {
    int64_t value[EXTENT_SYMBOL_COUNT]; // [EXTENT_ONE] = 1
} extent_binding;

int64_t extent_value(extent e, const extent_binding *bound); // of a bounded one: the bound
// Returns the same, or the likely count of a bounded one: costs use it.
int64_t extent_likely(extent e, const extent_binding *bound);

#ifdef __cplusplus
}
#endif
#endif
