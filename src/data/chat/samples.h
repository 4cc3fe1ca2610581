// A dataset of samples: all of them in memory, packed into rows of seq tokens.
//
// First fit in the order of the files, or best fit with DATA_PACKING_BEST_FIT: a sample goes into
// the first, or the fullest, row that still has its tokens.
// It is a document of its row, so attention and positions do not cross it; what is left of a row is
// padding, a document without labels. A sample longer than a row is cut.
#ifndef DATA_CHAT_SAMPLES_H
#define DATA_CHAT_SAMPLES_H

#include "data/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct samples samples;

// Reads the files of spec->train and spec->valid. close frees it.
NODISCARD status samples_open(const host *h, arena *a, const data_dataset_spec *spec,
                              samples **out);
void samples_close(samples *s); // NULL is legal
int64_t samples_rows(const samples *s, data_split split);
int64_t samples_tokens(const samples *s, data_split split); // without padding
const data_sample_facts *samples_facts(const samples *s, data_split split);
hash128 samples_id(const samples *s);
// Row n of the split's order: its place in the file order.
int64_t samples_row_at(const samples *s, data_split split, int64_t n, int64_t *epoch);
// The samples of row n, and all of a split (data/dataset.h).
int64_t samples_pairs(const samples *s, data_split split, int64_t n, data_pair *out);
void samples_rollouts(const samples *s, data_split split, int64_t n, const data_numbers *to);
int64_t samples_count(const samples *s, data_split split);
// Leaves samples out, in place of those before: padding takes their places, and no other row
// changes. An entry is "FILE:LINE" or the "id" of a line. *found: samples.
NODISCARD status samples_exclude(samples *s, const char *const *entries, int64_t count,
                                 int64_t *found);
// The origins of training samples (data/dataset.h).
void samples_describe(const samples *s, int64_t k, data_conversation *out);
NODISCARD status samples_of_row(const samples *s, int64_t n,
                                status (*take)(void *context, const data_conversation *c),
                                void *context);
NODISCARD status samples_named(const samples *s, const char *name, char *flags, int64_t *found);
void samples_fill(const samples *s, data_split split, int64_t n, const data_rows *rows);

#ifdef __cplusplus
}
#endif
#endif
