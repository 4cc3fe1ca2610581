// Values as text: Python's str() and repr(), and JSON as tojson writes it.
#include "data/jinja/jinja_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The shortest digits that read back to x, with an exponent from 1e16 and below 1e-4.
status value_print_real(text *out, double x)
{
    char digits[40];
    if (isnan(x)) return text_add(out, "nan");
    if (isinf(x)) return text_add(out, "%s", x < 0 ? "-inf" : "inf");
    for (int precision = 1; precision <= 17; precision++) {
        (void)snprintf(digits, sizeof(digits), "%.*e", precision - 1, x);
        if (strtod(digits, NULL) == x) break;
    }
    const char *e = strchr(digits, 'e');
    const int exponent = (int)strtol(e + 1, NULL, 10);
    const int count = (int)(e - digits) - (x < 0 || (x == 0 && signbit(x)) ? 1 : 0);
    const int significant = count > 1 ? count - 1 : 1;
    if (exponent >= 16 || exponent < -4) {
        return text_add(out, "%.*se%c%02d", (int)(e - digits), digits, exponent < 0 ? '-' : '+',
                        abs(exponent));
    }
    const int decimals = significant - 1 - exponent;
    return text_add(out, "%.*f", decimals > 0 ? decimals : 1, x);
}

// Characters that repr() escapes though they are no control characters of ASCII.
static bool is_hidden(uint32_t c)
{
    return (c >= 0x7f && c <= 0xa0) || c == 0xad || c == 0x1680 || (c >= 0x2000 && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202f) || (c >= 0x205f && c <= 0x206f) || c == 0x3000 ||
           c == 0xfeff || (c >= 0xe000 && c <= 0xf8ff) || (c >= 0xfff9 && c <= 0xfffb);
}

static status add_quoted_character(text *out, slice s, int64_t at, int64_t next, uint32_t c)
{
    if (c == '\n') return text_add(out, "\\n");
    if (c == '\r') return text_add(out, "\\r");
    if (c == '\t') return text_add(out, "\\t");
    if (c == '\\') return text_add(out, "\\\\");
    if (c < ' ' || (is_hidden(c) && c < 0x100)) return text_add(out, "\\x%02x", (unsigned)c);
    if (is_hidden(c)) return text_add(out, "\\u%04x", (unsigned)c);
    return text_add_bytes(out, s.bytes + at, next - at);
}

static status print_quoted(text *out, slice s)
{
    const bool has_single = memchr(s.bytes, '\'', (size_t)s.count) != NULL;
    const char quote = has_single && memchr(s.bytes, '"', (size_t)s.count) == NULL ? '"' : '\'';
    TRY(text_add(out, "%c", quote));
    uint32_t c = 0;
    for (int64_t i = 0, next = 0; i < s.count; i = next) {
        next = slice_next(s, i, &c);
        if (c == (uint32_t)quote) {
            TRY(text_add(out, "\\%c", quote));
        } else {
            TRY(add_quoted_character(out, s, i, next, c));
        }
    }
    return text_add(out, "%c", quote);
}

static status print_list(jinja_run *r, text *out, const value_list *list)
{
    TRY(text_add(out, "%s", list->is_tuple ? "(" : "["));
    for (int64_t i = 0; i < list->count; i++) {
        if (i > 0) TRY(text_add(out, ", "));
        TRY(value_print(r, out, &list->items[i], true));
    }
    if (list->is_tuple && list->count == 1) TRY(text_add(out, ","));
    return text_add(out, "%s", list->is_tuple ? ")" : "]");
}

static status print_map(jinja_run *r, text *out, const value_map *map)
{
    TRY(text_add(out, "{"));
    for (int64_t i = 0; i < map->count; i++) {
        if (i > 0) TRY(text_add(out, ", "));
        TRY(value_print(r, out, &map->keys[i], true));
        TRY(text_add(out, ": "));
        TRY(value_print(r, out, &map->values[i], true));
    }
    return text_add(out, "}");
}

status value_print(jinja_run *r, text *out, const value *v, bool quoted)
{
    const int64_t before = out->length;
    status st = ST_OK;
    switch (v->kind) {
    case VALUE_UNDEFINED:
        st = quoted ? text_add(out, "Undefined") : ST_OK;
        break;
    case VALUE_NONE:
        st = text_add(out, "None");
        break;
    case VALUE_BOOL:
        st = text_add(out, "%s", v->as.truth ? "True" : "False");
        break;
    case VALUE_INT:
        st = text_add(out, "%lld", (long long)v->as.integer);
        break;
    case VALUE_REAL:
        st = value_print_real(out, v->as.real);
        break;
    case VALUE_TEXT:
        st = quoted ? print_quoted(out, v->as.text)
                    : text_add_bytes(out, v->as.text.bytes, v->as.text.count);
        break;
    case VALUE_LIST:
        st = print_list(r, out, v->as.list);
        break;
    case VALUE_MAP:
        st = print_map(r, out, v->as.map);
        break;
    case VALUE_NAMESPACE:
    case VALUE_MACRO:
    case VALUE_FUNCTION:
    case VALUE_METHOD:
    case VALUE_LOOP:
        return jinja_fail(r->s, 0, "%s cannot be printed", value_kind_name(v));
    }
    TRY(st);
    if (out->length > JINJA_OUTPUT_BYTES_MAX) {
        return jinja_fail(r->s, 0, "the text becomes longer than %d bytes", JINJA_OUTPUT_BYTES_MAX);
    }
    return run_spend(r, 0, (out->length - before) / 16 + 1);
}

status value_text(jinja_run *r, const value *v, value *out)
{
    text t = {.a = r->a};
    if (v->kind == VALUE_TEXT) {
        *out = *v;
        return ST_OK;
    }
    TRY(value_print(r, &t, v, false));
    *out = value_of_text(t.length > 0 ? t.bytes : "", t.length);
    return ST_OK;
}

// ---- JSON ---------------------------------------------------------------------------------------

static status json_character(text *out, uint32_t c)
{
    if (c == '"') return text_add(out, "\\\"");
    if (c == '\\') return text_add(out, "\\\\");
    if (c == '\n') return text_add(out, "\\n");
    if (c == '\r') return text_add(out, "\\r");
    if (c == '\t') return text_add(out, "\\t");
    if (c == '\b') return text_add(out, "\\b");
    if (c == '\f') return text_add(out, "\\f");
    if (c < 0x10000) return text_add(out, "\\u%04x", (unsigned)c);
    c -= 0x10000;
    return text_add(out, "\\u%04x\\u%04x", (unsigned)(0xd800 + (c >> 10)),
                    (unsigned)(0xdc00 + (c & 0x3ff)));
}

static status json_text_of(text *out, slice s, bool ascii)
{
    TRY(text_add(out, "\""));
    uint32_t c = 0;
    int64_t plain = 0;
    for (int64_t i = 0, next = 0; i < s.count; i = next) {
        next = slice_next(s, i, &c);
        if (c >= ' ' && c != '"' && c != '\\' && (c < 0x7f || !ascii)) continue;
        if (c == 0x7f) continue;
        TRY(text_add_bytes(out, s.bytes + plain, i - plain));
        TRY(json_character(out, c));
        plain = next;
    }
    TRY(text_add_bytes(out, s.bytes + plain, s.count - plain));
    return text_add(out, "\"");
}

// A new line at this level, or the blank between items on one line.
static status json_gap(text *out, int64_t indent, int64_t level, const char *otherwise)
{
    if (indent < 0) return text_add(out, "%s", otherwise);
    return text_add(out, "\n%*s", (int)(indent * level), "");
}

static status json_scalar(jinja_run *r, text *out, const value *v, bool ascii)
{
    if (v->kind == VALUE_NONE) return text_add(out, "null");
    if (v->kind == VALUE_BOOL) return text_add(out, "%s", v->as.truth ? "true" : "false");
    if (v->kind == VALUE_INT) return text_add(out, "%lld", (long long)v->as.integer);
    if (v->kind == VALUE_TEXT) return json_text_of(out, v->as.text, ascii);
    if (v->kind != VALUE_REAL) {
        return jinja_fail(r->s, 0, "tojson cannot write %s", value_kind_name(v));
    }
    if (isnan(v->as.real)) return text_add(out, "NaN");
    if (isinf(v->as.real)) return text_add(out, "%s", v->as.real < 0 ? "-Infinity" : "Infinity");
    return value_print_real(out, v->as.real);
}

// A key that is no text is written as one, as Python does it.
static status json_key(jinja_run *r, text *out, const value *key, bool ascii)
{
    if (key->kind == VALUE_TEXT) return json_text_of(out, key->as.text, ascii);
    TRY(text_add(out, "\""));
    TRY(json_scalar(r, out, key, ascii));
    return text_add(out, "\"");
}

status value_print_json(jinja_run *r, text *out, const value *v, int64_t indent, bool ascii,
                        int64_t level)
{
    const int64_t before = out->length;
    const bool is_map = v->kind == VALUE_MAP;
    if (!is_map && v->kind != VALUE_LIST) {
        TRY(json_scalar(r, out, v, ascii));
        return run_spend(r, 0, (out->length - before) / 16 + 1);
    }
    const int64_t count = value_length(v);
    const char *const brackets = is_map ? "{}" : "[]";
    TRY(text_add(out, "%c", brackets[0]));
    for (int64_t i = 0; i < count; i++) {
        if (i > 0) TRY(text_add(out, ","));
        if (i > 0 || indent >= 0) TRY(json_gap(out, indent, level + 1, " "));
        if (is_map) TRY(json_key(r, out, &v->as.map->keys[i], ascii));
        if (is_map) TRY(text_add(out, ": "));
        const value *item = is_map ? &v->as.map->values[i] : &v->as.list->items[i];
        TRY(value_print_json(r, out, item, indent, ascii, level + 1));
    }
    if (count > 0 && indent >= 0) TRY(json_gap(out, indent, level, ""));
    TRY(text_add(out, "%c", brackets[1]));
    if (out->length > JINJA_OUTPUT_BYTES_MAX) {
        return jinja_fail(r->s, 0, "the text becomes longer than %d bytes", JINJA_OUTPUT_BYTES_MAX);
    }
    return run_spend(r, 0, 1);
}
