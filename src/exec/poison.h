// Debug builds: bytes that nobody may read are made NaN, so that a reader is found.
#ifndef EXEC_POISON_H
#define EXEC_POISON_H

#include "exec/call.h"

// What of a program's tensors dies at which node: [list][node * (OP_MAX_IN + OP_MAX_OUT) +
// operand].
typedef struct exec_deaths {
    uint8_t *dies[OP_LIST_COUNT];
} exec_deaths;

// For a layer's program (activations of its own, not what crosses its borders). Two phases:
// forward, and what runs in backward; what is made again in backward dies once in each.
NODISCARD status exec_deaths_make(arena *a, const op_program *p, exec_deaths *out);

// A range of device memory to be filled with 0xFF after node `at` of the action: operand `operand`
// if it dies there and no output of the node lies on it. False: nothing to do.
bool exec_poison_after(const exec_deaths *d, const plan *p, const plan_action *action, int64_t at,
                       int operand, char *base, void **from, int64_t *bytes);

#endif
