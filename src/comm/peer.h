// Collectives of GPUs of one host over memory that they read from each other (device/peers.h).
//
//   stream     ... work | ready | wait for the host function | work ...
//   function   ready? -> arrive() -> kernels on a stream of its own, which read and write the
//              memory of peers -> their end -> depart()
//
// The ranks meet over the transport's host memory, as for any other operation: so contracts,
// deadlines, lost peers and the flight recorder are those of the transport, and no GPU ever waits
// for another one. Only the bytes of the operands travel from GPU to GPU. The direct algorithms
// (comm/algo) run unchanged, so sums have the order and the bits of shared memory.
#ifndef COMM_PEER_H
#define COMM_PEER_H

#include "comm/reduce.h"
#include "device/peers.h"

#ifdef __cplusplus
extern "C" {
#endif

// Copies and sums in a GPU's stream, for the thread that runs a group's operations.
typedef struct comm_peer comm_peer;

NODISCARD status comm_peer_create(const device_api *api, device *d, comm_peer **out);
void comm_peer_destroy(comm_peer *p); // the device's stream stays until the device ends
// Whether GPUs can do the operation in each other's memory. The same on all ranks.
bool comm_peer_can(const comm_args *args, int ranks);
// Post; errors show at comm_peer_wait, which waits until all of it is done.
void comm_peer_copy(comm_peer *p, void *to, const void *from, int64_t bytes);
void comm_peer_sum(comm_peer *p, const comm_reducer *r, const comm_reduce_args *args);
NODISCARD status comm_peer_wait(comm_peer *p);

#ifdef __cplusplus
}
#endif
#endif
