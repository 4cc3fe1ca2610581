// Inside comm/algo/: the common part of the direct algorithms.
//
// A direct algorithm is a *core*: each rank does its share with the addresses of all ranks'
// operands, by reads and writes of peers' memory. direct_run() calls it in one of three ways, the
// same on all ranks:
//
//   inline  operands of at most 512 bytes (1,024 where ranks share cores) lie in the descriptors:
//           arrive, core on copies, done
//   place   all buffers that peers touch are in shared regions: arrive, core, depart. If ranks
//           share cores, the running rank does the shares of those that wait for a core, which
//           saves a context switch
//   staged  some buffers are not: rounds over pieces that fit the stages: copy in, depart, core,
//           depart, copy out
//
// Operands in memory of GPUs (comm/peer.h) are always taken in place: copies and sums are posted to
// a stream of the rank's GPU, and their end is awaited before depart.
#ifndef COMM_ALGO_DIRECT_H
#define COMM_ALGO_DIRECT_H

#include "comm/algo/algo.h"
#include "comm/args.h"

#ifdef __cplusplus
extern "C" {
#endif

// The buffers that peers touch. Other buffers may be private without a copy.
typedef enum direct_touch {
    DIRECT_PULL, // ranks read peers' `in`, write their own `out`
    DIRECT_PUSH, // ranks read their own `in`, write peers' `out`
    DIRECT_BOTH
} direct_touch;

// A range of one item, of all ranks, in bytes: count elements of width.
typedef struct direct_view {
    const comm_call *call;
    int rank; // whose share this is: the call's, or one that has no core now
    direct_touch touch;
    int64_t width, count;  // of each piece; but see direct_piece
    int64_t begin, end;    // of these elements, the rank's share of work that is divided
    const comm_item *item; // it, of this rank, and the first of its elements that is meant
    int64_t from;
    bool is_inline;                  // out holds this rank's alone
    int terms;                       // of the sum: all terms of all ranks; else one per rank
    const char **in;                 // [terms]; first piece
    char **out;                      // [size]; NULL: not within reach, or there is none
    int64_t *in_stride, *out_stride; // bytes from piece to piece, by rank
    const comm_reducer *reducer;     // of operations that add
    bool stream;                     // stores past the caches
} direct_view;
typedef void (*direct_core)(const direct_view *v);

// State of a group, kept from operation to operation.
typedef struct comm_direct comm_direct;
NODISCARD status comm_direct_create(int size, comm_direct **out);
void comm_direct_destroy(comm_direct *d); // NULL is legal

NODISCARD status direct_run(comm_call *call, direct_touch touch, direct_core core);
void direct_copy(const direct_view *v, char *to, const char *from, int64_t bytes);
void direct_reduce(const direct_view *v, const comm_reduce_args *args);
// Returns the elements of rank r's piece; pieces may end before the last rank.
static inline int64_t direct_piece(const direct_view *v, int r)
{
    return min_i64(max_i64(comm_item_piece(v->item, r) - v->from, 0), v->count);
}
// Returns the group's descriptor with the contract, and nothing else in it.
comm_descriptor *direct_descriptor(comm_call *call);
// After a core, with its status: waits for what it posted to a GPU, then for the peers.
NODISCARD status direct_end(comm_call *call, status st);
// Returns the error that rank r's buffers are not in memory that GPUs share.
NODISCARD status direct_is_outside(const comm_call *call, int r);
// [begin, end) of `count` elements, the part of `rank` of `size`, cut at cache lines.
void direct_share(int64_t count, int64_t width, int rank, int size, int64_t *begin, int64_t *end);

#ifdef __cplusplus
}
#endif
#endif
