// The sets of characters that regular expressions name, as tables. Private to this folder.
#ifndef DATA_TOKENIZER_PIPELINE_UNICODE_CATEGORY_H
#define DATA_TOKENIZER_PIPELINE_UNICODE_CATEGORY_H

#include "data/tokenizer/pipeline/unicode_steps.h"

// Bit k of a mask of categories is the k-th of these.
#define UNICODE_CATEGORIES \
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn"

typedef enum unicode_name {
    UNICODE_NAME_WORD,
    UNICODE_NAME_ALPHABETIC,
    UNICODE_NAME_LOWERCASE,
    UNICODE_NAME_UPPERCASE,
    UNICODE_NAME_SPACE,
    UNICODE_NAME_PUNCT,
    UNICODE_NAME_HAN,
    UNICODE_NAME_HIRAGANA,
    UNICODE_NAME_KATAKANA,
    UNICODE_NAME_HANGUL,
    UNICODE_NAME_LATIN,
    UNICODE_NAME_GREEK,
    UNICODE_NAME_CYRILLIC,
    UNICODE_NAME_HEBREW,
    UNICODE_NAME_ARABIC,
    UNICODE_NAME_DEVANAGARI,
    UNICODE_NAME_THAI
} unicode_name;

// Characters of some categories, and more characters.
typedef struct unicode_named {
    uint32_t categories;
    const unicode_range *ranges;
    int64_t count;
} unicode_named;

// Each run is its first code point << 5 | the number of its category, in ascending order.
const uint32_t *unicode_category_runs(int64_t *count);
const unicode_named *unicode_named_set(unicode_name name);

#endif
