// Expert parallelism, a pass over a model: the programs of one of several ranks that share the
// experts of a layer.
//
// Each rank has 1 / ways of the experts, and processes the rows of all tokens of these ranks that
// take its experts. An ALL_TO_ALL along AXIS_EP moves rows from the ranks of the tokens to those of
// the experts, and another one back:
//
//   PERMUTE -> ALL_TO_ALL -> experts -> ALL_TO_ALL -> UNPERMUTE          and back the same way
//
// The experts are assumed to be evenly loaded: a rank receives as many rows as it sends, and GEMMs
// have no offsets. A row travels together with its scale: the size of the collective is that of the
// rows.
#ifndef OP_PASS_EXPERT_RANKS_H
#define OP_PASS_EXPERT_RANKS_H

#include "op/model.h"

#ifdef __cplusplus
extern "C" {
#endif

// For models for training, after differentiation and op_model_partition; tensors keep their ids in
// the programs. If nothing changes, *local is the model itself.
NODISCARD status op_model_experts(arena *a, op_model *whole, int32_t ways, op_model **local);

#ifdef __cplusplus
}
#endif
#endif
