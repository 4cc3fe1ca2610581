// Claims: figures that people quote, each recomputed by this program, with a verdict.
//
// A file of claims (catalog/claims.yaml, and users' own) consists of YAML documents, one claim
// each:
//
//   claim     the claim, in a sentence
//   inputs    its inputs, in words
//   let       a list of "name = formula" (base/formula.h); each may use those before it
//   computed  the answer, with formulas in braces
//   match     a formula: if true, the claim holds
//   only_if   a formula: if true, the claim holds under the inputs given
//   judged    instead of the two: a word, if there is nothing to compute
//   why       the reason, with formulas in braces
//
// If neither match nor only_if is true, the verdict is `wrong`. claims_names.c lists the names that
// formulas may use: the catalogue's devices, links and clusters, the models, and functions of
// plan/.
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
    const char *claim, *inputs, *computed, *why; // with formulas replaced by their values
    claim_verdict verdict;
} claim_answer;

typedef struct claim_list {
    claim_answer *items;
    int64_t count, capacity;
} claim_list;

// Reads and answers all claims of a text; errors contain `name`.
NODISCARD status claims_answer(const host *h, arena *a, const char *yaml, int64_t bytes,
                               const char *name, claim_list *out);

// ---- names in formulas (claims_names.c) --------------------------------------------------------

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
