// Verdicts: who is to blame when something does not go on. Pure: a table of what was seen, and a time.
//
//   dead        its process is gone, or its whole machine is silent
//   stopped     silent, while its machine answers; where the kernel says that it runs it may be starved by
//               others of that machine, and has longer
//   stuck       alive, its counter stands, and it waits for nobody
//   deadlocked  a cycle of waits in which every counter stands
//   diverged    the same sequence number, another fingerprint
//   slow        goes on, but its own work takes longer than its peers' equal work, step after step
//
// Waits form a graph, rank -> rank it waits for. Whoever stands at the end of the edges is to blame, so a
// rank that waits is never suspected. A failure detector that was itself late suspects nobody: see control_detect_failures.
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

// This rank cannot go on before `rank` posts `operation` of `group`.
typedef struct control_edge {
    int32_t rank;
    uint32_t group;
    uint64_t operation;
} control_edge;

// What a rank says of itself with every heartbeat. Zeros: nothing to say.
typedef struct control_report {
    int64_t step;     // the last one begun
    uint64_t counter; // grows with any progress: microbatches, bytes read, written, reduced
    int64_t step_ns;  // of a usual step, or the plan's estimate; 0: do not check progress now
    int64_t own_ns;   // of the last whole step, without waiting for peers; 0: do not compare
    uint64_t sequence, fingerprint; // running hash of what was done up to `sequence`; 0: none
    int32_t edge_count;
    control_edge edges[CONTROL_EDGES_MAX];
    char doing[CONTROL_DOING_BYTES]; // "reading data/web-0031.bin"
} control_report;

typedef struct control_seen {
    bool is_here; // joined, and has not left
    bool is_gone; // its process ended, or its connection did
    bool
        is_running; // the kernel says that its process is not stopped; false: it does, or is not asked
    int64_t heard_at, moved_at;
    uint64_t machine;
    const char *host;
    control_report report;
    int64_t checked_step; // kept by the failure detector: how often in a row this rank was slow
    int32_t slow_steps;
} control_seen;

// Zeros are the defaults in brackets.
typedef struct control_limits {
    int64_t beat_ns;    // [100 ms]
    int64_t silence_ns; // [800 ms]: more than a stall of 500 ms and a beat, found within a second
    int64_t starved_ns; // [10 s]: silence of a process that the kernel does not call stopped
    int64_t stuck_ns;   // [500 ms], on top of
    double stuck_steps; // [3] usual steps
    double slow_ratio;  // [1.15] times the median of the others' own work
    int32_t slow_steps; // [4] in a row
} control_limits;
void control_limits_complete(control_limits *l);

typedef struct control_finding {
    int32_t rank;
    control_verdict verdict;
    char text
        [CONTROL_TEXT_BYTES]; // "rank 5 (n3): no progress for 1.2 s in step 317, ...; 7 ranks wait for it"
} control_finding;

// Looks at all ranks. here: the failure detector's machine, which answers by definition. late_ns: how much later than
// intended the failure detector runs; silence and standing counters are forgiven that much. At most `capacity`
// findings, the gravest cause first; a rank that somebody else's fault holds up is not among them.
int control_detect_failures(control_seen *seen, int ranks, uint64_t here, int64_t now,
                            int64_t late_ns, const control_limits *limits, control_finding *out,
                            int capacity);

// ---- diverged ------------------------------------------------------------------------------------
enum { CONTROL_HISTORY = 64 };
typedef struct control_history {
    struct {
        uint64_t sequence, value[2];
        int64_t differs_at;
        int32_t count[2], first[2]; // ranks with each value, the lowest of each
        bool is_told;
    } rows[CONTROL_HISTORY];
} control_history;
// Once per rank and sequence.
void control_history_add(control_history *h, int rank, const control_report *report, int64_t now);
// True once for a sequence at which fingerprints differ, when all `ranks` told theirs or 300 ms passed.
bool control_history_check(control_history *h, const control_seen *seen, int ranks, int64_t now,
                           control_finding *out);

#ifdef __cplusplus
}
#endif
#endif
