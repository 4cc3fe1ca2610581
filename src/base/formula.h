// Formulas in text: what a file of claims, or a user, writes to have something computed.
//
//   1.5e12   40%   1_720_320     numbers; % divides by 100
//   name   "h100".bf16           a number that the caller knows, of itself or of a thing
//   f(x, "word", ...)            the caller's functions, and ours: abs ceil exp floor if log log2 max min
//                                near(x, y, relative) round sqrt
//   ^   - + (of one)   * /   + -   < <= > >= == !=   not   and   or     in this order
//
// True is 1 and false 0. Every result is a finite number: what is not is an error, and so is a division
// by zero. A formula has no loops, no variables and no effects, takes time and stack in proportion to its
// length, and its length is limited; so one from a stranger does no harm.
#ifndef BASE_FORMULA_H
#define BASE_FORMULA_H

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FORMULA_BYTES = 2048, FORMULA_DEPTH = 48, FORMULA_ARGUMENTS = 12, FORMULA_NAME_BYTES = 64 };

// An argument: a number, or a text in quotes.
typedef struct formula_value {
    double number;
    const char *word; // NULL: it is a number
} formula_value;

// What the caller knows. Errors come through to who evaluates.
typedef struct formula_scope {
    void *context;
    // A name (field NULL), or a field of a thing: "h100".bf16 or h100.bf16.
    status (*look_up)(void *context, const char *name, const char *field, double *out);
    status (*call)(void *context, const char *function, const formula_value *arguments,
                   int32_t count, double *out);
} formula_scope;

// ST_CONFIG with the formula and the column; or what the scope failed with.
NODISCARD status formula_evaluate(const formula_scope *s, const char *formula, double *out);
// A text with formulas in it: "{weights / 1e9:1} GB" becomes "140.0 GB". After the colon: decimals;
// with % before, times 100 and a % after; with g, so many figures; with e, a power of ten. Without: a whole
// number, or four figures. Thousands are set apart by commas. "{{" is a brace.
NODISCARD status formula_fill(const formula_scope *s, const char *words, text *out);

#ifdef __cplusplus
}
#endif
#endif
