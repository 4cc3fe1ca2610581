// Where a plan writes some of the run's tensors: after which places they keep their values until
// the next step, and before which one they had those of the step before.
//
//   step n     forward, backward | update  gather        writes
//   step n+1   forward, backward | update  gather
//              ^ begins here       ^ `before` is the node that precedes this one
//
// Each stream has its own last write; the values are final when all of these are done.
#ifndef PLAN_WRITES_H
#define PLAN_WRITES_H

#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

// A node of an action, 0 of a communication.
typedef struct plan_place {
    int32_t action, node; // action -1: none
} plan_place;

typedef struct plan_writes {
    plan_place *last; // [count], of each stream that writes, ascending
    int32_t count;
    // A node of the compute stream. Every write of the step waits until it is done; action -1:
    // there is none for some write.
    plan_place before;
} plan_writes;

// rows: [row of p->run] those that are looked for. The copy of a step's input is left out.
NODISCARD status plan_writes_find(arena *a, const plan *p, const plan_mesh *mesh, const bool *rows,
                                  plan_writes *out);
// Whether x comes before y in the plan.
bool plan_place_is_before(plan_place x, plan_place y);
int plan_place_compare(plan_place x, plan_place y); // -1, 0 or 1, as qsort wants it

#ifdef __cplusplus
}
#endif
#endif
