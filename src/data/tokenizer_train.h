// Trains a tokenizer on texts and writes a tokenizer.json that Hugging Face tokenizers reads too.
#ifndef DATA_TOKENIZER_TRAIN_H
#define DATA_TOKENIZER_TRAIN_H

#include "base/host.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DATA_TRAIN_THREADS_MAX = 16,
    DATA_TRAIN_VOCAB_MAX = 1 << 21,
    // Different words by default: about 4 GB while words are counted, and twice that for BPE.
    DATA_TRAIN_WORDS_MAX = 1 << 26
};

// How texts are split into words, by the name of a tokenizer that does so.
typedef enum data_train_split {
    DATA_TRAIN_GPT2,
    DATA_TRAIN_LLAMA3,
    DATA_TRAIN_QWEN2,
    DATA_TRAIN_O200K
} data_train_split;

typedef enum data_train_kind { DATA_TRAIN_BPE, DATA_TRAIN_UNIGRAM } data_train_kind;

typedef struct data_train_options {
    data_train_kind kind;
    int64_t vocab_size;    // ids, special tokens and the 256 bytes among them
    int64_t min_frequency; // a pair or piece that occurs less often is no token
    int64_t words_max;     // different words that are kept; 0: DATA_TRAIN_WORDS_MAX
    data_train_split split;
    const char *pattern;        // NULL, or an expression in place of `split` (Oniguruma's syntax)
    const char *const *special; // special tokens: the first ids of BPE, the last ones of Unigram
    int64_t special_count;
    bool by_line;    // each line with its newline is a text, as in Hugging Face's trainer
    int32_t threads; // 1 to DATA_TRAIN_THREADS_MAX
    // Called from time to time; a status other than ST_OK ends the work. NULL: not told.
    status (*report)(void *context, const char *path, int64_t done_bytes, int64_t all_bytes);
    void *context;
} data_train_options;

typedef struct data_train_result {
    int64_t vocab_size, merges; // merges of BPE
    int64_t words;              // different ones
    int64_t words_dropped;      // the rarest, beyond words_max
} data_train_result;

// BPE is byte-level; its merges are those of Hugging Face's trainer for the same texts. Unigram has
// pieces of whole characters, and a token for each byte of other characters. The number of threads
// changes nothing. Texts are read as data_documents does. Memory grows with the number of different
// words, not with the texts; when there are more than words_max, the rarest so far are dropped, and
// the result is then an approximation.
NODISCARD status data_tokenizer_train(const host *h, const char *const *paths, int64_t path_count,
                                      const data_train_options *options, const char *out_path,
                                      data_train_result *result);

#ifdef __cplusplus
}
#endif
#endif
