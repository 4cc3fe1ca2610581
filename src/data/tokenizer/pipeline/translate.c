// Rewrites a regular expression of a tokenizer.json for PCRE2. Only constructs that mean the same
// in Oniguruma's default syntax and in PCRE2 pass: literals, classes, groups, alternatives, looks
// ahead and behind, quantifiers. The others (^, $, \b, \w, \d, nested classes) differ between the
// two or depend on tables that the program does not have, so the reader refuses them by name.
#include "data/tokenizer/pipeline/pattern.h"
#include "data/tokenizer/pipeline/unicode_steps.h"

#include <stdio.h>
#include <string.h>

enum { GROUPS_MAX = 32 };
enum { CLASS_OF_SET = 16 }; // a class from here on is a unicode_set

typedef struct translation {
    const uint8_t *classes;
    const char *path, *in;
    int64_t count, at;
    data_bytes *out;
    bool caseless[GROUPS_MAX + 1]; // of each open group
    int depth;
} translation;

// One item: a character, or a set of characters.
typedef struct item {
    int class; // SPLIT_*, or -1 for the character `point`
    bool negated;
    uint32_t point;
} item;

static status refuse(const translation *t, const char *what, int64_t from)
{
    const int64_t bytes = min_i64(t->count - from, 12);
    return fail(ST_UNSUPPORTED,
                "%s: %s in a regular expression is not supported, at character %lld (`%.*s`)",
                t->path, what, (long long)from + 1, (int)utf8_valid_prefix(t->in + from, bytes),
                t->in + from);
}

static status put(translation *t, const char *text)
{
    return data_bytes_add(t->out, text, (int64_t)strlen(text));
}

static status put_point(translation *t, uint32_t point)
{
    char text[24];
    snprintf(text, sizeof(text), "\\x{%x}", (unsigned)point);
    return put(t, text);
}

static status put_range(translation *t, uint32_t first, uint32_t last)
{
    TRY(put_point(t, first));
    if (first == last) return ST_OK;
    TRY(put(t, "-"));
    return put_point(t, last);
}

// The next range of a class at or after `at`: *last is its end; false: there is none.
static bool next_range(const translation *t, int class, int64_t *at, int64_t *last)
{
    while (*at < SPLIT_CLASS_POINTS && t->classes[*at] != class) (*at)++;
    *last = *at;
    while (*last + 1 < SPLIT_CLASS_POINTS && t->classes[*last + 1] == class) (*last)++;
    return *at < SPLIT_CLASS_POINTS;
}

// The ranges of a class, the longest first: PCRE2 compares a character with one after the other.
static status put_ranges(translation *t, int class)
{
    static const int64_t lengths[] = {1 << 20, 1000, 100, 20, 0};
    int64_t count = 0;
    const unicode_range *ranges = NULL;
    if (class >= CLASS_OF_SET) ranges = unicode_ranges((unicode_set)(class - CLASS_OF_SET), &count);
    for (int64_t k = 0; k + 1 < COUNT_OF(lengths); k++) {
        int64_t at = 0, last = 0;
        for (int64_t i = 0; ranges == NULL ? next_range(t, class, &at, &last) : i < count; i++) {
            if (ranges != NULL) {
                at = ranges[i].first;
                last = ranges[i].last;
            }
            const int64_t length = last - at + 1;
            if (length <= lengths[k] && length > lengths[k + 1]) {
                TRY(put_range(t, (uint32_t)at, (uint32_t)last));
            }
            at = last + 1;
        }
    }
    return ST_OK;
}

static status read_property(translation *t, int64_t from, item *out)
{
    static const struct {
        const char *name;
        int class;
    } rows[] = {{"{L}", SPLIT_LETTER},
                {"{N}", SPLIT_NUMBER},
                {"{M}", CLASS_OF_SET + UNICODE_REGEX_MARK},
                {"{P}", CLASS_OF_SET + UNICODE_REGEX_PUNCTUATION},
                {"{S}", CLASS_OF_SET + UNICODE_REGEX_SYMBOL}};
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if (t->count - t->at < 3 || memcmp(t->in + t->at, rows[i].name, 3) != 0) continue;
        out->class = rows[i].class;
        t->at += 3;
        return ST_OK;
    }
    return refuse(t, "a property other than \\p{L}, M, N, P and S", from);
}

static status read_escape(translation *t, int64_t from, item *out)
{
    if (t->at >= t->count) return refuse(t, "a backslash at the end", from);
    const char c = t->in[t->at++];
    switch (c) {
    case 'r':
        out->point = '\r';
        return ST_OK;
    case 'n':
        out->point = '\n';
        return ST_OK;
    case 't':
        out->point = '\t';
        return ST_OK;
    case 'p':
    case 'P':
        out->negated = c == 'P';
        return read_property(t, from, out);
    case 's':
    case 'S':
        out->class = SPLIT_SPACE;
        out->negated = c == 'S';
        return ST_OK;
    default:
        break;
    }
    const bool is_mark = (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') ||
                         (c > 'z' && c < 0x7f) || c == ' ';
    if (!is_mark) return refuse(t, "this escape", from);
    out->point = (uint8_t)c;
    return ST_OK;
}

static status read_item(translation *t, item *out)
{
    const int64_t from = t->at;
    *out = (item){.class = -1};
    if (t->in[t->at] == '\\') {
        t->at++;
        TRY(read_escape(t, from, out));
    } else {
        bool torn = false;
        const int length =
            utf8_next((const uint8_t *)t->in + t->at, t->count - t->at, &out->point, &torn);
        if (length < 0) return refuse(t, "a byte that is no UTF-8", from);
        t->at += length;
    }
    // Oniguruma and PCRE2 take the other case of a set to be different characters.
    if (out->class >= 0 && t->caseless[t->depth]) {
        return refuse(t, "a set of characters without regard to case", from);
    }
    return ST_OK;
}

static status class_item(translation *t, int64_t begin)
{
    const int64_t from = t->at;
    const char c = t->in[t->at];
    if (c == '[') return refuse(t, "a class within a class", from);
    if (c == '&' && t->at + 1 < t->count && t->in[t->at + 1] == '&') {
        return refuse(t, "an intersection of classes", from);
    }
    if (c == '-' && from != begin && t->at + 1 < t->count && t->in[t->at + 1] != ']') {
        return refuse(t, "a dash between two members of a class", from);
    }
    item first, last;
    TRY(read_item(t, &first));
    if (first.class >= 0) {
        if (first.negated) return refuse(t, "a negated set within a class", from);
        return put_ranges(t, first.class);
    }
    TRY(put_point(t, first.point));
    if (t->at + 1 >= t->count || t->in[t->at] != '-' || t->in[t->at + 1] == ']') return ST_OK;
    t->at++;
    if (t->in[t->at] == '[') return refuse(t, "a class within a class", t->at);
    TRY(read_item(t, &last));
    if (last.class >= 0 || t->caseless[t->depth]) return refuse(t, "this range", from);
    TRY(put(t, "-"));
    return put_point(t, last.point);
}

static status put_class(translation *t)
{
    const int64_t from = t->at++;
    TRY(put(t, "["));
    if (t->at < t->count && t->in[t->at] == '^') {
        TRY(put(t, "^"));
        t->at++;
    }
    const int64_t begin = t->at;
    while (t->at < t->count && t->in[t->at] != ']') TRY(class_item(t, begin));
    if (t->at == begin) return refuse(t, "an empty class", from);
    if (t->at >= t->count) return refuse(t, "a class without end", from);
    t->at++;
    return put(t, "]");
}

static status open_group(translation *t)
{
    static const char *const starts[] = {"(?i:", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    if (t->depth == GROUPS_MAX) return refuse(t, "so deep a nest of groups", t->at);
    const bool was_caseless = t->caseless[t->depth];
    t->caseless[++t->depth] = was_caseless;
    for (int64_t i = 0; i < COUNT_OF(starts); i++) {
        const int64_t bytes = (int64_t)strlen(starts[i]);
        if (t->count - t->at < bytes || memcmp(t->in + t->at, starts[i], (size_t)bytes) != 0) {
            continue;
        }
        if (i == 0) t->caseless[t->depth] = true;
        t->at += bytes;
        return put(t, starts[i]);
    }
    if (t->at + 1 < t->count && (t->in[t->at + 1] == '?' || t->in[t->at + 1] == '*')) {
        return refuse(t, "this group", t->at);
    }
    t->at++;
    return put(t, "(?:");
}

// {n}, {n,} and {n,m}.
static status put_count(translation *t)
{
    const int64_t from = t->at++;
    int digits = 0;
    TRY(put(t, "{"));
    for (; t->at < t->count && t->in[t->at] != '}'; t->at++) {
        const char c = t->in[t->at];
        const bool is_digit = c >= '0' && c <= '9';
        if (!is_digit && (c != ',' || digits == 0)) return refuse(t, "this brace", from);
        if (++digits > 8) return refuse(t, "so large a count", from);
        TRY(data_bytes_add(t->out, &c, 1));
    }
    if (t->at >= t->count || digits == 0) return refuse(t, "this brace", from);
    t->at++;
    if (t->at < t->count && (t->in[t->at] == '?' || t->in[t->at] == '+')) {
        return refuse(t, "a sign after a count", from);
    }
    return put(t, "}");
}

static status put_item(translation *t)
{
    item i;
    TRY(read_item(t, &i));
    if (i.class < 0) return put_point(t, i.point);
    TRY(put(t, i.negated ? "[^" : "["));
    TRY(put_ranges(t, i.class));
    return put(t, "]");
}

static status put_next(translation *t)
{
    const char c = t->in[t->at];
    switch (c) {
    case '[':
        return put_class(t);
    case '(':
        return open_group(t);
    case '{':
        return put_count(t);
    case ')':
        if (t->depth == 0) return refuse(t, "a `)` without `(`", t->at);
        t->depth--;
        break;
    case '|':
    case '?':
    case '*':
    case '+':
    case '.':
        break;
    case '^':
    case '$':
        return refuse(t, "an anchor", t->at);
    case ']':
    case '}':
        return refuse(t, "a bracket alone", t->at);
    default:
        return put_item(t);
    }
    t->at++;
    return data_bytes_add(t->out, &c, 1);
}

status pattern_translate(const uint8_t *classes, const char *path, const char *text, int64_t bytes,
                         data_bytes *out)
{
    translation t = {.classes = classes, .path = path, .in = text, .count = bytes, .out = out};
    while (t.at < t.count) TRY(put_next(&t));
    return t.depth == 0 ? ST_OK : refuse(&t, "a group without end", 0);
}
