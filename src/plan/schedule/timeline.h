// Timelines: the lists of all ranks of a pipeline, played in virtual time. Pure.
//
// Every action has a length; it starts when the one before it in its rank's list is done and what
// it needs has come: a forward its stage's input, a backward the gradient from the stage above.
// Nothing else holds anything up, so the times are the least that these lists allow. Pictures,
// formulas and deadlocks come from here; bytes and real prices do not.
#ifndef PLAN_SCHEDULE_TIMELINE_H
#define PLAN_SCHEDULE_TIMELINE_H

#include "plan/schedule/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TIMELINE_MAX_ACTIONS = 1 << 26 }; // of all ranks

// Lengths, in any unit.
typedef struct timeline_cost {
    int64_t forward, backward_input, backward_weight;
} timeline_cost;

typedef struct timeline_costs {
    timeline_cost each;
    const timeline_cost *stages; // [virtual stage]; NULL: `each` of all
    // Of a forward and a backward side by side: how much shorter than one after the other, at most
    // the forward.
    int64_t hidden;
    int64_t latency;        // of a message between ranks
    bool optimizer_barrier; // no rank begins its next step before all are done with this one
} timeline_costs;

typedef struct timeline_span {
    int64_t begin, end;
} timeline_span;

typedef struct timeline_rank {
    schedule_list list;
    timeline_span *spans; // [action]
    int64_t busy;         // the sum of its actions
    int64_t begin, end;   // of its first and last
    // Idle time of a step: with the barrier of all of it, else between its own first and last
    // action.
    int64_t bubble;
    // Micro-batches x chunks whose forward has begun and whose backward (W, where it is apart) is
    // not done: at most so many at once.
    int32_t live_peak;
} timeline_rank;

typedef struct plan_timeline {
    const plan_schedule *schedule;
    schedule_request request;
    timeline_costs costs;
    timeline_rank *ranks;             // [request.stages]
    int64_t length;                   // until the last rank is done
    int64_t bubble;                   // the largest of a rank
    int64_t barrier;                  // how much the largest grows by the optimizer's barrier
    int32_t live_peak;                // the largest of a rank
    const int64_t *output, *gradient; // [stage * micro-batches + micro-batch] when they are made
} plan_timeline;

// Fails with ST_CONFIG where the lists are not whole (plan_schedule_validate) or wait for each
// other, naming the ranks and actions of the circle.
NODISCARD status plan_timeline_play(arena *a, const plan_schedule *s, const schedule_request *r,
                                    const timeline_costs *costs, plan_timeline **out);
// The same of lists that are given, one for each rank, and not checked.
NODISCARD status plan_timeline_lists(arena *a, const plan_schedule *s, const schedule_request *r,
                                     const timeline_costs *costs, const schedule_list *lists,
                                     plan_timeline **out);

#ifdef __cplusplus
}
#endif
#endif
