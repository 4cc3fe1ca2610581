// Collectives of GPUs by NCCL: a group whose transport carries bytes of the host may also have a
// communicator of NCCL, which posts operations on device memory to a stream without the host.
//
//   comm_run     host memory      the group's transport (control, checkpoints, counts)
//   comm_post    device memory    NCCL, if the group has it and it can do the operation
//
// Rows of experts are sent by counts that the GPU has just computed, and NCCL takes counts from the
// host. So a host function on the stream gets them, compares them with those of the other ranks
// over the group's transport, and posts the messages to a stream and a communicator of their own:
// those of the group belong to the thread that posts the plan.
//
//   stream      ... work | offsets to the host | wait ............................ | work ...
//   function                                     compare counts | messages | their end
//
// A watchdog looks for errors that NCCL finds later, and ends the group and NCCL's waits; so does
// comm_abort, when the failure detector says that a rank is lost.
#ifndef COMM_NCCL_NCCL_H
#define COMM_NCCL_NCCL_H

#include "comm/comm.h"
#include "comm/nccl/library.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comm_nccl comm_nccl; // of a group

// Collective over the group. It does not wait forever (comm/nccl/start.h).
NODISCARD status comm_nccl_create(const nccl_library *library, comm_group *g, const device_api *api,
                                  device *d, comm_nccl **out);
// No operation of it is under way; NULL is legal.
void comm_nccl_destroy(comm_nccl *n);
// Whether NCCL does the operation on this device. The same on all ranks.
bool comm_nccl_posts(const device_api *api, const comm_args *args);
// Posts to the stream and returns; the arrays of args must live until then, the buffers until an
// event that is recorded on the stream afterwards is done.
NODISCARD status comm_nccl_post(comm_nccl *n, const device_api *api, device_stream *stream,
                                const comm_args *args);
// Ends NCCL's waits on this GPU; later posts fail. From any thread.
void comm_nccl_abort(comm_nccl *n);
// An error once it was aborted, before a wait ends so. From any thread.
NODISCARD status comm_nccl_abort_check(const comm_nccl *n);
// An error that NCCL found after an operation was posted. From any thread.
NODISCARD status comm_nccl_check(comm_nccl *n);

// ---- rows by counts -----------------------------------------------------------------------------
typedef struct comm_nccl_rows comm_nccl_rows; // of a group: a communicator and a stream
// Collective over the group, as comm_nccl_create.
NODISCARD status comm_nccl_rows_create(const nccl_library *library, comm_group *g,
                                       const device_api *api, device *d, comm_nccl_rows **out);
void comm_nccl_rows_destroy(comm_nccl_rows *rows);       // the device's stream stays; NULL is legal
comm_nccl *comm_nccl_rows_library(comm_nccl_rows *rows); // for the watchdog
bool comm_nccl_rows_can(const comm_args *args);
// Sends and receives the elements of an ALL_TO_ALLV on device memory and waits until it is done.
// All ranks have compared the counts.
NODISCARD status comm_nccl_rows_run(comm_nccl_rows *rows, const comm_args *args,
                                    const int64_t *sends, const int64_t *receives);

// ---- the watchdog of a rank ---------------------------------------------------------------------
// Called by its thread with an error in this thread's record: it ends the group.
typedef void (*comm_nccl_broken)(comm_group *g, status st);
typedef struct comm_nccl_watch comm_nccl_watch;
NODISCARD status comm_nccl_watch_begin(comm_nccl_broken broken, comm_nccl_watch **out);
void comm_nccl_watch_add(comm_nccl_watch *w, comm_nccl *n);
void comm_nccl_watch_remove(comm_nccl_watch *w, comm_nccl *n);
void comm_nccl_watch_abort(comm_nccl_watch *w); // all of them; NULL is legal
void comm_nccl_watch_end(comm_nccl_watch *w);   // NULL is legal

#ifdef __cplusplus
}
#endif
#endif
