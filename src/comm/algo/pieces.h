// Sums over messages in order `shard`: whoever owns a part of the result gets everybody's tree
// nodes of it.
#ifndef COMM_ALGO_PIECES_H
#define COMM_ALGO_PIECES_H

#include "comm/algo/message.h"

// Who sums what: rank k the k-th part; every rank everything; the root everything.
typedef enum pieces_deal { PIECES_PARTS, PIECES_ALL, PIECES_ROOT } pieces_deal;

// Sums this rank's part of every tensor into item->out at the part's place (reduce_scatter: at its
// start); or, with one tensor, into `apart`.
NODISCARD status pieces_run(comm_call *call, pieces_deal deal, void *apart);
int64_t pieces_scratch(const comm_args *args, int size);

#endif
