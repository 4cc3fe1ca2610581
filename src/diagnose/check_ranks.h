// Ranks for `check`: threads of this process that talk over shared memory.
#ifndef DIAGNOSE_CHECK_RANKS_H
#define DIAGNOSE_CHECK_RANKS_H

#include "comm/comm.h"

// What a rank does. `a` is the caller's for rank 0; of the others it goes with them.
typedef status check_rank_fn(void *context, comm *all, int rank, arena *a);
// Runs `work` as each of so many ranks and gives the error of the one that failed by itself.
NODISCARD status check_ranks_run(const host *h, arena *a, int ranks, check_rank_fn *work,
                                 void *context);

#endif
