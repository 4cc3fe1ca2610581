// The state of rewriting a regular expression for PCRE2. Private to this folder.
#ifndef DATA_TOKENIZER_PIPELINE_TRANSLATE_H
#define DATA_TOKENIZER_PIPELINE_TRANSLATE_H

#include "data/tokenizer/pipeline/pattern.h"
#include "data/tokenizer/pipeline/point_set.h"

enum { TRANSLATE_GROUPS_MAX = 32, TRANSLATE_CLASSES_MAX = 8 };

typedef struct translation {
    const char *path, *in; // the file, for errors, and the expression
    int64_t count, at;
    pattern_syntax syntax;
    data_bytes *out;
    bool caseless[TRANSLATE_GROUPS_MAX + 1];    // of each open group
    int64_t group_at[TRANSLATE_GROUPS_MAX + 1]; // where it begins in `out`
    int depth;
    bool in_class;   // within [...]
    int64_t atom_at; // where the last item or group begins in `out`; -1: none to repeat
} translation;

// One item: a character, or a set of characters.
typedef struct translate_item {
    bool is_set, negated;
    uint32_t point;
    point_set set; // ordered; the caller frees it
} translate_item;

NODISCARD status translate_refuse(const translation *t, const char *what, int64_t from);
NODISCARD status translate_put(translation *t, const char *text);
// Reads a character or a set, perhaps written as an escape.
NODISCARD status translate_read_item(translation *t, translate_item *out);
NODISCARD status translate_put_point(translation *t, uint32_t point);
NODISCARD status translate_put_set(translation *t, point_set *set);
NODISCARD status translate_class(translation *t); // [...]

#endif
