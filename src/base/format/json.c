// JSON in two passes over the bytes, into one block whose size the first pass computes.
//
// A value is 8 bytes: its kind in the low 3 bits, above them its payload: a small integer, or the
// place of the rest and (for lists and maps) the number of members, if that fits. Members of a list
// or map are contiguous, so they are found by index. A map keeps the order of its keys sorted by
// bytes, which finds duplicates and serves json_get.
//
//   list ── [value][value]...      map ── [key][value][key][value]...  sorted: [2][0][1]...
//   text ── u32 bytes, the bytes, NUL       real, large integer ── 8 bytes
//
//   | closed lists and maps ->      <- members of open ones |  texts and numbers ->  |
//
// Members of an open list or map grow down from the end of the values. When it closes they move to
// the front, so both together never need more than all values do. That is the bound: 4 bytes of
// memory per byte of input, as `1,` takes 8.
//
// MAX_DEPTH bounds the recursion. The program has its own parser instead of jansson because it
// needs members by index in O(1), integers beyond int64_t as reals (tokenizer files hold 10^30),
// and the memory bound.
#include "base/format/json_internal.h"
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_NUMBER_BYTES = 400, SMALL_INT_DIGITS = 18 };
#define SMALL_INT_MAX INT64_C(999999999999999999) // 18 digits: 61 bits hold them

// The low 3 bits of a value; 0 is an integer that needs its own 8 bytes.
enum { TAG_BITS = 3, TAG_MASK = 7, TAG_WIDE_INT = 0, COUNT_SHIFT = 51, COUNT_INLINE = 8191 };
static const uint64_t place_mask = (UINT64_C(1) << 48) - 1;
_Static_assert((int)JSON_MAP == (int)TAG_MASK, "every kind fits the tag");

struct json {
    uint64_t word;
};

typedef struct pair {
    uint64_t key; // the place of its text
    json value;
} pair;
_Static_assert(sizeof(pair) == 16 && sizeof(json) == 8, "as drawn");

// The root comes first, so json_free finds the arena behind it.
typedef struct document {
    json root;
    arena *a;
} document;

typedef struct parser {
    const json_input *in;
    const char *begin, *at, *end; // begin: the first byte of the value, which may be a part of `in`
    uint64_t *units;              // values, keys and orders
    int64_t closed, open, units_count; // units[0..closed), units[open..units_count)
    char *pool;                        // texts and numbers
    int64_t pool_used, pool_bytes;
} parser;

static json value_at(json_kind kind, const void *place, int64_t count)
{
    const uint64_t address = (uint64_t)(uintptr_t)place;
    ASSERT(address <= place_mask);
    return (json){address << TAG_BITS | (uint64_t)count << COUNT_SHIFT | (uint64_t)kind};
}

static const void *place_of(const json *value)
{
    return (const void *)(uintptr_t)(value->word >> TAG_BITS & place_mask);
}

static int64_t eight_bytes(const void *place)
{
    int64_t value;
    memcpy(&value, place, sizeof(value));
    return value;
}

// The first member and the number of members.
static const void *members_of(const json *value, int64_t *count)
{
    const char *place = place_of(value);
    *count = (int64_t)(value->word >> COUNT_SHIFT);
    if (*count == COUNT_INLINE) *count = eight_bytes(place - 8);
    return place;
}

status json_complain(const json_input *in, const char *at, const char *expected)
{
    int64_t line = in->line, column = 1;
    for (const char *s = in->begin; s < at; s++) {
        column++;
        if (*s == '\n') {
            line++;
            column = 1;
        }
    }
    if (at >= in->end) {
        return fail(ST_DAMAGED, "%s:%lld:%lld: %s, got the end of the text", in->what,
                    (long long)line, (long long)column, expected);
    }
    const unsigned char c = (unsigned char)*at;
    if (c < 0x20 || c >= 0x7f) {
        return fail(ST_DAMAGED, "%s:%lld:%lld: %s, got byte 0x%02x", in->what, (long long)line,
                    (long long)column, expected, c);
    }
    return fail(ST_DAMAGED, "%s:%lld:%lld: %s, got '%c'", in->what, (long long)line,
                (long long)column, expected, c);
}

static status complain(const parser *p, const char *at, const char *expected)
{
    return json_complain(p->in, at, expected);
}

static void skip_blanks(parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t'))
        p->at++;
}

// Reads four hexadecimal digits. Returns NULL, or the first byte that is none.
static const char *hex4(const parser *p, const char *s, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++, s++) {
        const int digit = s < p->end ? text_hex_digit(*s) : -1;
        if (digit < 0) return s;
        value = value << 4 | (uint32_t)digit;
    }
    *out = value;
    return NULL;
}

static char *put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        *out++ = (char)c;
    } else if (c < 0x800) {
        *out++ = (char)(0xC0 | c >> 6);
        *out++ = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        *out++ = (char)(0xE0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 0x3F));
        *out++ = (char)(0x80 | (c & 0x3F));
    } else {
        *out++ = (char)(0xF0 | c >> 18);
        *out++ = (char)(0x80 | (c >> 12 & 0x3F));
        *out++ = (char)(0x80 | (c >> 6 & 0x3F));
        *out++ = (char)(0x80 | (c & 0x3F));
    }
    return out;
}

// p->at is at the 'u' of \uXXXX. A pair of surrogates is one character.
static status parse_unicode(parser *p, char **out)
{
    const char *escape = p->at - 1;
    uint32_t c = 0, low = 0;
    const char *wrong = hex4(p, escape + 2, &c);
    if (wrong != NULL) return complain(p, wrong, "four hexadecimal digits expected after \\u");
    p->at = escape + 6;
    if (c >= 0xDC00 && c < 0xE000)
        return complain(p, escape,
                        "a high surrogate (\\ud800 to \\udbff) expected before a low one");
    if (c >= 0xD800 && c < 0xDC00) {
        const bool is_pair = p->end - p->at >= 6 && p->at[0] == '\\' && p->at[1] == 'u' &&
                             hex4(p, p->at + 2, &low) == NULL && low >= 0xDC00 && low < 0xE000;
        if (!is_pair) {
            return complain(p, p->at,
                            "a low surrogate (\\udc00 to \\udfff) expected after a high one");
        }
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
        p->at += 6;
    }
    *out = put_utf8(*out, c);
    return ST_OK;
}

static status parse_escape(parser *p, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    p->at++; // the backslash
    if (p->at < p->end && *p->at == 'u') return parse_unicode(p, out);
    const char *found = p->at < p->end && *p->at != '\0' ? strchr(from, *p->at) : NULL;
    if (found == NULL) return complain(p, p->at, "an escape expected after \\");
    *(*out)++ = to[found - from];
    p->at++;
    return ST_OK;
}

// Takes space for texts and numbers. The size of the first pass suffices for well-formed input.
static status pool_take(parser *p, int64_t bytes, char **out)
{
    if (bytes > p->pool_bytes - p->pool_used) {
        return complain(p, p->at, "a well-formed text expected");
    }
    *out = p->pool + p->pool_used;
    p->pool_used += bytes;
    return ST_OK;
}

// p->at is at the opening quote. Decoded text is never longer than its source. `head`: bytes to
// leave before it, for its length.
static status parse_text(parser *p, int64_t head, const char **out, int64_t *bytes)
{
    const char *open = p->at, *close = open + 1;
    while (close < p->end && *close != '"') close += *close == '\\' ? 2 : 1;
    if (close >= p->end) return complain(p, p->end, "a closing quote expected");
    if (close - open > INT32_MAX) return complain(p, open, "a text of less than 2 GiB expected");
    char *memory;
    TRY(pool_take(p, head + (close - open), &memory));
    char *decoded = memory + head, *end = decoded;
    p->at = open + 1;
    while (p->at < close) {
        if (*p->at == '\\') {
            TRY(parse_escape(p, &end));
            continue;
        }
        if ((unsigned char)*p->at < 0x20)
            return complain(p, p->at, "no control character expected");
        *end++ = *p->at++;
    }
    if (!text_is_utf8(open, close - open))
        return complain(p, open, "a text of valid UTF-8 expected");
    p->at = close + 1;
    *end = '\0';
    p->pool_used -= close - open - 1 - (end - decoded); // the bytes that escapes saved
    *out = decoded;
    *bytes = end - decoded;
    return ST_OK;
}

static int64_t digits_at(const parser *p, const char **at)
{
    const char *s = *at;
    while (s < p->end && *s >= '0' && *s <= '9') s++;
    const int64_t count = s - *at;
    *at = s;
    return count;
}

static status parse_number(parser *p, json *out)
{
    const char *begin = p->at, *s = begin;
    bool whole = true;
    if (*s == '-') s++;
    const char *first = s;
    const int64_t count = digits_at(p, &s);
    if (count == 0) return complain(p, s, "a digit expected");
    if (count > 1 && *first == '0') return complain(p, first, "no leading zero expected");
    if (s < p->end && *s == '.') {
        whole = false;
        s++;
        if (digits_at(p, &s) == 0) return complain(p, s, "a digit expected after the point");
    }
    if (s < p->end && (*s == 'e' || *s == 'E')) {
        whole = false;
        s++;
        if (s < p->end && (*s == '+' || *s == '-')) s++;
        if (digits_at(p, &s) == 0) return complain(p, s, "a digit expected in the exponent");
    }
    if (s - begin >= MAX_NUMBER_BYTES)
        return complain(p, begin, "a number of sane length expected");
    char copy[MAX_NUMBER_BYTES]; // strto* need a NUL
    memcpy(copy, begin, (size_t)(s - begin));
    copy[s - begin] = '\0';
    errno = 0;
    const int64_t integer = whole ? strtoll(copy, NULL, 10) : 0;
    if (whole && errno == 0 && integer >= -SMALL_INT_MAX && integer <= SMALL_INT_MAX) {
        *out = (json){(uint64_t)integer << TAG_BITS | JSON_INT};
        p->at = s;
        return ST_OK;
    }
    const bool is_real = !whole || errno != 0;
    const double real = is_real ? strtod(copy, NULL) : 0.0;
    if (!isfinite(real)) return complain(p, begin, "a number that fits a double expected");
    char *place;
    TRY(pool_take(p, 8, &place));
    if (is_real) {
        memcpy(place, &real, sizeof(real));
    } else {
        memcpy(place, &integer, sizeof(integer));
    }
    *out = value_at(is_real ? JSON_REAL : (json_kind)TAG_WIDE_INT, place, 0);
    p->at = s;
    return ST_OK;
}

static bool take_word(parser *p, const char *word)
{
    const int64_t length = (int64_t)strlen(word);
    if (p->end - p->at < length || memcmp(p->at, word, (size_t)length) != 0) return false;
    p->at += length;
    return true;
}

static status parse_value(parser *p, int depth, json *out);

static status push(parser *p, uint64_t unit)
{
    if (p->open == p->closed) return complain(p, p->at, "a well-formed text expected");
    p->units[--p->open] = unit;
    return ST_OK;
}

// Moves the open units below `base` to the closed ones, in the order in which they came.
static status close_units(parser *p, int64_t base, int64_t count, json_kind kind, json *out)
{
    const int64_t many = base - p->open;
    for (int64_t i = p->open, k = base - 1; i < k; i++, k--) {
        const uint64_t kept = p->units[i];
        p->units[i] = p->units[k];
        p->units[k] = kept;
    }
    const int64_t head = count >= COUNT_INLINE ? 1 : 0;
    if (p->closed + head > p->open) return complain(p, p->at, "a well-formed text expected");
    uint64_t *place = p->units + p->closed + head;
    memmove(place, p->units + p->open, (size_t)many * sizeof(*place));
    if (head > 0) p->units[p->closed] = (uint64_t)count;
    p->open = base;
    p->closed += head + many;
    *out = value_at(kind, place, min_i64(count, COUNT_INLINE));
    return ST_OK;
}

static status parse_list(parser *p, int depth, json *out)
{
    const int64_t base = p->open;
    p->at++;
    skip_blanks(p);
    bool more = !(p->at < p->end && *p->at == ']');
    while (more) {
        json value;
        TRY(parse_value(p, depth + 1, &value));
        TRY(push(p, value.word));
        skip_blanks(p);
        more = p->at < p->end && *p->at == ',';
        if (more) p->at++;
    }
    if (p->at >= p->end || *p->at != ']') return complain(p, p->at, "',' or ']' expected");
    p->at++;
    return close_units(p, base, base - p->open, JSON_LIST, out);
}

static const char *key_of(const pair *p)
{
    return (const char *)(uintptr_t)p->key;
}

static int compare_keys(const void *a, const void *b, void *pairs)
{
    const pair *all = pairs;
    return strcmp(key_of(&all[*(const int32_t *)a]), key_of(&all[*(const int32_t *)b]));
}

// A map of one key needs no order.
static int64_t order_units(int64_t count)
{
    return count < 2 ? 0 : (count + 1) / 2;
}

static status close_map(parser *p, int64_t base, const char *open, json *out)
{
    const int64_t count = (base - p->open) / 2;
    if (count > INT32_MAX) return complain(p, open, "a map of less than 2^31 keys expected");
    TRY(close_units(p, base, count, JSON_MAP, out));
    if (p->closed + order_units(count) > p->open) {
        return complain(p, p->at, "a well-formed text expected");
    }
    int32_t *sorted = (int32_t *)(void *)(p->units + p->closed);
    pair *pairs = (pair *)(void *)(p->units + p->closed - 2 * count);
    p->closed += order_units(count);
    if (count < 2) return ST_OK;
    for (int64_t i = 0; i < count; i++) sorted[i] = (int32_t)i;
    qsort_r(sorted, (size_t)count, sizeof(*sorted), compare_keys, pairs);
    for (int64_t i = 1; i < count; i++) {
        const char *key = key_of(&pairs[sorted[i]]);
        if (strcmp(key_of(&pairs[sorted[i - 1]]), key) == 0) {
            return fail(ST_DAMAGED, "%s: key \"%.200s\" stands twice in one map", p->in->what, key);
        }
    }
    return ST_OK;
}

static status parse_map(parser *p, int depth, json *out)
{
    const int64_t base = p->open;
    const char *open = p->at++;
    skip_blanks(p);
    bool more = !(p->at < p->end && *p->at == '}');
    while (more) {
        json value;
        const char *key;
        int64_t key_bytes;
        skip_blanks(p);
        if (p->at >= p->end || *p->at != '"') return complain(p, p->at, "a key in quotes expected");
        const char *key_at = p->at;
        TRY(parse_text(p, 0, &key, &key_bytes));
        if (key_bytes == 0) {
            key = "";
            p->pool_used--;
        }
        if ((int64_t)strlen(key) != key_bytes)
            return complain(p, key_at, "no NUL in a key expected");
        skip_blanks(p);
        if (p->at >= p->end || *p->at != ':') return complain(p, p->at, "':' expected");
        p->at++;
        TRY(parse_value(p, depth + 1, &value));
        TRY(push(p, (uint64_t)(uintptr_t)key));
        TRY(push(p, value.word));
        skip_blanks(p);
        more = p->at < p->end && *p->at == ',';
        if (more) p->at++;
    }
    if (p->at >= p->end || *p->at != '}') return complain(p, p->at, "',' or '}' expected");
    p->at++;
    return close_map(p, base, open, out);
}

static status parse_value(parser *p, int depth, json *out)
{
    enum { LENGTH = sizeof(uint32_t) };
    skip_blanks(p);
    if (p->at >= p->end) return complain(p, p->at, "a value expected");
    const char c = *p->at;
    if ((c == '{' || c == '[') && depth > MAX_DEPTH) {
        return complain(p, p->at, "at most 64 levels of lists and maps expected");
    }
    if (c == '{') return parse_map(p, depth, out);
    if (c == '[') return parse_list(p, depth, out);
    if (c == '"') {
        static const uint32_t empty[2] = {0, 0};
        const char *words;
        int64_t bytes = 0;
        TRY(parse_text(p, LENGTH, &words, &bytes));
        const uint32_t length = (uint32_t)bytes;
        char *place = p->pool + p->pool_used - (bytes + 1) - LENGTH;
        memcpy(place, &length, LENGTH);
        *out = value_at(JSON_TEXT, place, 0);
        if (bytes > 0) return ST_OK;
        p->pool_used -= LENGTH + 1; // all empty texts share one
        *out = value_at(JSON_TEXT, empty, 0);
        return ST_OK;
    }
    if (c == '-' || (c >= '0' && c <= '9')) return parse_number(p, out);
    if (take_word(p, "null")) {
        *out = (json){JSON_NULL_VALUE};
    } else if (take_word(p, "true")) {
        *out = (json){UINT64_C(1) << TAG_BITS | JSON_BOOL};
    } else if (take_word(p, "false")) {
        *out = (json){JSON_BOOL};
    } else {
        return complain(p, p->at, "a value expected");
    }
    return ST_OK;
}

static status parse_document(parser *p, json *root)
{
    TRY(parse_value(p, 1, root));
    skip_blanks(p);
    if (p->at < p->end) return complain(p, p->at, "nothing after the value expected");
    return ST_OK;
}

// ---- the first pass -----------------------------------------------------------------------------

static const char *after_number(const char *s, const char *end, bool *is_wide)
{
    const char *begin = s;
    bool whole = true;
    for (; s < end; s++) {
        const bool is_digit = *s >= '0' && *s <= '9';
        const bool is_other = *s == '.' || *s == 'e' || *s == 'E' || *s == '+';
        if (!is_digit && !is_other && *s != '-') break;
        whole = whole && !is_other;
    }
    *is_wide = !whole || s - begin > SMALL_INT_DIGITS;
    return s;
}

// Counts over a JSON text, made without parsing it.
typedef struct census {
    int64_t values, keys, maps, texts;
    int64_t filled, bytes; // texts that are not empty, and their bytes
    int64_t wide;          // numbers other than small integers
} census;

// s: the opening quote. Returns the end of the text.
static const char *count_text(census *n, const char *s, const char *end)
{
    const char *open = s++;
    while (s < end && *s != '"') s += *s == '\\' ? 2 : 1;
    n->texts++;
    if (s - open > 1) { // all empty texts share one
        n->bytes += min_i64(s - open, end - open);
        n->filled++;
    }
    return s + 1;
}

// s: behind an opening bracket. Returns the first byte after the blanks.
static const char *count_opening(census *n, const parser *p, const char *s, bool is_map)
{
    parser ahead = *p;
    ahead.at = s;
    skip_blanks(&ahead);
    if (ahead.at < p->end && (*ahead.at == ']' || *ahead.at == '}')) return ahead.at;
    n->values++;
    if (is_map) n->maps++;
    return ahead.at;
}

// Computes the space that well-formed input needs. Malformed input may need more; the second pass
// refuses it at its first wrong byte in any case.
static void measure(parser *p)
{
    census n = {.values = 1};
    for (const char *s = p->begin; s < p->end;) {
        const char c = *s;
        if (c == '"') {
            s = count_text(&n, s, p->end);
        } else if (c == '-' || (c >= '0' && c <= '9')) {
            bool is_wide = false;
            s = after_number(s, p->end, &is_wide);
            n.wide += is_wide ? 1 : 0;
        } else if (c == '[' || c == '{') {
            s = count_opening(&n, p, s + 1, c == '{');
        } else {
            n.values += c == ',' ? 1 : 0;
            n.keys += c == ':' ? 1 : 0;
            s++;
        }
    }
    // The order of c keys takes no unit for one key, and otherwise at most c - 1, and 2 for 3. Long
    // lists and maps store their count separately.
    const int64_t orders = max_i64(min_i64((2 * n.keys + 2) / 3, n.keys - n.maps), 0);
    p->units_count = p->open = n.values + n.keys + orders + n.values / COUNT_INLINE + 1;
    const int64_t lengths =
        max_i64(min_i64(n.filled, n.texts - n.keys), 0); // texts that are no keys
    p->pool_bytes = n.bytes + lengths * (int64_t)sizeof(uint32_t) + n.wide * 8 + 8;
}

status json_parse_part(const json_input *in, const char *from, const char *to, json **out)
{
    parser p = {.in = in, .begin = from, .at = from, .end = to};
    arena *a;
    void *block;
    status st;
    TRY(arena_create("json", 0, &a));
    measure(&p);
    const int64_t bytes_all = (int64_t)sizeof(document) + p.units_count * 8 + p.pool_bytes;
    TRY_TO(give_up, arena_alloc(a, bytes_all, &block));
    document *d = block;
    p.units = (uint64_t *)(void *)(d + 1);
    p.pool = (char *)(p.units + p.units_count);
    TRY_TO(give_up, parse_document(&p, &d->root));
    d->a = a;
    *out = &d->root;
    return ST_OK;
give_up:
    arena_destroy(a);
    return st;
}

status json_parse(const char *bytes, int64_t count, const char *what, json **out)
{
    const json_input in = {.begin = bytes, .end = bytes + count, .what = what, .line = 1};
    return json_parse_part(&in, in.begin, in.end, out);
}

status json_read(const host *h, const char *path, int64_t limit_bytes, json **out)
{
    arena *a;
    char *bytes;
    int64_t count;
    status st;
    TRY(arena_create("json file", 0, &a));
    TRY_TO(destroy_arena, host_read_own(h, a, path, limit_bytes, &bytes, &count));
    if (text_is_utf16(bytes, count)) {
        st = fail(ST_DAMAGED, "%s: UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8", path);
        goto destroy_arena;
    }
    const int64_t mark = text_mark_bytes(bytes, count); // Windows editors write one
    st = json_parse(bytes + mark, count - mark, path, out);
destroy_arena:
    arena_destroy(a);
    return st;
}

void json_free(json *value)
{
    if (value != NULL) arena_destroy(((document *)(void *)value)->a);
}

json_kind json_kind_of(const json *value)
{
    if (value == NULL) return JSON_NONE;
    const uint64_t tag = value->word & TAG_MASK;
    return tag == TAG_WIDE_INT ? JSON_INT : (json_kind)tag;
}

const json *json_get(const json *map, const char *key)
{
    if (json_kind_of(map) != JSON_MAP) return NULL;
    int64_t count = 0;
    const pair *pairs = members_of(map, &count);
    const int32_t *sorted = (const int32_t *)(const void *)(pairs + count);
    for (int64_t low = 0, high = count; low < high;) {
        const int64_t middle = low + (high - low) / 2;
        const pair *found = &pairs[count < 2 ? middle : sorted[middle]];
        const int order = strcmp(key, key_of(found));
        if (order == 0) return &found->value;
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

const json *json_at(const json *list, int64_t index)
{
    if (json_kind_of(list) != JSON_LIST) return NULL;
    int64_t count = 0;
    const json *members = members_of(list, &count);
    return index < 0 || index >= count ? NULL : &members[index];
}

int64_t json_count(const json *list_or_map)
{
    const json_kind kind = json_kind_of(list_or_map);
    int64_t count = 0;
    if (kind == JSON_LIST || kind == JSON_MAP) (void)members_of(list_or_map, &count);
    return count;
}

const char *json_key_at(const json *map, int64_t index, const json **value)
{
    if (json_kind_of(map) != JSON_MAP) return NULL;
    int64_t count = 0;
    const pair *pairs = members_of(map, &count);
    if (index < 0 || index >= count) return NULL;
    if (value != NULL) *value = &pairs[index].value;
    return key_of(&pairs[index]);
}

const char *json_text(const json *value, const char *otherwise)
{
    if (json_kind_of(value) != JSON_TEXT) return otherwise;
    return (const char *)place_of(value) + sizeof(uint32_t);
}

int64_t json_text_bytes(const json *value)
{
    uint32_t bytes = 0;
    if (json_kind_of(value) == JSON_TEXT) memcpy(&bytes, place_of(value), sizeof(bytes));
    return bytes;
}

static double real_of(const json *value)
{
    double real;
    memcpy(&real, place_of(value), sizeof(real));
    return real;
}

int64_t json_int(const json *value, int64_t otherwise)
{
    const json_kind kind = json_kind_of(value);
    if (kind == JSON_INT && (value->word & TAG_MASK) == TAG_WIDE_INT) {
        return eight_bytes(place_of(value));
    }
    if (kind == JSON_INT) return (int64_t)value->word >> TAG_BITS; // the shift keeps the sign
    if (kind != JSON_REAL) return otherwise;
    const double real = real_of(value);
    const bool whole = real >= -0x1p63 && real < 0x1p63 && (double)(int64_t)real == real;
    return whole ? (int64_t)real : otherwise;
}

double json_real(const json *value, double otherwise)
{
    if (json_kind_of(value) == JSON_INT) return (double)json_int(value, 0);
    return json_kind_of(value) == JSON_REAL ? real_of(value) : otherwise;
}

bool json_bool(const json *value, bool otherwise)
{
    return json_kind_of(value) == JSON_BOOL ? value->word >> TAG_BITS != 0 : otherwise;
}
