// Buffers for what crosses the borders of a rank's chunks: which of them each thing has. Pure.
//
// What is sent needs its bytes from its making until the message has gone, what is received from
// when it may come until nobody reads it any more. Which of these stretches meet depends on when
// things happen, and that no rank knows; so the lists of all ranks are played in equal times
// (timeline.h), and two things share a buffer only if one is gone before the other begins in the
// play, what is sent two forwards before, for the message. Lowering makes each wait for the one
// before it. A wait that the play keeps anyway delays nothing in it: a step in equal times is as
// long as if each thing had bytes of its own, and no circle comes about.
#ifndef PLAN_LOWER_BOUNDARY_H
#define PLAN_LOWER_BOUNDARY_H

#include "plan/schedule/timeline.h"

#ifdef __cplusplus
extern "C" {
#endif

// Where a chunk meets a stage of another rank: what it receives and what it sends.
typedef enum boundary_kind {
    BOUNDARY_IN,    // its input, received
    BOUNDARY_D_OUT, // the gradient of its output, received
    BOUNDARY_OUT,   // its output, sent
    BOUNDARY_D_IN,  // the gradient of its input, sent
    BOUNDARY_COUNT
} boundary_kind;

enum { BOUNDARY_TIMELINES = 2 };

// Played lists: of a schedule, the numbers of ranks, chunks and micro-batches alone.
typedef struct boundary_timelines {
    const plan_schedule *schedule;
    schedule_request shape;
    bool forward_only;
    const plan_timeline *plays[BOUNDARY_TIMELINES]; // NULL: ranks wait for each other for ever
} boundary_timelines;

// Kept for the next plan of the same pipeline.
typedef struct boundary_cache {
    arena *a;
    boundary_timelines times;
} boundary_cache;

typedef struct plan_boundary_buffers {
    int32_t *buffer
        [BOUNDARY_COUNT]; // [chunk * micro-batches + micro-batch]; -1: it crosses nothing here
    int32_t count;
} plan_boundary_buffers;

// A buffer while a plan is made: actions, -1: none.
typedef struct boundary_buffer {
    int32_t ref;     // the plan's tensor
    int32_t first;   // the first of the step that writes it
    int32_t compute; // what had it last was read by this one last,
    int32_t sent;    // or sent by this one
    bool is_held;
} boundary_buffer;

// `lists`: of every rank.
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
