// Claims: figures that people quote, each computed anew by this program, with a verdict.
//
// A file of claims (catalog/claims.yaml, and users' own) is YAML documents, one claim each:
//
//   claim     what is said, in a sentence
//   inputs    what it is computed from
//   let       a list of "name = formula" (base/formula.h), each may use those before it
//   computed  the answer, with formulas in braces
//   match     a formula: true, and the claim holds
//   only_if   a formula: true, and it holds under the inputs given
//   judged    instead of the two: a word, where there is nothing to compute
//   why       the reason, with formulas in braces
//
// With neither match nor only_if true the verdict is `wrong`. What formulas may name is in claims_names.c: the
// catalogue's devices, links and clusters, the models, and functions of plan/.
#ifndef CLI_EXPLAIN_CLAIMS_H
#define CLI_EXPLAIN_CLAIMS_H

#include "base/formula.h"
#include "cli/cli.h"

enum { CLAIMS_BYTES = 1 << 20, CLAIMS_MAX = 4096, CLAIM_LETS = 24 };

typedef enum claim_verdict {
    CLAIM_MATCH,
    CLAIM_ONLY_IF,
    CLAIM_WRONG,
    CLAIM_NO_PUBLIC_BASIS,
    CLAIM_VERDICT_COUNT
} claim_verdict;
const char *claim_verdict_name(claim_verdict v); // "only_if"

typedef struct claim_answer {
    const char *claim, *inputs, *computed, *why; // filled in
    claim_verdict verdict;
} claim_answer;

typedef struct claim_list {
    claim_answer *items;
    int64_t count, capacity;
} claim_list;

// Reads and answers all claims of a text; `name` stands in errors.
NODISCARD status claims_answer(const host *h, arena *a, const char *yaml, int64_t bytes,
                               const char *name, claim_list *out);

// ---- what formulas know (claims_names.c) ----------------------------------------------------------

typedef struct claims_scope {
    const host *h;
    arena *a;
    struct {
        const char *name;
        double value;
    } lets[CLAIM_LETS];
    int32_t let_count;
} claims_scope;
formula_scope claims_formula_scope(claims_scope *s);

#endif
