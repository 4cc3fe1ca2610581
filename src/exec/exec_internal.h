// Inside exec/: the executor's state.
#ifndef EXEC_EXEC_INTERNAL_H
#define EXEC_EXEC_INTERNAL_H

#include "exec/bounce.h"
#include "exec/exec.h"
#include "exec/poison.h"
#include "exec/replay.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SLOTS = REPLAY_SLOTS }; // steps in flight

typedef struct plan_state {
    const plan *p;
    device_event **events;     // [action]; NULL: no other stream waits for it
    exec_last_uses *last_uses; // [binding] in debug builds, for poison.c; else NULL
    comm_args *comms;          // [communication of the plan]
    exec_bounce *bounces; // the same through host memory; NULL: the transport reaches the arena
    const exec_probe *probes;
    int64_t probe_count;
    const exec_seal *seals;
    int64_t seal_count;
    bool is_covered; // its bytes are in touched_bytes
    bool needs_host; // a function of the host takes part in some communication
    exec_replay_plan replay;
} plan_state;

// One step in flight: the input from the host and the results for it.
typedef struct step_slot {
    void *memory;         // of the device's host_alloc, for the next four
    step_block *given;    // host and settings parts
    step_device *results; // copied out by the read-back
    double *losses; // of the plan's compressed sums, copied out too; NULL: none travels compressed
    char *batch;    // copies of the batch tensors, one after the other
    struct {
        int64_t run_row, at, bytes;
    } parts[EXEC_MAX_BATCH];
    int part_count;
    int64_t step, moved;
    const plan *p;
    bool begun, posted, taken;
    device_event *done; // recorded after its read-back
} step_slot;

// Memory of the device's host_alloc that a caller took.
typedef struct exec_taken {
    struct exec_taken *next;
    void *memory;
} exec_taken;

struct exec {
    exec_config config;
    device *device;
    device_stream **streams; // STREAM_GROUPS, then one per group; NULL: it uses the compute stream
    char *base;              // the arena, device memory
    void **bounce_memory;    // [group] of the device's host_alloc; NULL: none
    exec_taken *host_memory;
    int64_t arena_bytes, touched_bytes, poisoned_bytes;
    plan_state *plans;
    arena *a;
    step_slot slots[SLOTS];
    int current;                // slot of the step begun last
    int taken;                  // slot of the step whose results were taken last
    plan_state *running;        // plan of the current step
    const plan_state *previous; // plan of the step before, NULL after a drain
    int64_t action, node;       // cursor
    int64_t probe;              // index of the plan's next probe
    bool launched;              // the work under the cursor is posted, not all of its probes are
    int64_t together;   // nodes of the last launch: the one under the cursor, and those before
    int stage;          // of an action: its waits, its work, the record of its event
    int64_t results_ns; // end of the step whose results were taken last
    int64_t first_action_ns;
    exec_replay replay;
    exec_replay_step next; // the current step, for the replay
    exec_replay_mode mode; // of the current step
};

plan_state *exec_state_of(exec *e, const plan *p);
// Returns the seal of a node; NULL: it has none.
const kern_seal *exec_seal_of(const plan_state *s, int64_t action, int64_t node);
void exec_host_memory_free(exec *e); // what callers took
// Compares what NCCL will post for the groups between their ranks (comm_group_library_agree), once
// the operations of all plans are made. In communicate.c.
NODISCARD status exec_library_agree(exec *e);

#ifdef __cplusplus
}
#endif
#endif
