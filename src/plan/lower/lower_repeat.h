// Lowering a few of very many micro-batches: which, and what is noted of them on the way (lower_repeat.c).
#ifndef PLAN_LOWER_LOWER_REPEAT_H
#define PLAN_LOWER_LOWER_REPEAT_H

#include "base/base.h"

typedef struct lowering lowering;

// Of a step with very many micro-batches: a round that stands for others, which are not lowered (lower_repeat.c).
enum { REPEAT_UNTIL = 3, REPEAT_TIMES = 4 };
typedef struct lower_repeat {
    bool is_tried;                 // if it can be
    bool is_broken;                // it cannot: all are to be lowered
    int32_t few, round;            // micro-batches that are lowered, and those of a round
    int32_t rounds;                // that are left out; 0: none is
    int64_t at, period;            // the list's actions [at, at + period) are the round
    int64_t until;                 // so far the list is that of all micro-batches
    int32_t **slot_of;             // [chunk][micro-batch] of all of them
    int32_t slot_count;            // of all
    int32_t buffer_count;          // the same
    int64_t action[REPEAT_TIMES];  // the first of the round, the two behind it and action `until`
    int64_t time[REPEAT_TIMES];    // when these begin
    int64_t tensors[REPEAT_TIMES]; // of the plan, at those times
} lower_repeat;

NODISCARD status lower_repeat_find(lowering *l); // of l->list, which is of all micro-batches
// Keeps slots of all, and makes the pipeline one of few.
NODISCARD status lower_repeat_begin(lowering *l);
void lower_repeat_note(lowering *l, int64_t i);   // before action i of the list
NODISCARD status lower_repeat_lives(lowering *l); // lives of few become those of all

#endif
