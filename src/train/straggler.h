// Names a rank that is slower than its peers, and the cause: pure, from the times of each step.
//
//   compute, data   a rank's own time, without waits for peers, against the median of the others
//   disk            its time in saves, against the usual time
//   network         the least wait of all ranks in collectives: the last rank waits for no peer, so
//                   its time is that of the transfer; no single rank is named
//
// Times are compared in spans: a step, or as many steps as take STRAGGLER_SPAN_NS, because a rank
// that gets the processor for half of the time has it for whole steps in turn if they are short. A
// finding needs STRAGGLER_SPANS slow spans in a row, and comes once until the rank was well for as
// many. A rank whose slowness is known (stragglers_expect) is compared with that, and is found
// again when it has been clearly faster for as long.
#ifndef TRAIN_STRAGGLER_H
#define TRAIN_STRAGGLER_H

#include "base/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { STRAGGLER_SPANS = 5, STRAGGLER_LEARN = 10, STRAGGLER_SPAN_NS = 100000000 };

typedef enum straggler_cause {
    STRAGGLER_COMPUTE,
    STRAGGLER_DATA,
    STRAGGLER_NETWORK,
    STRAGGLER_DISK,
    STRAGGLER_CAUSES
} straggler_cause;
const char *straggler_cause_name(straggler_cause c);

typedef struct straggler_times { // of a step of one rank, ns; step: 0: no step to compare
    int64_t step, compute, data, network, disk; // step: all of it
} straggler_times;

typedef struct straggler {
    int64_t rank; // -1: no single one
    straggler_cause cause;
    double ratio;  // of its time to that of the others, or to the usual or known one
    bool is_well;  // it is not slow any more, or less than is known
    int64_t steps; // in the slow spans
} straggler;

typedef struct stragglers stragglers;
// is_equal: all ranks do equal work. Otherwise the first STRAGGLER_LEARN spans show what is usual.
NODISCARD status stragglers_create(arena *a, int64_t ranks, bool is_equal, stragglers **out);
// The rank is known to take this many times longer than the others.
void stragglers_expect(stragglers *s, int64_t rank, double factor);
// The times of all ranks for a step, as if their shares were equal. True: *out is a new finding.
bool stragglers_see(stragglers *s, const straggler_times *all, straggler *out);

#ifdef __cplusplus
}
#endif
#endif
