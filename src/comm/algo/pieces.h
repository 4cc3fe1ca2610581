// Sums over messages in order `shard`: the owner of a part of the result receives
// the tree nodes of that part from all ranks.
#ifndef COMM_ALGO_PIECES_H
#define COMM_ALGO_PIECES_H

#include "comm/algo/message.h"

// The parts that each rank sums: rank k the k-th one; every rank all of them; the root all of them.
typedef enum pieces_scope { PIECES_PARTS, PIECES_ALL, PIECES_ROOT } pieces_scope;

// Sums this rank's part of every tensor into item->out at the part's place (reduce_scatter: at its
// start); or, with one tensor, into `apart`.
NODISCARD status pieces_run(comm_call *call, pieces_scope scope, void *apart);
int64_t pieces_scratch(const comm_args *args, int size);

#endif
