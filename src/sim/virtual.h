// The virtual device: lanes and events in virtual time. Kernels, copies and messages take what they cost
// and do nothing; memory is addresses that nobody may touch.
//
// The executor drives it as it drives any device (kernels/kernels.h): what is posted to a lane runs in order,
// not before what it waits for. All devices of a world keep one time. Nothing runs by itself: posting
// lets go on whatever can, so the order in which ranks are advanced changes no time.
#ifndef SIM_VIRTUAL_H
#define SIM_VIRTUAL_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const kern_device_api virtual_device;

typedef struct virtual_world virtual_world;
NODISCARD status virtual_world_create(arena *a, virtual_world **out);
int64_t virtual_world_done(const virtual_world *w); // items done so far, on all lanes

// What one rank's device asks, and what it keeps: kern_device_config.clock.
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

// What several lanes, one of each rank, do together: it begins when all have come to it.
typedef struct virtual_meeting virtual_meeting;
NODISCARD status virtual_meeting_create(virtual_world *w, int32_t members, virtual_meeting **out);
// A message on a lane of a virtual device. m NULL: its other ranks are not played. tail: it ends no sooner than so
// long after what the lane has waited for; 0: it has none.
void virtual_message(kern_lane *lane, virtual_meeting *m, int64_t ns, int64_t tail, bool *posted);

#ifdef __cplusplus
}
#endif
#endif
