// Patterns of a tokenizer.json: a literal text or a regular expression. Private to this folder.
//
// The reference compiles expressions with Oniguruma and its own Unicode tables. This code rewrites
// them for PCRE2, with every set of characters as explicit ranges of the reference's Unicode
// version. It refuses a construct that it cannot write so that it means the same, by its name.
#ifndef DATA_TOKENIZER_PIPELINE_PATTERN_H
#define DATA_TOKENIZER_PIPELINE_PATTERN_H

#include "data/tokenizer/family.h"
#include "data/tokenizer/split.h"

// How an expression is written: for Oniguruma (tokenizer.json), or for Rust's engines (tiktoken).
typedef enum pattern_syntax { PATTERN_ONIGURUMA, PATTERN_RUST } pattern_syntax;

typedef struct pattern {
    const char *literal; // NULL: a regular expression
    int64_t literal_bytes;
    void *code, *match, *context, *stack; // PCRE2's, on the heap
    bool shares_code;                     // a copy
} pattern;

// A part of a text that a pattern matches, or that lies between two matches.
typedef struct piece {
    int64_t begin, end;
    bool is_match;
} piece;
typedef struct pieces {
    piece *items;
    int64_t count, capacity;
} pieces;

// `path` is the file's, for errors. The pattern needs pattern_close, after a failure too.
NODISCARD status pattern_literal(arena *a, const char *path, const char *text, int64_t bytes,
                                 pattern *out);
NODISCARD status pattern_regex(pattern_syntax syntax, const char *path, const char *text,
                               int64_t bytes, pattern *out);
void pattern_close(pattern *p);
// Gives a copy all but its code anew; the original must outlive it.
NODISCARD status pattern_unshare(pattern *p);
// All matches and what lies between them, in order; the pieces cover the text (UTF-8).
NODISCARD status pattern_pieces(const pattern *p, const char *text, int64_t count, pieces *out);
NODISCARD status pieces_add(pieces *list, int64_t begin, int64_t end, bool is_match);
void pieces_deinit(pieces *list);

// Rewrites an expression for PCRE2 (translate.c).
NODISCARD status pattern_translate(pattern_syntax syntax, const char *path, const char *text,
                                   int64_t bytes, data_bytes *out);

#endif
