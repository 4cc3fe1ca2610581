// How long a rank has stood still by itself. The failure detector calls a rank stuck whose counter
// stands for longer than a limit (control_limits); on a machine where dozens of processes want each
// processor, a healthy rank can wait for its turn for longer. So time in which a thread of this
// process could run, but had no processor, does not count.
#ifndef CLI_TRAIN_STARVED_H
#define CLI_TRAIN_STARVED_H

#include "base/base.h"

typedef struct starved {
    uint64_t counter;    // of progress
    int64_t at, cpu;     // of the last look, ns: of the clock, of all threads
    int64_t wall, stood; // since the counter moved: of the clock, and without waits for a turn
} starved;

// Looks once, with the values of now. is_runnable: some thread runs or waits for a processor. Pure.
void cli_starved_see(starved *s, uint64_t counter, int64_t now, int64_t cpu, bool is_runnable);
// Whether the rank has waited for its turn, and has stood still by itself for less than this.
bool cli_starved_is_excused(const starved *s, int64_t limit_ns);
// The same with the values of this process, but the calling thread.
void cli_starved_look(starved *s, uint64_t counter);

#endif
