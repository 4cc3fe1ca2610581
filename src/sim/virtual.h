// The virtual device and transport: streams, events and collectives in virtual time. Kernels,
// copies and collectives take their price and do nothing; memory is a range of addresses that must
// not be touched.
//
// The executor drives them as it drives any device (device/device.h) and transport (comm.h): items
// posted to a stream run in order and after their dependencies. All devices of a world share one
// clock. Only posting advances the world: it runs every item that can run, so the order in which
// ranks are advanced changes no time.
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
int64_t virtual_world_done(const virtual_world *w); // items done so far on all streams

// Callbacks and counters of one rank's device: device_config.clock.
typedef struct virtual_clock {
    virtual_world *world;
    int64_t (*call_ns)(void *context, const kern_call *call);
    int64_t (*copy_ns)(void *context, int64_t bytes); // between device and host
    void *context;
    // Delays added to the next work of the compute stream, which resets them: the host's own, and
    // those of collectives; the delay of a transfer to another stage counts from the end of the
    // stream's last work on.
    int64_t host_ns, held_ns, sent_ns;
    int64_t compute_end; // end of the compute stream's last work
    int64_t calls;       // number of kernels launched
} virtual_clock;

// A collective among ranks: it begins when the streams of all its simulated members have arrived.
// They find it by `key`; the first one creates it.
typedef struct virtual_rendezvous virtual_rendezvous;
NODISCARD status virtual_rendezvous_find(virtual_world *w, uint64_t key, int32_t members,
                                         virtual_rendezvous **out);
// Posts a collective to a stream of a virtual device. m NULL: no other rank of its group is
// simulated. tail: the collective ends at least this long after the stream's dependencies; 0: no
// such bound.
void virtual_collective(device_stream *to, virtual_rendezvous *m, int64_t ns, int64_t tail,
                        bool *posted);

// The transport between virtual devices, for comm_config.row. It moves no bytes.
extern const struct comm_transport virtual_transport;

typedef struct virtual_price {
    int64_t ns, tail; // as in virtual_collective()
    // Delays added to the next work of the compute stream (virtual_clock).
    int64_t held, sent;
} virtual_price;

// comm_config.row_context: callbacks of a rank's end of the transport, and its counters.
typedef struct virtual_network {
    virtual_world *world;
    virtual_clock *clock;     // of this rank's device
    const int32_t *simulated; // ranks of the job that are simulated
    int32_t simulated_count;
    virtual_price (*price)(void *context, const comm_args *args);
    void *context;
} virtual_network;

#ifdef __cplusplus
}
#endif
#endif
