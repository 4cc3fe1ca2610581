// Which positions of a sequence a rank of context parallelism holds, balanced for causal attention: of
// 2 n equal pieces rank i of n has pieces i and 2 n - 1 - i.
//
//   4 ranks, pieces by position   0 1 2 3 4 5 6 7
//   rank                          0 1 2 3 3 2 1 0
//
// A rank's rows of a sequence are its two pieces, one after the other. Gathered rows are the first pieces of
// all ranks, then the second ones: 0 1 2 3 7 6 5 4. Shards of strict order are the ranks of the largest n:
// rank i of n has the shards i S / n .. (i + 1) S / n - 1 of S, whole pieces of its own ones.
#ifndef OP_ZIGZAG_H
#define OP_ZIGZAG_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// The position of row `row` of a rank's `rows`. One rank has all of them in order.
static inline int64_t zigzag_position(int64_t ways, int64_t at, int64_t rows, int64_t row)
{
    const int64_t half = rows / 2;
    if (ways <= 1) return row;
    return row < half ? at * half + row : (2 * ways - 1 - at) * half + row - half;
}

// Where position p of `all` stands among the gathered rows of a sequence, and how many follow it side by side.
static inline int64_t zigzag_row(int64_t ways, int64_t all, int64_t p, int64_t *run)
{
    if (ways <= 1) {
        *run = all - p;
        return p;
    }
    const int64_t half = all / (2 * ways), piece = p / half, inside = p - piece * half;
    *run = half - inside;
    return (piece < ways ? piece : 3 * ways - 1 - piece) * half + inside;
}

// Rows of a rank that lie side by side, and where they stand.
typedef struct zigzag_run {
    int64_t row, position, count;
} zigzag_run;

// The two pieces of shard `shard` of `shards` among the rows of rank `at` of `ways`, which has it.
static inline void zigzag_shard(int64_t ways, int64_t at, int64_t rows, int64_t shards,
                                int64_t shard, zigzag_run out[2])
{
    const int64_t own = shards / (ways > 1 ? ways : 1), half = rows / (2 * own);
    const int64_t k = shard - (ways > 1 ? at * own : 0);
    out[0].row = k * half;
    out[0].position = shard * half;
    out[1].row = rows - (k + 1) * half;
    out[1].position = (2 * shards - 1 - shard) * half;
    out[0].count = out[1].count = half;
}

#ifdef __cplusplus
}
#endif
#endif
