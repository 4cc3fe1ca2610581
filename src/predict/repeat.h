// Bytes of a plan with very many micro-batches, a few of which are lowered.
#ifndef PREDICT_REPEAT_H
#define PREDICT_REPEAT_H

#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

// Like plan_create() for a request that needs only sizes (PLAN_PLACED): the bytes equal those of a
// plan of all micro-batches exactly; the plan has no actions if only a few were lowered
// (plan.repeated).
NODISCARD status predict_plan_bytes(arena *a, const plan_request *request, plan_table *run,
                                    plan **out);

#ifdef __cplusplus
}
#endif
#endif
