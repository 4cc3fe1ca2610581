// Sums of a plan that travel compressed: codec and settings, bytes for the plan, arguments for comm.
#ifndef EXEC_COMPRESS_H
#define EXEC_COMPRESS_H

#include "comm/compressed.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct exec_codec {
    const comm_codec *codec; // NULL: none
    comm_bucket settings;    // its count is not looked at
} exec_codec;

// What a plan asks of it. `c` is borrowed for as long as plans are made.
plan_codec exec_plan_codec(exec_codec *c);

// Gives the operations of those sums of a plan that travel compressed what they need besides; the others stay
// as they are. base: as for exec_comms_make. Without a codec (in virtual time) only a transport that runs
// none can carry them.
NODISCARD status exec_sums_make(arena *a, const plan *p, const exec_codec *codec,
                                comm_group *const *groups, char *base, comm_args *comms);

#ifdef __cplusplus
}
#endif
#endif
