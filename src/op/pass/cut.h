// The passes that cut a model, in their order: a whole model -> the programs of one rank.
#ifndef OP_PASS_CUT_H
#define OP_PASS_CUT_H

#include "op/pass/context.h"
#include "op/pass/expert_ranks.h"
#include "op/pass/partition.h"

#ifdef __cplusplus
extern "C" {
#endif

// How each pass cuts. Zeros: nothing is cut.
typedef struct op_cuts {
    op_cut tp;        // weights, heads and positions along AXIS_TP
    op_context cp;    // positions along AXIS_CP
    op_expert_cut ep; // the experts of a layer
} op_cuts;

// Takes models for training and evaluation, after differentiation. *of_tp is the model as the first
// pass leaves it: candidates that differ in later passes only share it, so it is made only where it
// is NULL.
NODISCARD status op_model_cut(arena *a, op_model *whole, const op_cuts *how, op_model **of_tp,
                              op_model **local);

#ifdef __cplusplus
}
#endif
#endif
