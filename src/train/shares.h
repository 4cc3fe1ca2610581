// Shares of a step for data-parallel ranks of different speeds. Pure.
#ifndef TRAIN_SHARES_H
#define TRAIN_SHARES_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// Divides `parts` among the ranks so that the longest share takes the least time, where a part
// takes slow[rank] on each. Every rank gets one at least: parts >= ranks.
void train_shares_choose(int64_t parts, int64_t ranks, const double *slow, int64_t *shares);
// The time of the longest share.
double train_shares_time(int64_t ranks, const double *slow, const int64_t *shares);

#ifdef __cplusplus
}
#endif
#endif
