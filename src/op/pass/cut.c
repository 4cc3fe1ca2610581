// Runs the passes that cut a model. Pure.
#include "op/pass/cut.h"

status op_model_cut(arena *a, op_model *whole, const op_cuts *how, op_model **of_tp,
                    op_model **local)
{
    if (*of_tp == NULL) TRY(op_model_partition(a, whole, &how->tp, of_tp));
    TRY(op_model_context(a, *of_tp, &how->cp, local));
    return op_model_experts(a, *local, &how->ep, local);
}
