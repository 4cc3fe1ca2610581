// Characters that steps of a tokenizer.json drop or change. Private to this folder.
#ifndef DATA_TOKENIZER_PIPELINE_UNICODE_STEPS_H
#define DATA_TOKENIZER_PIPELINE_UNICODE_STEPS_H

#include "base/base.h"

typedef enum unicode_set {
    UNICODE_CONTROL,
    UNICODE_ACCENT,
    UNICODE_MARK,
    UNICODE_CHINESE,
    UNICODE_PUNCTUATION,
    UNICODE_NUMBER,
    UNICODE_WORD
} unicode_set;
typedef struct unicode_range {
    uint32_t first, last;
} unicode_range;
// Whether one of `count` ranges, in ascending order, holds the point.
bool unicode_in(const unicode_range *ranges, int64_t count, uint32_t point);
const unicode_range *unicode_ranges(unicode_set set, int64_t *count);
bool unicode_is(unicode_set set, uint32_t point);
// The lower case of a character that has one of one character; U+0130, which has two, stays.
uint32_t unicode_lower(uint32_t point);
// The number of a character's script for `UnicodeScripts`; 0: it goes with the text before it.
int unicode_script(uint32_t point);

#endif
