// GPipe: all forwards, then all backwards. The bubble of 1F1B, and the activations of every
// micro-batch. Source: Huang et al. 2019, arXiv:1811.06965.
//
//   rank 0   F0 F1 F2 F3 .. .. .. .. B0 B1 B2 B3
//   rank 1   .. F0 F1 F2 F3 .. B0 B1 B2 B3
//
// In the paper the backward of the last micro-batch comes first; here they come in order, because
// the gradient of a weight is a left-to-right sum over the micro-batches. The bubble is the same.
#include "plan/schedule/schedule_internal.h"

static status emit(const plan_schedule *self, const schedule_request *r, int32_t rank, arena *a,
                   schedule_list *out)
{
    (void)self;
    (void)rank; // all ranks have the same list
    for (int32_t i = 0; i < r->microbatches; i++) {
        TRY(schedule_push(a, out, SCHEDULE_FORWARD, 0, i));
    }
    for (int32_t i = 0; i < r->microbatches; i++) {
        TRY(schedule_push(a, out, SCHEDULE_BACKWARD, 0, i));
    }
    return ST_OK;
}

const plan_schedule plan_schedule_gpipe = {
    .name = "gpipe",
    .about = "all forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965)",
    .shape = SHAPE_LOOP,
    .chunks_min = 1,
    .chunks_max = 1,
    .emit = emit,
};
