// Tokenizers: bytes of text to token ids and back.
//
// A family: `bytes` (each byte is its own id; the reference member, which needs no files), `bpe`
// (GPT-2's byte-level byte pair encoding, from its two files or a Hugging Face tokenizer.json) and
// `pipeline` (the other forms of a tokenizer.json). If the program cannot read a file exactly as
// the reference does, it refuses the file and names the reason.
#ifndef DATA_TOKENIZER_H
#define DATA_TOKENIZER_H

#include "base/hash.h"
#include "base/host.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct data_tokenizer data_tokenizer;

// Reusable growing lists on the heap: zero-initialise, free with data_*_deinit.
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
// `gpt2_`). NULL and "" are "bytes". The tokenizer is in `a`, which must outlive it, except for the
// cache of words, which close frees. One thread at a time may encode with a tokenizer.
NODISCARD status data_tokenizer_open(const host *h, arena *a, const char *path,
                                     data_tokenizer **out);
void data_tokenizer_close(data_tokenizer *t); // NULL is legal
// The same tokenizer for another thread, in `a`: it shares the vocabulary, which is only read, so
// `t` must outlive it. To be closed too.
NODISCARD status data_tokenizer_clone(const data_tokenizer *t, arena *a, data_tokenizer **out);

enum {
    // Recognises special tokens in the text; otherwise all of it is plain text.
    DATA_ENCODE_SPECIAL = 1,
    // Adds the tokens that the file's post-processor puts before and after a text.
    DATA_ENCODE_ADD = 2,
    // The text is a piece of a longer one, cut as data_tokenizer_cuts says: text stands before it,
    // after it.
    DATA_ENCODE_CONTINUES = 4,
    DATA_ENCODE_GOES_ON = 8,
    // Cuts the text's ids, and fills all ids up, as the file's `truncation` and `padding` say.
    DATA_ENCODE_TRUNCATE = 16,
    DATA_ENCODE_PAD = 32
};
// Appends the ids of the text. Bytes that are not UTF-8 count as U+FFFD (`bpe`) or as themselves
// (`bytes`).
NODISCARD status data_tokenizer_encode(data_tokenizer *t, const char *text, int64_t bytes,
                                       int flags, data_ids *out);

enum {
    DATA_DECODE_SKIP_SPECIAL = 1, // special tokens give no text
    // The ids follow others: a decoder that takes a blank from the front of a text takes none.
    DATA_DECODE_CONTINUES = 2
};
// Appends the bytes of the ids unchanged, which may end inside a character. Ids beyond the
// vocabulary have no bytes.
NODISCARD status data_tokenizer_decode(const data_tokenizer *t, const int32_t *ids, int64_t count,
                                       int flags, data_bytes *out);

// Decoding for people: returns only whole characters, and U+FFFD for bytes that are not UTF-8.
// Zero-initialise. next(id) and end() together return the text of all the ids. end() and deinit()
// free what it holds.
typedef struct data_decoder {
    uint8_t pending[4];
    int32_t pending_count;
    // A tokenizer whose decoder looks at several tokens uses these.
    const data_tokenizer *t;
    uint32_t begun; // bit k: the decoder's step k has had a token
    int32_t cut;    // characters cut from the front so far
    bool cut_is_done;
    data_bytes run;               // bytes that a later token makes whole
    data_bytes held, last, ahead; // the text so far; the last token; one that waits for the next
    bool has_last, has_ahead, is_held, is_ending;
} data_decoder;
NODISCARD status data_decoder_next(data_decoder *d, const data_tokenizer *t, int32_t id, int flags,
                                   data_bytes *out);
NODISCARD status data_decoder_end(data_decoder *d, data_bytes *out);
void data_decoder_deinit(data_decoder *d); // for a decoder that is left before its end

const char *data_tokenizer_name(const data_tokenizer *t);   // "bytes", "bpe", "pipeline"
int64_t data_tokenizer_vocab_size(const data_tokenizer *t); // largest id + 1
int32_t data_tokenizer_eot(const data_tokenizer *t);        // end-of-text id, -1 for none
// A hash of the tokenizer's behaviour, not of its files: equal for two files of one vocabulary.
hash128 data_tokenizer_id(const data_tokenizer *t);
// The id of a token by its text ("<|im_start|>"); -1 if there is none.
int32_t data_tokenizer_find(const data_tokenizer *t, const char *text);
enum {
    DATA_CUT_BLANKS = 1,   // before white space that does not follow white space
    DATA_CUT_ANYWHERE = 2, // between any two bytes
    DATA_CUT_SPACES = 8,   // before a space or tab that does not follow white space
    DATA_CUT_WORDS = 16    // before a space that follows one of the characters ! to ~
};
// Where a text may be cut so that encoding the pieces, with DATA_ENCODE_CONTINUES and _GOES_ON,
// equals encoding the whole; 0: nowhere. The program then reads long files piece by piece.
int data_tokenizer_cuts(const data_tokenizer *t);

// True if the file has what the flag, DATA_ENCODE_TRUNCATE or _PAD, applies.
bool data_tokenizer_has(const data_tokenizer *t, int flag);
// The file asks for it and encoding with these flags leaves it out, such as "truncation to 512
// tokens and padding"; NULL: nothing. Texts that are trained are neither cut nor filled up so.
const char *data_tokenizer_unapplied(const data_tokenizer *t, int flags);

// The flags for encoding texts and prompts (data.special_tokens). After opening, special tokens in
// a text are recognised.
int data_tokenizer_flags(const data_tokenizer *t);
void data_tokenizer_set_flags(data_tokenizer *t, int flags);

#ifdef __cplusplus
}
#endif
#endif
