// Inside comm/: what an operation's row says of its operands, and the checks before anything is touched.
#ifndef COMM_ARGS_H
#define COMM_ARGS_H

#include "comm/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

// Of one rank: how many pieces of `count` elements it has of `in` and of `out`; 0: that rank has none.
typedef struct comm_shape {
    int in_pieces, out_pieces;
    bool adds;   // sums something
    bool rooted; // args.root means something
} comm_shape;
// A row of operands: pieces are 0 none, 1 one, 2 one per rank; of the root and of the others.
typedef struct comm_op_row {
    uint8_t root_in, root_out, in, out;
    bool adds, rooted;
} comm_op_row;
extern const comm_op_row comm_op_rows[COLLECTIVE_COUNT];

static inline int comm_pieces(uint8_t kind, int size)
{
    return kind == 2 ? size : kind;
}

static inline comm_shape comm_shape_of(op_collective op, int size, bool is_root)
{
    const comm_op_row *row = &comm_op_rows[op];
    comm_shape shape;
    shape.in_pieces = comm_pieces(is_root ? row->root_in : row->in, size);
    shape.out_pieces = comm_pieces(is_root ? row->root_out : row->out, size);
    shape.adds = row->adds;
    shape.rooted = row->rooted;
    return shape;
}

// Everything that one rank can see alone. `rank`, `size`: in the group.
NODISCARD status comm_args_check(const comm_args *args, int rank, int size);
int64_t comm_args_count(const comm_args *args); // of elements over all items
bool comm_args_end(const comm_args *args);      // does any item say where its pieces end?
// Elements of piece r, and of the n pieces together.
static inline int64_t comm_item_piece(const comm_item *item, int64_t r)
{
    if (item->total == 0) return item->count;
    return min_i64(max_i64(item->total - r * item->count, 0), item->count);
}
static inline int64_t comm_item_whole(const comm_item *item, int64_t n)
{
    return item->total == 0 ? n * item->count : item->total;
}
static inline int comm_args_terms(const comm_args *args)
{
    return args->terms != NULL && args->term_count > 0 ? args->term_count : 1;
}

#ifdef __cplusplus
}
#endif
#endif
