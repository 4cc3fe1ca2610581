// Expert parallelism, as a pass over a model: what one of several ranks that share a layer's
// experts does.
//
// Each has every ways-th part of the experts, and the rows of all of their tokens that take those.
// Rows travel between the tokens' ranks and the experts' by an ALL_TO_ALL along AXIS_EP each:
//
//   PERMUTE -> ALL_TO_ALL -> experts -> ALL_TO_ALL -> UNPERMUTE          and back the same way
//
// Experts are taken to be evenly loaded: as many rows come as go, and products have no offsets. A
// row takes its scale along: the message is that of the rows.
#ifndef OP_PASS_EXPERT_RANKS_H
#define OP_PASS_EXPERT_RANKS_H

#include "op/model.h"

#ifdef __cplusplus
extern "C" {
#endif

// Of models for training, after differentiation and op_model_partition; tensors keep their numbers
// in the programs. Nothing to do: *local is the model itself.
NODISCARD status op_model_experts(arena *a, op_model *whole, int32_t ways, op_model **local);

#ifdef __cplusplus
}
#endif
#endif
