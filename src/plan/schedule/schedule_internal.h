// Declarations shared by the files of plan/schedule/: the rows, and functions that write lists.
#ifndef PLAN_SCHEDULE_SCHEDULE_INTERNAL_H
#define PLAN_SCHEDULE_SCHEDULE_INTERNAL_H

#include "plan/schedule/schedule.h"

extern const plan_schedule plan_schedule_gpipe, plan_schedule_1f1b, plan_schedule_interleaved,
    plan_schedule_zb_h1, plan_schedule_zb_h2, plan_schedule_zb_v, plan_schedule_dualpipe,
    plan_schedule_dualpipe_v;

static inline int32_t schedule_min(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

// Appends one action; one of kind SCHEDULE_BOTH.
NODISCARD status schedule_push(arena *a, schedule_list *list, schedule_kind kind, int32_t chunk,
                               int32_t microbatch);
NODISCARD status schedule_push_both(arena *a, schedule_list *list, int32_t chunk,
                                    int32_t microbatch, int32_t chunk_b, int32_t microbatch_b);
// Validates the list of one rank (plan_schedule_validate). `seen` has chunks x microbatches bytes.
NODISCARD status schedule_list_validate(const plan_schedule *s, const schedule_request *r,
                                        int32_t rank, const schedule_list *list, uint8_t *seen);
// Names the list of a rank in an error: "rank 2 (pipe.txt, line 4)", or "rank 2 of zb-h1".
const char *schedule_place(const plan_schedule *s, int32_t rank, char buffer[256]);

// The chunk and micro-batch of the backward in an action; -1: it has none.
static inline int32_t schedule_backward_chunk(const schedule_action *x)
{
    return x->kind == SCHEDULE_FORWARD ? -1 : x->kind == SCHEDULE_BOTH ? x->chunk_b : x->chunk;
}
static inline int32_t schedule_backward_microbatch(const schedule_action *x)
{
    return x->kind == SCHEDULE_FORWARD ? -1
           : x->kind == SCHEDULE_BOTH  ? x->microbatch_b
                                       : x->microbatch;
}

#endif
