// Some members of an object, without the rest of it.
//
// A line of a data set holds a text and often much that is not read: scores, metadata, raw pages.
// The scanner passes over such values byte by byte, keeps a stack of open brackets and allocates
// nothing. It checks the grammar, so a line that was cut off is refused, but not the limits of the
// strict parser (json.c): Python writes and accepts more than the standard allows. Only the values
// of the wanted keys go to the strict parser.
//
//   {"meta": {"ppl": NaN, "ppl": 1e400}, "text": "the ship"}
//            |------- skipped ---------|         |-parsed-|
#include "base/format/json_internal.h"

#include <stdlib.h>
#include <string.h>

enum { SKIP_DEPTH_MAX = 1024 };

typedef struct scanner {
    const json_input *in;
    const char *at, *end;
} scanner;

typedef struct slice {
    const char *from, *to; // from NULL: absent
} slice;

static status complain(const scanner *s, const char *expected)
{
    return json_complain(s->in, s->at, expected);
}

static void skip_blanks(scanner *s)
{
    while (s->at < s->end && (*s->at == ' ' || (*s->at >= '\t' && *s->at <= '\r'))) s->at++;
}

static bool is_next(const scanner *s, char c)
{
    return s->at < s->end && *s->at == c;
}

// s->at is at the opening quote.
static status skip_text(scanner *s)
{
    for (s->at++; s->at < s->end && *s->at != '"'; s->at++) {
        if (*s->at == '\\') s->at++;
    }
    if (s->at >= s->end) {
        s->at = s->end;
        return complain(s, "a closing quote expected");
    }
    s->at++;
    return ST_OK;
}

static int64_t skip_digits(scanner *s)
{
    const char *begin = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9') s->at++;
    return s->at - begin;
}

static bool skip_word(scanner *s, const char *word)
{
    const int64_t n = (int64_t)strlen(word);
    if (s->end - s->at < n || memcmp(s->at, word, (size_t)n) != 0) return false;
    s->at += n;
    return true;
}

static status skip_number(scanner *s)
{
    if (is_next(s, '-')) s->at++;
    if (skip_word(s, "Infinity")) return ST_OK;
    if (skip_digits(s) == 0) return complain(s, "a digit expected");
    if (is_next(s, '.')) {
        s->at++;
        if (skip_digits(s) == 0) return complain(s, "a digit expected after the point");
    }
    if (is_next(s, 'e') || is_next(s, 'E')) {
        s->at++;
        if (is_next(s, '+') || is_next(s, '-')) s->at++;
        if (skip_digits(s) == 0) return complain(s, "a digit expected in the exponent");
    }
    return ST_OK;
}

static status skip_scalar(scanner *s)
{
    static const char *const words[] = {"null", "true", "false", "NaN", "Infinity"};
    if (is_next(s, '"')) return skip_text(s);
    for (int64_t i = 0; i < COUNT_OF(words); i++) {
        if (skip_word(s, words[i])) return ST_OK;
    }
    if (s->at < s->end && (*s->at == '-' || (*s->at >= '0' && *s->at <= '9'))) {
        return skip_number(s);
    }
    return complain(s, "a value expected");
}

// Skips a key and its colon, and returns the key's text with its quotes.
static status skip_key(scanner *s, slice *key)
{
    skip_blanks(s);
    if (!is_next(s, '"')) return complain(s, "a key in quotes expected");
    key->from = s->at;
    TRY(skip_text(s));
    key->to = s->at;
    skip_blanks(s);
    if (!is_next(s, ':')) return complain(s, "':' expected");
    s->at++;
    return ST_OK;
}

// Moves past ',' (and the key that follows it in a map), or past the closing bracket: *closes.
static status skip_separator(scanner *s, char bracket, bool is_first, bool *closes)
{
    slice key;
    skip_blanks(s);
    *closes = is_next(s, bracket);
    if (*closes) {
        s->at++;
        return ST_OK;
    }
    if (!is_first && !is_next(s, ',')) {
        return complain(s, bracket == '}' ? "',' or '}' expected" : "',' or ']' expected");
    }
    if (!is_first) s->at++;
    return bracket == '}' ? skip_key(s, &key) : ST_OK;
}

// Skips one value with an explicit stack, so that a hostile line cannot exhaust the thread's.
static status skip_value(scanner *s)
{
    char brackets[SKIP_DEPTH_MAX]; // those that close what is open
    int64_t depth = 0;
    do {
        skip_blanks(s);
        bool is_first = is_next(s, '{') || is_next(s, '[');
        if (is_first) {
            if (depth == SKIP_DEPTH_MAX) {
                return complain(s, "at most 1,024 levels of lists and maps expected");
            }
            brackets[depth++] = *s->at++ == '{' ? '}' : ']';
        } else {
            TRY(skip_scalar(s));
        }
        bool closes = true;
        while (depth > 0 && closes) {
            TRY(skip_separator(s, brackets[depth - 1], is_first, &closes));
            is_first = false;
            if (closes) depth--;
        }
    } while (depth > 0);
    return ST_OK;
}

// The index of the wanted key that this one is; -1 for none.
static int64_t key_find(const scanner *s, slice key, const char *const *keys, int64_t count)
{
    json *decoded = NULL;
    int64_t found = -1;
    const char *text = key.from + 1;
    int64_t bytes = key.to - key.from - 2;
    if (memchr(text, '\\', (size_t)bytes) != NULL) {
        if (json_parse_part(s->in, key.from, key.to, &decoded) == ST_OK) {
            text = json_text(decoded, "");
            bytes = json_text_bytes(decoded);
        } else {
            error_clear(); // a key that is no text is none of the wanted ones
        }
    }
    for (int64_t i = 0; i < count; i++) {
        if ((int64_t)strlen(keys[i]) == bytes && memcmp(keys[i], text, (size_t)bytes) == 0) {
            found = i;
        }
    }
    json_free(decoded);
    return found;
}

static status scan_object(scanner *s, const char *const *keys, int64_t count, slice *found)
{
    s->at++; // the brace
    skip_blanks(s);
    bool more = !is_next(s, '}');
    while (more) {
        slice key, value;
        TRY(skip_key(s, &key));
        const int64_t which = key_find(s, key, keys, count);
        if (which >= 0 && found[which].from != NULL) {
            s->at = key.from;
            return complain(s, "a key that is read only once expected");
        }
        skip_blanks(s);
        value.from = s->at;
        TRY(skip_value(s));
        value.to = s->at;
        if (which >= 0) found[which] = value;
        skip_blanks(s);
        more = is_next(s, ',');
        if (more) s->at++;
    }
    if (!is_next(s, '}')) return complain(s, "',' or '}' expected");
    s->at++;
    return ST_OK;
}

static status parse_slice(const json_input *in, slice v, json **out)
{
    static const char null[] = "null";
    const bool is_minus = *v.from == '-' && v.to - v.from > 1;
    const char first = v.from[is_minus ? 1 : 0];
    if (first == 'N' || first == 'I') { // NaN, Infinity
        return json_parse(null, (int64_t)sizeof(null) - 1, in->what, out);
    }
    return json_parse_part(in, v.from, v.to, out);
}

static bool is_name(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

// True if the member can be read, or must be because `used` names it.
static bool is_kept(const json_input *in, slice key, slice value, const char *used)
{
    json *one = NULL;
    const size_t n = (size_t)(key.to - key.from - 2);
    bool is = json_parse_part(in, value.from, value.to, &one) == ST_OK;
    if (is) json_free(one);
    error_clear();
    for (const char *s = used; !is && *s != '\0'; s++) {
        const bool is_begin = s == used || !is_name(s[-1]);
        is = is_begin && strncmp(s, key.from + 1, n) == 0 && !is_name(s[n]);
    }
    return is;
}

// Writes the object's members that are kept over `out`, which holds as much as the whole line.
static status row_shorten(scanner *s, const char *used, char *out, int64_t *bytes)
{
    int64_t n = 0;
    out[n++] = '{';
    s->at++;
    skip_blanks(s);
    for (bool more = !is_next(s, '}'); more;) {
        slice key, value;
        TRY(skip_key(s, &key));
        skip_blanks(s);
        value.from = s->at;
        TRY(skip_value(s));
        value.to = s->at;
        if (is_kept(s->in, key, value, used)) {
            if (n > 1) out[n++] = ',';
            memcpy(out + n, key.from, (size_t)(key.to - key.from));
            n += key.to - key.from;
            out[n++] = ':';
            memcpy(out + n, value.from, (size_t)(value.to - value.from));
            n += value.to - value.from;
        }
        skip_blanks(s);
        more = is_next(s, ',');
        if (more) s->at++;
    }
    if (!is_next(s, '}')) return complain(s, "',' or '}' expected");
    s->at++;
    out[n++] = '}';
    skip_blanks(s);
    *bytes = n;
    return s->at < s->end ? complain(s, "nothing after the value expected") : ST_OK;
}

status json_parse_row(const char *bytes, int64_t count, const char *what, int64_t line,
                      const char *used, json **out)
{
    const json_input in = {.begin = bytes, .end = bytes + count, .what = what, .line = line};
    scanner s = {.in = &in, .at = in.begin, .end = in.end};
    int64_t n = 0;
    status st = json_parse_part(&in, in.begin, in.end, out);
    skip_blanks(&s);
    if (st != ST_DAMAGED || used == NULL || !is_next(&s, '{')) return st;
    error_record strict;
    error_take(&strict);
    char *shorter = malloc((size_t)count + 2);
    if (shorter == NULL) return fail(ST_NO_MEMORY, "no memory for a line of %s", what);
    st = row_shorten(&s, used, shorter, &n);
    if (st == ST_OK) st = json_parse(shorter, n, what, out);
    free(shorter);
    // A member that is used cannot be read: the place is that in the whole line.
    return st == ST_OK ? ST_OK : error_put(&strict);
}

status json_parse_members(const char *bytes, int64_t count, const char *what, int64_t line,
                          const char *const *keys, int64_t key_count, json **values)
{
    ASSERT(key_count >= 1 && key_count <= JSON_MEMBERS_MAX);
    const json_input in = {.begin = bytes, .end = bytes + count, .what = what, .line = line};
    scanner s = {.in = &in, .at = in.begin, .end = in.end};
    slice found[JSON_MEMBERS_MAX] = {{NULL, NULL}};
    skip_blanks(&s);
    TRY(is_next(&s, '{') ? scan_object(&s, keys, key_count, found) : skip_value(&s));
    skip_blanks(&s);
    if (s.at < s.end) return complain(&s, "nothing after the value expected");
    status st = ST_OK;
    int64_t made = 0;
    for (int64_t i = 0; i < key_count; i++) values[i] = NULL;
    while (made < key_count && st == ST_OK) {
        if (found[made].from != NULL) st = parse_slice(&in, found[made], &values[made]);
        if (st == ST_OK) made++;
    }
    for (int64_t i = 0; st != ST_OK && i < made; i++) {
        json_free(values[i]);
        values[i] = NULL;
    }
    return st;
}
