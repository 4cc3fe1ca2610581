// Prints values of a struct as a config would hold them; the inverse of option_value.c.
//
// The text is one line of YAML that any YAML 1.1 or 1.2 reader reads as the same value: texts that
// could be read as another type are quoted.
#include "base/format/options_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// True if the text needs no quotes, even for readers that guess types: a plain word or path.
static bool is_plain(const char *s)
{
    static const char *const taken[] = {"null", "true", "false", "yes",  "no",  "on",
                                        "off",  "y",    "n",     ".inf", ".nan"};
    for (int64_t i = 0; i < COUNT_OF(taken); i++) {
        if (strcasecmp(s, taken[i]) == 0) return false;
    }
    if (strchr("/._", *s) == NULL && !(*s >= 'a' && *s <= 'z') && !(*s >= 'A' && *s <= 'Z')) {
        return false;
    }
    if (*s == '.' && s[1] >= '0' && s[1] <= '9') return false;
    return *s != '\0' && s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "0123456789/._+-")] == '\0';
}

// Decodes one UTF-8 character; *bytes is its length. Malformed UTF-8 is taken byte by byte.
static uint32_t decode(const char *s, int64_t *bytes)
{
    const unsigned char *u = (const unsigned char *)s;
    const int64_t n = u[0] < 0x80 ? 1 : u[0] >= 0xF0 ? 4 : u[0] >= 0xE0 ? 3 : u[0] >= 0xC0 ? 2 : 1;
    uint32_t c = n == 1 ? u[0] : u[0] & (0xFFU >> (n + 1));
    for (int64_t i = 1; i < n; i++) {
        if ((u[i] & 0xC0) != 0x80) {
            *bytes = 1;
            return u[0];
        }
        c = c << 6 | (u[i] & 0x3FU);
    }
    *bytes = n;
    return c;
}

// True for characters that YAML allows unescaped inside double quotes.
static bool is_printable(uint32_t c)
{
    if (c < 0x20 || c == 0x7F || c == '"' || c == '\\') return false;
    if (c >= 0x80 && c < 0xA0) return false;
    return c != 0x2028 && c != 0x2029 && c != 0xFEFF && c != 0xFFFE && c != 0xFFFF;
}

static status add_quoted(text *out, const char *s)
{
    TRY(text_add_bytes(out, "\"", 1));
    while (*s != '\0') {
        int64_t bytes;
        const uint32_t c = decode(s, &bytes);
        if (is_printable(c)) {
            TRY(text_add_bytes(out, s, bytes));
        } else if (c == '"' || c == '\\') {
            TRY(text_add(out, "\\%c", (int)c));
        } else if (c == '\n') {
            TRY(text_add(out, "\\n"));
        } else if (c < 0x100) {
            TRY(text_add(out, "\\x%02X", (unsigned)c));
        } else {
            TRY(text_add(out, "\\u%04X", (unsigned)c));
        }
        s += bytes;
    }
    return text_add_bytes(out, "\"", 1);
}

static status add_word(text *out, const char *s)
{
    if (s == NULL) return text_add(out, "null");
    return is_plain(s) ? text_add(out, "%s", s) : add_quoted(out, s);
}

// Prints the fewest digits that give the same double, without the zeros of "e-04".
static status add_real(text *out, double value)
{
    char digits[40];
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof(digits), "%.*g", precision, value);
        if (strtod(digits, NULL) == value) break;
    }
    char *e = strchr(digits, 'e');
    if (e == NULL) return text_add(out, "%s", digits);
    const long exponent = strtol(e + 1, NULL, 10);
    *e = '\0';
    return text_add(out, "%se%ld", digits, exponent);
}

static status add_units(text *out, int64_t value, const option_unit *units, int64_t count)
{
    if (value == 0) return text_add(out, "0");
    const option_unit *u = option_unit_of(value, units, count);
    return text_add(out, "%lld%s", (long long)(value / u->factor), u->name);
}

static status add_list(text *out, const option_list *list)
{
    double number;
    if (list->count == 1 && text_parse_f64(list->items[0], &number)) { // a share
        return text_add(out, "%s", list->items[0]);
    }
    if (list->count == 1) { // a list of one item that holds no comma is written as the item
        const char *item = list->items[0];
        if (strpbrk(item, ",\\ ") == NULL) return add_word(out, item);
    }
    TRY(text_add(out, "["));
    for (int64_t i = 0; i < list->count; i++) {
        if (i > 0) TRY(text_add(out, ", "));
        TRY(add_word(out, list->items[i]));
    }
    return text_add(out, "]");
}

static status add_ramp(text *out, const option_list *list)
{
    TRY(text_add(out, "{"));
    for (int64_t i = 0; i < list->count; i++) {
        const char *equals = strchr(list->items[i], '=');
        ASSERT(equals != NULL);
        TRY(text_add(out, "%s%.*s: %s", i == 0 ? "" : ", ", (int)(equals - list->items[i]),
                     list->items[i], equals + 1));
    }
    return text_add(out, "}");
}

static status add_choice(const option *o, int32_t position, text *out)
{
    char word[OPTION_WORD_BYTES];
    const char *list = o->choices;
    for (int32_t i = 0; option_next_word(&list, word); i++) {
        if (i == position) return text_add(out, "%s", word);
    }
    return fail(ST_INTERNAL, "option %s has no choice %d", o->key, (int)position);
}

static status add_int(const option *o, int64_t value, text *out)
{
    const bool is_word = o->choices != NULL && value == o->word;
    if (is_word) return text_add(out, "%s", o->choices);
    return text_add(out, "%lld", (long long)value);
}

status option_print(const option *o, const void *target, text *out)
{
    const void *field = (const char *)target + o->offset;
    switch (o->kind) {
    case OPTION_BOOL:
        return text_add(out, "%s", *(const bool *)field ? "true" : "false");
    case OPTION_INT:
        return add_int(o, *(const int64_t *)field, out);
    case OPTION_REAL:
        return add_real(out, *(const double *)field);
    case OPTION_TEXT:
    case OPTION_PATH:
        return add_word(out, *(const char *const *)field);
    case OPTION_CHOICE:
        return add_choice(o, *(const int32_t *)field, out);
    case OPTION_BYTES: // powers of two only: "4.29GB" would not help
        return add_units(out, *(const int64_t *)field, option_byte_units, 6);
    case OPTION_TIME:
        return add_units(out, *(const int64_t *)field, option_time_units, OPTION_TIME_UNITS);
    case OPTION_LIST:
    case OPTION_PATHS:
    case OPTION_SHARE:
        return add_list(out, field);
    case OPTION_RAMP:
        return add_ramp(out, field);
    case OPTION_RANGE: {
        const option_range *r = field;
        if (r->begin == 0) return text_add(out, "null");
        // Quoted: YAML 1.1 reads 1:30 as a number in base sixty.
        return text_add(out, "\"%lld:%lld\"", (long long)r->begin, (long long)r->end);
    }
    }
    return fail(ST_INTERNAL, "option %s has no known kind", o->key);
}

static bool texts_equal(const char *a, const char *b)
{
    if (a == NULL || b == NULL) return a == b;
    return strcmp(a, b) == 0;
}

static bool lists_equal(const option_list *a, const option_list *b)
{
    if (a->count != b->count) return false;
    for (int64_t i = 0; i < a->count; i++) {
        if (!texts_equal(a->items[i], b->items[i])) return false;
    }
    return true;
}

bool option_equal(const option *o, const void *a, const void *b)
{
    const void *x = (const char *)a + o->offset, *y = (const char *)b + o->offset;
    switch (o->kind) {
    case OPTION_BOOL:
        return *(const bool *)x == *(const bool *)y;
    case OPTION_INT:
    case OPTION_BYTES:
    case OPTION_TIME:
        return *(const int64_t *)x == *(const int64_t *)y;
    case OPTION_REAL:
        return *(const double *)x == *(const double *)y;
    case OPTION_TEXT:
    case OPTION_PATH:
        return texts_equal(*(const char *const *)x, *(const char *const *)y);
    case OPTION_CHOICE:
        return *(const int32_t *)x == *(const int32_t *)y;
    case OPTION_LIST:
    case OPTION_PATHS:
    case OPTION_SHARE:
    case OPTION_RAMP:
        return lists_equal(x, y);
    case OPTION_RANGE:
        return ((const option_range *)x)->begin == ((const option_range *)y)->begin &&
               ((const option_range *)x)->end == ((const option_range *)y)->end;
    }
    return false;
}
