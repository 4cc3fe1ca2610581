// Ranks of `check`: threads of this process that communicate over shared memory.
#ifndef DIAGNOSE_CHECK_RANKS_H
#define DIAGNOSE_CHECK_RANKS_H

#include "comm/comm.h"

// The work of a rank. Rank 0 gets the caller's arena `a`; the other ranks' arenas are destroyed at
// the end.
typedef status check_rank_fn(void *context, comm *all, int rank, arena *a);
// Runs `work` on this many ranks and returns the error of the rank that failed by itself.
NODISCARD status check_ranks_run(const host *h, arena *a, int ranks, check_rank_fn *work,
                                 void *context);

#endif
