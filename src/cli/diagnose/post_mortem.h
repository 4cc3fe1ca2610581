// Keeps the last operations of the ranks of this host in the run's folder, for a report after all
// processes were killed at once.
#ifndef CLI_DIAGNOSE_POST_MORTEM_H
#define CLI_DIAGNOSE_POST_MORTEM_H

#include "base/host.h"
#include "comm/comm.h"

// A thread writes the report of cli_hang_report() to dumps/last-HOST.txt: at the start, twice a
// second, and at the end. An error of the disk costs the report and is not told. b: borrowed until
// post_mortem_stop.
typedef struct post_mortem post_mortem;
NODISCARD status post_mortem_start(const host *h, const char *run_dir, const comm_control_block *b,
                                   post_mortem **out);
// Without `keep` the file is removed: the run ended in order, or has a better report. NULL is
// legal.
void post_mortem_stop(post_mortem *p, bool keep);

#endif
