// Reads and answers claims. A file is cut at its "---" lines, and each part is read as a
// configuration of its own.
#include "cli/explain/claims.h"

#include <string.h>

typedef struct claim_text {
    const char *claim, *inputs, *computed, *match, *only_if, *why;
    option_list let;
    int32_t judged; // 0: by the formulas; else 1 + claim_verdict
} claim_text;

#define AT(field) (int64_t) offsetof(claim_text, field)
#define TEXT(field, words)                                                                   \
    {                                                                                        \
        .key = #field, .kind = OPTION_TEXT, .offset = AT(field), .unit = "", .help = (words) \
    }
static const option rows[] = {
    TEXT(claim, "the claim"),
    TEXT(inputs, "its inputs"),
    {.key = "let", .kind = OPTION_LIST, .offset = AT(let), .unit = "", .help = "name = formula"},
    TEXT(computed, "the answer, with formulas in braces"),
    TEXT(match, "formula: the claim holds"),
    TEXT(only_if, "formula: it holds under these inputs"),
    {.key = "judged",
     .kind = OPTION_CHOICE,
     .offset = AT(judged),
     .default_text = "no",
     .choices = "no, match, only_if, wrong, no_public_basis",
     .unit = "",
     .help = "the verdict if there is nothing to compute"},
    TEXT(why, "the reason, with formulas in braces"),
};
static const option_table table = {.title = "A claim", .rows = rows, .count = COUNT_OF(rows)};

const char *claim_verdict_name(claim_verdict v)
{
    static const char *const names[] = {"match", "only_if", "wrong", "no_public_basis"};
    ASSERT(v >= 0 && v < CLAIM_VERDICT_COUNT);
    return names[v];
}

static bool is_name(const char *s, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        const char c = s[i];
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!is_letter && (i == 0 || c < '0' || c > '9')) return false;
    }
    return length > 0 && length < FORMULA_NAME_BYTES;
}

static status lets_make(claims_scope *s, const claim_text *t, const char *place)
{
    const formula_scope scope = claims_formula_scope(s);
    s->let_count = 0;
    for (int64_t i = 0; i < t->let.count; i++) {
        const char *item = t->let.items[i], *sign = strchr(item, '=');
        size_t length = sign == NULL ? 0 : (size_t)(sign - item);
        char *name = NULL;
        double value = 0.0;
        while (length > 0 && item[length - 1] == ' ') length--;
        if (!is_name(item, length) || s->let_count == CLAIM_LETS) {
            return fail(ST_CONFIG, "%s: item %lld of `let`: expected at most %d of name = formula",
                        place, (long long)i + 1, CLAIM_LETS);
        }
        TRY(arena_format(s->a, &name, "%.*s", (int)length, item));
        TRY(formula_evaluate(&scope, sign + 1, &value));
        s->lets[s->let_count].name = name;
        s->lets[s->let_count++].value = value;
    }
    return ST_OK;
}

static status fill(const formula_scope *scope, arena *a, const char *words, const char **out)
{
    text t = {.a = a};
    TRY(formula_fill(scope, words == NULL ? "" : words, &t));
    *out = t.bytes;
    return ST_OK;
}

static status is_true(const formula_scope *scope, const char *formula, bool *out)
{
    double value = 0.0;
    if (formula != NULL) TRY(formula_evaluate(scope, formula, &value));
    *out = value != 0.0;
    return ST_OK;
}

static status answer(claims_scope *s, const claim_text *t, const char *place, claim_answer *out)
{
    const formula_scope scope = claims_formula_scope(s);
    bool holds = false, may_hold = false;
    if (t->claim == NULL || t->computed == NULL) {
        return fail(ST_CONFIG, "%s: a claim needs `claim` and `computed`", place);
    }
    const bool is_judged = t->judged > 0, has_rule = t->match != NULL || t->only_if != NULL;
    if (is_judged == has_rule) {
        return fail(ST_CONFIG, "%s: a claim needs `match`, `only_if` or both, or `judged` alone",
                    place);
    }
    if (is_judged && t->why == NULL) {
        return fail(ST_CONFIG, "%s: a verdict without a formula needs a `why`", place);
    }
    TRY(lets_make(s, t, place));
    *out = (claim_answer){.claim = t->claim, .verdict = CLAIM_WRONG};
    TRY(fill(&scope, s->a, t->inputs, &out->inputs));
    TRY(fill(&scope, s->a, t->computed, &out->computed));
    TRY(fill(&scope, s->a, t->why, &out->why));
    TRY(is_true(&scope, t->match, &holds));
    TRY(is_true(&scope, t->only_if, &may_hold));
    if (may_hold) out->verdict = CLAIM_ONLY_IF;
    if (holds) out->verdict = CLAIM_MATCH;
    if (is_judged) out->verdict = (claim_verdict)(t->judged - 1);
    return ST_OK;
}

// Reads one document, with as many empty lines before it as lines precede it in the file, so that
// error positions are right.
static status document_read(claims_scope *s, const char *begin, int64_t bytes, int64_t lines,
                            const char *name, claim_list *out)
{
    claim_text t;
    config *c = NULL;
    text padded = {.a = s->a};
    memset(&t, 0, sizeof(t));
    for (int64_t i = 0; i < lines; i++) TRY(text_add(&padded, "\n"));
    TRY(text_add_bytes(&padded, begin, bytes));
    TRY(config_parse(s->a, &table,
                     &(const config_input){
                         .yaml = padded.bytes, .bytes = padded.length, .name = name, .folder = "."},
                     &t, &c));
    if (t.claim == NULL && t.computed == NULL && t.judged == 0) return ST_OK; // comments only
    if (out->count == CLAIMS_MAX) {
        return fail(ST_CONFIG, "%s: more than %d claims", name, CLAIMS_MAX);
    }
    TRY(arena_grow(s->a, (void **)&out->items, &out->capacity, out->count + 1,
                   (int64_t)sizeof(claim_answer)));
    const char *place = config_place(c, "claim");
    const status st = answer(s, &t, place, &out->items[out->count]);
    if (st != ST_OK) {
        note("in the claim at %s", place);
        return st;
    }
    out->count++;
    return ST_OK;
}

status claims_answer(const host *h, arena *a, const char *yaml, int64_t bytes, const char *name,
                     claim_list *out)
{
    claims_scope *s = NULL;
    int64_t begin = 0, begin_line = 0, line = 0;
    if (bytes > CLAIMS_BYTES) {
        return fail(ST_CONFIG, "%s has %lld bytes, at most %d expected", name, (long long)bytes,
                    CLAIMS_BYTES);
    }
    TRY(arena_new(a, 1, &s));
    s->h = h;
    s->a = a;
    for (int64_t at = 0; at <= bytes;) {
        const char *end = at < bytes ? memchr(yaml + at, '\n', (size_t)(bytes - at)) : NULL;
        const int64_t next = end == NULL ? bytes + 1 : end - yaml + 1;
        const bool is_separator = at + 3 <= bytes && memcmp(yaml + at, "---", 3) == 0;
        if (is_separator || next > bytes) {
            const int64_t stop = is_separator ? at : bytes;
            TRY(document_read(s, yaml + begin, stop - begin, begin_line, name, out));
            begin = min_i64(next, bytes);
            begin_line = line + 1;
        }
        at = next;
        line++;
    }
    return ST_OK;
}
