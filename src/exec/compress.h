// Compressed sums of a plan: the codec's sizes, for the planner, and the arguments, for comm.
#ifndef EXEC_COMPRESS_H
#define EXEC_COMPRESS_H

#include "comm/compressed.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct exec_codec {
    const comm_codec *codec; // NULL: none
    comm_bucket settings;    // the count in it is not used
} exec_codec;

// The view of a codec that the planner uses. `c` is borrowed as long as plans are made.
plan_codec exec_plan_codec(exec_codec *c);

// Completes the arguments of a plan's compressed sums; those of other operations stay as they are.
// base: as for exec_comms_make. Without a codec (in virtual time) the transport must not run them.
NODISCARD status exec_sums_make(arena *a, const plan *p, const exec_codec *codec,
                                comm_group *const *groups, char *base, comm_args *comms);

#ifdef __cplusplus
}
#endif
#endif
