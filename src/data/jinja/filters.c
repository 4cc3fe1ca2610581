// Filters over one value, and the table of all filters.
#include "data/jinja/filters.h"
#include "data/jinja/jinja_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The text that a filter over texts is applied to.
static status self_text(filter_call *c, slice *out)
{
    value v = {.kind = VALUE_NONE};
    TRY(value_text(c->run, &c->self, &v));
    *out = v.as.text;
    return ST_OK;
}

static status cased(filter_call *c, letter_case how, value *out)
{
    slice s = {"", 0};
    TRY(self_text(c, &s));
    return text_cased(c, s, how, out);
}

static status filter_upper(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return cased(c, CASE_UPPER, out);
}

static status filter_lower(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return cased(c, CASE_LOWER, out);
}

static status filter_title(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return cased(c, CASE_TITLE, out);
}

static status filter_capitalize(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return cased(c, CASE_CAPITALIZE, out);
}

static status filter_trim(filter_call *c, const value *arguments, value *out)
{
    slice s = {"", 0}, characters = {NULL, 0};
    TRY(self_text(c, &s));
    TRY(run_spend(c->run, c->node->at, s.count / 16));
    const bool is_given = arguments[0].kind == VALUE_TEXT;
    if (arguments[0].kind != VALUE_NONE) TRY(call_text(c, &arguments[0], &characters));
    s = text_trimmed(s, true, true, is_given ? &characters : NULL);
    *out = value_of_text(s.bytes, s.count);
    return ST_OK;
}

static status filter_replace(filter_call *c, const value *arguments, value *out)
{
    slice s = {"", 0}, pair[2] = {{"", 0}, {"", 0}};
    int64_t limit = -1;
    TRY(self_text(c, &s));
    for (int i = 0; i < 2; i++) {
        value v = {.kind = VALUE_NONE};
        TRY(value_text(c->run, &arguments[i], &v));
        pair[i] = v.as.text;
    }
    if (arguments[2].kind != VALUE_NONE) TRY(call_int(c, &arguments[2], &limit));
    return text_replaced(c, s, pair, limit, out);
}

static status filter_length(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    const int64_t length = value_length(&c->self);
    if (length < 0) return call_fails(c, "a value with a length", &c->self);
    if (c->self.kind == VALUE_TEXT) TRY(run_spend(c->run, c->node->at, length / 8));
    *out = value_of_int(length);
    return ST_OK;
}

static status filter_default(filter_call *c, const value *arguments, value *out)
{
    const bool by_truth = value_truth(&arguments[1]);
    const bool keeps = by_truth ? value_truth(&c->self) : c->self.kind != VALUE_UNDEFINED;
    *out = keeps ? c->self : arguments[0];
    if (!keeps && arguments[0].kind == VALUE_UNDEFINED) *out = value_of_text("", 0);
    return ST_OK;
}

static status filter_tojson(filter_call *c, const value *arguments, value *out)
{
    text t = {.a = c->run->a};
    int64_t indent = -1;
    value v = c->self;
    if (arguments[2].kind != VALUE_UNDEFINED && arguments[2].kind != VALUE_NONE) {
        return jinja_fail(c->run->s, c->node->at, "tojson with separators is not supported");
    }
    if (arguments[1].kind != VALUE_NONE) TRY(call_int(c, &arguments[1], &indent));
    if (indent > 64) return jinja_fail(c->run->s, c->node->at, "tojson with an indent above 64");
    if (value_truth(&arguments[3])) TRY(list_sort_keys(c, &v));
    TRY(value_print_json(c->run, &t, &v, indent, value_truth(&arguments[0]), 0));
    *out = value_of_text(t.bytes, t.length);
    return ST_OK;
}

static status filter_string(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return value_text(c->run, &c->self, out);
}

// The number that a whole text holds, with blanks around it.
static bool number_of(slice s, bool whole, value *out)
{
    char digits[64];
    char *end = NULL;
    s = text_trimmed(s, true, true, NULL);
    if (s.count == 0 || s.count >= (int64_t)sizeof(digits)) return false;
    memcpy(digits, s.bytes, (size_t)s.count);
    digits[s.count] = 0;
    if (strpbrk(digits, "xXpP") != NULL || strlen(digits) != (size_t)s.count) return false;
    if (whole) {
        const char *at = digits + (digits[0] == '-' || digits[0] == '+' ? 1 : 0);
        if (strspn(at, "0123456789") != strlen(at) || *at == 0 || strlen(at) > 18) return false;
        *out = value_of_int((int64_t)strtoll(digits, &end, 10));
    } else {
        *out = value_of_real(strtod(digits, &end));
    }
    return *end == 0;
}

static status filter_int(filter_call *c, const value *arguments, value *out)
{
    value v = {.kind = VALUE_NONE};
    *out = arguments[0].kind == VALUE_UNDEFINED ? value_of_int(0) : arguments[0];
    if (arguments[1].kind != VALUE_UNDEFINED &&
        (arguments[1].kind != VALUE_INT || arguments[1].as.integer != 10)) {
        return jinja_fail(c->run->s, c->node->at, "int with another base than 10");
    }
    if (c->self.kind == VALUE_TEXT) {
        if (number_of(c->self.as.text, true, &v))
            *out = v;
        else if (!number_of(c->self.as.text, false, &v))
            return ST_OK;
    } else if (value_is_number(&c->self)) {
        v = c->self;
    } else {
        return ST_OK;
    }
    if (v.kind == VALUE_REAL && fabs(v.as.real) < 9e18) *out = value_of_int((int64_t)v.as.real);
    if (v.kind == VALUE_INT || v.kind == VALUE_BOOL) *out = value_of_int(value_int(&v));
    return ST_OK;
}

static status filter_float(filter_call *c, const value *arguments, value *out)
{
    value v = {.kind = VALUE_NONE};
    *out = arguments[0].kind == VALUE_UNDEFINED ? value_of_real(0.0) : arguments[0];
    if (c->self.kind == VALUE_TEXT && number_of(c->self.as.text, false, &v)) *out = v;
    if (value_is_number(&c->self)) *out = value_of_real(value_real(&c->self));
    return ST_OK;
}

static status filter_abs(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    if (!value_is_number(&c->self)) return call_fails(c, "a number", &c->self);
    if (c->self.kind == VALUE_REAL) {
        *out = value_of_real(fabs(c->self.as.real));
        return ST_OK;
    }
    const int64_t i = value_int(&c->self);
    if (i == INT64_MIN) return call_fails(c, "a number within 64 bits", &c->self);
    *out = value_of_int(i < 0 ? -i : i);
    return ST_OK;
}

static status filter_round(filter_call *c, const value *arguments, value *out)
{
    enum { PRECISION_MAX = 20 };
    char digits[400];
    int64_t precision = 0;
    slice how = {"common", 6};
    TRY(call_int(c, &arguments[0], &precision));
    TRY(call_text(c, &arguments[1], &how));
    if (!value_is_number(&c->self)) return call_fails(c, "a number", &c->self);
    if (precision < 0 || precision > PRECISION_MAX) {
        return jinja_fail(c->run->s, c->node->at, "round with a precision outside 0 to %d",
                          PRECISION_MAX);
    }
    const double x = value_real(&c->self), scale = pow(10.0, (double)precision);
    if (slice_is(how, "ceil")) *out = value_of_real(ceil(x * scale) / scale);
    if (slice_is(how, "floor")) *out = value_of_real(floor(x * scale) / scale);
    if (!slice_is(how, "common")) return ST_OK;
    (void)snprintf(digits, sizeof(digits), "%.*f", (int)precision, x);
    *out = value_of_real(strtod(digits, NULL));
    return ST_OK;
}

static status filter_safe(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    *out = c->self;
    return ST_OK;
}

static status filter_escape(filter_call *c, const value *arguments, value *out)
{
    static const char special[] = "&<>'\"";
    static const char *const written[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    text t = {.a = c->run->a};
    slice s = {"", 0};
    (void)arguments;
    TRY(self_text(c, &s));
    TRY(run_spend(c->run, c->node->at, s.count / 4));
    for (int64_t i = 0; i < s.count; i++) {
        const char *found = s.bytes[i] != 0 ? strchr(special, s.bytes[i]) : NULL;
        TRY(found != NULL ? text_add(&t, "%s", written[found - special])
                          : text_add_bytes(&t, s.bytes + i, 1));
    }
    *out = value_of_text(t.length > 0 ? t.bytes : "", t.length);
    return ST_OK;
}

static status filter_indent(filter_call *c, const value *arguments, value *out)
{
    text t = {.a = c->run->a}, blanks = {.a = c->run->a};
    slice s = {"", 0};
    value_list *lines = NULL;
    int64_t width = 4;
    TRY(self_text(c, &s));
    if (arguments[0].kind == VALUE_TEXT) {
        TRY(text_add_bytes(&blanks, arguments[0].as.text.bytes, arguments[0].as.text.count));
    } else {
        TRY(call_int(c, &arguments[0], &width));
        if (width < 0 || width > 1000) {
            return jinja_fail(c->run->s, c->node->at, "indent outside 0 to 1000");
        }
        TRY(text_add(&blanks, "%*s", (int)width, ""));
    }
    const bool first = value_truth(&arguments[1]), blank = value_truth(&arguments[2]);
    TRY(text_lines(c->run, s, &lines));
    for (int64_t i = 0; i < lines->count; i++) {
        const slice line = lines->items[i].as.text;
        TRY(run_spend(c->run, c->node->at, blanks.length / 16 + 1));
        if (i > 0) TRY(text_add(&t, "\n"));
        if (i == 0 ? first : blank || line.count > 0) {
            TRY(text_add_bytes(&t, blanks.bytes, blanks.length));
        }
        TRY(text_add_bytes(&t, line.bytes, line.count));
    }
    // The reference splits the text and one more newline, so a newline at the end stays.
    const slice newline = {"\n", 1};
    const slice kept = text_trimmed(s, false, true, &newline);
    if (kept.count < s.count) TRY(text_add(&t, "\n"));
    *out = value_of_text(t.length > 0 ? t.bytes : "", t.length);
    return ST_OK;
}

static const function filters[] = {
    {"abs", "", filter_abs},
    {"capitalize", "", filter_capitalize},
    {"count", "", filter_length},
    {"d", "default_value boolean", filter_default},
    {"default", "default_value boolean", filter_default},
    {"dictsort", "case_sensitive by reverse", filter_dictsort},
    {"e", "", filter_escape},
    {"escape", "", filter_escape},
    {"first", "", filter_first},
    {"float", "default", filter_float},
    {"indent", "width first blank", filter_indent},
    {"int", "default base", filter_int},
    {"items", "", filter_items},
    {"join", "d attribute", filter_join},
    {"last", "", filter_last},
    {"length", "", filter_length},
    {"list", "", filter_list},
    {"lower", "", filter_lower},
    {"map", "*", filter_map},
    {"max", "case_sensitive attribute", filter_max},
    {"min", "case_sensitive attribute", filter_min},
    {"reject", "*", filter_reject},
    {"rejectattr", "*", filter_rejectattr},
    {"replace", "old new count", filter_replace},
    {"reverse", "", filter_reverse},
    {"round", "precision method", filter_round},
    {"safe", "", filter_safe},
    {"select", "*", filter_select},
    {"selectattr", "*", filter_selectattr},
    {"sort", "reverse case_sensitive attribute", filter_sort},
    {"string", "", filter_string},
    {"sum", "attribute start", filter_sum},
    {"title", "", filter_title},
    {"tojson", "ensure_ascii indent separators sort_keys", filter_tojson},
    {"trim", "chars", filter_trim},
    {"unique", "case_sensitive attribute", filter_unique},
    {"upper", "", filter_upper},
};

int32_t filter_find(slice name)
{
    for (int32_t i = 0; i < COUNT_OF(filters); i++) {
        if (slice_is(name, filters[i].name)) return i;
    }
    return -1;
}

status filter_apply(jinja_run *r, const node *n, int32_t code, value self,
                    const call_arguments *arguments, value *out)
{
    filter_call c = {.run = r, .node = n, .self = self, .arguments = *arguments};
    TRY(run_enter(r, n->at)); // map() calls a filter
    TRY(function_call(&c, &filters[code], out));
    run_leave(r);
    return ST_OK;
}
