// Declarations shared by the files of plan/ only: live intervals, which lowering finds while it
// emits actions, and the memory assignment uses.
#ifndef PLAN_PLAN_INTERNAL_H
#define PLAN_PLAN_INTERNAL_H

#include "plan/plan.h"

// An interval in which a tensor's bytes are live: from its first write to its last use. Time counts
// nodes on the compute stream.
typedef struct live_interval {
    int64_t begin, end; // inclusive
    // Before distribution the micro-batch of the interval; -1: none. Afterwards the equivalent
    // tensor that holds it; -1: the tensor itself.
    int32_t copy;
} live_interval;

typedef struct lifetime {
    live_interval *spans;
    int64_t count, capacity;
    bool open;           // the next access extends the last interval; else it begins a new one
    bool is_distributed; // its spans have copies
} lifetime;

// At `time` a node reads `from` for the last time and may write `to` over it.
typedef struct inplace_link {
    int32_t from, to;
    int64_t time;
} inplace_link;

// Equivalent tensors, one for each slot of a pipeline. None is live between two of its intervals,
// so any of them may hold each interval.
typedef struct slot_copies {
    int32_t *rows;     // [class * slots + slot] transient tensor
    int32_t *class_of; // [transient tensor]; -1: no other is equivalent
    int64_t count, tensors;
    int32_t slots;
} slot_copies;

typedef struct lifetime_table {
    arena *a;
    slot_copies copies; // count 0: there are none
    lifetime *rows;     // [transient tensor]
    int64_t capacity;
    inplace_link *links;
    int64_t link_count, link_capacity;
    int64_t now;
    int32_t microbatch; // of spans that begin
} lifetime_table;

// Ends the use of a scratch arena: a lent one is kept for the next plan, an own one destroyed.
static inline void plan_arena_release(arena *a, const arena *lent)
{
    if (a == lent) {
        arena_reset(a);
    } else {
        arena_destroy(a);
    }
}

NODISCARD status plan_tensor_push(plan *p, const plan_tensor *tensor, int32_t *row);

// fuse.c: marks operations that are launched as one (plan_binding.fused); the last step of making a
// plan. Without request.fuses none are.
NODISCARD status plan_fuse(const plan_request *request, plan *p);

#endif
