// Reports the last operations of the ranks of a host, from their flight recorders.
#ifndef CLI_DIAGNOSE_HANG_REPORT_H
#define CLI_DIAGNOSE_HANG_REPORT_H

#include "base/text.h"
#include "comm/comm.h"

// Prints the newest operations of every rank and the ranks it waits for. The control block may be
// of a live job, or of one whose ranks have all ended.
NODISCARD status cli_hang_report(const comm_control_block *b, text *out);

// True if that rank (of this host) has begun the group's operation, as far as its recorder goes
// back.
bool cli_rank_has_begun(const comm_control_block *b, int rank, uint32_t group, uint64_t sequence);

#endif
