// Pass 3 of lowering: the finished list of actions.
#ifndef PLAN_LOWER_COLLECT_H
#define PLAN_LOWER_COLLECT_H

#include "plan/lower/bind.h"

// The parts of a communication's name; equal on all ranks.
typedef struct comm_note {
    const char *before, *text, *between, *second; // NULL: ""
    int32_t from, to, microbatch;                 // stages; from -1: not a transfer between stages
} comm_note;

typedef struct collected {
    // [action] time steps that it takes on the compute stream: one for each node; one for a
    // communication with which no computation overlaps.
    int32_t *ticks;
    int64_t tick_capacity;
    int32_t *visit_action; // [visit + 1] first action of the visit
    comm_note *notes;      // [communication]
    int64_t note_capacity;
} collected;

// Fills the actions, waits and communications of the plan.
NODISCARD status plan_collect(const lower_input *in, const expanded *x, const bound *b,
                              collected *out);
// Makes the names of communications, which people read and ranks compare.
NODISCARD status plan_collect_names(const lower_input *in, const collected *c);

#endif
