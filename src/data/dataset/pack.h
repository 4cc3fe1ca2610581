// Best-fit packing: the documents of a source in rows of seq tokens with hardly any padding.
// Private to this folder.
//
// A document longer than a row is cut into whole rows and a rest. Pieces go into rows by best fit,
// longest first (Ding et al. 2024, arXiv:2404.10830). The documents of a source are taken in
// windows of some million tokens, and each window is packed by itself: rows are a function of the
// window's documents, so no rank holds an index of the corpus, only 32 bytes a window, and lays a
// window out again when a row of it is asked for. The last windows stay in memory.
#ifndef DATA_DATASET_PACK_H
#define DATA_DATASET_PACK_H

#include "data/dataset/sources.h"

typedef struct pack pack;

// A part of a document in a row.
typedef struct pack_piece {
    int64_t first;      // token of the source's stream
    int64_t count;      // tokens
    bool ends_document; // otherwise the document goes on at first + count
} pack_piece;

// Reads the lists of documents of all files, which must have them.
NODISCARD status pack_open(const source *s, int64_t seq, pack **out);
void pack_close(pack *p);           // NULL is legal
int64_t pack_rows(const pack *p);   // of the source
int64_t pack_tokens(const pack *p); // in these rows, without padding
// Calls `take` for each piece of a row, in order. Any threads at once.
NODISCARD status pack_row(pack *p, int64_t row,
                          void (*take)(void *context, const pack_piece *piece), void *context);

// Puts pieces of these lengths (1 to seq) into rows by best fit, longest first, ties in order.
// rows[i]: the row of piece i; *row_count: their number.
NODISCARD status pack_best_fit(const int64_t *lengths, int64_t count, int64_t seq, int64_t *rows,
                               int64_t *row_count);

#endif
