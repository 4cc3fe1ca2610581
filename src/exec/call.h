// From a node of an action to a kernel's call: addresses, shapes, rows. Pure.
#ifndef EXEC_CALL_H
#define EXEC_CALL_H

#include "exec/exec.h"

// The call of node `at` of the action. arena: the device's address of the plan's byte 0.
void exec_call_make(const plan *p, const plan_action *action, int64_t at, char *base,
                    int64_t step_no, kern_call *call);
// One operand as a kernel sees it; data NULL if missing.
kern_tensor exec_operand(const plan *p, const plan_action *action, tensor_id t, char *base);
// Rows that are counted as a whole cannot be cut between the sequences of a micro-batch.
NODISCARD status exec_counts_check(const plan *p);

#endif
