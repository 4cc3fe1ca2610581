// The sum of squares of a block: at most 1,024 elements of one row of a gradient, in double.
//
// Block sums are added exactly (op/step.h), so their order does not matter; the order inside a
// block does. It is fixed here for all backends: sixteen lanes, element j in lane j mod 16, then a
// tree. The square of an fp32 number is exact in double, so the bits are the same with and without
// fma.
#ifndef OP_BLOCK_SUM_H
#define OP_BLOCK_SUM_H

#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BLOCK_SUM_ELEMENTS = 1024, BLOCK_SUM_LANES = 16 };

typedef struct block_sum {
    double lane[BLOCK_SUM_LANES];
} block_sum;

static inline void block_sum_begin(block_sum *s)
{
    for (int i = 0; i < BLOCK_SUM_LANES; i++) s->lane[i] = 0.0;
}

// Adds element j of the block.
static inline void block_sum_add(block_sum *s, int64_t j, double x)
{
    s->lane[j % BLOCK_SUM_LANES] += x * x;
}

// Adds lanes i and i + 8, then i and i + 4, i + 2, i + 1.
static inline double block_sum_end(const block_sum *s)
{
    double sum[BLOCK_SUM_LANES];
    for (int i = 0; i < BLOCK_SUM_LANES; i++) sum[i] = s->lane[i];
    for (int width = BLOCK_SUM_LANES / 2; width >= 1; width /= 2) {
        for (int i = 0; i < width; i++) sum[i] += sum[i + width];
    }
    return sum[0];
}

#ifdef __cplusplus
}
#endif
#endif
