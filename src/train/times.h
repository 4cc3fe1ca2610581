// Where a session's time goes (obs_goodput). Internal to train/.
#ifndef TRAIN_TIMES_H
#define TRAIN_TIMES_H

#include "observe/observe.h"

struct session;
// run.c: counts the time since the last step, or since the last call, for this cause.
void session_spend(struct session *s, obs_cause cause);
// session_memory.c: counts what the loss before this session cost; time: of the newest record that
// counts, Unix seconds; 0: there is none.
void session_memory_count(struct session *s, double time);

#endif
