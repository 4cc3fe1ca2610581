// The collective operations and their reductions, as the plan records them and comm runs them.
#ifndef OP_COLLECTIVE_H
#define OP_COLLECTIVE_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// n is the number of ranks of the group.
typedef enum op_collective {
    // COLLECTIVE_               in                       out                 count: elements of
    COLLECTIVE_ALL_REDUCE,     // count                    count               in
    COLLECTIVE_REDUCE_SCATTER, // n * count, piece r to r  count               out
    COLLECTIVE_ALL_GATHER,     // count                    n * count           in
    COLLECTIVE_BROADCAST,      // root: count              count               out
    COLLECTIVE_REDUCE,         // count                    root: count         in
    COLLECTIVE_GATHER,         // count                    root: n * count     in
    COLLECTIVE_SCATTER,        // root: n * count          count               out
    COLLECTIVE_ALL_TO_ALL,     // n * count                n * count           one piece
    COLLECTIVE_ALL_TO_ALLV,    // send_counts in order     receive_counts      (0)
    COLLECTIVE_SEND,           // count; root is the peer  -                   in
    COLLECTIVE_RECEIVE,        // -                        count; root: peer   out
    COLLECTIVE_BARRIER,        // -                        -                   (0)
    COLLECTIVE_COUNT
} op_collective;

typedef enum op_reduction {
    REDUCTION_SUM,
    REDUCTION_MAX, // NaN where any term is NaN, as for MIN
    REDUCTION_MIN,
    REDUCTION_AVG, // the sum times 1/n, rounded; not for integers
    REDUCTION_COUNT
} op_reduction;

const char *
op_collective_name(op_collective op); // "all_reduce"; "?" for a number that is no operation
const char *op_reduction_name(op_reduction r); // "sum"
// Returns false, and leaves *out unchanged, if no operation has this name.
bool op_collective_parse(const char *name, op_collective *out);

#ifdef __cplusplus
}
#endif
#endif
