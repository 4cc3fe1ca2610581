// A recursive-descent parser that evaluates while it reads. A formula is read once, so it keeps no
// tree.
#include "base/formula.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    const formula_scope *s;
    const char *whole, *at;
    int depth;
} reader;

static status complain(const reader *r, const char *expected)
{
    const int64_t column = r->at - r->whole + 1;
    if (*r->at == '\0') {
        return fail(ST_CONFIG, "the formula \"%.200s\" ends where %s is expected", r->whole,
                    expected);
    }
    return fail(ST_CONFIG, "the formula \"%.200s\" has \"%.12s\" at column %lld, expected %s",
                r->whole, r->at, (long long)column, expected);
}

static status finite_check(const reader *r, double value, double *out)
{
    if (!isfinite(value)) {
        return fail(ST_CONFIG, "the formula \"%.200s\" has no finite value before column %lld",
                    r->whole, (long long)(r->at - r->whole + 1));
    }
    *out = value;
    return ST_OK;
}

static void blanks_skip(reader *r)
{
    while (*r->at == ' ' || *r->at == '\n' || *r->at == '\t') r->at++;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

// Consumes the sign if it comes next.
static bool takes(reader *r, const char *sign)
{
    const size_t length = strlen(sign);
    blanks_skip(r);
    if (strncmp(r->at, sign, length) != 0) return false;
    if (is_letter(sign[0]) && (is_letter(r->at[length]) || is_digit(r->at[length]))) return false;
    r->at += length;
    return true;
}

static status name_read(reader *r, char out[FORMULA_NAME_BYTES])
{
    size_t n = 0;
    while (is_letter(*r->at) || is_digit(*r->at)) {
        if (n == FORMULA_NAME_BYTES - 1) return complain(r, "a shorter name");
        out[n++] = *r->at++;
    }
    out[n] = '\0';
    return n > 0 ? ST_OK : complain(r, "a name");
}

static status word_read(reader *r, char out[FORMULA_NAME_BYTES])
{
    size_t n = 0;
    for (r->at++; *r->at != '"'; r->at++) {
        if (*r->at == '\0') return complain(r, "a closing quote");
        if (n == FORMULA_NAME_BYTES - 1) return complain(r, "a shorter word");
        out[n++] = *r->at;
    }
    out[n] = '\0';
    r->at++;
    return ST_OK;
}

static status number_read(reader *r, double *out)
{
    char digits[FORMULA_NAME_BYTES];
    size_t n = 0;
    for (char before = ' ';; before = *r->at++) {
        const char c = *r->at;
        const bool is_sign = (c == '+' || c == '-') && (before == 'e' || before == 'E');
        if (!is_digit(c) && c != '.' && c != '_' && c != 'e' && c != 'E' && !is_sign) break;
        if (n == sizeof(digits) - 1) return complain(r, "a shorter number");
        if (c != '_') digits[n++] = c;
    }
    digits[n] = '\0';
    if (!text_parse_f64(digits, out)) return complain(r, "an operator: this is no number");
    if (*r->at == '%') {
        r->at++;
        *out /= 100.0;
    }
    return ST_OK;
}

static status any_read(reader *r, double *out);

// ---- functions ---------------------------------------------------------------------------------

static double of_one(int which, double x)
{
    switch (which) {
    case 0:
        return fabs(x);
    case 1:
        return ceil(x * (1.0 - 1e-14)); // 560 / 80 GB is 7 devices, whatever the last bit is
    case 2:
        return exp(x);
    case 3:
        return floor(x * (1.0 + 1e-14));
    case 4:
        return log(x);
    case 5:
        return log2(x);
    case 6:
        return round(x);
    default:
        return sqrt(x);
    }
}

// Calls a built-in function; false if none has this name and number of arguments.
static bool own_call(const char *name, const formula_value *v, int32_t count, double *out)
{
    static const char *const ones[] = {"abs", "ceil", "exp",   "floor",
                                       "log", "log2", "round", "sqrt"};
    for (int32_t i = 0; i < count; i++) {
        if (v[i].word != NULL) return false;
    }
    for (int i = 0; i < COUNT_OF(ones) && count == 1; i++) {
        if (strcmp(name, ones[i]) != 0) continue;
        *out = of_one(i, v[0].number);
        return true;
    }
    if (strcmp(name, "if") == 0 && count == 3) {
        *out = v[0].number != 0.0 ? v[1].number : v[2].number;
        return true;
    }
    if (strcmp(name, "near") == 0 && count == 3) {
        *out = fabs(v[0].number - v[1].number) <= v[2].number * fabs(v[1].number) ? 1.0 : 0.0;
        return true;
    }
    const bool is_max = strcmp(name, "max") == 0;
    if ((!is_max && strcmp(name, "min") != 0) || count == 0) return false;
    *out = v[0].number;
    for (int32_t i = 1; i < count; i++) {
        *out = is_max ? fmax(*out, v[i].number) : fmin(*out, v[i].number);
    }
    return true;
}

static status call_read(reader *r, const char *name, double *out)
{
    formula_value values[FORMULA_ARGUMENTS];
    char words[FORMULA_ARGUMENTS][FORMULA_NAME_BYTES];
    int32_t count = 0;
    while (!takes(r, ")")) {
        if (count > 0 && !takes(r, ",")) return complain(r, "a comma or a parenthesis");
        if (count == FORMULA_ARGUMENTS) return complain(r, "fewer arguments");
        blanks_skip(r);
        formula_value *v = &values[count];
        *v = (formula_value){0};
        const char *begin = r->at;
        if (*r->at == '"') {
            TRY(word_read(r, words[count]));
            blanks_skip(r);
            if (*r->at == ',' || *r->at == ')') v->word = words[count];
        }
        if (v->word == NULL) {
            r->at = begin;
            TRY(any_read(r, &v->number));
        }
        count++;
    }
    double value = 0.0;
    if (!own_call(name, values, count, &value)) {
        TRY(r->s->call(r->s->context, name, values, count, &value));
    }
    return finite_check(r, value, out);
}

// ---- operators, the tightest first --------------------------------------------------------------

static status thing_read(reader *r, double *out)
{
    char name[FORMULA_NAME_BYTES], field[FORMULA_NAME_BYTES];
    const bool is_word = *r->at == '"';
    TRY(is_word ? word_read(r, name) : name_read(r, name));
    if (!is_word && takes(r, "(")) return call_read(r, name, out);
    double value = 0.0;
    if (*r->at == '.') {
        r->at++;
        TRY(name_read(r, field));
        TRY(r->s->look_up(r->s->context, name, field, &value));
    } else {
        if (is_word) return complain(r, "a dot and a field of what is in quotes");
        TRY(r->s->look_up(r->s->context, name, NULL, &value));
    }
    return finite_check(r, value, out);
}

static status one_read(reader *r, double *out)
{
    blanks_skip(r);
    if (takes(r, "(")) {
        TRY(any_read(r, out));
        return takes(r, ")") ? ST_OK : complain(r, "a closing parenthesis");
    }
    if (is_digit(*r->at) || *r->at == '.') return number_read(r, out);
    if (is_letter(*r->at) || *r->at == '"') return thing_read(r, out);
    return complain(r, "a number or a name");
}

static status unary_read(reader *r, double *out);

static status power_read(reader *r, double *out)
{
    double exponent = 0.0;
    TRY(one_read(r, out));
    if (!takes(r, "^")) return ST_OK;
    TRY(unary_read(r, &exponent));
    return finite_check(r, pow(*out, exponent), out);
}

static status unary_read(reader *r, double *out)
{
    double sign = 1.0;
    if (++r->depth > FORMULA_DEPTH) return complain(r, "a formula that is nested less deeply");
    for (;;) {
        if (takes(r, "-")) {
            sign = -sign;
        } else if (!takes(r, "+")) {
            break;
        }
    }
    TRY(power_read(r, out));
    *out *= sign;
    r->depth--;
    return ST_OK;
}

static status product_read(reader *r, double *out)
{
    TRY(unary_read(r, out));
    for (;;) {
        double other = 0.0;
        const bool is_times = takes(r, "*");
        if (!is_times && !takes(r, "/")) return ST_OK;
        TRY(unary_read(r, &other));
        TRY(finite_check(r, is_times ? *out * other : *out / other, out));
    }
}

static status sum_read(reader *r, double *out)
{
    TRY(product_read(r, out));
    for (;;) {
        double other = 0.0;
        const bool is_plus = takes(r, "+");
        if (!is_plus && !takes(r, "-")) return ST_OK;
        TRY(product_read(r, &other));
        TRY(finite_check(r, is_plus ? *out + other : *out - other, out));
    }
}

static status compare_read(reader *r, double *out)
{
    static const char *const signs[] = {"<=", ">=", "==", "!=", "<", ">"};
    int which = 0;
    double other = 0.0;
    TRY(sum_read(r, out));
    while (which < COUNT_OF(signs) && !takes(r, signs[which])) which++;
    if (which == COUNT_OF(signs)) return ST_OK;
    TRY(sum_read(r, &other));
    const bool truths[] = {*out <= other, *out >= other, *out == other, *out != other,
                           *out<other, *out> other};
    *out = truths[which] ? 1.0 : 0.0;
    return ST_OK;
}

static status not_read(reader *r, double *out)
{
    bool is_negated = false;
    while (takes(r, "not")) is_negated = !is_negated;
    TRY(compare_read(r, out));
    if (is_negated) *out = *out == 0.0 ? 1.0 : 0.0;
    return ST_OK;
}

static status and_read(reader *r, double *out)
{
    TRY(not_read(r, out));
    while (takes(r, "and")) {
        double other = 0.0;
        TRY(not_read(r, &other));
        *out = *out != 0.0 && other != 0.0 ? 1.0 : 0.0;
    }
    return ST_OK;
}

static status any_read(reader *r, double *out)
{
    if (++r->depth > FORMULA_DEPTH) return complain(r, "a formula that is nested less deeply");
    TRY(and_read(r, out));
    while (takes(r, "or")) {
        double other = 0.0;
        TRY(and_read(r, &other));
        *out = *out != 0.0 || other != 0.0 ? 1.0 : 0.0;
    }
    r->depth--;
    return ST_OK;
}

status formula_evaluate(const formula_scope *s, const char *formula, double *out)
{
    reader r = {.s = s, .whole = formula, .at = formula};
    double value = 0.0;
    if (strlen(formula) > FORMULA_BYTES) {
        return fail(ST_CONFIG, "a formula of %lld bytes, at most %d expected",
                    (long long)strlen(formula), FORMULA_BYTES);
    }
    for (const char *p = formula; *p != '\0'; p++) {
        if ((unsigned char)*p < 0x80) continue;
        return fail(ST_CONFIG,
                    "a formula has a character beyond ASCII at byte %lld: expected signs "
                    "of a keyboard, such as * and -",
                    (long long)(p - formula + 1));
    }
    TRY(any_read(&r, &value));
    blanks_skip(&r);
    if (*r.at != '\0') return complain(&r, "an operator or the end");
    *out = value;
    return ST_OK;
}

// ---- texts -------------------------------------------------------------------------------------

// Writes "1234567.25" with commas before the point.
static status commas_add(text *out, const char *digits)
{
    const char *p = digits;
    if (*p == '-') {
        TRY(text_add(out, "-"));
        p++;
    }
    const size_t whole = strspn(p, "0123456789");
    for (size_t i = 0; i < whole; i++) {
        TRY(text_add(out, "%s%c", i > 0 && (whole - i) % 3 == 0 ? "," : "", p[i]));
    }
    return text_add(out, "%s", p + whole);
}

// Prints `figures` significant digits, without an exponent and without trailing zeros after the
// point.
static void figures_print(double value, int figures, char digits[400])
{
    const double size = fabs(value);
    int decimals = figures - 1 - (size > 0.0 ? (int)floor(log10(size)) : 0);
    if (decimals < 0) {
        const double unit = pow(10.0, -decimals);
        value = round(value / unit) * unit;
        decimals = 0;
    }
    snprintf(digits, 400, "%.*f", decimals > 18 ? 18 : decimals, value);
    if (strchr(digits, '.') == NULL) return;
    size_t n = strlen(digits);
    while (digits[n - 1] == '0') n--;
    if (digits[n - 1] == '.') n--;
    digits[n] = '\0';
}

static status value_add(text *out, double value, const char *form)
{
    char digits[400];
    const bool is_share = form[0] == '%';
    const char kind = form[is_share ? 1 : 0];
    const char *count = form + (is_share ? 1 : 0) + (kind == 'e' || kind == 'g' ? 1 : 0);
    const int n = *count != '\0' ? *count - '0' : 0;
    if ((*count != '\0' && (n < 0 || n > 9 || count[1] != '\0')) || (kind == 'g' && n == 0)) {
        return fail(ST_CONFIG,
                    "\":%.20s\" is no form of a number: expected such as :2, :%%1, :g3, :e1", form);
    }
    if (is_share) value *= 100.0;
    if (kind == 'e') {
        snprintf(digits, sizeof(digits), "%.*e", n, value);
        // 2.1e+25 is written 2.1e25
        char *sign = strstr(digits, "e+");
        if (sign != NULL)
            memmove(sign + 1, sign + 2 + (sign[2] == '0'), strlen(sign + 2) + (sign[2] != '0'));
    } else if (kind == 'g') {
        figures_print(value, n, digits);
    } else if (*form != '\0') {
        // Halves round up, as people round: 0.625 is 0.63, and so is a computed 0.62499999999999.
        snprintf(digits, sizeof(digits), "%.*f", n, value * (1.0 + 1e-12));
    } else if (fabs(value) < 1e15 && fabs(value - round(value)) <= 1e-9 * fabs(value)) {
        snprintf(digits, sizeof(digits), "%.0f", round(value));
    } else {
        figures_print(value, 4, digits);
    }
    TRY(commas_add(out, digits));
    return text_add(out, "%s", is_share ? "%" : "");
}

// Reads the formula and the format of "{formula:form}" after its opening brace. *at: behind the
// closing one.
static status braces_read(const char *words, const char **at, char formula[FORMULA_BYTES],
                          char form[16])
{
    const char *begin = *at, *end = begin, *colon = NULL;
    for (bool quoted = false; *end != '\0' && (quoted || *end != '}'); end++) {
        if (*end == '"') quoted = !quoted;
        if (*end == ':' && !quoted) colon = end;
    }
    if (*end == '\0') {
        return fail(ST_CONFIG, "the brace at byte %lld of a text is not closed",
                    (long long)(begin - words));
    }
    const char *last = colon != NULL ? colon : end;
    if (last - begin >= FORMULA_BYTES || (colon != NULL && end - colon > 15)) {
        return fail(ST_CONFIG,
                    "the brace at byte %lld of a text has a formula or a form that is too "
                    "long",
                    (long long)(begin - words));
    }
    memcpy(formula, begin, (size_t)(last - begin));
    formula[last - begin] = '\0';
    form[0] = '\0';
    if (colon != NULL) {
        memcpy(form, colon + 1, (size_t)(end - colon - 1));
        form[end - colon - 1] = '\0';
    }
    *at = end + 1;
    return ST_OK;
}

status formula_fill(const formula_scope *s, const char *words, text *out)
{
    char formula[FORMULA_BYTES], form[16];
    for (const char *p = words; *p != '\0';) {
        if (*p != '{' || p[1] == '{') {
            TRY(text_add_bytes(out, p, 1));
            p += *p == '{' ? 2 : 1;
            continue;
        }
        double value = 0.0;
        p++;
        TRY(braces_read(words, &p, formula, form));
        TRY(formula_evaluate(s, formula, &value));
        TRY(value_add(out, value, form));
    }
    return text_add(out, "%s", "");
}
