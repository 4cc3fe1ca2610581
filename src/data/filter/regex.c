// Drops documents by regular expressions (PCRE2, UTF-8): those that one of `drop` matches, and
// those that none of `keep` matches.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/filter/family.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) (int64_t) offsetof(filter_config, regex.field)
static const option rows[] = {
    {.key = "regex.drop",
     .kind = OPTION_LIST,
     .offset = AT(drop),
     .help = "expressions: a document that one matches is dropped"},
    {.key = "regex.keep",
     .kind = OPTION_LIST,
     .offset = AT(keep),
     .help = "expressions: a document that none matches is dropped"},
};
enum { RULE_DROP, RULE_KEEP, RULE_LIMIT };
static const char *const rules[] = {"drop", "keep", "too-complex", NULL};
enum { MATCH_LIMIT = 10000000 };

typedef struct regex_state {
    pcre2_code **codes; // drop, then keep
    int64_t drops, count;
    pcre2_match_data *match;
    pcre2_match_context *context;
} regex_state;

static void close_state(void *state)
{
    regex_state *s = state;
    if (s == NULL) return;
    for (int64_t i = 0; i < s->count; i++) pcre2_code_free(s->codes[i]); // NULL is legal
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->context);
    free(s->codes);
    free(s);
}

static status compile(const char *key, const char *pattern, pcre2_code **out)
{
    int error = 0;
    PCRE2_SIZE at = 0;
    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_MULTILINE, &error,
                         &at, NULL);
    if (*out != NULL) {
        (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); // without it the code is interpreted
        return ST_OK;
    }
    PCRE2_UCHAR why[256];
    (void)pcre2_get_error_message(error, why, sizeof(why));
    return fail(ST_CONFIG_RANGE, "%s: \"%.100s\" is no expression, at character %lld: %s", key,
                pattern, (long long)at, (const char *)why);
}

static status open_state(const host *h, const filter_config *c, void **out)
{
    (void)h; // it reads no file
    regex_state *s = calloc(1, sizeof(*s));
    if (s == NULL) return fail(ST_NO_MEMORY, "no memory for the filters");
    status st = ST_OK;
    s->drops = c->regex.drop.count;
    s->count = s->drops + c->regex.keep.count;
    s->codes = calloc((size_t)max_i64(1, s->count), sizeof(pcre2_code *));
    s->match = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    if (s->codes == NULL || s->match == NULL || s->context == NULL) {
        st = fail(ST_NO_MEMORY, "no memory for the filters");
        goto close;
    }
    (void)pcre2_set_match_limit(s->context, MATCH_LIMIT);
    if (s->count == 0) {
        st = fail(ST_CONFIG_KEY, "the filter regex needs regex.drop or regex.keep");
        goto close;
    }
    for (int64_t i = 0; i < s->count; i++) {
        const bool is_drop = i < s->drops;
        const char *pattern = is_drop ? c->regex.drop.items[i] : c->regex.keep.items[i - s->drops];
        TRY_TO(close, compile(is_drop ? "regex.drop" : "regex.keep", pattern, &s->codes[i]));
    }
    *out = s;
    return ST_OK;
close:
    close_state(s);
    return st;
}

static status apply(filter_run *r, int *rule)
{
    const regex_state *s = r->state;
    bool kept = s->drops == s->count;
    for (int64_t i = 0; i < s->count && *rule < 0; i++) {
        const int found = pcre2_match(s->codes[i], (PCRE2_SPTR)r->text, (PCRE2_SIZE)r->count, 0, 0,
                                      s->match, s->context);
        if (found == PCRE2_ERROR_NOMEMORY) return fail(ST_NO_MEMORY, "no memory for an expression");
        if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_DEPTHLIMIT ||
            found == PCRE2_ERROR_JIT_STACKLIMIT) {
            *rule = RULE_LIMIT;
        } else if (found >= 0 && i < s->drops) {
            *rule = RULE_DROP;
        } else if (found >= 0) {
            kept = true;
        }
    }
    if (*rule < 0 && !kept) *rule = RULE_KEEP;
    return ST_OK;
}

const data_filter data_filter_regex = {.name = "regex",
                                       .about = "drops documents by regular expressions",
                                       .rows = rows,
                                       .row_count = COUNT_OF(rows),
                                       .rules = rules,
                                       .version = 1,
                                       .open = open_state,
                                       .close = close_state,
                                       .apply = apply};
