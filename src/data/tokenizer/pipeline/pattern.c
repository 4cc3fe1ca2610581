// Finds the matches of a pattern: a literal by memory search, an expression with PCRE2. Limits
// bound the time and memory that a hostile expression can take.
#include "data/tokenizer/pipeline/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATTERN_BYTES_MAX = 1 << 16,
    MATCH_LIMIT = 10 * 1000 * 1000,
    DEPTH_LIMIT = 100 * 1000,
    HEAP_LIMIT_KIB = 64 << 10,
    JIT_STACK_MAX = 1 << 20
};

status pieces_add(pieces *list, int64_t begin, int64_t end, bool is_match)
{
    if (list->count == list->capacity) {
        const int64_t grown = max_i64(64, 2 * list->capacity);
        piece *moved = realloc(list->items, (size_t)grown * sizeof(*moved));
        if (moved == NULL) {
            return fail(ST_NO_MEMORY, "no memory for a list of %lld parts of a text",
                        (long long)grown);
        }
        list->items = moved;
        list->capacity = grown;
    }
    list->items[list->count++] = (piece){.begin = begin, .end = end, .is_match = is_match};
    return ST_OK;
}

void pieces_deinit(pieces *list)
{
    free(list->items);
    *list = (pieces){0};
}

static status check_length(const char *path, int64_t bytes)
{
    if (bytes > 0 && bytes <= PATTERN_BYTES_MAX) return ST_OK;
    return fail(ST_UNSUPPORTED, "%s: a pattern of %lld bytes is not supported; expected 1 to %d",
                path, (long long)bytes, PATTERN_BYTES_MAX);
}

status pattern_literal(arena *a, const char *path, const char *text, int64_t bytes, pattern *out)
{
    TRY(check_length(path, bytes));
    char *copy = NULL;
    TRY(arena_new(a, bytes + 1, &copy));
    memcpy(copy, text, (size_t)bytes);
    *out = (pattern){.literal = copy, .literal_bytes = bytes};
    return ST_OK;
}

static status open_match(const char *path, pattern *out)
{
    out->match = pcre2_match_data_create(1, NULL);
    out->context = pcre2_match_context_create(NULL);
    out->stack = pcre2_jit_stack_create(1 << 15, JIT_STACK_MAX, NULL);
    if (out->match == NULL || out->context == NULL) {
        return fail(ST_NO_MEMORY, "%s: no memory for a pattern", path);
    }
    (void)pcre2_set_match_limit(out->context, MATCH_LIMIT);
    (void)pcre2_set_depth_limit(out->context, DEPTH_LIMIT);
    (void)pcre2_set_heap_limit(out->context, HEAP_LIMIT_KIB);
    if (out->stack != NULL) pcre2_jit_stack_assign(out->context, NULL, out->stack);
    return ST_OK;
}

status pattern_unshare(pattern *p)
{
    if (p->code == NULL) return ST_OK;
    p->shares_code = true;
    p->match = p->context = p->stack = NULL;
    return open_match("a tokenizer", p);
}

static status compile(const char *path, const data_bytes *translated, pattern *out)
{
    int error = 0;
    PCRE2_SIZE where = 0;
    pcre2_compile_context *options = pcre2_compile_context_create(NULL);
    if (options == NULL) return fail(ST_NO_MEMORY, "%s: no memory for a pattern", path);
    (void)pcre2_set_newline(options, PCRE2_NEWLINE_LF);
    out->code = pcre2_compile((PCRE2_SPTR)translated->items, (PCRE2_SIZE)translated->count,
                              PCRE2_UTF | PCRE2_UCP, &error, &where, options);
    pcre2_compile_context_free(options);
    if (out->code == NULL) {
        PCRE2_UCHAR words[128] = "";
        (void)pcre2_get_error_message(error, words, sizeof(words));
        return fail(ST_UNSUPPORTED, "%s: a regular expression cannot be compiled: %s", path,
                    (const char *)words);
    }
    (void)pcre2_jit_compile(out->code, PCRE2_JIT_COMPLETE); // without it, matching is slower
    return open_match(path, out);
}

status pattern_regex(pattern_syntax syntax, const char *path, const char *text, int64_t bytes,
                     pattern *out)
{
    *out = (pattern){.literal = NULL};
    TRY(check_length(path, bytes));
    data_bytes translated = {0};
    status st = pattern_translate(syntax, path, text, bytes, &translated);
    if (st == ST_OK) st = compile(path, &translated, out);
    data_bytes_deinit(&translated);
    return st;
}

void pattern_close(pattern *p)
{
    if (!p->shares_code) pcre2_code_free(p->code);
    pcre2_match_data_free(p->match);
    pcre2_match_context_free(p->context);
    pcre2_jit_stack_free(p->stack);
    *p = (pattern){.literal = NULL};
}

// The first match at or after `from`; begin -1 for none.
static status find(const pattern *p, const char *text, int64_t count, int64_t from, int64_t *begin,
                   int64_t *end)
{
    *begin = *end = -1;
    if (p->literal != NULL) {
        const char *found =
            memmem(text + from, (size_t)(count - from), p->literal, (size_t)p->literal_bytes);
        if (found == NULL) return ST_OK;
        *begin = found - text;
        *end = *begin + p->literal_bytes;
        return ST_OK;
    }
    const int rc = pcre2_match(p->code, (PCRE2_SPTR)text, (PCRE2_SIZE)count, (PCRE2_SIZE)from,
                               PCRE2_NO_UTF_CHECK, p->match, p->context);
    if (rc == PCRE2_ERROR_NOMATCH) return ST_OK;
    if (rc < 0) {
        PCRE2_UCHAR words[128] = "";
        (void)pcre2_get_error_message(rc, words, sizeof(words));
        return fail(ST_DATA,
                    "the tokenizer's regular expression fails at byte %lld of a text: %s; take the "
                    "part out of the text or use another tokenizer",
                    (long long)from, (const char *)words);
    }
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(p->match);
    *begin = (int64_t)found[0];
    *end = (int64_t)found[1];
    return ST_OK;
}

status pattern_pieces(const pattern *p, const char *text, int64_t count, pieces *out)
{
    out->count = 0;
    int64_t last = 0, at = 0, last_match = -1;
    while (at <= count) {
        int64_t begin = 0, end = 0;
        TRY(find(p, text, count, at, &begin, &end));
        if (begin < 0) break;
        if (end < begin) return fail(ST_DATA, "a match that ends before it begins");
        if (begin == end && end == last_match) { // an empty match just after the last one
            at++;
            while (at < count && ((uint8_t)text[at] & 0xc0) == 0x80) at++;
            continue;
        }
        if (last != begin) TRY(pieces_add(out, last, begin, false));
        TRY(pieces_add(out, begin, end, true));
        last = at = last_match = end;
    }
    return last != count ? pieces_add(out, last, count, false) : ST_OK;
}
