// Steps as graphs: the executor captures the second step of a plan in each slot and launches later
// ones by one call, on devices that have graphs (device_api.graph_begin).
//
//   compute  | fork | actions ...  wait for all | done       the first stream; it waits for the
//   copy     | wait | batch ...  record |                    others, so a graph has all of a step
//   group    | wait | sums ...   record |
//
// A graph repeats addresses and arguments. What changes from step to step lies in memory of its
// slot, which stays where it is. A step that cannot be a graph is posted call by call, and the
// reason is kept.
#ifndef EXEC_REPLAY_H
#define EXEC_REPLAY_H

#include "exec/exec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum exec_replay_mode {
    REPLAY_NONE,    // the step is posted call by call
    REPLAY_CAPTURE, // the same calls are captured, then launched
    REPLAY_LAUNCH
} exec_replay_mode;

enum { REPLAY_SLOTS = 2, REPLAY_WHY_BYTES = 200 };

// A plan has a graph for each slot, which remembers the bytes of the batch that it copies.
typedef struct exec_replay_plan {
    struct {
        device_graph *graph; // NULL: not captured yet
        int64_t batch[EXEC_MAX_BATCH];
    } slots[REPLAY_SLOTS];
    bool is_prepared;           // a step was posted call by call
    char why[REPLAY_WHY_BYTES]; // why it cannot be captured; "": it can
} exec_replay_plan;

typedef struct exec_replay {
    const device_api *api; // NULL: no graphs are wanted, or the device has none
    device_stream *const *streams;
    int64_t stream_count;
    device_event *fork, **joins; // [stream]
    exec_graphs counts;
} exec_replay;

NODISCARD status exec_replay_make(arena *a, const device_api *api, device *d,
                                  device_stream *const *streams, int64_t count, exec_replay *out);

// The next step, as the choice depends on it.
typedef struct exec_replay_step {
    int slot;
    int64_t batch[EXEC_MAX_BATCH]; // bytes of each tensor that is copied
    bool needs_host;               // for its collectives
    bool is_watched;               // by probes or a trace
} exec_replay_step;
exec_replay_mode exec_replay_choose(exec_replay *r, exec_replay_plan *p,
                                    const exec_replay_step *step);

// After graph_begin: all streams take part. Then the step is posted.
NODISCARD status exec_replay_fork(const exec_replay *r);
// Ends the capture. `st` is the status of the calls in it; unless it and the end succeed, nothing
// was done, the plan gets no graph any more, and the error is cleared.
bool exec_replay_end(exec_replay *r, exec_replay_plan *p, const exec_replay_step *step, status st);
void exec_replay_free(const exec_replay *r, exec_replay_plan *p);

#ifdef __cplusplus
}
#endif
#endif
