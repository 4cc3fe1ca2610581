// Buffers for the tensors that cross stage boundaries: assigns each tensor that a rank sends or
// receives to a buffer. Pure.
//
// A sent tensor occupies its buffer from the action that makes it until the transfer is done; a
// received one from the earliest time at which it may arrive until its last use. Which of these
// intervals overlap depends on timing, which no rank knows, so the lists of all ranks are simulated
// with unit-time actions (timeline.h). Two tensors share a buffer only if the first is done with it
// before the second begins in the simulation; a sent tensor counts as done two forwards after its
// action, to leave time for the transfer. Lowering makes each tensor wait for the previous one in
// its buffer. The simulation satisfies these waits anyway, so they delay nothing in it: a step with
// unit-time actions is as long as with separate buffers, and the waits form no cycle.
#ifndef PLAN_LOWER_BOUNDARY_H
#define PLAN_LOWER_BOUNDARY_H

#include "plan/schedule/timeline.h"

#ifdef __cplusplus
extern "C" {
#endif

// The tensors that a chunk exchanges with stages of other ranks.
typedef enum boundary_kind {
    BOUNDARY_IN,    // its input, received
    BOUNDARY_D_OUT, // the gradient of its output, received
    BOUNDARY_OUT,   // its output, sent
    BOUNDARY_D_IN,  // the gradient of its input, sent
    BOUNDARY_COUNT
} boundary_kind;

enum { BOUNDARY_TIMELINES = 2 };

// Simulated lists. They depend only on the schedule and on the numbers of ranks, chunks and
// micro-batches.
typedef struct boundary_timelines {
    const plan_schedule *schedule;
    schedule_request shape;
    bool forward_only;
    const plan_timeline *timelines[BOUNDARY_TIMELINES]; // NULL: the lists deadlock
} boundary_timelines;

// Timelines that are kept for the next plan of the same pipeline.
typedef struct boundary_cache {
    arena *a;
    boundary_timelines times;
} boundary_cache;

typedef struct plan_boundary_buffers {
    int32_t *buffer[BOUNDARY_COUNT]; // [chunk * micro-batches + micro-batch]; -1: no transfer
    int32_t count;
} plan_boundary_buffers;

// State of a buffer while a plan is made. Actions are rows of the list; -1: none.
typedef struct boundary_buffer {
    int32_t ref;     // the plan's tensor
    int32_t first;   // first action of the step that writes it
    int32_t compute; // action that last read the buffer's previous tensor,
    int32_t sent;    // or that sent it
    bool is_held;
} boundary_buffer;

// Simulates `lists`, one for every rank.
NODISCARD status plan_boundary_simulate(arena *a, const plan_schedule *s, const schedule_request *r,
                                        const schedule_list *lists, bool forward_only,
                                        boundary_timelines *out);
// `crosses`: [chunk * BOUNDARY_COUNT + kind] true if the rank's chunk sends or receives that
// tensor. NULL: activations and gradients cross each stage boundary to another rank, except that no
// gradient crosses below the first trained weight.
NODISCARD status plan_boundary_assign(arena *a, const boundary_timelines *t, int32_t rank,
                                      const bool *crosses, plan_boundary_buffers *out);

#ifdef __cplusplus
}
#endif
#endif
