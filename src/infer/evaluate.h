// Scores text with the trainer's own programs: the cross-entropy of given tokens, row by row.
//
// A row is one sequence of `seq` positions. Sums of losses are exact, so they do not depend on the
// number or order of rows in a batch. In strict mode the losses do not depend on them either, to
// the bit.
#ifndef INFER_EVALUATE_H
#define INFER_EVALUATE_H

#include "infer/infer.h"

typedef struct infer_scorer infer_scorer;

// The caller fills these arrays, (rows, seq) each. A label below 0 is not scored. documents:
// attention stays within equal numbers; read only if the scorer was opened for them.
typedef struct infer_rows {
    int32_t *ids, *labels, *positions, *documents;
    int64_t rows, seq;
} infer_rows;

typedef struct infer_score {
    exact_sum nats; // of the scored labels; starts from exact_zero
    int64_t tokens;
} infer_score;

// options: context is the length of a row, slots the number of rows at once.
NODISCARD status infer_scorer_open(const host *h, arena *a, const char *folder,
                                   const infer_options *options, bool documents,
                                   infer_scorer **out);
void infer_scorer_close(infer_scorer *s); // NULL is legal
// The scorer's buffers.
const infer_rows *infer_scorer_rows(const infer_scorer *s);
// Makes row `row` one text of `count` tokens, 1 <= count <= seq; later positions are not scored.
void infer_scorer_row(infer_scorer *s, int64_t row, const int32_t *ids, const int32_t *labels,
                      int64_t count);
// Scores the first `count` rows and adds to *score. losses (count, seq) are in nats, 0 without a
// label; may be NULL.
NODISCARD status infer_scorer_run(infer_scorer *s, int64_t count, infer_score *score,
                                  float *losses);

#endif
