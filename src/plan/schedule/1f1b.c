// 1F1B: a rank begins with as many forwards as there are ranks after it, then alternates. The
// bubble of GPipe with the activations of P - r micro-batches. Source: Narayanan et al. 2019
// (PipeDream, doi:10.1145/3341301.3359646) and 2021 (arXiv:2104.04473), with the flush at the end
// of each step.
//
//   rank 0   F0 F1 .. .. B0 F2 B1 F3 B2 .. B3
//   rank 1   .. F0 B0 F1 B1 F2 B2 F3 B3
#include "plan/schedule/schedule_internal.h"

static status emit(const plan_schedule *self, const schedule_request *r, int32_t rank, arena *a,
                   schedule_list *out)
{
    (void)self;
    const int32_t m = r->microbatches, ahead = schedule_min(m, r->stages - 1 - rank);
    for (int32_t i = 0; i < ahead; i++) TRY(schedule_push(a, out, SCHEDULE_FORWARD, 0, i));
    for (int32_t i = 0; i < m; i++) {
        if (ahead + i < m) TRY(schedule_push(a, out, SCHEDULE_FORWARD, 0, ahead + i));
        TRY(schedule_push(a, out, SCHEDULE_BACKWARD, 0, i));
    }
    return ST_OK;
}

const plan_schedule plan_schedule_1f1b = {
    .name = "1f1b",
    .about = "one forward, one backward, in turn (Narayanan et al. 2021, arXiv:2104.04473)",
    .shape = SHAPE_LOOP,
    .chunks_min = 1,
    .chunks_max = 1,
    .emit = emit,
};
