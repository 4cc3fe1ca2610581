// Timelines: simulates the lists of all ranks of a pipeline in virtual time. Pure.
//
// Every action has a length. It starts when the action before it in its rank's list is done and its
// input is there: for a forward the output of the stage below, for a backward the gradient from the
// stage above. No other dependency exists, so the times are the least that these lists allow. The
// timeline gives pictures, bubbles and deadlocks; it knows neither bytes nor real prices.
#ifndef PLAN_SCHEDULE_TIMELINE_H
#define PLAN_SCHEDULE_TIMELINE_H

#include "plan/schedule/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TIMELINE_MAX_ACTIONS = 1 << 26 }; // of all ranks

// Lengths of actions, in any unit.
typedef struct timeline_cost {
    int64_t forward, backward_input, backward_weight;
} timeline_cost;

typedef struct timeline_costs {
    timeline_cost each;
    const timeline_cost *stages; // [virtual stage]; NULL: `each` of all
    // Time that overlapping a forward and a backward saves, at most the forward's.
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
    // Idle time: with the barrier in the whole step, else between its own first and last action.
    int64_t bubble;
    // The largest number of micro-batches x chunks whose forward has begun and whose backward (W,
    // if it is separate) is not done.
    int32_t live_peak;
} timeline_rank;

typedef struct plan_timeline {
    const plan_schedule *schedule;
    schedule_request request;
    timeline_costs costs;
    timeline_rank *ranks; // [request.stages]
    int64_t length;       // until the last rank is done
    int64_t bubble;       // idle time of a step, the mean of the ranks
    int64_t barrier;      // how much it and the step grow by the optimizer's barrier
    int32_t live_peak;    // the largest of a rank
    const int64_t *output,
        *gradient; // [stage * micro-batches + micro-batch] times when they are made
} plan_timeline;

// Simulates a schedule. Fails with ST_CONFIG if the lists are incomplete (plan_schedule_validate)
// or wait for each other, naming the ranks and actions of the cycle.
NODISCARD status plan_timeline_simulate(arena *a, const plan_schedule *s, const schedule_request *r,
                                        const timeline_costs *costs, plan_timeline **out);
// Simulates given lists, one for each rank, without a check.
NODISCARD status plan_timeline_lists(arena *a, const plan_schedule *s, const schedule_request *r,
                                     const timeline_costs *costs, const schedule_list *lists,
                                     plan_timeline **out);

#ifdef __cplusplus
}
#endif
#endif
