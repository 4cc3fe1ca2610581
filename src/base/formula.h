// Formulas in text, which a claims file or a user writes to have a number computed.
//
//   1.5e12   40%   1_720_320     numbers; % divides by 100
//   name   "h100".bf16           a number that the caller looks up, by name or field
//   f(x, "word", ...)            the caller's functions, and built-in ones: abs ceil exp floor
//                                if log log2 max min near(x, y, relative) round sqrt
//   ^   - + (of one)   * /   + -   < <= > >= == !=   not   and   or     in this order
//
// True is 1 and false is 0. Every result is a finite number: any other result, and a division by
// zero, is an error. A formula has no loops, no variables and no effects, takes time and stack in
// proportion to its length, and its length is limited. So an untrusted formula does no harm.
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

// The caller's names and functions. Their errors pass through to the caller of formula_evaluate().
typedef struct formula_scope {
    void *context;
    // Looks up a name (field NULL), or a field of a thing: "h100".bf16 or h100.bf16.
    status (*look_up)(void *context, const char *name, const char *field, double *out);
    status (*call)(void *context, const char *function, const formula_value *arguments,
                   int32_t count, double *out);
} formula_scope;

// ST_CONFIG with the formula and the column, or the error of the scope.
NODISCARD status formula_evaluate(const formula_scope *s, const char *formula, double *out);
// Fills the formulas in a text: "{weights / 1e9:1} GB" becomes "140.0 GB". After the colon stands
// the number of decimals; "%" before it multiplies by 100 and adds a %; "g" gives significant
// digits; "e" gives a power of ten. Without a colon the result is a whole number, or has four
// digits. Commas separate thousands. "{{" is a brace.
NODISCARD status formula_fill(const formula_scope *s, const char *words, text *out);

#ifdef __cplusplus
}
#endif
#endif
