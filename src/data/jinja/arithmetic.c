// Operators between two values: numbers as Python has them (within 64 bits), texts and lists.
#include "data/jinja/jinja_internal.h"

#include <math.h>
#include <string.h>

static status no_operator(jinja_run *r, const node *n, const value *a, const value *b)
{
    return jinja_fail(r->s, n->at, "%s %.*s %s has no value", value_kind_name(a),
                      (int)n->name.count, n->name.bytes, value_kind_name(b));
}

static int64_t floor_div(int64_t a, int64_t b)
{
    const int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static bool power_of(int64_t base, int64_t exponent, int64_t *out)
{
    int64_t p = 1;
    for (int64_t i = 0; i < exponent; i++) {
        if (base == 1 || base == 0) {
            *out = base;
            return true;
        }
        if (i >= 64 || __builtin_mul_overflow(p, base, &p)) {
            if (base != -1) return false;
            p = exponent % 2 == 0 ? 1 : -1;
            break;
        }
    }
    *out = p;
    return true;
}

static status int_operator(jinja_run *r, const node *n, int64_t a, int64_t b, value *out)
{
    const char *sign = n->name.bytes;
    int64_t x = 0;
    bool fits = true;
    if (n->name.count == 1 && sign[0] == '+') fits = !__builtin_add_overflow(a, b, &x);
    if (n->name.count == 1 && sign[0] == '-') fits = !__builtin_sub_overflow(a, b, &x);
    if (n->name.count == 1 && sign[0] == '*') fits = !__builtin_mul_overflow(a, b, &x);
    if (slice_is(n->name, "**")) fits = power_of(a, b, &x);
    if (sign[0] == '/' || sign[0] == '%') {
        if (b == 0) return jinja_fail(r->s, n->at, "a division by zero");
        if (b == -1 && a == INT64_MIN) return jinja_fail(r->s, n->at, "an integer beyond 64 bits");
        x = sign[0] == '/' ? floor_div(a, b) : a - floor_div(a, b) * b;
    }
    if (!fits) return jinja_fail(r->s, n->at, "an integer of more than 64 bits");
    *out = value_of_int(x);
    return ST_OK;
}

static status real_operator(jinja_run *r, const node *n, double a, double b, value *out)
{
    const char *sign = n->name.bytes;
    double x = 0.0;
    if ((sign[0] == '/' || sign[0] == '%') && b == 0.0) {
        return jinja_fail(r->s, n->at, "a division by zero");
    }
    if (sign[0] == '+') x = a + b;
    if (sign[0] == '-') x = a - b;
    if (slice_is(n->name, "*")) x = a * b;
    if (slice_is(n->name, "**")) x = pow(a, b);
    if (slice_is(n->name, "/")) x = a / b;
    if (slice_is(n->name, "//")) x = floor(a / b);
    if (sign[0] == '%') x = a - floor(a / b) * b;
    *out = value_of_real(x);
    return ST_OK;
}

static status repeat(jinja_run *r, const node *n, const value *v, int64_t times, value *out)
{
    value_list *list = NULL;
    text t = {.a = r->a};
    const bool is_text = v->kind == VALUE_TEXT;
    const int64_t size = is_text ? v->as.text.count : v->as.list->count;
    if (times < 0 || size == 0) times = 0;
    if (times > 0 && times > JINJA_OUTPUT_BYTES_MAX / size) {
        return jinja_fail(r->s, n->at, "%lld repetitions of %lld", (long long)times,
                          (long long)size);
    }
    TRY(run_spend(r, n->at, size * times / 16 + times));
    TRY(value_list_new(r, &list));
    for (int64_t i = 0; i < times; i++) {
        if (is_text) TRY(text_add_bytes(&t, v->as.text.bytes, size));
        for (int64_t k = 0; k < size && !is_text; k++) {
            TRY(value_list_add(r, list, v->as.list->items[k]));
        }
    }
    *out = is_text ? value_of_text(t.length > 0 ? t.bytes : "", t.length)
                   : (value){.kind = VALUE_LIST, .as.list = list};
    return ST_OK;
}

static status add_values(jinja_run *r, const node *n, const value *a, const value *b, value *out)
{
    if (a->kind == VALUE_TEXT && b->kind == VALUE_TEXT) {
        char *bytes = NULL;
        const slice x = a->as.text, y = b->as.text;
        TRY(run_spend(r, n->at, (x.count + y.count) / 16));
        TRY(arena_new(r->a, x.count + y.count + 1, &bytes));
        memcpy(bytes, x.bytes, (size_t)x.count);
        memcpy(bytes + x.count, y.bytes, (size_t)y.count);
        *out = value_of_text(bytes, x.count + y.count);
        return ST_OK;
    }
    if (a->kind != VALUE_LIST || b->kind != VALUE_LIST) return no_operator(r, n, a, b);
    value_list *list = NULL;
    TRY(run_spend(r, n->at, a->as.list->count + b->as.list->count));
    TRY(value_list_new(r, &list));
    list->is_tuple = a->as.list->is_tuple;
    for (int64_t i = 0; i < a->as.list->count; i++) {
        TRY(value_list_add(r, list, a->as.list->items[i]));
    }
    for (int64_t i = 0; i < b->as.list->count; i++) {
        TRY(value_list_add(r, list, b->as.list->items[i]));
    }
    *out = (value){.kind = VALUE_LIST, .as.list = list};
    return ST_OK;
}

status evaluate_binary(jinja_run *r, const node *n, value left, value right, value *out)
{
    const bool divides = slice_is(n->name, "/");
    if (value_is_number(&left) && value_is_number(&right)) {
        const bool negative_power = slice_is(n->name, "**") && value_real(&right) < 0.0;
        if (left.kind == VALUE_REAL || right.kind == VALUE_REAL || divides || negative_power) {
            return real_operator(r, n, value_real(&left), value_real(&right), out);
        }
        return int_operator(r, n, value_int(&left), value_int(&right), out);
    }
    if (slice_is(n->name, "+")) return add_values(r, n, &left, &right, out);
    if (slice_is(n->name, "%") && left.kind == VALUE_TEXT) {
        return evaluate_format(r, n->at, left.as.text, right, out);
    }
    const bool left_repeats = left.kind == VALUE_TEXT || left.kind == VALUE_LIST;
    const bool right_repeats = right.kind == VALUE_TEXT || right.kind == VALUE_LIST;
    if (slice_is(n->name, "*") && left_repeats && right.kind == VALUE_INT) {
        return repeat(r, n, &left, right.as.integer, out);
    }
    if (slice_is(n->name, "*") && right_repeats && left.kind == VALUE_INT) {
        return repeat(r, n, &right, left.as.integer, out);
    }
    return no_operator(r, n, &left, &right);
}

// ---- "%d" % x -----------------------------------------------------------------------------------

typedef struct conversion {
    char flags[8];        // of "-+ #0", and the NUL
    int width, precision; // -1: none
    char letter;
} conversion;

static status read_conversion(jinja_run *r, int32_t at, slice format, int64_t *i, conversion *c)
{
    enum { WIDTH_MAX = 1000 };
    int n = 0;
    *c = (conversion){.width = 0, .precision = -1};
    for (; *i < format.count && strchr("-+ #0", format.bytes[*i]) != NULL && n < 5; (*i)++) {
        if (format.bytes[*i] == 0) break;
        if (strchr(c->flags, format.bytes[*i]) == NULL) c->flags[n++] = format.bytes[*i];
    }
    for (; *i < format.count && format.bytes[*i] >= '0' && format.bytes[*i] <= '9'; (*i)++) {
        c->width = (int)min_i64(c->width * 10 + (format.bytes[*i] - '0'), WIDTH_MAX);
    }
    if (*i < format.count && format.bytes[*i] == '.') {
        c->precision = 0;
        for ((*i)++; *i < format.count && format.bytes[*i] >= '0' && format.bytes[*i] <= '9';
             (*i)++) {
            c->precision = (int)min_i64(c->precision * 10 + (format.bytes[*i] - '0'), WIDTH_MAX);
        }
    }
    if (*i >= format.count) return jinja_fail(r->s, at, "a format that ends after %%");
    c->letter = format.bytes[(*i)++];
    return ST_OK;
}

// Pads characters, not bytes.
static status add_padded(text *out, const conversion *c, slice s)
{
    const int64_t pad = c->width - slice_characters(s);
    const bool left = strchr(c->flags, '-') != NULL;
    if (!left) TRY(text_add(out, "%*s", (int)max_i64(pad, 0), ""));
    TRY(text_add_bytes(out, s.bytes, s.count));
    return left ? text_add(out, "%*s", (int)max_i64(pad, 0), "") : ST_OK;
}

// The digits of a number without its sign.
static status add_digits(text *out, const conversion *c, const value *v)
{
    const int precision = c->precision < 0 ? 6 : c->precision;
    const double real = fabs(value_real(v));
    const int64_t whole = v->kind == VALUE_REAL ? (int64_t)real : value_int(v);
    const uint64_t size = whole < 0 ? 0 - (uint64_t)whole : (uint64_t)whole;
    switch (c->letter) {
    case 'x':
        return text_add(out, "%llx", (unsigned long long)size);
    case 'X':
        return text_add(out, "%llX", (unsigned long long)size);
    case 'e':
        return text_add(out, "%.*e", precision, real);
    case 'E':
        return text_add(out, "%.*E", precision, real);
    case 'f':
    case 'F':
        return text_add(out, "%.*f", precision, real);
    case 'g':
        return text_add(out, "%.*g", precision, real);
    case 'G':
        return text_add(out, "%.*G", precision, real);
    default:
        return text_add(out, "%llu", (unsigned long long)size);
    }
}

static status add_number(jinja_run *r, int32_t at, text *out, const conversion *c, const value *v)
{
    text digits = {.a = r->a}, all = {.a = r->a};
    if (!value_is_number(v) || strchr(c->flags, '#') != NULL) {
        return jinja_fail(r->s, at, "%%%s%c of %s", c->flags, c->letter, value_kind_name(v));
    }
    const bool is_whole = strchr("diuxX", c->letter) != NULL;
    const double real = value_real(v);
    if (is_whole && !(fabs(real) < 9.2e18)) {
        return jinja_fail(r->s, at, "%%%c of %g", c->letter, real);
    }
    TRY(add_digits(&digits, c, v));
    const char *sign = real < 0.0                      ? "-"
                       : strchr(c->flags, '+') != NULL ? "+"
                       : strchr(c->flags, ' ') != NULL ? " "
                                                       : "";
    const bool zeros = strchr(c->flags, '0') != NULL && strchr(c->flags, '-') == NULL;
    int64_t fill = zeros ? c->width - digits.length - (*sign != 0 ? 1 : 0) : 0;
    if (is_whole) fill = max_i64(fill, c->precision - digits.length);
    TRY(text_add(&all, "%s", sign));
    for (int64_t i = 0; i < fill; i++) TRY(text_add(&all, "0"));
    TRY(text_add_bytes(&all, digits.bytes, digits.length));
    return add_padded(out, c, (slice){all.bytes, all.length});
}

static status add_conversion(jinja_run *r, int32_t at, text *out, const conversion *c,
                             const value *v)
{
    text t = {.a = r->a};
    if (strchr("diuxXeEfFgG", c->letter) != NULL) {
        return add_number(r, at, out, c, v);
    }
    if (c->letter != 's' && c->letter != 'r') {
        return jinja_fail(r->s, at, "the format %%%c is not supported", c->letter);
    }
    TRY(value_print(r, &t, v, c->letter == 'r'));
    slice s = {t.length > 0 ? t.bytes : "", t.length};
    if (c->precision >= 0) { // so many characters
        int64_t end = 0;
        uint32_t code = 0;
        for (int i = 0; i < c->precision && end < s.count; i++) end = slice_next(s, end, &code);
        s.count = end;
    }
    return add_padded(out, c, s);
}

status evaluate_format(jinja_run *r, int32_t at, slice format, value args, value *out)
{
    text t = {.a = r->a};
    const bool is_tuple = args.kind == VALUE_LIST && args.as.list->is_tuple;
    const int64_t count = is_tuple ? args.as.list->count : 1;
    int64_t used = 0;
    TRY(run_spend(r, at, format.count));
    for (int64_t i = 0; i < format.count;) {
        const char *found = memchr(format.bytes + i, '%', (size_t)(format.count - i));
        const int64_t plain = found != NULL ? found - format.bytes - i : format.count - i;
        TRY(text_add_bytes(&t, format.bytes + i, plain));
        i += plain;
        if (found == NULL) break;
        i++;
        conversion c;
        TRY(read_conversion(r, at, format, &i, &c));
        if (c.letter == '%') {
            TRY(text_add(&t, "%%"));
            continue;
        }
        if (used >= count) return jinja_fail(r->s, at, "a format with too few values");
        TRY(add_conversion(r, at, &t, &c, is_tuple ? &args.as.list->items[used] : &args));
        used++;
    }
    if (used < count && args.kind != VALUE_MAP) {
        return jinja_fail(r->s, at, "a format with too many values");
    }
    *out = value_of_text(t.length > 0 ? t.bytes : "", t.length);
    return ST_OK;
}
