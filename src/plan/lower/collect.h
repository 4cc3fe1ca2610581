// Pass 3 of lowering: the finished list of actions.
#ifndef PLAN_LOWER_COLLECT_H
#define PLAN_LOWER_COLLECT_H

#include "plan/lower/bind.h"

// What a communication's name is made of; equal on all ranks.
typedef struct comm_note {
    const char *before, *text, *between, *second; // NULL: ""
    int32_t from, to, microbatch;                 // stages; from -1: not between two of them
} comm_note;

typedef struct collected {
    // [action] moments that it takes on the clock of the compute stream: one for each node; of
    // communications those beside which nothing else is computed have one.
    int32_t *ticks;
    int64_t tick_capacity;
    int32_t *visit_action; // [visit + 1] the first action of the visit
    comm_note *notes;      // [communication]
    int64_t note_capacity;
} collected;

// Fills actions, waits and communications of the plan.
NODISCARD status plan_collect(const lower_input *in, const expanded *x, const bound *b,
                              collected *out);
// Names of communications: for people, and for ranks to see that they do the same.
NODISCARD status plan_collect_names(const lower_input *in, const collected *c);

#endif
