// The positions of a sequence that a rank of context parallelism holds, balanced for causal
// attention: rank i of n has pieces i and 2 n - 1 - i of 2 n equal pieces.
//
//   4 ranks, pieces by position   0 1 2 3 4 5 6 7
//   rank                          0 1 2 3 3 2 1 0
//
// With several `turns` the pattern repeats: 2 n t pieces, of which 2 n at a time are distributed in
// this way. Documents that are shorter than the sequence begin anywhere, and many small pieces
// balance the pairs of a query and a key over the ranks better than few large ones.
//
// The rows of a rank of a sequence are its pieces, one after the other. Gathered rows are the first
// pieces of all ranks, then the second ones: 0 1 2 3 7 6 5 4, and so on. Shards of strict order
// (one turn) are the ranks of the largest n: rank i of n has the shards i S / n .. (i + 1) S / n -
// 1 of S, which are whole pieces of its own.
#ifndef OP_ZIGZAG_H
#define OP_ZIGZAG_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ZIGZAG_MAX_TURNS = 4, ZIGZAG_MAX_RUNS = 2 * ZIGZAG_MAX_TURNS };

// Returns the number of pieces of a rank; 0 turns count as one.
static inline DEVICE_CODE int64_t zigzag_pieces(int64_t turns)
{
    return turns > 1 ? 2 * turns : 2;
}

// Returns the position of row `row` of a rank's `rows`. One rank has all rows in order.
static inline DEVICE_CODE int64_t zigzag_position(int64_t ways, int64_t turns, int64_t at,
                                                  int64_t rows, int64_t row)
{
    if (ways <= 1) return row;
    const int64_t size = rows / zigzag_pieces(turns), k = row / size;
    const int64_t place = k % 2 == 0 ? at : 2 * ways - 1 - at;
    return (k / 2 * 2 * ways + place) * size + row % size;
}

// Returns the index of position p of `all` among the gathered rows of a sequence, and how many
// consecutive positions follow it contiguously.
static inline DEVICE_CODE int64_t zigzag_row(int64_t ways, int64_t turns, int64_t all, int64_t p,
                                             int64_t *run)
{
    if (ways <= 1) {
        *run = all - p;
        return p;
    }
    const int64_t size = all / (ways * zigzag_pieces(turns)), piece = p / size;
    const int64_t inside = p - piece * size, turn = piece / (2 * ways), k = piece % (2 * ways);
    *run = size - inside;
    return (turn * 2 * ways + (k < ways ? k : 3 * ways - 1 - k)) * size + inside;
}

// Contiguous rows of a rank, and their positions.
typedef struct zigzag_run {
    int64_t row, position, count;
} zigzag_run;

// Returns the two pieces of shard `shard` of `shards` among the rows of rank `at` of `ways`, which
// has the shard.
static inline DEVICE_CODE void zigzag_shard(int64_t ways, int64_t at, int64_t rows, int64_t shards,
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

// Whether every sum over the rows of sequences of `seq` is split after an even number of rows in
// every layout: sums are split between sequences and between the pieces of `shards`, two for each.
static inline bool zigzag_in_pairs(int64_t seq, int64_t shards)
{
    return seq % (shards > 1 ? 4 * shards : 2) == 0;
}

// Returns the position of row `row` of a rank's `rows` if AXIS_TP cuts positions: of each of
// `pieces` equal pieces of a sequence rank `at` of `ways` has its part, so that all ranks work on a
// piece that is processed alone.
static inline DEVICE_CODE int64_t cut_position(int64_t ways, int64_t pieces, int64_t at,
                                               int64_t rows, int64_t row)
{
    if (ways <= 1) return row;
    const int64_t size = rows / pieces;
    return (row / size * ways + at) * size + row % size;
}

// There are `rows` rows in `tiles` tiles, one tile for each of as many neighbouring ranks, with
// `seq` rows of each sequence in a tile. Returns the index of row `row` after the rows of each
// sequence are put together in the order of their positions. Neighbouring ranks together have the
// rows that one rank has if the axis has fewer ranks.
static inline DEVICE_CODE int64_t zigzag_ordered_row(int64_t tiles, int64_t turns, int64_t rows,
                                                     int64_t seq, int64_t row)
{
    if (tiles <= 1) return row;
    const int64_t each = rows / tiles, tile = row / each, size = seq / zigzag_pieces(turns);
    const int64_t sequence = row % each / seq, inside = row % seq, k = inside / size;
    const int64_t place = k % 2 == 0 ? tile : tiles - 1 - tile;
    return sequence * tiles * seq + (k * tiles + place) * size + inside % size;
}

#ifdef __cplusplus
}
#endif
#endif
