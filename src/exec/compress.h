// From a plan's sums that travel compressed to comm: codec and settings, bytes for the plan, and the calls.
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

// One sum of one plan, ready to be posted: exec_sum_run(it) in the lane's thread.
typedef struct exec_sum {
    comm_group *group;
    comm_compressed args;
} exec_sum;
// [communication of the plan]; those that are not compressed are left empty. base: as exec_comms_make's.
NODISCARD status exec_sums_make(arena *a, const plan *p, const exec_codec *codec,
                                const comm_args *comms, comm_group *const *groups, char *base,
                                exec_sum **out);
status exec_sum_run(void *sum);

#ifdef __cplusplus
}
#endif
#endif
