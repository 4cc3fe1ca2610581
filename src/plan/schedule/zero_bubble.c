// ZB-H1 and ZB-H2: a backward is split into the half for which the rank before waits (I) and the
// gradients of weights (W), which run when the rank would be idle.
// Source: Qi et al. 2024, "Zero Bubble Pipeline Parallelism", arXiv:2401.10241, section 2.
//
// Rank r of P begins with `ahead` forwards, then repeats I W F, where W lags `delay` micro-batches
// behind I. So no rank holds more than ahead + delay micro-batches, the same sum on all ranks:
//
//           ahead           delay    held      bubble, if F, I and W take equally long
//   ZB-H1   P - r           r        P         P - 1: a third of that of 1F1B
//   ZB-H2   2 (P - r) - 1   2 r      2 P - 1   none, if a rank that is done may begin its next step
//
//   ZB-H1, P = 3   rank 0   F0 F1 F2 .. .. I0 W0 F3 I1 W1 F4 I2 W2 ...
//                  rank 1   .. F0 F1 .. I0 F2 I1 W0 F3 I2 W1 ...
//                  rank 2   .. .. F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 ...
//
// After the last forward every I is followed by a W, which fills the wait for the next I.
#include "plan/schedule/schedule_internal.h"

static status emit_lagging(const schedule_request *r, arena *a, int32_t ahead, int32_t delay,
                           schedule_list *out)
{
    const int32_t m = r->microbatches;
    int32_t forwards = schedule_min(m, ahead), weights = 0;
    for (int32_t i = 0; i < forwards; i++) TRY(schedule_push(a, out, SCHEDULE_FORWARD, 0, i));
    for (int32_t i = 0; i < m; i++) {
        TRY(schedule_push(a, out, SCHEDULE_BACKWARD_INPUT, 0, i));
        if (i >= delay || forwards == m) {
            TRY(schedule_push(a, out, SCHEDULE_BACKWARD_WEIGHT, 0, weights++));
        }
        if (forwards < m) TRY(schedule_push(a, out, SCHEDULE_FORWARD, 0, forwards++));
    }
    while (weights < m) TRY(schedule_push(a, out, SCHEDULE_BACKWARD_WEIGHT, 0, weights++));
    return ST_OK;
}

static status emit_h1(const plan_schedule *self, const schedule_request *r, int32_t rank, arena *a,
                      schedule_list *out)
{
    (void)self;
    return emit_lagging(r, a, r->stages - rank, rank, out);
}

static status emit_h2(const plan_schedule *self, const schedule_request *r, int32_t rank, arena *a,
                      schedule_list *out)
{
    (void)self;
    return emit_lagging(r, a, 2 * (r->stages - rank) - 1, 2 * rank, out);
}

const plan_schedule plan_schedule_zb_h1 = {
    .name = "zb-h1",
    .about = "1F1B with gradients of weights put off, in its memory (Qi et al. 2024, "
             "arXiv:2401.10241)",
    .shape = SHAPE_LOOP,
    .chunks_min = 1,
    .chunks_max = 1,
    .splits_backward = true,
    .emit = emit_h1,
};

const plan_schedule plan_schedule_zb_h2 = {
    .name = "zb-h2",
    .about = "as zb-h1, no bubble, with twice the activations (Qi et al. 2024, arXiv:2401.10241)",
    .shape = SHAPE_LOOP,
    .chunks_min = 1,
    .chunks_max = 1,
    .splits_backward = true,
    .emit = emit_h2,
};
