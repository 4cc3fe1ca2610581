// Signatures by which documents with nearly equal texts are found. Private to this folder.
//
// MinHash with banding (Broder 1997; Leskovec, Rajaraman, Ullman: Mining of Massive Datasets, 3.4).
// A document's set holds the hashes of its runs of `ngram` words, in lower case and without
// punctuation. Two documents share a band with probability 1 - (1 - J^rows)^bands, where J is the
// Jaccard index of their sets: 0.97 at J = 0.8 and 0.08 at J = 0.5 for 20 bands of 8 rows.
#ifndef DATA_CORPUS_MINHASH_H
#define DATA_CORPUS_MINHASH_H

#include "data/corpus.h"

typedef struct minhash_work {
    uint64_t *words;  // hashes of the words
    uint32_t *grams;  // hashes of the runs
    int64_t capacity; // of both
} minhash_work;
void minhash_work_deinit(minhash_work *w);

// Writes the hash of each band. A text without a word gives hashes that no other text shares,
// except one of equal bytes.
// signature: the low byte of each of bands times rows values.
NODISCARD status minhash_bands(minhash_work *w, const corpus_near *near, const char *bytes,
                               int64_t count, uint64_t *bands, uint8_t *signature);
// The Jaccard index that two signatures let expect: one in 256 unequal values is equal by chance.
double minhash_similarity(const uint8_t *a, const uint8_t *b, int64_t count);

#endif
