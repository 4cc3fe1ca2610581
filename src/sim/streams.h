// The streams of a plan, as its simulators run them.
#ifndef SIM_STREAMS_H
#define SIM_STREAMS_H

#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

// The actions of a stream, in order.
typedef struct sim_stream {
    int32_t *actions;
    int32_t count; // 0: the plan does not use this stream
} sim_stream;
// out: [*count] by number of the stream.
NODISCARD status sim_streams_make(arena *a, const plan *p, sim_stream **out, int32_t *count);

// The row of an action in a table of all actions of some steps.
static inline int64_t sim_row(const plan *p, int32_t step, int64_t action)
{
    return step * p->action_count + action;
}

#ifdef __cplusplus
}
#endif
#endif
