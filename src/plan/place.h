// Maps every logical tensor to the pieces that ranks hold. Pure.
//
// A logical tensor is a part of a weight or of its optimizer state. Its shape, its initial values
// and its place in checkpoints and in the digest do not depend on the layout. A rank holds one
// rectangle of it or nothing:
//
//   pp   the whole part, on the stages whose layers use the weight (a tied table is on two)
//   tp   rows or columns of each part; all ranks of tp have a part that tp does not cut, and a key
//        head is on the ranks with its queries
//   dp   rows of optimizer state, in stage 3 also of the weight, out of the rank's tensor after the
//        cut by tp with all its parts (ZeRO)
//
// The rows of a piece are consecutive in the rank's own tensor. Checkpoints, initial values,
// digests and pictures use this map; op_model_partition and plan_rows_of cut by the same rule.
#ifndef PLAN_PLACE_H
#define PLAN_PLACE_H

#include "plan/pipeline.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

// All inputs of the map.
typedef struct plan_places {
    const op_model *whole;
    plan_mesh mesh; // seen from this rank
    int32_t zero;
    const bool *whole_units; // [weight] its optimizer needs the matrix in one piece; NULL: none
    // [weight] ranks of the pp axis that hold it, ascending; -1: there is no second. NULL: one
    // stage.
    const int32_t (*stages)[PLAN_MAX_HOLDERS];
} plan_places;

// Fills `stages` from a pipeline.
NODISCARD status plan_places_stages(plan_places *p, arena *a, const plan_pipeline *pipeline);

typedef enum plan_what { PLACE_WEIGHT, PLACE_STATE } plan_what;

// A striped piece (of experts that tp cuts) has `own` rows of each `stripe` rows of the part, from
// row `offset` of each on; the stripes begin at `row`, and the piece begins at number `first` of
// its rows. stripe 0: rows row to row + rows - 1.
typedef struct plan_piece {
    int64_t row, rows, column, columns; // in the part; rows 0: no piece
    int64_t at;                         // element of the rank's tensor where the first row begins
    int64_t stripe, own, offset, first;
} plan_piece;

// Returns the row of the part that is row k of the piece.
static inline int64_t plan_piece_row(const plan_piece *p, int64_t k)
{
    if (p->stripe == 0) return p->row + k;
    return p->row + (p->first + k) / p->own * p->stripe + p->offset + (p->first + k) % p->own;
}
// Returns rows k to k + count - 1 of the piece.
static inline plan_piece plan_piece_rows(const plan_piece *p, int64_t k, int64_t count)
{
    plan_piece out = *p;
    out.rows = count;
    out.at += k * p->columns;
    if (p->stripe == 0) {
        out.row += k;
    } else {
        out.first += k;
    }
    return out;
}

// Returns the piece of part `part` of weight `weight` that rank `rank` of the job holds.
plan_piece plan_piece_of(const plan_places *p, int64_t rank, int32_t weight, int part,
                         plan_what what);
// Counts the elements of a piece before element `at` of the part, which has `columns` columns.
int64_t plan_piece_before(const plan_piece *piece, int64_t columns, int64_t at);

// Iterates over the first holders of a part: ranks, ascending along each axis, whose pieces cover
// each element once. `rank` is the last one returned, -1 at the beginning. Returns -1 after the
// last.
int64_t plan_holder_next(const plan_places *p, int64_t rank, int32_t weight, int part,
                         plan_what what);
// Whether every rank holds the whole weight.
bool plan_is_everywhere(const plan_places *p, int32_t weight, plan_what what);

// Copy the piece's elements among [begin, begin + count) of the part, which are at `whole`, to or
// from `own`, where they are consecutive: `own` is element plan_piece_before(begin) of the piece.
// Elements have `width` bytes. Return the number of elements.
int64_t plan_piece_take(const plan_piece *piece, int64_t columns, int64_t begin, int64_t count,
                        int64_t width, const void *whole, void *own);
int64_t plan_piece_put(const plan_piece *piece, int64_t columns, int64_t begin, int64_t count,
                       int64_t width, const void *own, void *whole);

#ifdef __cplusplus
}
#endif
#endif
