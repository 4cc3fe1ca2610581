// Strings and numbers inside the tags of a template, with the escapes of Python.
#include "data/jinja/jinja_internal.h"

#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int64_t utf8_put(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    const int64_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int64_t i = n - 1; i > 0; i--, c >>= 6) to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
    return n;
}

// \xhh, \uhhhh, \Uhhhhhhhh at *at, which is behind the letter.
static status put_hex(const jinja_source *s, int64_t *at, int64_t digits, char *to, int64_t *length)
{
    uint32_t c = 0;
    for (int64_t i = 0; i < digits; i++, (*at)++) {
        const int h = *at < s->count ? text_hex_digit(s->bytes[*at]) : -1;
        if (h < 0) {
            return jinja_fail(s, (int32_t)*at, "an escape with too few hexadecimal digits");
        }
        c = c << 4 | (uint32_t)h;
    }
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
        return jinja_fail(s, (int32_t)*at, "an escape of no Unicode character: 0x%x", (unsigned)c);
    }
    *length += utf8_put(to + *length, c);
    return ST_OK;
}

static status put_escape(const jinja_source *s, int64_t *at, char *to, int64_t *length)
{
    static const char letters[] = "abfnrtv\\'\"", means[] = "\a\b\f\n\r\t\v\\'\"";
    const char c = s->bytes[*at];
    const char *found = c != 0 ? strchr(letters, c) : NULL;
    if (c == 'x' || c == 'u' || c == 'U') {
        (*at)++;
        return put_hex(s, at, c == 'x' ? 2 : c == 'u' ? 4 : 8, to, length);
    }
    if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        for (int i = 0; i < 3 && *at < s->count && s->bytes[*at] >= '0' && s->bytes[*at] <= '7';
             i++) {
            code = code * 8 + (uint32_t)(s->bytes[(*at)++] - '0');
        }
        *length += utf8_put(to + *length, code);
        return ST_OK;
    }
    (*at)++;
    if (found != NULL) {
        to[(*length)++] = means[found - letters];
    } else if (c != '\n') { // a newline after a backslash disappears
        to[(*length)++] = '\\';
        to[(*length)++] = c;
    }
    return ST_OK;
}

status jinja_lex_text(const jinja_source *s, int64_t *at, token *out)
{
    const int64_t begin = *at;
    const char quote = s->bytes[(*at)++];
    int64_t end = *at, length = 0;
    while (end < s->count && s->bytes[end] != quote) end += s->bytes[end] == '\\' ? 2 : 1;
    if (end >= s->count) {
        return jinja_fail(s, (int32_t)begin, "this string has no end; close it with %c", quote);
    }
    char *to = NULL;
    TRY(arena_new(s->a, end - *at + 1, &to)); // no escape is shorter than its character
    while (*at < end) {
        if (s->bytes[*at] != '\\') {
            to[length++] = s->bytes[(*at)++];
            continue;
        }
        (*at)++;
        TRY(put_escape(s, at, to, &length));
    }
    *at = end + 1;
    out->kind = TOKEN_TEXT;
    out->text = (slice){to, length};
    out->at = (int32_t)begin;
    return ST_OK;
}

status jinja_lex_number(const jinja_source *s, int64_t *at, token *out)
{
    enum { DIGITS_MAX = 60 };
    char digits[DIGITS_MAX + 1];
    int64_t n = 0;
    const int64_t begin = *at;
    bool is_real = false;
    for (; *at < s->count; (*at)++) {
        const char c = s->bytes[*at];
        const char next = *at + 1 < s->count ? s->bytes[*at + 1] : 0;
        const char last = n > 0 ? digits[n - 1] : 0;
        const bool is_digit = c >= '0' && c <= '9';
        const bool has_point = c == '.' && !is_real && next >= '0' && next <= '9';
        const bool has_exponent =
            (c == 'e' || c == 'E') && ((next >= '0' && next <= '9') || next == '-' || next == '+');
        const bool is_sign = (c == '-' || c == '+') && (last == 'e' || last == 'E');
        if (c == '_' && next >= '0' && next <= '9') continue;
        if (!is_digit && !has_point && !has_exponent && !is_sign) break;
        is_real = is_real || has_point || has_exponent;
        if (n >= DIGITS_MAX) return jinja_fail(s, (int32_t)begin, "this number is too long");
        digits[n++] = c;
    }
    digits[n] = 0;
    out->text = (slice){s->bytes + begin, *at - begin};
    out->at = (int32_t)begin;
    out->kind = is_real ? TOKEN_REAL : TOKEN_INT;
    errno = 0;
    char *end = NULL;
    if (is_real) out->real = strtod(digits, &end);
    if (!is_real) out->integer = (int64_t)strtoll(digits, &end, 10);
    if (errno != 0 || end == NULL || *end != 0) {
        return jinja_fail(s, (int32_t)begin, "%s is no number of 64 bits", digits);
    }
    return ST_OK;
}
