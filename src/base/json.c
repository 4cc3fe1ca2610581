// JSON by one pass over the bytes into one arena.
//
// A value is 24 bytes. The members of a list or map that is still open lie on a stack; when it
// closes they are copied to the arena, all together, so members are found by index. A map also
// keeps the order of its keys sorted by bytes, which finds duplicates and serves json_get.
//
//   map ── members: [value][value]...   keys: [key][key]...   sorted: [2][0][1]...
//
// Recursion is bounded by MAX_DEPTH. The parser is our own and not jansson's: members by index in
// O(1), integers beyond int64_t as reals (tokenizer files hold 10^30), and a bound on memory.
#include "base/json.h"
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_NUMBER_BYTES = 400 };

typedef struct json_map {
    const json *members;
    const char *const *keys;
    const int32_t *sorted;
} json_map;

struct json {
    json_kind kind;
    int32_t text_bytes; // of JSON_TEXT
    int64_t count;      // members; or 0, 1 of JSON_BOOL
    union {
        int64_t integer;
        double real;
        const char *text;
        const json *members; // of a list
        const json_map *map;
    } u;
};

// The root lies first, so json_free finds the arena behind it.
typedef struct document {
    json root;
    arena *a;
} document;

typedef struct member {
    json value;
    const char *key;
} member;

typedef struct parser {
    const char *begin, *at, *end;
    const char *what;
    arena *a;
    member *stack; // members of all open lists and maps
    int64_t stack_count, stack_capacity;
} parser;

static status complain(const parser *p, const char *at, const char *expected)
{
    int64_t line = 1, column = 1;
    for (const char *s = p->begin; s < at; s++) {
        column++;
        if (*s == '\n') {
            line++;
            column = 1;
        }
    }
    if (at >= p->end) {
        return fail(ST_DAMAGED, "%s:%lld:%lld: %s, got the end of the text", p->what,
                    (long long)line, (long long)column, expected);
    }
    const unsigned char c = (unsigned char)*at;
    if (c < 0x20 || c >= 0x7f) {
        return fail(ST_DAMAGED, "%s:%lld:%lld: %s, got byte 0x%02x", p->what, (long long)line,
                    (long long)column, expected, c);
    }
    return fail(ST_DAMAGED, "%s:%lld:%lld: %s, got '%c'", p->what, (long long)line,
                (long long)column, expected, c);
}

static void skip_blanks(parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t'))
        p->at++;
}

static bool hex4(const parser *p, const char *s, uint32_t *out)
{
    if (p->end - s < 4) return false;
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        const char c = s[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return false;
        value = value << 4 | (uint32_t)digit;
    }
    *out = value;
    return true;
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
    const char *at = p->at;
    uint32_t c, low;
    if (!hex4(p, at + 1, &c)) return complain(p, at, "four hexadecimal digits expected after \\u");
    p->at = at + 5;
    if (c >= 0xDC00 && c < 0xE000)
        return complain(p, at, "a high surrogate expected before a low one");
    if (c >= 0xD800 && c < 0xDC00) {
        const bool pair = p->end - p->at >= 6 && p->at[0] == '\\' && p->at[1] == 'u' &&
                          hex4(p, p->at + 2, &low) && low >= 0xDC00 && low < 0xE000;
        if (!pair) return complain(p, at, "a low surrogate expected after a high one");
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

// p->at is at the opening quote. Decoded text is never longer than written.
static status parse_text(parser *p, const char **out, int64_t *bytes)
{
    const char *open = p->at, *close = open + 1;
    while (close < p->end && *close != '"') close += *close == '\\' ? 2 : 1;
    if (close >= p->end) return complain(p, p->end, "a closing quote expected");
    if (close - open > INT32_MAX) return complain(p, open, "a text of less than 2 GiB expected");
    void *memory;
    TRY(arena_alloc(p->a, close - open, &memory));
    char *decoded = memory, *end = decoded;
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
    char copy[MAX_NUMBER_BYTES]; // strto* want a NUL
    memcpy(copy, begin, (size_t)(s - begin));
    copy[s - begin] = '\0';
    errno = 0;
    const long long integer = whole ? strtoll(copy, NULL, 10) : 0;
    if (whole && errno == 0) {
        *out = (json){.kind = JSON_INT, .u.integer = integer};
    } else {
        const double real = strtod(copy, NULL);
        if (!isfinite(real)) return complain(p, begin, "a number that fits a double expected");
        *out = (json){.kind = JSON_REAL, .u.real = real};
    }
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

static status push(parser *p, const member *m)
{
    if (p->stack_count == p->stack_capacity) {
        // Not in an arena: it would keep every smaller stack.
        const int64_t capacity = max_i64(64, p->stack_capacity * 2);
        member *grown = realloc(p->stack, (size_t)capacity * sizeof(*grown));
        if (grown == NULL) return fail(ST_NO_MEMORY, "%s: no memory to read it", p->what);
        p->stack = grown;
        p->stack_capacity = capacity;
    }
    p->stack[p->stack_count++] = *m;
    return ST_OK;
}

// Copies the members above `base` from the stack to the arena.
static status close_members(parser *p, int64_t base, const json **out)
{
    const int64_t count = p->stack_count - base;
    json *members;
    TRY(arena_new(p->a, count, &members));
    for (int64_t i = 0; i < count; i++) members[i] = p->stack[base + i].value;
    p->stack_count = base;
    *out = members;
    return ST_OK;
}

static status parse_list(parser *p, int depth, json *out)
{
    const int64_t base = p->stack_count;
    p->at++;
    skip_blanks(p);
    bool more = !(p->at < p->end && *p->at == ']');
    while (more) {
        member m = {.key = NULL};
        TRY(parse_value(p, depth + 1, &m.value));
        TRY(push(p, &m));
        skip_blanks(p);
        more = p->at < p->end && *p->at == ',';
        if (more) p->at++;
    }
    if (p->at >= p->end || *p->at != ']') return complain(p, p->at, "',' or ']' expected");
    p->at++;
    *out = (json){.kind = JSON_LIST, .count = p->stack_count - base};
    return close_members(p, base, &out->u.members);
}

typedef struct key_order {
    const char *key;
    int64_t index;
} key_order;

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const key_order *)a)->key, ((const key_order *)b)->key);
}

static status close_map(parser *p, int64_t base, const char *open, json *out)
{
    const int64_t count = p->stack_count - base;
    if (count > INT32_MAX) return complain(p, open, "a map of less than 2^31 keys expected");
    json_map *map;
    const char **keys;
    int32_t *sorted;
    TRY(arena_new(p->a, 1, &map));
    TRY(arena_new(p->a, count, &keys));
    TRY(arena_new(p->a, count, &sorted));
    key_order *order = malloc(sizeof(*order) * (size_t)max_i64(count, 1));
    if (order == NULL) return fail(ST_NO_MEMORY, "%s: no memory to sort keys", p->what);
    for (int64_t i = 0; i < count; i++) {
        keys[i] = p->stack[base + i].key;
        order[i] = (key_order){.key = keys[i], .index = i};
    }
    qsort(order, (size_t)count, sizeof(*order), compare_keys);
    const char *twice = NULL;
    for (int64_t i = 0; i < count; i++) {
        sorted[i] = (int32_t)order[i].index;
        if (i > 0 && strcmp(order[i - 1].key, order[i].key) == 0) twice = order[i].key;
    }
    free(order);
    if (twice != NULL) {
        return fail(ST_DAMAGED, "%s: key \"%.200s\" stands twice in one map", p->what, twice);
    }
    map->keys = keys;
    map->sorted = sorted;
    TRY(close_members(p, base, &map->members));
    *out = (json){.kind = JSON_MAP, .count = count, .u.map = map};
    return ST_OK;
}

static status parse_map(parser *p, int depth, json *out)
{
    const int64_t base = p->stack_count;
    const char *open = p->at++;
    skip_blanks(p);
    bool more = !(p->at < p->end && *p->at == '}');
    while (more) {
        member m = {.key = NULL};
        int64_t key_bytes;
        skip_blanks(p);
        if (p->at >= p->end || *p->at != '"') return complain(p, p->at, "a key in quotes expected");
        const char *key_at = p->at;
        TRY(parse_text(p, &m.key, &key_bytes));
        if ((int64_t)strlen(m.key) != key_bytes)
            return complain(p, key_at, "no NUL in a key expected");
        skip_blanks(p);
        if (p->at >= p->end || *p->at != ':') return complain(p, p->at, "':' expected");
        p->at++;
        TRY(parse_value(p, depth + 1, &m.value));
        TRY(push(p, &m));
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
    skip_blanks(p);
    if (p->at >= p->end) return complain(p, p->at, "a value expected");
    const char c = *p->at;
    if ((c == '{' || c == '[') && depth > MAX_DEPTH) {
        return complain(p, p->at, "at most 64 levels of lists and maps expected");
    }
    if (c == '{') return parse_map(p, depth, out);
    if (c == '[') return parse_list(p, depth, out);
    if (c == '"') {
        int64_t bytes = 0;
        *out = (json){.kind = JSON_TEXT};
        TRY(parse_text(p, &out->u.text, &bytes));
        out->text_bytes = (int32_t)bytes;
        return ST_OK;
    }
    if (c == '-' || (c >= '0' && c <= '9')) return parse_number(p, out);
    if (take_word(p, "null")) {
        *out = (json){.kind = JSON_NULL_VALUE};
    } else if (take_word(p, "true")) {
        *out = (json){.kind = JSON_BOOL, .count = 1};
    } else if (take_word(p, "false")) {
        *out = (json){.kind = JSON_BOOL};
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

status json_parse(const char *bytes, int64_t count, const char *what, json **out)
{
    parser p = {.begin = bytes, .at = bytes, .end = bytes + count, .what = what};
    document *d;
    status st;
    TRY(arena_create("json", 0, &p.a));
    TRY_TO(give_up, arena_new(p.a, 1, &d));
    TRY_TO(give_up, parse_document(&p, &d->root));
    d->a = p.a;
    free(p.stack);
    *out = &d->root;
    return ST_OK;
give_up:
    free(p.stack);
    arena_destroy(p.a);
    return st;
}

status json_read(const host *h, const char *path, int64_t limit_bytes, json **out)
{
    arena *a;
    char *bytes;
    int64_t count;
    status st;
    TRY(arena_create("json file", 0, &a));
    TRY_TO(destroy_arena, host_read_own(h, a, path, limit_bytes, &bytes, &count));
    st = json_parse(bytes, count, path, out);
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
    return value == NULL ? JSON_NONE : value->kind;
}

const json *json_get(const json *map, const char *key)
{
    if (json_kind_of(map) != JSON_MAP) return NULL;
    int64_t low = 0, high = map->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const int32_t index = map->u.map->sorted[middle];
        const int order = strcmp(key, map->u.map->keys[index]);
        if (order == 0) return &map->u.map->members[index];
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
    if (json_kind_of(list) != JSON_LIST || index < 0 || index >= list->count) return NULL;
    return &list->u.members[index];
}

int64_t json_count(const json *list_or_map)
{
    const json_kind kind = json_kind_of(list_or_map);
    return kind == JSON_LIST || kind == JSON_MAP ? list_or_map->count : 0;
}

const char *json_key_at(const json *map, int64_t index, const json **value)
{
    if (json_kind_of(map) != JSON_MAP || index < 0 || index >= map->count) return NULL;
    if (value != NULL) *value = &map->u.map->members[index];
    return map->u.map->keys[index];
}

const char *json_text(const json *value, const char *otherwise)
{
    return json_kind_of(value) == JSON_TEXT ? value->u.text : otherwise;
}

int64_t json_text_bytes(const json *value)
{
    return json_kind_of(value) == JSON_TEXT ? value->text_bytes : 0;
}

int64_t json_int(const json *value, int64_t otherwise)
{
    if (json_kind_of(value) == JSON_INT) return value->u.integer;
    if (json_kind_of(value) != JSON_REAL) return otherwise;
    const double real = value->u.real;
    const bool whole = real >= -0x1p63 && real < 0x1p63 && (double)(int64_t)real == real;
    return whole ? (int64_t)real : otherwise;
}

double json_real(const json *value, double otherwise)
{
    if (json_kind_of(value) == JSON_INT) return (double)value->u.integer;
    return json_kind_of(value) == JSON_REAL ? value->u.real : otherwise;
}

bool json_bool(const json *value, bool otherwise)
{
    return json_kind_of(value) == JSON_BOOL ? value->count != 0 : otherwise;
}
