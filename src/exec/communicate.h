// From a plan's communications to operations of comm: addresses, made once per plan.
#ifndef EXEC_COMMUNICATE_H
#define EXEC_COMMUNICATE_H

#include "comm/comm.h"
#include "plan/plan.h"

// One per row of p->comms, in the arena; base: the device's address of the plan's byte 0.
NODISCARD status exec_comms_make(arena *a, const plan *p, char *base, comm_args **out);
// Highest byte (relative to the arena) that it covers.
int64_t exec_comm_end(const plan *p, const plan_comm *c);

#endif
