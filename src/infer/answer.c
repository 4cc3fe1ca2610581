// Expressions with PCRE2, whose syntax is Python's for all that such patterns use. Limits bound the
// time of an expression on a model's answer.
#include "infer/answer.h"

#include "base/text.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>
#include <utf8proc.h>

enum { MATCH_LIMIT = 1000 * 1000, DEPTH_LIMIT = 10 * 1000, HEAP_LIMIT_KIB = 16 << 10 };

typedef struct expression {
    pcre2_code *code; // NULL: not given
    pcre2_match_data *match;
    const char *source;
} expression;

struct answer_rules {
    arena *a;
    answer_spec spec;
    pcre2_match_context *context;
    expression extract[2]; // [answer_part]
    expression *ignore, *match;
};

// Openings and phrases with which models refuse.
static const char refusal[] =
    "(?i)(\\bi(?:'m| am)(?: really| very| so)? sorry\\b|\\bi (?:can(?:no|')t|can not|won't|will not|"
    "am (?:not able|unable)|'m (?:not able|unable)|must decline|have to decline)\\b|"
    "\\bas an ai\\b|\\bi'm just an ai\\b|\\bi do(?:n't| not) (?:feel comfortable|think (?:i|that))\\b|"
    "\\bit (?:is|would be) (?:not|un)(?: )?(?:appropriate|ethical)\\b|\\bnot able to (?:help|assist)\\b)";

static status expression_open(const answer_rules *r, const char *source, expression *out)
{
    int error = 0;
    PCRE2_SIZE where = 0;
    out->source = source;
    out->code =
        pcre2_compile((PCRE2_SPTR)source, (PCRE2_SIZE)strlen(source),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &where, NULL);
    if (out->code == NULL) {
        PCRE2_UCHAR words[128] = "";
        (void)pcre2_get_error_message(error, words, sizeof(words));
        return fail(ST_CONFIG, "%s: the regular expression \"%.200s\" is wrong at byte %lld: %s",
                    r->spec.what, source, (long long)where, (const char *)words);
    }
    out->match = pcre2_match_data_create_from_pattern(out->code, NULL);
    return out->match != NULL ? ST_OK : fail(ST_NO_MEMORY, "no memory for a regular expression");
}

static void expression_close(expression *e)
{
    pcre2_match_data_free(e->match);
    pcre2_code_free(e->code);
}

static status rules_open(answer_rules *r)
{
    r->context = pcre2_match_context_create(NULL);
    if (r->context == NULL) return fail(ST_NO_MEMORY, "no memory for a regular expression");
    (void)pcre2_set_match_limit(r->context, MATCH_LIMIT);
    (void)pcre2_set_depth_limit(r->context, DEPTH_LIMIT);
    (void)pcre2_set_heap_limit(r->context, HEAP_LIMIT_KIB);
    const answer_spec *s = &r->spec;
    if (s->extract != NULL) TRY(expression_open(r, s->extract, &r->extract[ANSWER_FIRST]));
    if (s->extract_last != NULL) TRY(expression_open(r, s->extract_last, &r->extract[ANSWER_LAST]));
    for (int64_t i = 0; i < s->ignore.count; i++) {
        TRY(expression_open(r, s->ignore.items[i], &r->ignore[i]));
    }
    for (int64_t i = 0; i < s->match.count; i++) {
        const bool is_word = strcmp(s->match.items[i], "refusal") == 0;
        TRY(expression_open(r, is_word ? refusal : s->match.items[i], &r->match[i]));
    }
    return ST_OK;
}

status answer_rules_open(arena *a, const answer_spec *spec, answer_rules **out)
{
    answer_rules *r = NULL;
    TRY(arena_new(a, 1, &r));
    *r = (answer_rules){.a = a, .spec = *spec};
    TRY(arena_new(a, max_i64(1, spec->ignore.count), &r->ignore));
    memset(r->ignore, 0, (size_t)max_i64(1, spec->ignore.count) * sizeof(*r->ignore));
    TRY(arena_new(a, max_i64(1, spec->match.count), &r->match));
    memset(r->match, 0, (size_t)max_i64(1, spec->match.count) * sizeof(*r->match));
    const status st = rules_open(r);
    if (st != ST_OK) {
        answer_rules_close(r);
        return st;
    }
    *out = r;
    return ST_OK;
}

void answer_rules_close(answer_rules *r)
{
    if (r == NULL) return;
    for (int64_t i = 0; i < COUNT_OF(r->extract); i++) expression_close(&r->extract[i]);
    for (int64_t i = 0; i < r->spec.ignore.count; i++) expression_close(&r->ignore[i]);
    for (int64_t i = 0; i < r->spec.match.count; i++) expression_close(&r->match[i]);
    pcre2_match_context_free(r->context);
}

// ---- matches ------------------------------------------------------------------------------------

// Finds the next match at or after `from`; *found false: none.
static status match(const answer_rules *r, const expression *e, answer_text of, int64_t from,
                    bool *found)
{
    const int n = pcre2_match(e->code, (PCRE2_SPTR)of.bytes, (PCRE2_SIZE)of.count, (PCRE2_SIZE)from,
                              0, e->match, r->context);
    *found = n > 0;
    if (n > 0 || n == PCRE2_ERROR_NOMATCH) return ST_OK;
    return fail(ST_DATA, "%s: the regular expression \"%.200s\" takes too long on an answer",
                r->spec.what, e->source);
}

static answer_text group_of(const expression *e, answer_text of, uint32_t group)
{
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(e->match);
    const PCRE2_SIZE begin = ends[2 * group], end = ends[2 * group + 1];
    if (begin == PCRE2_UNSET || end < begin) return (answer_text){.bytes = of.bytes};
    return (answer_text){.bytes = of.bytes + begin, .count = (int64_t)(end - begin)};
}

// The first group that is not empty; without groups the whole match.
static answer_text taken(const expression *e, answer_text of)
{
    const uint32_t groups = pcre2_get_ovector_count(e->match);
    for (uint32_t i = 1; i < groups; i++) {
        const answer_text group = group_of(e, of, i);
        if (group.count > 0) return group;
    }
    if (groups > 1) return (answer_text){.bytes = of.bytes};
    return group_of(e, of, 0);
}

// The place after a match; an empty one is followed by the next character.
static int64_t place_after(const expression *e, answer_text of)
{
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(e->match);
    int64_t at = (int64_t)ends[1];
    if (ends[1] > ends[0]) return at;
    for (at++; at < of.count && (of.bytes[at] & 0xc0) == 0x80;) at++;
    return at;
}

status answer_extract(const answer_rules *r, answer_part part, answer_text of, answer_text *out)
{
    static const answer_text invalid = {.bytes = "[invalid]", .count = 9};
    const expression *e = &r->extract[part];
    answer_text last = invalid;
    if (e->code == NULL) {
        *out = of;
        return ST_OK;
    }
    for (int64_t at = 0; at <= of.count; at = place_after(e, of)) {
        bool found = false;
        TRY(match(r, e, of, at, &found));
        if (!found) break;
        last = taken(e, of);
        if (part == ANSWER_FIRST) break;
    }
    // An empty group counts as no match, as in the harness.
    if (last.count == 0) last = invalid;
    last.count = text_trim(&last.bytes, last.count);
    *out = last;
    return ST_OK;
}

status answer_matches(const answer_rules *r, answer_text of, bool *out)
{
    *out = false;
    for (int64_t i = 0; i < r->spec.match.count && !*out; i++) {
        TRY(match(r, &r->match[i], of, 0, out));
    }
    return ST_OK;
}

// ---- comparison ---------------------------------------------------------------------------------

static status without_matches(const answer_rules *r, const expression *e, answer_text of, text *out)
{
    int64_t kept = 0;
    for (int64_t at = 0; at <= of.count;) {
        bool found = false;
        TRY(match(r, e, of, at, &found));
        if (!found) break;
        const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(e->match);
        TRY(text_add_bytes(out, of.bytes + kept, (int64_t)ends[0] - kept));
        kept = (int64_t)ends[1];
        at = place_after(e, of);
    }
    return text_add_bytes(out, of.bytes + kept, of.count - kept);
}

static bool is_punctuation(int32_t c)
{
    return c > 0 && c < 128 && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", c) != NULL;
}

static status characters_kept(const answer_spec *s, answer_text of, text *out)
{
    for (int64_t i = 0; i < of.count;) {
        utf8proc_int32_t c = 0;
        const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)of.bytes + i,
                                                    (utf8proc_ssize_t)(of.count - i), &c);
        if (n <= 0) { // not UTF-8: as it is
            TRY(text_add_bytes(out, of.bytes + i++, 1));
            continue;
        }
        i += n;
        if (s->ignore_punctuation && is_punctuation(c)) continue;
        if (s->ignore_numbers && c >= '0' && c <= '9') continue;
        utf8proc_uint8_t bytes[4];
        const utf8proc_ssize_t m =
            utf8proc_encode_char(s->ignore_case ? utf8proc_tolower(c) : c, bytes);
        TRY(text_add_bytes(out, bytes, m));
    }
    return ST_OK;
}

static status compared(const answer_rules *r, arena *scratch, answer_text of, text *out)
{
    for (int64_t i = 0; i < r->spec.ignore.count; i++) {
        text shorter = {.a = scratch};
        TRY(text_add(&shorter, "%s", ""));
        TRY(without_matches(r, &r->ignore[i], of, &shorter));
        of = (answer_text){.bytes = shorter.bytes, .count = shorter.length};
    }
    *out = (text){.a = scratch};
    TRY(text_add(out, "%s", ""));
    return characters_kept(&r->spec, of, out);
}

status answer_equal(const answer_rules *r, arena *scratch, answer_text a, answer_text b, bool *out)
{
    text x, y;
    TRY(compared(r, scratch, a, &x));
    TRY(compared(r, scratch, b, &y));
    *out = x.length == y.length && memcmp(x.bytes, y.bytes, (size_t)x.length) == 0;
    return ST_OK;
}
