// Cuts a template into text and the tokens of its tags.
//
// Whitespace: `-` inside a tag's bracket removes all white space on that side, `+` keeps it. A
// newline after a block or a comment is removed (trim_blocks), and blanks before one that begins a
// line (lstrip_blocks). One newline at the end of the template is removed.
#include "data/jinja/jinja_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool slice_is(slice s, const char *word)
{
    return s.count == (int64_t)strlen(word) && memcmp(s.bytes, word, (size_t)s.count) == 0;
}

bool slice_equal(slice a, slice b)
{
    return a.count == b.count && (a.count == 0 || memcmp(a.bytes, b.bytes, (size_t)a.count) == 0);
}

status jinja_fail(const jinja_source *s, int32_t at, const char *format, ...)
{
    char message[512];
    int64_t line = 1, column = 1;
    va_list list;
    va_start(list, format);
    (void)vsnprintf(message, sizeof(message), format, list);
    va_end(list);
    for (int64_t i = 0; i < at && i < s->count; i++) {
        column = s->bytes[i] == '\n' ? 1 : column + ((s->bytes[i] & 0xc0) != 0x80 ? 1 : 0);
        line += s->bytes[i] == '\n' ? 1 : 0;
    }
    return fail(ST_DATA, "%s:%lld:%lld: %s", s->what, (long long)line, (long long)column, message);
}

typedef struct lexer {
    const jinja_source *s;
    token_list *out;
    int64_t at;
    bool line_starts; // the last tag's end took a newline, or nothing was read yet
    bool strips;      // the last tag ended in `-`
} lexer;

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool starts(const lexer *l, int64_t at, const char *word)
{
    const int64_t n = (int64_t)strlen(word);
    return at + n <= l->s->count && memcmp(l->s->bytes + at, word, (size_t)n) == 0;
}

static status add(lexer *l, token t)
{
    token_list *list = l->out;
    TRY(arena_grow(l->s->a, (void **)&list->items, &list->capacity, list->count + 1,
                   sizeof(token)));
    list->items[list->count++] = t;
    return ST_OK;
}

static status add_data(lexer *l, int64_t begin, int64_t end)
{
    if (end <= begin) return ST_OK;
    return add(l, (token){.kind = TOKEN_DATA,
                          .text = {l->s->bytes + begin, end - begin},
                          .at = (int32_t)begin});
}

// After the end of a block or a comment at l->at: `mark` is the character before its bracket.
static void after_tag(lexer *l, char mark, bool is_block)
{
    l->line_starts = false;
    l->strips = mark == '-';
    if (is_block && mark != '+' && mark != '-' && l->at < l->s->count &&
        l->s->bytes[l->at] == '\n') {
        l->at++;
        l->line_starts = true;
    }
    while (l->strips && l->at < l->s->count && is_space(l->s->bytes[l->at])) {
        l->line_starts = l->s->bytes[l->at++] == '\n';
    }
}

// The text before the tag at `tag`, without the white space that the tag takes.
static status before_tag(lexer *l, int64_t begin, int64_t tag, bool is_block)
{
    const char *bytes = l->s->bytes;
    const char mark = tag + 2 < l->s->count ? bytes[tag + 2] : 0;
    int64_t end = tag;
    if (mark == '-') {
        while (end > begin && is_space(bytes[end - 1])) end--;
    } else if (is_block && mark != '+') {
        int64_t line = tag;
        while (line > begin && is_space(bytes[line - 1]) && bytes[line - 1] != '\n') line--;
        const bool at_line = line > begin ? bytes[line - 1] == '\n' : l->line_starts;
        if (at_line) end = line;
    }
    return add_data(l, begin, end);
}

static status lex_comment(lexer *l)
{
    const int64_t begin = l->at;
    l->at += 2;
    while (l->at < l->s->count && !starts(l, l->at, "#}")) l->at++;
    if (l->at >= l->s->count) {
        return jinja_fail(l->s, (int32_t)begin, "this comment has no end; close it with #}");
    }
    const char mark = l->at > begin + 2 ? l->s->bytes[l->at - 1] : 0;
    l->at += 2;
    after_tag(l, mark, true);
    return ST_OK;
}

static bool is_name(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

static status lex_sign(lexer *l)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "//", "**"};
    const char *bytes = l->s->bytes + l->at;
    int64_t n = 0;
    for (int64_t i = 0; i < COUNT_OF(signs) && n == 0; i++) {
        if (starts(l, l->at, signs[i])) n = 2;
    }
    if (n == 0 && *bytes != 0 && strchr("+-*/%~<>=.,:|()[]{}", *bytes) != NULL) n = 1;
    if (n == 0) {
        return jinja_fail(l->s, (int32_t)l->at, "a character that no expression has: byte 0x%02x",
                          (unsigned)(unsigned char)*bytes);
    }
    TRY(add(l, (token){.kind = TOKEN_SIGN, .text = {bytes, n}, .at = (int32_t)l->at}));
    l->at += n;
    return ST_OK;
}

static status lex_one(lexer *l)
{
    const jinja_source *s = l->s;
    const char c = s->bytes[l->at];
    if (c == '\'' || c == '"') {
        token t = {.kind = TOKEN_TEXT};
        TRY(jinja_lex_text(s, &l->at, &t));
        return add(l, t);
    }
    if (c >= '0' && c <= '9') {
        token t = {.kind = TOKEN_INT};
        TRY(jinja_lex_number(s, &l->at, &t));
        return add(l, t);
    }
    if (!is_name(c, true)) return lex_sign(l);
    const int64_t begin = l->at;
    while (l->at < s->count && is_name(s->bytes[l->at], false)) l->at++;
    return add(l, (token){.kind = TOKEN_NAME,
                          .text = {s->bytes + begin, l->at - begin},
                          .at = (int32_t)begin});
}

// The tokens up to the end of a tag that begins at l->at.
static status lex_tag(lexer *l, token_kind kind, const char *close)
{
    const int64_t begin = l->at;
    int64_t open = 0;
    TRY(add(l, (token){.kind = kind, .text = {l->s->bytes + begin, 2}, .at = (int32_t)begin}));
    l->at += 2;
    if (l->at < l->s->count && (l->s->bytes[l->at] == '-' || l->s->bytes[l->at] == '+')) l->at++;
    for (;;) {
        while (l->at < l->s->count && is_space(l->s->bytes[l->at])) l->at++;
        if (l->at >= l->s->count) {
            return jinja_fail(l->s, (int32_t)begin, "this tag has no end; close it with %s", close);
        }
        const char c = l->s->bytes[l->at];
        const bool has_mark =
            (c == '-' || (c == '+' && kind == TOKEN_BLOCK)) && starts(l, l->at + 1, close);
        if (open == 0 && (has_mark || starts(l, l->at, close))) {
            TRY(add(l, (token){.kind = kind == TOKEN_BLOCK ? TOKEN_BLOCK_END : TOKEN_VARIABLE_END,
                               .text = {l->s->bytes + l->at, 2},
                               .at = (int32_t)l->at}));
            l->at += has_mark ? 3 : 2;
            after_tag(l, has_mark ? c : 0, kind == TOKEN_BLOCK);
            return ST_OK;
        }
        if (c == '{' || c == '(' || c == '[') open++;
        if (c == '}' || c == ')' || c == ']') open--;
        if (open < 0) return jinja_fail(l->s, (int32_t)l->at, "a %c that closes no bracket", c);
        TRY(lex_one(l));
    }
}

// Skips blanks and the marks of a tag's ends. Returns the place behind, -1 if it is not `word`.
static int64_t block_of(const lexer *l, int64_t at, const char *word)
{
    if (!starts(l, at, "{%")) return -1;
    at += 2;
    if (at < l->s->count && (l->s->bytes[at] == '-' || l->s->bytes[at] == '+')) at++;
    while (at < l->s->count && is_space(l->s->bytes[at])) at++;
    if (!starts(l, at, word)) return -1;
    at += (int64_t)strlen(word);
    while (at < l->s->count && is_space(l->s->bytes[at])) at++;
    if (starts(l, at, "-%}") || starts(l, at, "+%}")) return at + 3;
    return starts(l, at, "%}") ? at + 2 : -1;
}

static char mark_before(const lexer *l, int64_t end)
{
    const char c = l->s->bytes[end - 3];
    return c == '-' || c == '+' ? c : 0;
}

static status lex_raw(lexer *l, int64_t body)
{
    const int64_t begin = l->at;
    l->at = body;
    after_tag(l, mark_before(l, body), true);
    const int64_t data = l->at;
    for (int64_t at = data; at < l->s->count; at++) {
        const int64_t end = block_of(l, at, "endraw");
        if (end < 0) continue;
        TRY(before_tag(l, data, at, true));
        l->at = end;
        after_tag(l, mark_before(l, end), true);
        return ST_OK;
    }
    return jinja_fail(l->s, (int32_t)begin, "this raw block has no {%% endraw %%}");
}

status jinja_lex(const jinja_source *s, token_list *out)
{
    lexer l = {.s = s, .out = out, .line_starts = true};
    while (l.at < s->count) {
        const int64_t begin = l.at;
        int64_t tag = begin;
        while (tag < s->count &&
               !(starts(&l, tag, "{%") || starts(&l, tag, "{{") || starts(&l, tag, "{#"))) {
            tag++;
        }
        if (tag >= s->count) {
            TRY(add_data(&l, begin, s->count));
            break;
        }
        const char kind = s->bytes[tag + 1];
        TRY(before_tag(&l, begin, tag, kind != '{'));
        l.at = tag;
        const int64_t raw = kind == '%' ? block_of(&l, tag, "raw") : -1;
        if (raw >= 0) {
            TRY(lex_raw(&l, raw));
        } else if (kind == '#') {
            TRY(lex_comment(&l));
        } else {
            TRY(lex_tag(&l, kind == '%' ? TOKEN_BLOCK : TOKEN_VARIABLE, kind == '%' ? "%}" : "}}"));
        }
    }
    return add(&l, (token){.kind = TOKEN_END, .at = (int32_t)s->count});
}
