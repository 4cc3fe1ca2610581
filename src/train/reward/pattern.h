// Private to train/reward/: regular expressions of rewards, with PCRE2, as in tasks of `eval`.
#ifndef TRAIN_REWARD_PATTERN_H
#define TRAIN_REWARD_PATTERN_H

#include "base/base.h"

typedef struct pattern_match {
    bool any;
    int64_t begin, end; // bytes of the first group that is not empty, else of the whole match
} pattern_match;

NODISCARD status reward_pattern_check(const char *pattern);
// Finds the last match in the text.
NODISCARD status reward_pattern_last(const char *pattern, const char *text, pattern_match *out);

#endif
