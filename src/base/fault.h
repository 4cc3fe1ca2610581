// Fault points: named places where tests inject failures.
//
// `TRY(fault_point("data.shard.map"))` costs one load of a flag when no plan is armed. A plan says
// which hit of which point fails. It is keyed by hit counts and never by time, so it is
// reproducible.
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include "base/status.h"
#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

NODISCARD status fault_point(const char *name);
// Flips a bit of the byte where the point fails.
void fault_flip(const char *name, char *byte);

// For tests. "name=k" fails the k-th hit (from 1), "name=k+" that and all later ones, "*=k" the
// k-th hit of any point; "name=0" only counts. Commas separate several rules. A failing point
// returns ST_IO, or the code after a colon: "host.write=3:DISK_FULL". Arming zeroes the counts;
// NULL also disarms. A malformed plan is ST_USAGE and changes no state. Hits are counted only while
// a plan is armed.
NODISCARD status fault_arm(const char *plan);
int64_t fault_hits(const char *name); // "*": of all points

#ifdef __cplusplus
}
#endif
#endif
