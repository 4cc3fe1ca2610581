// Shared by the files of plan/ only: what lowering learns about lifetimes while it emits actions,
// and what memory assignment makes of it.
#ifndef PLAN_PLAN_INTERNAL_H
#define PLAN_PLAN_INTERNAL_H

#include "plan/plan.h"

// A stretch of time in which a tensor's bytes matter: from its first write to its last use. Time
// counts nodes on the compute lane.
typedef struct life_span {
    int64_t begin, end; // inclusive
} life_span;

typedef struct life {
    life_span *spans;
    int64_t count, capacity;
    bool open; // the next touch extends the last span; else it begins a new one
} life;

// At `time` a node reads `from` for the last time and may write `to` over it.
typedef struct life_link {
    int32_t from, to;
    int64_t time;
} life_link;

typedef struct life_table {
    arena *a;
    life *lives; // [transient tensor]
    int64_t capacity;
    life_link *links;
    int64_t link_count, link_capacity;
    int64_t now;
} life_table;

// Extends (or begins) the span of transient tensor `row` at time `now`.
NODISCARD status life_touch(life_table *t, int64_t row, int64_t time);
void life_close(life_table *t, int64_t row);

// Gives every transient tensor its offset and fills transient_bytes, live_bytes.
NODISCARD status plan_memory_assign(plan *p, life_table *lives);

NODISCARD status plan_tensor_push(plan *p, const plan_tensor *tensor, int32_t *row);

#endif
