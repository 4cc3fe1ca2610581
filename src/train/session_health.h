// The health of a rank's GPU and machine in a session. Internal to train/.
#ifndef TRAIN_SESSION_HEALTH_H
#define TRAIN_SESSION_HEALTH_H

#include "train/health.h"
#include "train/session.h"

NODISCARD status session_health_open(session *s);
void session_health_close(session *s);
// Returns this rank's new findings (train/health.h), a bit each.
uint32_t session_health_look(session *s);
// Tells the findings of a rank, if this is the first one, and drains the rank.
NODISCARD status session_health_hear(session *s, int64_t rank, uint32_t found);
// Lets the rank lose its place because of its GPU or machine, with resilience.straggler = evict.
// Only once: a new process of the place has the same one, unless it is on another host. False: it
// keeps it, as while another rank loses its own.
bool session_shares_drain(session *s, int64_t rank, health_part part);

#endif
