// The general form of a Hugging Face tokenizer.json. Private to this folder.
//
//   text ──added tokens──> stretches ──normalizers──> ──added tokens──> ──pre-tokenizers──> words
//   words ──model──> ids ──decoder──> text
//
// Each step does what the reference library does with the same fields. The reader (read.c) refuses
// every step and option that it does not know by its name in the file.
#ifndef DATA_TOKENIZER_PIPELINE_PIPELINE_H
#define DATA_TOKENIZER_PIPELINE_PIPELINE_H

#include "base/format/json.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pipeline/pattern.h"
#include "data/tokenizer/pipeline/unicode_steps.h"

enum { PIPELINE_STEPS_MAX = 16 }; // of each kind

typedef enum normalizer_kind {
    NORMALIZER_NFC,
    NORMALIZER_NFD,
    NORMALIZER_NFKC,
    NORMALIZER_NFKD,
    NORMALIZER_REPLACE,
    NORMALIZER_PREPEND,
    NORMALIZER_STRIP,
    NORMALIZER_LOWERCASE,
    NORMALIZER_STRIP_ACCENTS,
    NORMALIZER_PRECOMPILED,
    NORMALIZER_NMT,
    NORMALIZER_BYTE_LEVEL, // spells bytes as characters
    // The parts of BertNormalizer, which becomes several steps.
    NORMALIZER_CLEAN,
    NORMALIZER_CHINESE,
    NORMALIZER_BERT_ACCENTS
} normalizer_kind;

// SentencePiece's table of replacements (precompiled.c).
typedef struct precompiled {
    uint32_t *units;   // a double-array tree
    const char *texts; // the replacements, with a NUL after each
    int64_t unit_count, text_bytes;
} precompiled;

typedef struct normalizer {
    normalizer_kind kind;
    struct pattern pattern; // REPLACE
    const char *text;       // REPLACE: the new text; PREPEND
    int64_t text_bytes;
    bool is_blanks;    // REPLACE: the expression ` {2,}` or ` +`
    bool left, right;  // STRIP
    precompiled table; // PRECOMPILED
} normalizer;

typedef enum splitter_kind {
    SPLITTER_PATTERN,
    SPLITTER_BYTE_LEVEL,
    SPLITTER_METASPACE,
    SPLITTER_DIGITS,
    SPLITTER_WHITE_SPACE,
    SPLITTER_PUNCTUATION,
    SPLITTER_WORDS,  // words, and runs of other characters but white space
    SPLITTER_LENGTH, // pieces of so many characters
    SPLITTER_SCRIPTS // where another script begins
} splitter_kind;

// A behaviour says where a match and the text between two matches go.
typedef enum split_behaviour {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS
} split_behaviour;

enum { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };

typedef struct splitter {
    splitter_kind kind;
    split_behaviour behaviour;
    struct pattern pattern;
    bool invert;
    bool add_prefix_space; // BYTE_LEVEL
    scanner known;         // PATTERN: of a known expression; next NULL: there is none
    bool splits;           // BYTE_LEVEL: with GPT-2's expression; METASPACE: at each replacement
    int prepend;           // METASPACE: PREPEND_*
    int64_t length;        // LENGTH: characters of a piece
    // Scratch of one text.
    data_bytes changed;
    struct pieces pieces;
} splitter;

typedef enum decoder_kind {
    DECODER_BYTE_LEVEL,
    DECODER_REPLACE,
    DECODER_BYTE_FALLBACK,
    DECODER_FUSE,
    DECODER_STRIP,
    DECODER_METASPACE,
    DECODER_WORDPIECE,
    DECODER_BPE, // a suffix ends words
    DECODER_CTC, // equal neighbours are one, and a padding token is nothing
    DECODER_JOIN // with a blank between the tokens: a file without a decoder
} decoder_kind;

typedef struct decoder_step {
    decoder_kind kind;
    // REPLACE, METASPACE, WORDPIECE. STRIP: `from` is the character. BPE: `from` is the suffix.
    // CTC: `from` pads, `to` is between words.
    const char *from, *to;
    int64_t from_bytes, to_bytes;
    struct pattern pattern; // REPLACE with a regular expression; code NULL: none
    int64_t cut, cut_right; // STRIP: characters at most
    bool cleans;            // WORDPIECE, CTC: without blanks before punctuation
    bool keeps_first;       // METASPACE: a replacement in the first token is a blank too
    bool after_fuse;        // sees one text, not tokens
} decoder_step;

// A token that is found in the text as it stands.
typedef struct added_token {
    const char *bytes; // normalized, where it is found in normalized text
    int64_t count;
    int32_t id, order;         // order: of equal tokens the lowest wins
    bool special, single_word; // single_word: not within a word
    bool left, right;          // left, right: takes the white space next to it
} added_token;

typedef struct added_list {
    added_token *items; // by first byte, then the longest first
    int64_t count;
    int64_t first[257]; // items[first[b]] to [b + 1] begin with byte b
    int only;           // the byte that all of them begin with; -1: there are several
} added_list;

typedef enum model_kind { MODEL_BPE, MODEL_WORDPIECE, MODEL_UNIGRAM, MODEL_WORDLEVEL } model_kind;

// A tree of tokens, by their bytes (model_unigram.c).
typedef struct token_edge {
    uint64_t key; // node << 8 | byte, + 1; 0: an empty slot
    int32_t node; // where the edge ends
    int32_t id;   // of the token that ends there; -1: none
} token_edge;
typedef struct token_tree {
    token_edge *edges; // heap, open addressing
    int64_t mask, count;
} token_tree;

// The best way to the end of a part of a word.
typedef struct path_node {
    double score;
    int32_t begin, id; // of the last token; begin -1: no way yet
} path_node;

typedef struct pipeline {
    model_kind model;
    bpe *vocab; // tokens by id and text, and merges
    const uint8_t *classes;
    pattern_syntax syntax; // of the file's expressions
    bool is_byte_level;    // the vocabulary spells bytes, and the program's tokens are bytes
    bool byte_fallback, fuse_unknown;
    int32_t unknown;          // -1: none
    int32_t byte_tokens[256]; // "<0x00>" and so on; -1: none
    uint8_t joins[256][32];   // bit b of joins[a]: byte b follows byte a in some token
    scanner marks;            // next NULL: a word has no parts
    // WordPiece.
    const char *prefix;
    int64_t prefix_bytes, characters_max;
    // Unigram.
    double *scores; // by id
    double lowest_score;
    token_tree tree;
    path_node *path; // heap
    int64_t path_capacity;
    normalizer normalizers[PIPELINE_STEPS_MAX];
    int normalizer_count;
    splitter splitters[PIPELINE_STEPS_MAX];
    int splitter_count;
    scanner known;  // stands for all splitters; next NULL: none does
    uint8_t *cases; // heap: classes of a scanner that needs them
    decoder_step decoders[PIPELINE_STEPS_MAX];
    int decoder_count;
    // The decoder that makes one text of all tokens for those after it; -1: none. The tokens come
    // one by one up to it.
    int hold;
    added_list added[2]; // found before and after the normalizers
    // Scratch of one text.
    data_bytes repaired, normal[2], piece;
    data_ids points, symbols;
    pieces matches;
    // Gets the words in place of the model; NULL: the model does.
    bool is_copy; // shares tables with the original, which frees them
    data_take_word *take;
    void *take_context;
} pipeline;

// Normalizes a stretch; *result borrows from scratch of `p` or from the text.
// flags: DATA_ENCODE_CONTINUES and DATA_ENCODE_GOES_ON, of the stretch.
NODISCARD status pipeline_normalize(pipeline *p, const char *text, int64_t count, int flags,
                                    const char **result, int64_t *result_count);
// An error where a text has grown beyond TOKENIZER_TEXT_MAX.
NODISCARD status pipeline_check_growth(int64_t count);
// The forms of Unicode normalization (unicode.c).
NODISCARD status unicode_normalize(normalizer_kind kind, const char *text, int64_t count,
                                   data_ids *points, data_bytes *out);
NODISCARD status precompiled_read(arena *a, const char *path, const char *base64, int64_t count,
                                  precompiled *out);
// Each character from ! to ~ becomes something that begins and ends with no white space.
bool precompiled_keeps_ascii(const precompiled *c);
NODISCARD status precompiled_normalize(const precompiled *c, const char *text, int64_t count,
                                       data_bytes *out);
// Splits a stretch into words, from splitter `step` on, and appends their ids. is_start: the
// stretch begins where the whole text begins.
NODISCARD status pipeline_split(pipeline *p, int step, const char *text, int64_t count,
                                bool is_start, data_ids *out);
// Where a text may be cut (cuts.c).
int pipeline_cuts(const pipeline *p);
// Has the cache of words filled by the model of `p`.
void pipeline_use_cache(pipeline *p);
// Appends the ids of one word.
NODISCARD status pipeline_word(pipeline *p, const char *word, int64_t count, data_ids *out);
void pipeline_note_joins(pipeline *p); // after the vocabulary, for a BPE of characters
NODISCARD status pipeline_wordpiece(pipeline *p, const char *word, int64_t count, data_ids *out);
NODISCARD status pipeline_unigram(pipeline *p, const char *word, int64_t count, data_ids *out);
NODISCARD status pipeline_tree_add(token_tree *t, const char *bytes, int64_t count, int32_t id);
// Appends the ids of a whole text, which must be UTF-8. flags: DATA_ENCODE_*.
NODISCARD status pipeline_encode(pipeline *p, const char *text, int64_t count, int flags,
                                 data_ids *out);
// Orders added tokens for pipeline_encode.
void pipeline_order_added(added_list *list);
// Whether ByteLevel alone decodes: tokens of bytes need no spelling.
bool pipeline_joins_bytes(const pipeline *p);
// Appends what one more token, or the end of the tokens, adds to the text.
NODISCARD status pipeline_decode(const pipeline *p, data_decoder *d, const char *token,
                                 int64_t count, data_bytes *out);
NODISCARD status pipeline_decode_end(const pipeline *p, data_decoder *d, data_bytes *out);
void pipeline_free(pipeline *p); // patterns and scratch

// Reads the steps of the file (read_steps.c).
NODISCARD status pipeline_read_normalizers(pipeline *p, arena *a, const char *path,
                                           const json *value);
NODISCARD status pipeline_read_splitters(pipeline *p, arena *a, const char *path, const json *value,
                                         const json *model);
NODISCARD status pipeline_read_decoders(pipeline *p, arena *a, const char *path, const json *value);
// Copies a text of the file; an absent one is an error that names `key`.
NODISCARD status pipeline_read_text(arena *a, const char *path, const json *map, const char *key,
                                    const char **out, int64_t *bytes);

#endif
