// The vocabulary of a byte-level BPE, and the steps of encoding with it. Private to this folder.
//
// The vocabulary stores each token as its bytes. Files spell tokens with one character per byte
// (GPT-2's table: printable bytes as themselves, the others from U+0100 on).
#ifndef DATA_TOKENIZER_BPE_H
#define DATA_TOKENIZER_BPE_H

#include "base/format/json.h"
#include "data/tokenizer/family.h"
#include "data/tokenizer/scanner.h"

enum { BPE_AFFIX_MAX = 32 }; // bytes of a prefix or suffix
enum { BPE_PRESENT = 1, BPE_BYTE_LEVEL = 2, BPE_ADDED = 4, BPE_SPECIAL = 8 };

typedef struct bpe_token {
    const char *bytes;
    int32_t count;
    int32_t flags; // 0: no token has this id
} bpe_token;

typedef struct bpe_merge {
    uint64_t pair; // left id << 32 | right id
    int32_t rank;  // -1: an empty slot
    int32_t id;    // of the merged token
} bpe_merge;

// A token that the encoder recognises in the text before it splits the text.
typedef struct bpe_added {
    const char *bytes;
    int32_t count, id;
    bool special;
} bpe_added;

typedef struct bpe_symbol {
    int32_t id, prev, next; // positions; -1 at the ends
} bpe_symbol;
typedef struct bpe_candidate {
    int32_t rank, at, left, right;
} bpe_candidate;

typedef struct bpe_cache bpe_cache;
typedef struct bpe_quick bpe_quick;

// The bytes of a plain token of at most 15 bytes, in one place for decoding; count 255: see
// `shown`.
typedef struct bpe_short {
    char bytes[15];
    uint8_t count;
} bpe_short;

typedef struct bpe {
    uint8_t *classes; // SPLIT_CLASS_POINTS
    bpe_token *tokens;
    bpe_token *shown; // what ids decode to; the same but for respelled tokens
    bpe_short *shorts;
    int64_t tokens_count;
    int32_t byte_ids[256]; // -1: no token
    bool has_all_bytes;
    int32_t *by_bytes; // open addressing: id + 1 of byte-level tokens by their bytes
    int64_t by_bytes_mask;
    bpe_merge *merges; // open addressing by pair
    int64_t merges_mask;
    bpe_added *added; // by first byte, then longest first
    int64_t added_count;
    int32_t added_first[257]; // added[added_first[b]] to [b + 1] begin with byte b
    bool has_plain_added;     // some are also recognised in plain text
    bool ignore_merges;       // a word that is a token becomes that token without merging
    bool add_prefix_space;
    // The last character of a word has this after it in the vocabulary; suffix_bytes 0: nothing.
    // Every other character of a word than the first has `prefix` before it.
    const char *suffix, *prefix;
    int32_t suffix_bytes, prefix_bytes;
    int32_t suffix_ids[256]; // of each byte with the suffix, in byte-level vocabularies
    // Encodes a word that the cache has not; NULL: merges its bytes.
    status (*encode_unseen)(void *context, const uint8_t *word, int64_t bytes, data_ids *out);
    void *unseen_context;
    bpe_cache *cache; // heap; made on first use
    bpe_quick *quick; // the same, of short words (bpe_words.c)
    // Scratch buffers of encode, heap.
    data_bytes repaired, prefixed;
    bpe_symbol *symbols;
    bpe_candidate *heap;
    int64_t symbols_capacity, heap_capacity;
} bpe;

// ---- building (bpe_build.c): tokens, then finish_tokens, then merges and added tokens, then
// finish
typedef struct bpe_builder {
    arena *a;
    const char *path; // for errors
    bpe *vocab;
    hash_stream *hash;
    char *whole;          // scratch: the bytes of a merged token
    int64_t merges_count; // merges so far, which is the next rank
    int64_t added_capacity;
    bool is_text; // the file spells tokens as text, not as bytes
    // NULL, or the rank of the merges that make each token, by id; -1 for none. Then any two tokens
    // whose bytes together are a token merge, and the file has no list of merges.
    const data_ids *ranks;
    int syntax;           // pattern_syntax of the file's expressions
    bpe_token *respelled; // by id; NULL: none. flags 0: not this one
    bool renumbers;       // ids of added tokens are those that the reference gives them
    int32_t *added_ids;   // by their place in the file; NULL: those of the file
} bpe_builder;
NODISCARD status bpe_build_begin(bpe_builder *b, arena *a, const char *path);
// Checks before it allocates anything by id. token: as the file spells it.
NODISCARD status bpe_build_tokens(bpe_builder *b, const json *vocab, const json *added_tokens);
// The id of an added token by its place in the file, after bpe_build_tokens.
int32_t bpe_build_added_id(const bpe_builder *b, const json *item, int64_t i);
NODISCARD status bpe_build_merges_begin(bpe_builder *b, int64_t count);
NODISCARD status bpe_build_merge(bpe_builder *b, const char *left, int64_t left_bytes,
                                 const char *right, int64_t right_bytes);
// continuing_subword_prefix, before the merges; absent: none.
NODISCARD status bpe_build_prefix(bpe_builder *b, const json *prefix);
// end_of_word_suffix, after the tokens.
NODISCARD status bpe_build_suffix(bpe_builder *b, const char *suffix, int64_t bytes);
NODISCARD status bpe_build_ranked_merges(bpe_builder *b); // from b->ranks
NODISCARD status bpe_build_added(bpe_builder *b, int32_t id, const char *text, int64_t bytes,
                                 bool special);
// Changes the text that a token decodes to, after bpe_build_added.
NODISCARD status bpe_build_respell(bpe_builder *b, int32_t id, const char *text, int64_t bytes);
NODISCARD status bpe_build_finish(bpe_builder *b, const char *eot_text, data_tokenizer **out);
void bpe_build_abandon(bpe_builder *b); // after any failure; harmless after finish
// From a tokenizer.json; builder as after begin.
NODISCARD status bpe_build_json(bpe_builder *b, const json *root, const char *eot_text,
                                data_tokenizer **out);
// All merges of a tokenizer.json's list.
NODISCARD status bpe_read_merges(bpe_builder *b, const json *merges);
// The general form of a tokenizer.json (pipeline/read.c); builder as after begin.
NODISCARD status pipeline_open(bpe_builder *b, const json *root, const char *eot_text,
                               data_tokenizer **out);

// The lines of a file of merges, without those that are empty and that of the version.
typedef struct merge_lines {
    const char *text;
    int64_t bytes, at; // at: where the next line begins
    int64_t line;      // the number of the last one, from 1
} merge_lines;
// False: there is no further one. A line has no line end and is borrowed from the text.
bool merge_lines_next(merge_lines *m, const char **begin, int64_t *count);

// The character that spells a byte in byte-level vocabularies, in UTF-8; its number of bytes.
int bpe_spell_byte(uint8_t byte, char out[2]);
// The byte that a character spells; -1: none.
int bpe_spelled_byte(uint32_t point);
// Writes the bytes that a text spells, at most `count`, and returns their number; -1 where a
// character spells none.
int64_t bpe_unspell(const char *text, int64_t count, char *bytes);

// The id of a byte-level token by its bytes; -1 if there is none.
int32_t bpe_find(const bpe *b, const char *bytes, int64_t count);
// The same by its spelling in the file; text: at most TOKENIZER_TOKEN_MAX bytes.
int32_t bpe_build_find(const bpe_builder *b, const char *text, int64_t count);
// NULL: the pair does not merge.
const bpe_merge *bpe_merge_find(const bpe *b, int32_t left, int32_t right);

// Appends the ids of one word, by merging (bpe_merge.c).
NODISCARD status bpe_encode_word(bpe *b, const uint8_t *word, int64_t bytes, data_ids *out);
// The same for a word whose first ids (one for each character, say) are given.
NODISCARD status bpe_merge_ids(bpe *b, const int32_t *ids, int64_t count, data_ids *out);
// The same from the cache of words, which bpe_cache_open makes, and for whole words that are
// tokens.
NODISCARD status bpe_word(bpe *b, const uint8_t *word, int64_t bytes, data_ids *out);
NODISCARD status bpe_cache_open(bpe *b);
// Appends the ids of all words that a scanner finds; after bpe_cache_open.
NODISCARD status bpe_encode_words(bpe *b, const scanner *s, const uint8_t *text, int64_t count,
                                  data_ids *out);
NODISCARD status bpe_quick_open(bpe *b); // for bpe_cache_open
void bpe_free(bpe *b);                   // what is on the heap
// A copy with scratch of its own.
NODISCARD status bpe_clone(const bpe *b, arena *a, bpe **out);

// Appends the bytes of ids.
NODISCARD status bpe_decode(const bpe *b, const int32_t *ids, int64_t count, int flags,
                            data_bytes *out);
// Every row whose vocabulary is a bpe has these two.
void bpe_row_token(const data_tokenizer *t, int32_t id, const char **bytes, int64_t *count,
                   bool *special);
int32_t bpe_row_find(const data_tokenizer *t, const char *text);

#endif
