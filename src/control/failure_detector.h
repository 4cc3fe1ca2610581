// The failure detector decides which rank is to blame when a job stalls. It is pure: its input is a
// table of observations and a time.
//
//   dead        its process is gone, or its whole machine is silent
//   stopped     it is silent while its machine answers; if the kernel says that the process is
//               running, other processes may starve it, and a longer limit applies
//   stuck       it is alive, its progress counter stands still, and it waits for no rank
//   deadlocked  it is in a cycle of waits in which every counter stands still
//   diverged    its fingerprint differs at the same sequence number
//   slow        it advances, but its own work takes longer than its peers' equal work, step by step
//
// Waits form a graph with an edge from each rank to the rank that it waits for. The rank at the end
// of the edges is to blame, so a waiting rank is never suspected. A failure detector that ran late
// suspects no rank for that time; control_detect_failures says how.
#ifndef CONTROL_FAILURE_DETECTOR_H
#define CONTROL_FAILURE_DETECTOR_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum control_verdict {
    CONTROL_FINE,
    CONTROL_DEAD,
    CONTROL_STOPPED,
    CONTROL_STUCK,
    CONTROL_SLOW,
    CONTROL_DIVERGED,
    CONTROL_DEADLOCKED,
    CONTROL_VERDICTS
} control_verdict;
const char *control_verdict_name(control_verdict v); // "stopped"

enum { CONTROL_EDGES_MAX = 16, CONTROL_DOING_BYTES = 64, CONTROL_TEXT_BYTES = 512 };

// This rank cannot continue before `rank` posts `operation` of `group`.
typedef struct control_edge {
    int32_t rank;
    uint32_t group;
    uint64_t operation;
} control_edge;

// A rank's report, sent with every heartbeat. Zeros mean that the rank reports nothing.
typedef struct control_report {
    int64_t step;     // the last one begun
    uint64_t counter; // grows with any progress: microbatches, bytes read, written, reduced
    int64_t step_ns;  // usual step time, or the plan's estimate; 0: do not check progress now
    int64_t own_ns;   // last whole step without waits for peers; 0: do not compare
    uint64_t sequence, fingerprint; // running hash of the work up to `sequence`; 0: none
    int32_t edge_count;
    control_edge edges[CONTROL_EDGES_MAX];
    char doing[CONTROL_DOING_BYTES]; // "reading data/web-0031.bin"
} control_report;

typedef struct control_seen {
    bool is_here; // joined, and has not left
    bool is_gone; // its process ended, or its connection did
    // The kernel says that the process is not stopped; false: it is stopped, or not asked about.
    bool is_running;
    int64_t heard_at, moved_at;
    uint64_t machine;
    const char *host;
    control_report report;
    int64_t checked_step; // last step that detect_slow compared
    int32_t slow_steps;
} control_seen;

// A zero selects the default in brackets.
typedef struct control_limits {
    int64_t beat_ns;    // [100 ms]
    int64_t silence_ns; // [800 ms]: more than a stall of 500 ms and a beat, found within a second
    int64_t starved_ns; // [10 s]: silence of a process that the kernel does not call stopped
    int64_t stuck_ns;   // [500 ms], added to stuck_steps
    double stuck_steps; // [3] usual steps
    double slow_ratio;  // [1.15] times the median of the other ranks' own work
    int32_t slow_steps; // [4] in a row
} control_limits;
void control_limits_complete(control_limits *l);

typedef struct control_finding {
    int32_t rank;
    control_verdict verdict;
    // "rank 5 (n3): no progress for 1.2 s in step 317, ...; 7 ranks wait for it"
    char text[CONTROL_TEXT_BYTES];
} control_finding;

// Examines all ranks. `here` is the failure detector's own machine, which answers by definition.
// `late_ns` says how much later than intended it runs; silence and idle counters are excused for
// that long. Returns at most `capacity` findings, the most severe cause first. A rank that another
// rank's fault holds up is not among them.
int control_detect_failures(control_seen *seen, int ranks, uint64_t here, int64_t now,
                            int64_t late_ns, const control_limits *limits, control_finding *out,
                            int capacity);

// ---- diverged ranks -----------------------------------------------------------------------------
enum { CONTROL_HISTORY = 64 };
typedef struct control_history {
    struct {
        uint64_t sequence, value[2];
        int64_t differs_at;
        int32_t count[2], first[2]; // ranks with each value, the lowest of each
        bool is_told;
    } rows[CONTROL_HISTORY];
} control_history;
// Call this once per rank and sequence.
void control_history_add(control_history *h, int rank, const control_report *report, int64_t now);
// Returns true once for a sequence at which fingerprints differ, after all `ranks` have reported
// theirs or 300 ms have passed.
bool control_history_check(control_history *h, const control_seen *seen, int ranks, int64_t now,
                           control_finding *out);

#ifdef __cplusplus
}
#endif
#endif
