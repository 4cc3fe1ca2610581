// Inside comm/: the operands of each operation, and the checks of its arguments.
#ifndef COMM_ARGS_H
#define COMM_ARGS_H

#include "comm/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

// Operands of one rank: the numbers of pieces of `count` elements in `in` and `out`; 0: it has
// none.
typedef struct comm_shape {
    int in_pieces, out_pieces;
    bool adds;   // sums something
    bool rooted; // it uses args.root
} comm_shape;
// A row of the table: the pieces of the root and of other ranks. 0: none, 1: one, 2: one per rank.
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

// Checks everything that one rank can see by itself. `rank` and `size` are those of the group.
NODISCARD status comm_args_check(const comm_args *args, int rank, int size);
int64_t comm_args_count(const comm_args *args); // of elements over all items
bool comm_args_end(const comm_args *args);      // whether any item has a total
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
