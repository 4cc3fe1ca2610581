// Bytes of a plan with very many micro-batches, of which a few are lowered.
#ifndef PREDICT_REPEAT_H
#define PREDICT_REPEAT_H

#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

// As plan_create, of a request that needs sizes only (PLAN_PLACED): to the last byte what a plan of all micro-batches says,
// without actions where only a few were lowered (plan.repeated).
NODISCARD status predict_plan_bytes(arena *a, const plan_request *request, plan_table *run,
                                    plan **out);

#ifdef __cplusplus
}
#endif
#endif
