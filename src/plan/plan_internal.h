// Shared by the files of plan/ only: what lowering learns about lifetimes while it emits actions,
// and what memory assignment makes of it.
#ifndef PLAN_PLAN_INTERNAL_H
#define PLAN_PLAN_INTERNAL_H

#include "plan/plan.h"

// A stretch of time in which a tensor's bytes matter: from its first write to its last use. Time
// counts nodes on the compute stream.
typedef struct live_interval {
    int64_t begin, end; // inclusive
    // the tensor that it is spent in, of those that are alike; -1: its own. Until it is dealt the
    // micro-batch that it is of; -1: of none
    int32_t copy;
} live_interval;

typedef struct lifetime {
    live_interval *spans;
    int64_t count, capacity;
    bool open;           // the next touch extends the last span; else it begins a new one
    bool is_distributed; // its spans have copies
} lifetime;

// At `time` a node reads `from` for the last time and may write `to` over it.
typedef struct inplace_link {
    int32_t from, to;
    int64_t time;
} inplace_link;

// Tensors that are alike, one for each slot of a pipeline. What one of them holds between two spans
// means nothing, so each span may be spent elsewhere.
typedef struct slot_copies {
    int32_t *rows;     // [class * slots + slot] transient tensor
    int32_t *class_of; // [transient tensor]; -1: it is like no other
    int64_t count, tensors;
    int32_t slots;
} slot_copies;

typedef struct lifetime_table {
    arena *a;
    slot_copies copies;  // count 0: there are none
    lifetime *lifetimes; // [transient tensor]
    int64_t capacity;
    inplace_link *links;
    int64_t link_count, link_capacity;
    int64_t now;
    int32_t microbatch; // of spans that begin
} lifetime_table;

// The end of work in a room that is lent (kept for the next plan), or was made for it.
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
