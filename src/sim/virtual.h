// The virtual device and transport: lanes, events and collectives in virtual time. Kernels, copies and
// collectives take what they cost and do nothing; memory is addresses that nobody may touch.
//
// The executor drives them as it drives any device (device/device.h) and transport (comm.h): what is posted
// to a lane runs in order, not before what it waits for. All devices of a world keep one time. Nothing runs by
// itself: posting lets go on whatever can, so the order in which ranks are advanced changes no time.
#ifndef SIM_VIRTUAL_H
#define SIM_VIRTUAL_H

#include "comm/comm.h"
#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const device_api virtual_device;

typedef struct virtual_world virtual_world;
NODISCARD status virtual_world_create(arena *a, virtual_world **out);
int64_t virtual_world_done(const virtual_world *w); // items done so far, on all lanes

// What one rank's device asks, and what it keeps: device_config.clock.
typedef struct virtual_clock {
    virtual_world *world;
    int64_t (*call_ns)(void *context, const kern_call *call);
    int64_t (*copy_ns)(void *context, int64_t bytes); // between device and host
    void *context;
    // Added to the next work of the compute lane: the host's own, and what messages hold up; those to other stages
    // from the end of its last work on. Taken by it.
    int64_t host_ns, held_ns, sent_ns;
    int64_t compute_end; // of the compute lane's last work
    int64_t calls;       // kernels launched
} virtual_clock;

// An operation among ranks: it begins when the lanes of all its members that are simulated have come to it.
// They find it by `key`; the first of them makes it.
typedef struct virtual_rendezvous virtual_rendezvous;
NODISCARD status virtual_rendezvous_find(virtual_world *w, uint64_t key, int32_t members,
                                         virtual_rendezvous **out);
// A collective on a lane of a virtual device. m NULL: no other rank of its group is simulated. tail: it ends no
// sooner than so long after what the lane has waited for; 0: it has none.
void virtual_collective(device_stream *lane, virtual_rendezvous *m, int64_t ns, int64_t tail,
                        bool *posted);

// The transport between virtual devices, for comm_config.row. It moves no byte.
extern const struct comm_transport virtual_transport;

typedef struct virtual_price {
    int64_t ns, tail; // as of virtual_collective
    // Added to the next work of the compute lane (virtual_clock).
    int64_t held, sent;
} virtual_price;

// comm_config.row_context: what a rank's end of the transport asks and where it counts.
typedef struct virtual_network {
    virtual_world *world;
    virtual_clock *clock;     // of this rank's device
    const int32_t *simulated; // ranks of the job that are
    int32_t simulated_count;
    virtual_price (*price)(void *context, const comm_args *args);
    void *context;
} virtual_network;

#ifdef __cplusplus
}
#endif
#endif
