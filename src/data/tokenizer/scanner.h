// Scanners: the split expressions of published tokenizers, written by hand. Private to this folder.
//
// Each gives the words that the expression gives in a regular expression engine, some 20 times
// faster: a test compares the two on random text. Runs of ASCII letters, which most words are, are
// found 16 bytes at a time.
#ifndef DATA_TOKENIZER_SCANNER_H
#define DATA_TOKENIZER_SCANNER_H

#include "data/tokenizer/split.h"

// Scanner classes hold SPLIT_* in the two lowest bits, and these.
enum {
    SCANNER_CLASS = 3,
    SCANNER_UPPER = 4, // upper and title case letters
    SCANNER_LOWER = 8,
    SCANNER_EITHER = 16 // letters without case, and marks
};

// Which words a scanner finds: those of GPT-2, of Llama 3 and its relatives, or others.
typedef enum scanner_kind { SCANNER_OTHER, SCANNER_GPT2, SCANNER_LLAMA3 } scanner_kind;

typedef struct scanner scanner;
struct scanner {
    // The end of the word that begins at `at` (at < count). The text must be UTF-8.
    int64_t (*next)(const scanner *s, const uint8_t *text, int64_t count, int64_t at);
    const uint8_t *classes; // SPLIT_CLASS_POINTS
    scanner_kind kind;
    int digits;         // of a word, at most
    bool takes_slashes; // marks take slashes with the line breaks that follow them
    bool takes_tail;    // white space at the end of the text is one word
    bool has_cases;     // needs SCANNER_UPPER and the like
};

// The scanner of a known expression, without classes; false: there is none.
bool scanner_find(const char *expression, int64_t bytes, scanner *out);
// The known expressions, by number; NULL beyond the last one.
const char *scanner_expression(int64_t i);
// GPT-2's.
scanner scanner_gpt2(const uint8_t *classes);
void scanner_classes_fill(uint8_t classes[SPLIT_CLASS_POINTS]);

#endif
