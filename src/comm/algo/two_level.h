// Inside comm/algo/: the calls that an algorithm of two levels makes in place of its own, among the
// ranks of a host and in a column (the ranks with one number, one on each host).
#ifndef COMM_ALGO_TWO_LEVEL_H
#define COMM_ALGO_TWO_LEVEL_H

#include "comm/algo/algo.h"

comm_call two_level_inside(const comm_call *call, const comm_args *args);
comm_call two_level_column(const comm_call *call, const comm_args *args);
// Returns the arguments of `op` over one item, else those of the call.
comm_args two_level_item(const comm_call *call, op_collective op, const comm_item *item);

#endif
