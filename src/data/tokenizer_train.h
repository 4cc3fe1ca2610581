// Trains a tokenizer on texts and writes a tokenizer.json that Hugging Face tokenizers reads too.
#ifndef DATA_TOKENIZER_TRAIN_H
#define DATA_TOKENIZER_TRAIN_H

#include "base/host.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DATA_TRAIN_THREADS_MAX = 16, DATA_TRAIN_VOCAB_MAX = 1 << 21 };

// How texts are split into words, by the name of a tokenizer that does so.
typedef enum data_train_split {
    DATA_TRAIN_GPT2,
    DATA_TRAIN_LLAMA3,
    DATA_TRAIN_QWEN2,
    DATA_TRAIN_O200K
} data_train_split;

typedef struct data_train_options {
    int64_t vocab_size;    // ids, special tokens and the 256 bytes among them
    int64_t min_frequency; // a pair that occurs less often is not merged
    data_train_split split;
    const char *pattern;        // NULL, or an expression in place of `split` (Oniguruma's syntax)
    const char *const *special; // special tokens, which have the first ids
    int64_t special_count;
    bool by_line;    // each line with its newline is a text, as in Hugging Face's trainer
    int32_t threads; // 1 to DATA_TRAIN_THREADS_MAX
    // Called from time to time; a status other than ST_OK ends the work. NULL: not told.
    status (*report)(void *context, const char *path, int64_t done_bytes, int64_t all_bytes);
    void *context;
} data_train_options;

typedef struct data_train_result {
    int64_t vocab_size, merges;
    int64_t words; // different ones
} data_train_result;

// Byte-level BPE. The merges are those of Hugging Face's trainer for the same texts, whatever the
// number of threads. Texts are read as data_documents does. Memory grows with the number of
// different words, not with the texts.
NODISCARD status data_tokenizer_train(const host *h, const char *const *paths, int64_t path_count,
                                      const data_train_options *options, const char *out_path,
                                      data_train_result *result);

#ifdef __cplusplus
}
#endif
#endif
