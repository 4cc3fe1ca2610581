// The verifier: proves the plans of all ranks of a mesh sound before the first of them starts.
//
//   a  the members of each collective post it in the same order, with the same operation, type and
//      counts
//   b  no rank waits for ever under any timing, also where a stream's queue holds only so many
//      pieces of work
//   c  two actions that touch the same bytes, one of them writing, are in order, in this step and
//      the next; no action reads bytes that were not written in this live interval; no action
//      reaches out of its tensor
//   d  every term of every gradient (use x sequence, of the global batch) is in the sum exactly
//      once when the optimizer reads it, and so is every token in the loss and every weight in the
//      norm; every rank updates every byte of its weights and states once
//   e  strict: one left-to-right sum in a shard, the fixed tree over shards, uses in the order of
//      their forward
//   f  of two nodes in one launch the second writes nothing that the first still reads
//   g  the bytes that each rank needs
//
// It reads what the executor executes, and nothing else: a plan that was changed in memory, or that
// a user's schedule made, is proved or refused like any other.
#ifndef PLAN_VERIFY_VERIFY_H
#define PLAN_VERIFY_VERIFY_H

#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plan_verified {
    int64_t ranks, actions, rendezvous; // of one step, over all ranks
    int64_t waits;
    int64_t sums; // of gradients, weight by weight and rank by rank, that were followed to the end
    int64_t *peak_bytes; // [rank] of the arena
} plan_verified;

// Verifies the plans of ranks 0, 1, ... of the mesh, each on a placed table; some may be the same.
// queue_items: capacity of any stream's queue; 0: no limit. ST_BROKEN_PLAN names the two actions
// (rank, number, operation) and what is wrong between them. `a` holds workspace and result.
NODISCARD status plan_verify(arena *a, const plan_mesh *mesh, const plan *const *plans,
                             int32_t queue_items, plan_verified *out);

#ifdef __cplusplus
}
#endif
#endif
