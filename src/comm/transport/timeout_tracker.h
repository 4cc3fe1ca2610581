// Inside comm/transport/: measures how long a rank has waited, against a deadline.
//
// It leaves out time in which the rank could not read the clock, because the rank or its machine
// was stopped, mostly with all other ranks, and has not seen yet the messages of that time. A
// deadline that counted such time would end every wait of a job that continues after a pause. A
// rank that runs while others are stopped reads the clock often and counts all of the time.
#ifndef COMM_TRANSPORT_TIMEOUT_TRACKER_H
#define COMM_TRANSPORT_TIMEOUT_TRACKER_H

#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comm_timeout_tracker {
    int64_t begin_ns, looked_ns;
} comm_timeout_tracker;

static inline void comm_timeout_begin(comm_timeout_tracker *p, int64_t now_ns)
{
    p->begin_ns = p->looked_ns = now_ns;
}

// A running rank calls this at least every 20 ms. Returns by how much this call is later than a
// busy machine explains.
static inline int64_t comm_timeout_look(comm_timeout_tracker *p, int64_t now_ns)
{
    const int64_t late = max_i64(0, now_ns - p->looked_ns - INT64_C(100000000));
    p->looked_ns = now_ns;
    p->begin_ns += late;
    return late;
}

static inline int64_t comm_timeout_waited(comm_timeout_tracker *p, int64_t now_ns)
{
    (void)comm_timeout_look(p, now_ns);
    return now_ns - p->begin_ns;
}

#ifdef __cplusplus
}
#endif
#endif
