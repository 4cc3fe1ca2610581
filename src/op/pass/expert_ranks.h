// Expert parallelism, a pass over a model: the programs of one of several ranks that share the
// experts of a layer.
//
// Each rank has 1 / ways of the experts, and processes the rows of all tokens of these ranks that
// take its experts. Rows move along AXIS_EP from the ranks of the tokens to those of the experts,
// and back (op/exchange.c):
//
//   PERMUTE -> EXCHANGE_ROWS -> experts -> EXCHANGE_ROWS -> UNPERMUTE       and back the same way
//
// The rows of each rank are counted first, and an ALL_TO_ALL exchanges the counts. A rank may get
// every token of all ranks as often as a token can take its experts, so that many rows are the
// bound of its tensors: no token is ever lost, and no step allocates. Costs use the likely number,
// as many rows as it sends.
//
// With `even` the experts are assumed to be evenly loaded, as in predictions of other software: a
// rank receives as many rows as it sends, GEMMs have no offsets, and a row travels together with
// its scale: the size of the collective is that of the rows.
//
// Experts may move (`moves_layers`): then a constant of the model, OP_SLOTS, has the slot of each
// expert of each layer, and rows go to slots. Slot s is on rank s / (experts of a rank). At first
// each expert is in the slot of its number; the trainer moves weights and changes the constant
// between steps, so no plan changes.
//
// In strict order (`ordered`) rows are also counted by sequence, so that the gradients of experts
// are one sum for each shard of the batch.
#ifndef OP_PASS_EXPERT_RANKS_H
#define OP_PASS_EXPERT_RANKS_H

#include "op/model.h"

#ifdef __cplusplus
extern "C" {
#endif

// Rows may travel in fewer bits than they have (`dispatch`). In strict order they are rounded the
// same way where they do not travel, so that all layouts have the same bits.
typedef enum op_dispatch {
    DISPATCH_WHOLE, // as they are
    DISPATCH_BF16,
    DISPATCH_FP8 // to experts in the forward pass 8 bits (op/narrow_rows.c), else bf16
} op_dispatch;

#define OP_SLOTS "slots" // (layers, experts)

typedef struct op_expert_cut {
    int32_t ways, at; // this rank's number among those that share the experts; ways 0 is read as 1
    int32_t pieces;   // neighbouring ones that have pieces of the same sequences; 0: 1
    int32_t cp_own;   // in strict order: shards of a sequence that each rank has; 0: 1
    bool ordered, even;
    op_dispatch dispatch;
    int32_t moves_layers; // decoder layers of the model, if its experts may move; 0: they stay
} op_expert_cut;

// For models for training and evaluation, after differentiation, op_model_partition and
// op_model_context; tensors keep their ids in the programs. If nothing changes, *local is the model
// itself.
NODISCARD status op_model_experts(arena *a, op_model *whole, const op_expert_cut *how,
                                  op_model **local);

#ifdef __cplusplus
}
#endif
#endif
