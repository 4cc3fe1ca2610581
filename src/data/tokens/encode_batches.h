// Encodes documents on several threads, in order. Private to this folder.
#ifndef DATA_TOKENS_ENCODE_BATCHES_H
#define DATA_TOKENS_ENCODE_BATCHES_H

#include "data/reader.h"
#include "data/tokenizer.h"

// Takes a piece of a text with its ids, in the order of the text; also called without a piece
// (bytes NULL) from time to time, for progress.
typedef status encoded_piece(void *context, const data_piece *piece, const int32_t *ids,
                             int64_t count);

// Reads all documents and hands each piece with its ids to `take`. The ids are those of one thread.
NODISCARD status encode_batches(data_tokenizer *t, data_documents *d, encoded_piece *take,
                                void *context);

#endif
