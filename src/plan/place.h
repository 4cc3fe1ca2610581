// Which rank holds which piece of every logical tensor. Pure.
//
// The logical tensor is a part of a weight, or of its optimizer state: it has a shape, initial
// values, a place in checkpoints and in the digest, whatever the layout. A rank holds one rectangle
// of it or nothing:
//
//   pp   the whole part, on the stages whose layers use the weight (a tied table on two)
//   tp   rows, or columns, of each part by itself; what tp does not cut all its ranks have, and a
//        head of keys those whose queries look at it
//   dp   of optimizer state, and of the weight itself in stage 3, rows of what tp has left in the
//        rank's tensor, its parts taken together (ZeRO)
//
// A piece's rows lie one after the other in the rank's own tensor. Checkpoints, initial values,
// digests and pictures are made from this; op_model_partition and plan_rows_of cut by the same
// rule.
#ifndef PLAN_PLACE_H
#define PLAN_PLACE_H

#include "plan/pipeline.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

// All that decides who holds what.
typedef struct plan_places {
    const op_model *whole;
    plan_mesh mesh; // as this rank sees it
    int32_t zero;
    const bool *whole_units; // [weight] its optimizer needs the matrix in one piece; NULL: none
    // [weight] ranks of the pp axis that hold it, ascending; -1: there is no second. NULL: there is
    // one stage.
    const int32_t (*stages)[PLAN_MAX_HOLDERS];
} plan_places;

// `stages`, as a pipeline has them.
NODISCARD status plan_places_stages(plan_places *p, arena *a, const plan_pipeline *pipeline);

typedef enum plan_what { PLACE_WEIGHT, PLACE_STATE } plan_what;

typedef struct plan_piece {
    int64_t row, rows, column, columns; // of the part; rows 0: nothing
    int64_t at; // element of the rank's tensor with which the first row begins
} plan_piece;

// What rank `rank` of the job holds of part `part` of weight `weight`.
plan_piece plan_piece_of(const plan_places *p, int64_t rank, int32_t weight, int part,
                         plan_what what);
// Elements of a piece before element `at` of the part, which has `columns` columns.
int64_t plan_piece_before(const plan_piece *piece, int64_t columns, int64_t at);

// The first holders of a part: ranks, ascending along each axis, whose pieces are all of it, each
// element once. They are asked for one by one, from -1 on; -1: that was the last.
int64_t plan_holder_next(const plan_places *p, int64_t rank, int32_t weight, int part,
                         plan_what what);
// Does every rank hold all of the weight, so that no one need ask another?
bool plan_is_everywhere(const plan_places *p, int32_t weight, plan_what what);

// Copies the piece's elements among [begin, begin + count) of the part, which lie at `whole`, to or
// from `own`, where they follow one another: `own` is element plan_piece_before(begin) of the
// piece. Elements have `width` bytes. Returns how many there were.
int64_t plan_piece_take(const plan_piece *piece, int64_t columns, int64_t begin, int64_t count,
                        int64_t width, const void *whole, void *own);
int64_t plan_piece_put(const plan_piece *piece, int64_t columns, int64_t begin, int64_t count,
                       int64_t width, const void *own, void *whole);

#ifdef __cplusplus
}
#endif
#endif
