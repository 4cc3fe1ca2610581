// Formulas: values, errors with their place, number formats, and arbitrary bytes.
#include "base/formula.h"
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static status look_up(void *context, const char *name, const char *field, double *out)
{
    (void)context;
    if (field == NULL && strcmp(name, "x") == 0) {
        *out = 3.0;
    } else if (field != NULL && strcmp(name, "gpt-3") == 0 && strcmp(field, "layers") == 0) {
        *out = 96.0;
    } else if (field != NULL && strcmp(name, "h100") == 0) {
        *out = 989.0;
    } else {
        return fail_at(__FILE__, __LINE__, ST_NOT_FOUND, "nothing is known of %s", name);
    }
    return ST_OK;
}

static status call(void *context, const char *function, const formula_value *v, int32_t count,
                   double *out)
{
    (void)context;
    if (strcmp(function, "bytes") == 0 && count == 2 && v[0].word != NULL) {
        *out = (double)strlen(v[0].word) * v[1].number;
        return ST_OK;
    }
    return fail_at(__FILE__, __LINE__, ST_NOT_FOUND, "there is no function %s of %d", function,
                   count);
}

static const formula_scope scope = {NULL, look_up, call};

static void values_are_right(void **state)
{
    (void)state;
    static const struct {
        const char *formula;
        double value;
    } cases[] = {{"1 + 2 * 3", 7},
                 {"(1 + 2) * 3", 9},
                 {"2 ^ 3 ^ 2", 512},
                 {"-2 ^ 2", -4},
                 {"2 ^ -1", 0.5},
                 {"7 - 2 - 1", 4},
                 {"8 / 4 / 2", 1},
                 {"1_720_320 * 40%", 688128},
                 {"1e3 + 1E+2 - .5", 1099.5},
                 {"x * \"gpt-3\".layers", 288},
                 {"h100.bf16", 989},
                 {"max(1, x, 2) + min(4, 5)", 7},
                 {"ceil(560 / 80) + floor(7.9) + round(2.5)", 17},
                 {"sqrt(16) + abs(-1) + log2(8) + exp(0) + log(1)", 9},
                 {"if(x > 2, 10, 20)", 10},
                 {"x >= 3 and x <= 3 or 1 == 0", 1},
                 {"not x == 3", 0},
                 {"not not (x != 3)", 0},
                 {"near(99, 100, 1%)", 1},
                 {"near(98.9, 100, 1%)", 0},
                 {"bytes(\"abc\", x)", 9},
                 {"min(\"gpt-3\".layers, 100)", 96},
                 {"1 < 2 and 2 > 1 and 2 != 1", 1},
                 {" - - 5 ", 5}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double got = -1.0;
        if (formula_evaluate(&scope, cases[i].formula, &got) != ST_OK) {
            fail_msg("%s: %s", cases[i].formula, error_last()->text);
        }
        if (fabs(got - cases[i].value) > 1e-12 * fabs(cases[i].value)) {
            fail_msg("%s = %.17g, expected %.17g", cases[i].formula, got, cases[i].value);
        }
    }
}

static void errors_name_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *formula, *says;
        status st;
    } cases[] = {{"1 +", "ends where a number or a name", ST_CONFIG},
                 {"1 2", "has \"2\" at column 3, expected an operator", ST_CONFIG},
                 {"(1", "a closing parenthesis", ST_CONFIG},
                 {"1 / 0", "no finite value", ST_CONFIG},
                 {"sqrt(-1)", "no finite value", ST_CONFIG},
                 {"10 ^ 400", "no finite value", ST_CONFIG},
                 {"1e400", "this is no number", ST_CONFIG},
                 {"1.2.3", "this is no number", ST_CONFIG},
                 {"y", "nothing is known of y", ST_NOT_FOUND},
                 {"f(1)", "no function f of 1", ST_NOT_FOUND},
                 {"max()", "no function max of 0", ST_NOT_FOUND},
                 {"\"abc\"", "a dot and a field", ST_CONFIG},
                 {"\"abc", "a closing quote", ST_CONFIG},
                 {"f(1 2)", "a comma or a parenthesis", ST_CONFIG},
                 {"", "ends where", ST_CONFIG},
                 {"f(1,2,3,4,5,6,7,8,9,10,11,12,13)", "fewer arguments", ST_CONFIG},
                 {"2 × 3", "beyond ASCII at byte 3", ST_CONFIG},
                 {"$", "has \"$\" at column 1", ST_CONFIG}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double got = -1.0;
        assert_int_equal(formula_evaluate(&scope, cases[i].formula, &got), cases[i].st);
        assert_true(got == -1.0); // nothing is written on an error
        if (strstr(error_last()->text, cases[i].says) == NULL) {
            fail_msg("%s: %s", cases[i].formula, error_last()->text);
        }
    }
}

static void texts_are_filled(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{x} of {x + 4:0}", "3 of 7"},
        {"{1234567} and {1234567.891:2}", "1,234,567 and 1,234,567.89"},
        {"{0.301:%1} or {1/3:%0}", "30.1% or 33%"},
        {"{2.13e25:e1} {1.5e-7:e1}", "2.1e25 1.5e-07"},
        {"{140.553:g3} {0.0012345:g3} {98765:g2}", "141 0.00123 99,000"},
        {"{1/3} {1e6/7} {-1234.5678}", "0.3333 142,900 -1,235"},
        {"{{x} {\"gpt-3\".layers}", "{x} 96"},
        {"{100}% {0.5}", "100% 0.5"},
        {"{0.625:2} {-0.125:2} {2.5:0}", "0.63 -0.13 3"}};
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        text t = {.a = a};
        if (formula_fill(&scope, cases[i][0], &t) != ST_OK) fail_msg("%s", error_last()->text);
        assert_string_equal(t.bytes, cases[i][1]);
    }
    static const char *const wrong[] = {"{x", "{x:q}", "{x:g}", "{x:12}", "{x:%}x{", "{y}"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        text t = {.a = a};
        if (formula_fill(&scope, wrong[i], &t) == ST_OK) fail_msg("%s: %s", wrong[i], t.bytes);
    }
    arena_destroy(a);
}

// Random sequences of tokens give a value or an error and never crash; depth and length are
// limited.
static void any_text_is_answered(void **state)
{
    (void)state;
    static const char *const words[] = {
        "1", "x", "+", "-",   "*",   "/",   "^", "(", ")", ",",   "max(", "\"", ".", "%",
        "<", "=", "!", "not", "and", "if(", " ", "e", "_", "1e9", "{",    "}",  ":", "0"};
    char formula[FORMULA_BYTES + 64];
    arena *a = NULL;
    int good = 0;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    for (uint64_t i = 0; i < 20000; i++) {
        formula[0] = '\0';
        const uint32_t count = rng_word(5, i, 0) % 12;
        for (uint32_t k = 0; k < count; k++) {
            strcat(formula, words[rng_word(5, i, k + 1) % COUNT_OF(words)]);
        }
        double value = 0.0;
        text t = {.a = a};
        if (formula_evaluate(&scope, formula, &value) == ST_OK) {
            assert_true(isfinite(value));
            good++;
        }
        if (formula_fill(&scope, formula, &t) != ST_OK) error_clear();
    }
    assert_true(good > 50);
    double value = 0.0;
    for (int i = 0; i < 1000; i++) formula[i] = '(';
    formula[1000] = '\0';
    assert_int_equal(formula_evaluate(&scope, formula, &value), ST_CONFIG);
    assert_non_null(strstr(error_last()->text, "nested less deeply"));
    memset(formula, '-', 1000);
    memcpy(formula + 1000, "1", 2);
    assert_int_equal(formula_evaluate(&scope, formula, &value), ST_OK);
    memset(formula, '1', FORMULA_BYTES + 1);
    formula[FORMULA_BYTES + 1] = '\0';
    assert_int_equal(formula_evaluate(&scope, formula, &value), ST_CONFIG);
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_right),
        cmocka_unit_test(errors_name_their_place),
        cmocka_unit_test(texts_are_filled),
        cmocka_unit_test(any_text_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
