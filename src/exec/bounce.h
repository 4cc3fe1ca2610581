// Collectives of a device whose memory no transport reaches: through pinned host memory.
//
//   copy the inputs out | run the operation on host buffers | copy the results in
//
// Of an operation whose operands stay on the device (args.on_device) only the offsets of rows are
// copied.
//
// The operations of a group follow each other on one stream, so one buffer per group is enough.
#ifndef EXEC_BOUNCE_H
#define EXEC_BOUNCE_H

#include "comm/comm.h"
#include "plan/plan.h"

typedef struct exec_bounce_copy {
    char *on_device, *on_host;
    int64_t bytes;
} exec_bounce_copy;

// One operation: its arguments with host buffers, and the copies before and after it.
typedef struct exec_bounce {
    comm_args args;
    exec_bounce_copy *out, *in; // from and to the device
    int64_t out_count, in_count;
} exec_bounce;

// Returns the bytes that the operation needs in its group's buffer.
int64_t exec_bounce_bytes(const comm_args *args, const comm_group *group);
// Makes the operation over the group's buffer, in the arena.
NODISCARD status exec_bounce_make(arena *a, const comm_args *args, const comm_group *group,
                                  char *buffer, exec_bounce *out);
// Posts the next parts of it; *at counts those that are posted, and *posted is true after the last.
NODISCARD status exec_bounce_post(const exec_bounce *b, comm_group *group, const device_api *api,
                                  device_stream *stream, int64_t step, int64_t *at, bool *posted);

#endif
