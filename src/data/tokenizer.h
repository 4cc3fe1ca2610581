// Tokenizers: bytes of text to token ids and back.
//
// A family: `bytes` (each byte is its own id; the reference member, which needs no files) and `bpe`
// (GPT-2's byte-level byte pair encoding, from its two files or a Hugging Face tokenizer.json).
// What cannot be read exactly as the reference does is refused by name, never approximated.
#ifndef DATA_TOKENIZER_H
#define DATA_TOKENIZER_H

#include "base/hash.h"
#include "base/host.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct data_tokenizer data_tokenizer;

// Growing lists on the heap, made to be used again: zero-initialise, free with data_*_deinit.
typedef struct data_ids {
    int32_t *items;
    int64_t count, capacity;
} data_ids;
typedef struct data_bytes {
    char *items;
    int64_t count, capacity;
} data_bytes;
NODISCARD status data_ids_add(data_ids *list, const int32_t *ids, int64_t count);
void data_ids_deinit(data_ids *list);
NODISCARD status data_bytes_add(data_bytes *list, const void *bytes, int64_t count);
void data_bytes_deinit(data_bytes *list);

// path: "bytes", a tokenizer.json, or a folder that holds one, or that holds GPT-2's two files
// (encoder.json + vocab.bpe, or vocab.json + merges.txt; each perhaps with a prefix such as
// `gpt2_`). NULL and "" are "bytes". Everything that stays lies in `a`, which must outlive it, but
// for the cache of words, which close frees. One thread at a time may encode with a tokenizer.
NODISCARD status data_tokenizer_open(const host *h, arena *a, const char *path,
                                     data_tokenizer **out);
void data_tokenizer_close(data_tokenizer *t); // NULL is legal

enum {
    DATA_ENCODE_SPECIAL = 1 // special tokens in the text are recognised; otherwise plain text
};
// Appends the ids of the text. Bytes that are no UTF-8 count as U+FFFD (`bpe`) or as themselves
// (`bytes`). Nothing is put before or after the text.
NODISCARD status data_tokenizer_encode(data_tokenizer *t, const char *text, int64_t bytes,
                                       int flags, data_ids *out);

enum {
    DATA_DECODE_SKIP_SPECIAL = 1 // special tokens give no text
};
// Appends the bytes of the ids, as they are: perhaps torn inside a character. Ids beyond the
// vocabulary give nothing.
NODISCARD status data_tokenizer_decode(const data_tokenizer *t, const int32_t *ids, int64_t count,
                                       int flags, data_bytes *out);

// Decoding for people: only whole characters come out, and a part that is no UTF-8 as U+FFFD.
// Zero-initialise; the text of next(id) and end() together is that of all the ids.
typedef struct data_decoder {
    uint8_t pending[4];
    int32_t pending_count;
} data_decoder;
NODISCARD status data_decoder_next(data_decoder *d, const data_tokenizer *t, int32_t id, int flags,
                                   data_bytes *out);
NODISCARD status data_decoder_end(data_decoder *d, data_bytes *out);

const char *data_tokenizer_name(const data_tokenizer *t);   // "bytes", "bpe"
int64_t data_tokenizer_vocab_size(const data_tokenizer *t); // largest id + 1
int32_t data_tokenizer_eot(const data_tokenizer *t);        // end-of-text id, -1 for none
// What the tokenizer does, not where it came from: equal for two files of one vocabulary.
hash128 data_tokenizer_id(const data_tokenizer *t);
// The id of a token by its text ("<|im_start|>"); -1 if there is none.
int32_t data_tokenizer_find(const data_tokenizer *t, const char *text);
// Whether encoding pieces of a text, cut before a white space that follows none, equals encoding
// the whole. Long files are then read piece by piece.
bool data_tokenizer_can_cut(const data_tokenizer *t);

#ifdef __cplusplus
}
#endif
#endif
