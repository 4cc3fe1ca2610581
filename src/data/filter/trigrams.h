// The language model of the filter `language`: how many bits a trigram of letters takes in each
// language. Private to this folder.
//
// share/language/trigrams.txt is in the program: a line of names, then a line for each trigram that
// is frequent in any language, and one for all others. A column holds a weight from 2 bits (0) in
// steps of a quarter (TRIGRAMS_PER_BIT).
#ifndef DATA_FILTER_TRIGRAMS_H
#define DATA_FILTER_TRIGRAMS_H

#include "base/base.h"

enum { TRIGRAMS_LANGUAGES = 29, TRIGRAMS_PER_BIT = 4 };
extern const char trigrams_text[]; // made by CMake

typedef struct trigrams trigrams;

// names: of the columns, in their order.
NODISCARD status trigrams_open(const char *const *names, int64_t count, trigrams **out);
void trigrams_close(trigrams *t); // NULL is legal
// The lower case of a letter of the Latin or the Cyrillic script.
uint32_t trigrams_lower(uint32_t letter);
// Adds the weights of a trigram to the sums of the languages; 1 if it is one of the frequent ones.
int trigrams_add(const trigrams *t, uint32_t first, uint32_t second, uint32_t third,
                 int64_t sums[]);

#endif
