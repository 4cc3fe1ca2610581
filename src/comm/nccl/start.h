// Inside comm/nccl/: the start of a communicator, whose wait for the other ranks always ends.
#ifndef COMM_NCCL_START_H
#define COMM_NCCL_START_H

#include "comm/comm.h"
#include "comm/nccl/library.h"

#ifdef __cplusplus
extern "C" {
#endif

// Collective over the group: ncclCommInitRank, whose result is *result, 0 for success. An error
// ended the wait for it: ST_TIMEOUT, with the ranks that may be missing and the remedy; that of
// comm_config.cancelled; that of comm_abort or of a failed rank of this host.
NODISCARD status comm_nccl_start(const nccl_library *library, comm_group *g, const device_api *api,
                                 device *d, const nccl_id *id, nccl_handle *out, int *result);

#ifdef __cplusplus
}
#endif
#endif
