// Scoring with the trainer's own programs: the cross-entropy of given tokens, row by row.
//
// A row is one sequence of `seq` places. Sums of losses are exact, so neither the number of rows at
// once nor their order changes a bit of them; in strict mode no bit of a loss depends on them either.
#ifndef INFER_EVALUATE_H
#define INFER_EVALUATE_H

#include "infer/infer.h"

typedef struct infer_scorer infer_scorer;

// What the caller fills: (rows, seq) each. A label below 0 is not scored. documents: attention stays
// within equal numbers; read only where the scorer was opened for them.
typedef struct infer_rows {
    int32_t *ids, *labels, *positions, *documents;
    int64_t rows, seq;
} infer_rows;

typedef struct infer_score {
    exact_sum nats; // of the labels scored; starts from exact_zero
    int64_t tokens;
} infer_score;

// options: context is the length of a row, slots the rows at once.
NODISCARD status infer_scorer_open(const host *h, arena *a, const char *folder,
                                   const infer_options *options, bool documents,
                                   infer_scorer **out);
void infer_scorer_close(infer_scorer *s); // NULL is legal
// Buffers of the scorer.
const infer_rows *infer_scorer_rows(const infer_scorer *s);
// Makes row `row` one text of `count` tokens, 1 <= count <= seq, with nothing to score after it.
void infer_scorer_row(infer_scorer *s, int64_t row, const int32_t *ids, const int32_t *labels,
                      int64_t count);
// Scores the first `count` rows and adds to *score; losses (count, seq) in nats, 0 where there is no
// label, or NULL.
NODISCARD status infer_scorer_run(infer_scorer *s, int64_t count, infer_score *score,
                                  float *losses);

#endif
