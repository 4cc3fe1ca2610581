// Debug builds fill bytes with NaN after their last use, so that a later read shows.
#ifndef EXEC_POISON_H
#define EXEC_POISON_H

#include "exec/call.h"

// Marks the last uses of a program's tensors: 1 at [list][node * (OP_MAX_IN + OP_MAX_OUT) +
// operand] if that operand is not used after the node.
typedef struct exec_last_uses {
    uint8_t *is_last[OP_LIST_COUNT];
} exec_last_uses;

// Finds the last uses in a layer's program, of its private activations (neither its inputs nor its
// outputs). Forward and backward are two phases; a tensor that is recomputed in backward has a last
// use in each.
NODISCARD status exec_last_uses_make(arena *a, const op_program *p, exec_last_uses *out);

// Returns the range of device memory to fill with 0xFF after node `at` of the action: that of
// operand `operand`, if this is its last use and no output of the node lies on it. False: there is
// none.
bool exec_poison_after(const exec_last_uses *d, const plan *p, const plan_action *action,
                       int64_t at, int operand, char *base, void **from, int64_t *bytes);

#endif
