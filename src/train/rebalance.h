// Which rank should hold which expert, from the load of experts. Pure.
//
// The experts of a layer have slots; slot s is number s % own of rank s / own, where a rank has
// `own` experts. An expert moves only between slots of one number: then it has the same place in
// the tensors of each rank, ZeRO cuts it in the same way, and every sum of its gradient has the
// same terms in the same order, so no bit of a strict run changes.
//
//   slot     0  1  2   3  4  5        loads of the experts there: rank 0 has 9 + 8 + 1 = 18 of 24,
//   rank     0  0  0   1  1  1        rank 1 has 6; experts 0 and 3 change places: 13 and 11
//   load     9  8  1   4  1  1
#ifndef TRAIN_REBALANCE_H
#define TRAIN_REBALANCE_H

#include "base/base.h"

enum { REBALANCE_MAX_RANKS = 1024, REBALANCE_MAX_EXPERTS = 4096 };

typedef struct rebalance_case {
    const int64_t *load; // [expert]
    int64_t experts, ranks;
} rebalance_case;

// Returns the tokens of the rank with most of them.
int64_t rebalance_most(const rebalance_case *c, const int32_t *expert_of);
// Changes expert_of, [slot] the expert that it has, so that the fullest rank has fewer tokens:
// number by number, those whose loads differ most first, the expert with most tokens goes to the
// rank with the fewest so far. Changes nothing unless the fullest rank has at least 2% less then.
// Returns how many experts moved.
int64_t rebalance_choose(const rebalance_case *c, int32_t *expert_of);

#endif
