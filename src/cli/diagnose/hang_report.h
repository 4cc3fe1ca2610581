// What the ranks of a host did last, from their flight recorders.
#ifndef CLI_DIAGNOSE_HANG_REPORT_H
#define CLI_DIAGNOSE_HANG_REPORT_H

#include "base/text.h"
#include "comm/comm.h"

// The newest operations of every rank, and whom each waits for. The board may be of a job that is alive,
// or whose ranks are all gone.
NODISCARD status cli_hang_report(const comm_control_block *b, text *out);

// Whether that rank (of this host) has begun the group's operation, as far as its recorder goes back.
bool cli_rank_has_begun(const comm_control_block *b, int rank, uint32_t group, uint64_t sequence);

#endif
