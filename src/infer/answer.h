// How a generated answer is compared with the right one: by lm-evaluation-harness's filters
// (a regular expression's match) and its exact_match (expressions and characters to ignore).
#ifndef INFER_ANSWER_H
#define INFER_ANSWER_H

#include "base/format/options.h"

typedef struct answer_spec {
    const char *what;                   // names the expressions in errors, such as their file
    const char *extract, *extract_last; // NULL: the whole answer
    option_list ignore;
    option_list match; // "refusal" stands for usual refusals
    bool ignore_case, ignore_punctuation, ignore_numbers;
} answer_spec;

typedef struct answer_rules answer_rules;
// An expression that cannot be compiled is ST_CONFIG. Each thread needs rules of its own.
NODISCARD status answer_rules_open(arena *a, const answer_spec *spec, answer_rules **out);
void answer_rules_close(answer_rules *r); // NULL is legal

typedef enum answer_part { ANSWER_FIRST, ANSWER_LAST } answer_part;
// The part of an answer that `extract` or `extract_last` finds, without white space around it;
// "[invalid]" where there is none. Borrows `bytes`.
typedef struct answer_text {
    const char *bytes;
    int64_t count;
} answer_text;
NODISCARD status answer_extract(const answer_rules *r, answer_part part, answer_text of,
                                answer_text *out);
// True if one of `match` matches.
NODISCARD status answer_matches(const answer_rules *r, answer_text of, bool *out);
// True if both are equal but for what is ignored.
NODISCARD status answer_equal(const answer_rules *r, arena *scratch, answer_text a, answer_text b,
                              bool *out);

#endif
