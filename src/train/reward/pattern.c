// Limits bound the time of an expression on a model's answer; a match that exceeds them is none.
#include "train/reward/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

enum { MATCH_LIMIT = 1000 * 1000, DEPTH_LIMIT = 10 * 1000, HEAP_LIMIT_KIB = 16 << 10 };

typedef struct expression {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
} expression;

static void expression_close(expression *e)
{
    pcre2_match_context_free(e->limits);
    pcre2_match_data_free(e->match);
    pcre2_code_free(e->code);
}

static status expression_open(const char *pattern, expression *e)
{
    int error = 0;
    PCRE2_SIZE where = 0;
    *e = (expression){.code = pcre2_compile((PCRE2_SPTR)pattern, (PCRE2_SIZE)strlen(pattern),
                                            PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error,
                                            &where, NULL)};
    if (e->code == NULL) {
        PCRE2_UCHAR words[128] = "";
        (void)pcre2_get_error_message(error, words, sizeof(words));
        return fail(ST_CONFIG_RANGE, "reward.pattern: \"%.200s\" is wrong at byte %lld: %s",
                    pattern, (long long)where, (const char *)words);
    }
    e->match = pcre2_match_data_create_from_pattern(e->code, NULL);
    e->limits = pcre2_match_context_create(NULL);
    if (e->match == NULL || e->limits == NULL) {
        expression_close(e);
        return fail(ST_NO_MEMORY, "no memory for reward.pattern");
    }
    (void)pcre2_set_match_limit(e->limits, MATCH_LIMIT);
    (void)pcre2_set_depth_limit(e->limits, DEPTH_LIMIT);
    (void)pcre2_set_heap_limit(e->limits, HEAP_LIMIT_KIB);
    return ST_OK;
}

status reward_pattern_check(const char *pattern)
{
    expression e;
    TRY(expression_open(pattern, &e));
    expression_close(&e);
    return ST_OK;
}

static void group_take(const expression *e, pattern_match *out)
{
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(e->match);
    const uint32_t groups = pcre2_get_ovector_count(e->match);
    uint32_t at = 0;
    for (uint32_t i = groups - 1; i > 0; i--) {
        if (ends[2 * i] != PCRE2_UNSET && ends[2 * i + 1] > ends[2 * i]) at = i;
    }
    out->any = true;
    out->begin = (int64_t)ends[2 * at];
    out->end = (int64_t)ends[2 * at + 1];
}

status reward_pattern_last(const char *pattern, const char *text, pattern_match *out)
{
    expression e;
    const PCRE2_SIZE count = (PCRE2_SIZE)strlen(text);
    PCRE2_SIZE from = 0;
    TRY(expression_open(pattern, &e));
    *out = (pattern_match){.any = false};
    while (from <= count &&
           pcre2_match(e.code, (PCRE2_SPTR)text, count, from, 0, e.match, e.limits) > 0) {
        const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(e.match);
        group_take(&e, out);
        // An empty match is followed by the next character.
        from = ends[1] > ends[0] ? ends[1] : ends[1] + 1;
        while (from < count && ((unsigned char)text[from] & 0xC0U) == 0x80U) from++;
    }
    expression_close(&e);
    return ST_OK;
}
