// Turns the communications of a plan into operations of comm, once per plan.
#ifndef EXEC_COMMUNICATE_H
#define EXEC_COMMUNICATE_H

#include "comm/comm.h"
#include "plan/plan.h"

// Makes one operation per row of p->comms, in the arena. base is the device's address of byte 0 of
// the plan.
NODISCARD status exec_comms_make(arena *a, const plan *p, char *base, comm_args **out);

// A piece of a device's memory.
typedef struct exec_memory {
    const device_api *api;
    device *d;
    void *at;
    int64_t bytes;
} exec_memory;

// Lets NCCL post the operations of groups, where the job has it (comm_group_library_open), once the
// device is open; close: before it is destroyed. NULL groups are legal. has_rows: the groups that
// exchange rows by counts (comm_group_rows_open).
NODISCARD status exec_groups_library_open(arena *a, comm_group *const *groups,
                                          const plan_table *run, const exec_memory *memory,
                                          const bool *has_rows);
// The same for GPUs that read each other's memory (comm_group_peer_open).
NODISCARD status exec_groups_peer_open(arena *a, comm_group *const *groups, const plan_table *run,
                                       const exec_memory *memory);
void exec_groups_library_close(comm_group *const *groups, const plan_table *run);

#endif
