// The guide's calculations: the test evaluates every line of a ```sum block in docs/guide with the
// formulas of claims; the result must round to the printed value.
//
//   name := formula                for the lines below it, to the end of the page
//   words   formula = value unit   at least two blanks after the words
#include "cli/explain/claims.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PAGE_BYTES = 1 << 20, LINE_BYTES = 1024, SUMS_MIN = 80 };

typedef struct page {
    const char *name;
    claims_scope scope;
    int64_t line, sums, wrong;
} page;

static double value_of(page *p, const char *formula)
{
    const formula_scope s = claims_formula_scope(&p->scope);
    double value = 0.0;
    if (formula_evaluate(&s, formula, &value) != ST_OK) {
        fail_msg("%s:%lld: %s", p->name, (long long)p->line, error_last()->text);
    }
    return value;
}

static void let(page *p, char *line, char *sign)
{
    char *end = sign, *name = NULL;
    while (end > line && end[-1] == ' ') end--;
    *end = '\0';
    const double value = value_of(p, sign + 2);
    assert_true(p->scope.let_count < CLAIM_LETS);
    assert_int_equal(arena_strdup(p->scope.a, line, &name), ST_OK);
    p->scope.lets[p->scope.let_count].name = name;
    p->scope.lets[p->scope.let_count++].value = value;
}

// "$4,608.5%" and so on: the number and half a unit of its last digit.
static double printed(const page *p, const char *words, double *within)
{
    char digits[64];
    size_t n = 0;
    int decimals = 0;
    bool has_point = false;
    words += strspn(words, " $");
    for (; n < sizeof(digits) - 1 && strchr("0123456789.,", *words) != NULL && *words != '\0';
         words++) {
        if (*words == ',') continue;
        if (has_point) decimals++;
        has_point = has_point || *words == '.';
        digits[n++] = *words;
    }
    digits[n] = '\0';
    if (n == 0) fail_msg("%s:%lld: no number after the sign", p->name, (long long)p->line);
    const double scale = *words == '%' ? 0.01 : 1.0;
    const double value = strtod(digits, NULL);
    *within = fmax(0.5001 * pow(10.0, -decimals) * scale, 1e-9 * value);
    // A large count is printed with at least four significant digits: "964,900".
    if (decimals == 0 && value >= 1e5) *within = fmax(*within, 5e-4 * value);
    return value * scale;
}

static void sum_check(page *p, char *line)
{
    char *let_sign = strstr(line, ":=");
    if (let_sign != NULL) {
        let(p, line, let_sign);
        return;
    }
    char *formula = strstr(line, "  "), *sign = NULL;
    for (char *s = line; (s = strstr(s, " = ")) != NULL; s++) sign = s;
    if (formula == NULL || sign == NULL || sign < formula) {
        fail_msg("%s:%lld: expected \"words  formula = value\": %s", p->name, (long long)p->line,
                 line);
        return;
    }
    *sign = '\0';
    double within = 0.0;
    const double wanted = printed(p, sign + 3, &within), got = value_of(p, formula);
    if (fabs(got - wanted) > within) {
        printf("%s:%lld: %s is %.10g, printed as%s\n", p->name, (long long)p->line, formula, got,
               sign + 2);
        p->wrong++;
    }
    p->sums++;
}

static int64_t page_check(arena *a, const char *path, int64_t *wrong)
{
    char *bytes = NULL, line[LINE_BYTES];
    int64_t count = 0;
    bool in_sums = false;
    page p = {.name = path, .scope = {.h = host_real(), .a = a}};
    assert_int_equal(host_read_all(host_real(), a, path, PAGE_BYTES, &bytes, &count), ST_OK);
    for (const char *at = bytes; *at != '\0';) {
        const size_t length = strcspn(at, "\n");
        p.line++;
        assert_true(length < sizeof(line));
        memcpy(line, at, length);
        line[length] = '\0';
        at += length + (at[length] == '\n');
        if (strncmp(line, "```", 3) == 0) {
            in_sums = strcmp(line, "```sum") == 0;
        } else if (in_sums && line[strspn(line, " ")] != '\0') {
            sum_check(&p, line);
        }
    }
    *wrong += p.wrong;
    return p.sums;
}

static void every_sum_is_right(void **state)
{
    (void)state;
    arena *a = NULL;
    file_names pages;
    int64_t sums = 0, wrong = 0;
    const host *h = host_real();
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(h->api->path_glob(h, a, "docs/guide/*.md", &pages), ST_OK);
    assert_true(pages.count >= 5);
    for (int64_t i = 0; i < pages.count; i++) sums += page_check(a, pages.names[i], &wrong);
    if (wrong > 0) fail_msg("%lld sums are printed wrong", (long long)wrong);
    if (sums < SUMS_MIN) fail_msg("%lld sums, at least %d expected", (long long)sums, SUMS_MIN);
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_sum_is_right)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
