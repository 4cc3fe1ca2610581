// The parts of training a tokenizer: counting words, learning merges, writing the file. Private to
// this folder.
#ifndef DATA_TOKENIZER_TRAIN_TRAIN_INTERNAL_H
#define DATA_TOKENIZER_TRAIN_TRAIN_INTERNAL_H

#include "data/tokenizer/family.h"
#include "data/tokenizer_train.h"

// ---- words (train_words.c) ----------------------------------------------------------------------

// A word of the texts, and how often it occurs.
typedef struct train_word {
    int64_t at; // of its first byte in train_words.bytes
    int64_t count;
    uint32_t hash; // 0: an empty slot
    int32_t bytes;
} train_word;

// Zero-initialise; free with train_words_deinit.
typedef struct train_words {
    train_word *slots; // open addressing
    int64_t mask, count;
    int64_t dropped; // words that were forgotten
    data_bytes bytes;
} train_words;

NODISCARD status train_words_add(train_words *w, const char *word, int64_t bytes, int64_t count);
NODISCARD status train_words_add_all(train_words *w, const train_words *other);
// Forgets the rarest words until at most `most` are left: all that occur as often as the last one
// to go, too.
NODISCARD status train_words_drop(train_words *w, int64_t most);
void train_words_deinit(train_words *w);

// Counts the words of all texts, on several threads. json: a tokenizer.json with the steps before
// the model, of which each thread opens its own.
NODISCARD status train_count(const host *h, const char *const *paths, int64_t path_count,
                             const data_train_options *o, const char *json, int64_t json_bytes,
                             train_words *out);

// ---- merges (train_bpe.c) -----------------------------------------------------------------------

typedef struct train_merge {
    int32_t left, right;
} train_merge;

typedef struct train_token {
    const char *bytes;
    int32_t count;
} train_token;

// Ids: the special tokens, the 256 bytes in the order of their spelling, then what merges make.
typedef struct train_model {
    train_token *tokens;
    int64_t token_count;
    train_merge *merges;
    int64_t merge_count;
} train_model;

// Learns merges from the words; everything is in `a`.
NODISCARD status train_bpe(arena *a, const train_words *w, const data_train_options *o,
                           train_model *out);

// ---- the file (train_write.c) -------------------------------------------------------------------

// The tokenizer.json of a model; NULL: with the 256 bytes and no merge.
NODISCARD status train_file(const data_train_options *o, const train_model *m, data_bytes *out);
// The bytes in the order of their spelling.
void train_byte_order(uint8_t order[256]);

#endif
