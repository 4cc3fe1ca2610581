// Other files of tokenizers, rewritten as the tokenizer.json that describes them. Private to the
// folder above.
//
//   tokenizer.model (SentencePiece) ─┐
//   NAME.tiktoken                    ├─> text of a tokenizer.json, ranks of merges ─> pipeline
//   vocab.json + merges.txt          ┘
//
// The classes of the reference library do the same, so a model's ids do not depend on which of its
// files is there.
#ifndef DATA_TOKENIZER_CONVERT_CONVERT_H
#define DATA_TOKENIZER_CONVERT_CONVERT_H

#include "data/tokenizer/bpe.h"

// True for a file that begins like a SentencePiece model or a list of tiktoken ranks.
bool convert_is_sentencepiece(const char *bytes, int64_t count);
bool convert_is_tiktoken(const char *bytes, int64_t count);

// Writes the tokenizer.json. added: the `added_tokens_decoder` of tokenizer_config.json, or NULL.
// *ranks gets the rank of each token that merges may make, by id; -1 for others; heap, the caller
// frees it.
NODISCARD status convert_sentencepiece(const char *path, const char *bytes, int64_t count,
                                       const json *added, data_bytes *out, data_ids *ranks);
// settings: the JSON file of pattern and special tokens, or NULL where the name tells them.
NODISCARD status convert_tiktoken(const char *path, const char *bytes, int64_t count,
                                  const json *settings, data_bytes *out, data_ids *ranks);

// vocab.json and merges.txt as they stand in their files.
typedef struct convert_files {
    const char *vocab_path, *merges_path, *vocab, *merges;
    int64_t vocab_bytes, merges_bytes;
} convert_files;
// Whether the class in tokenizer_config.json says how the two files' texts are split otherwise than
// GPT-2's; *row is for convert_pair.
bool convert_pair_knows(const json *config, int64_t *row);
NODISCARD status convert_pair(const convert_files *f, const json *config, int64_t row,
                              data_bytes *out);

// tokenizer_config.json in the folder of a file; NULL if there is none.
NODISCARD status tokenizer_config_read(const host *h, arena *a, const char *path, json **out);
// The name of its end-of-text token; NULL if it has none.
const char *tokenizer_config_eot(const json *config);

// ---- writing JSON (convert_json.c) --------------------------------------------------------------

NODISCARD status convert_put(data_bytes *out, const char *text);
NODISCARD status convert_put_number(data_bytes *out, int64_t value);
NODISCARD status convert_put_text(data_bytes *out, const char *utf8, int64_t count); // quoted
// Bytes in the spelling of byte-level vocabularies, quoted.
NODISCARD status convert_put_bytes(data_bytes *out, const char *bytes, int64_t count);
NODISCARD status convert_put_base64(data_bytes *out, const char *bytes, int64_t count); // quoted

typedef struct convert_added {
    const char *text;
    int64_t bytes, id;
    bool special, left, right, single_word, normalized;
} convert_added;
// One member of `added_tokens`; with a comma before it, except for the first.
NODISCARD status convert_put_added(data_bytes *out, const convert_added *a, bool is_first);
// The members that `added_tokens_decoder` lists, except for ids that `has` says are there.
NODISCARD status convert_put_decoder(data_bytes *out, const char *path, const json *decoder,
                                     const data_ids *has, bool is_first);

#endif
