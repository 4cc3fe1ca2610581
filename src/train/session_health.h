// The health of a rank's GPU and machine in a session. Internal to train/.
#ifndef TRAIN_SESSION_HEALTH_H
#define TRAIN_SESSION_HEALTH_H

#include "train/session.h"

NODISCARD status session_health_open(session *s);
void session_health_close(session *s);
// Returns this rank's new findings (train/health.h), a bit each.
uint32_t session_health_look(session *s);
// Tells the findings of a rank, if this is the first one, and drains the rank.
NODISCARD status session_health_hear(session *s, int64_t rank, uint32_t found);

#endif
