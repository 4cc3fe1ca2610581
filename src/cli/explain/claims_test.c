// Tests claims: the project's own file against the reference list, row by row, and users' files
// with mistakes.
//
// A row of the list matches the claim that contains its words; its verdict must equal ours, and
// every number of its answer must be among the results of our formulas, to the digits that it is
// printed with.
#include "cli/explain/claims.h"
#include "fixtures/base/test_paths.h"

#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS_MAX = 512, COLUMNS = 5, WORDS_BYTES = 512 };

typedef struct sheet {
    char *cells[ROWS_MAX][COLUMNS];
    int64_t count;
} sheet;

// Splits comma-separated values with quotes in place. The first row holds the headers.
static void sheet_read(char *bytes, sheet *out)
{
    char *from = bytes, *to = bytes;
    for (; *from != '\0'; from++) { // lines may end in two characters
        if (*from != '\r') *to++ = *from;
    }
    *to = '\0';
    from = to = bytes;
    for (out->count = 0; *from != '\0' && out->count < ROWS_MAX; out->count++) {
        for (int column = 0; column < COLUMNS; column++) {
            out->cells[out->count][column] = to;
            const bool quoted = *from == '"';
            for (from += quoted;; from++) {
                if (quoted && *from == '"' && from[1] == '"') {
                    from++;
                } else if (quoted ? *from == '"' : *from == ',' || *from == '\n' || *from == '\0') {
                    break;
                }
                assert_true(*from != '\0');
                *to++ = *from;
            }
            from += quoted;
            const bool is_last = *from == '\n' || *from == '\0';
            assert_true(is_last == (column == COLUMNS - 1));
            if (*from != '\0') from++;
            *to++ = '\0';
        }
    }
}

// Keeps lower-case letters, digits and bytes beyond ASCII.
static void normalise(const char *words, char out[WORDS_BYTES])
{
    size_t n = 0;
    for (const char *p = words; *p != '\0' && n < WORDS_BYTES - 1; p++) {
        const unsigned char c = (unsigned char)*p;
        if (isalnum(c) || c >= 0x80) out[n++] = (char)tolower(c);
    }
    out[n] = '\0';
}

typedef struct number {
    double value;
    int decimals;
    bool is_power; // written with an exponent
} number;

// Reads digits with commas and a point, and possibly a power of ten. Returns the position after
// them.
static const char *number_read(const char *p, number *out)
{
    char digits[64];
    size_t n = 0;
    bool has_point = false;
    *out = (number){0};
    for (; n < sizeof(digits) / 2; p++) {
        const bool is_comma = *p == ',' && isdigit((unsigned char)p[1]) &&
                              isdigit((unsigned char)p[2]) && isdigit((unsigned char)p[3]);
        const bool is_point = *p == '.' && !has_point && isdigit((unsigned char)p[1]);
        if (is_comma) continue;
        if (!isdigit((unsigned char)*p) && !is_point) break;
        if (has_point) out->decimals++;
        has_point = has_point || is_point;
        digits[n++] = *p;
    }
    if (*p == 'e' && isdigit((unsigned char)p[1])) {
        out->is_power = true;
        do {
            digits[n++] = *p++;
        } while (isdigit((unsigned char)*p) && n < sizeof(digits) - 1);
    }
    digits[n] = '\0';
    out->value = strtod(digits, NULL);
    return p;
}

// The next separate number ("fp32" and "tp8" have none); false: there is none.
static bool number_next(const char **at, number *out)
{
    for (const char *p = *at; *p != '\0'; p++) {
        const char before = p == *at ? ' ' : p[-1];
        if (!isdigit((unsigned char)*p)) continue;
        if (!isalnum((unsigned char)before) && before != '_' && before != '.') {
            *at = number_read(p, out);
            return true;
        }
        while (isalnum((unsigned char)p[1]) || p[1] == '.') p++;
    }
    return false;
}

static bool has_number(const char *words, const number *wanted)
{
    number own;
    const double printed =
        wanted->is_power ? 0.05 * wanted->value : 0.501 * pow(10.0, -wanted->decimals);
    const double within = fmax(printed, 5e-4 * wanted->value);
    while (number_next(&words, &own)) {
        if (fabs(own.value - wanted->value) <= within) return true;
    }
    return false;
}

typedef struct fixture {
    arena *a;
    claim_list l;
} fixture;

static void own_claims(fixture *f, char **yaml)
{
    int64_t bytes = 0;
    memset(f, 0, sizeof(*f));
    assert_int_equal(arena_create("test", 0, &f->a), ST_OK);
    const host *h = host_real();
    status st = host_read_all(h, f->a, "catalog/claims.yaml", CLAIMS_BYTES, yaml, &bytes);
    if (st == ST_OK) st = claims_answer(h, f->a, *yaml, bytes, "claims.yaml", &f->l);
    if (st != ST_OK) fail_msg("%s", error_last()->text);
}

static void row_check(const claim_list *l, char *const cells[COLUMNS])
{
    char wanted[WORDS_BYTES], own[WORDS_BYTES];
    const claim_answer *c = NULL;
    normalise(cells[0], wanted);
    for (int64_t i = 0; i < l->count; i++) {
        normalise(l->items[i].claim, own);
        if (strstr(own, wanted) == NULL) continue;
        if (c != NULL)
            fail_msg("\"%s\" is in two claims: %s %s", cells[0], c->claim, l->items[i].claim);
        c = &l->items[i];
    }
    if (c == NULL) fail_msg("no claim has \"%s\"", cells[0]);
    if (c == NULL) return; // for the compiler
    if (strcmp(cells[3], claim_verdict_name(c->verdict)) != 0) {
        fail_msg("\"%s\" is %s, expected %s", cells[0], claim_verdict_name(c->verdict), cells[3]);
    }
    number n;
    for (const char *p = cells[2]; number_next(&p, &n);) {
        if (has_number(c->computed, &n)) continue;
        fail_msg("\"%s\": %.10g is not in \"%s\", expected \"%s\"", cells[0], n.value, c->computed,
                 cells[2]);
    }
}

static void every_row_of_the_list_is_reached(void **state)
{
    (void)state;
    char path[1024], *csv = NULL, *yaml = NULL;
    int64_t bytes = 0;
    file_info info;
    const host *h = host_real();
    assert_int_equal(h->api->path_info(h, test_shared("validation/claims.csv", path), &info),
                     ST_OK);
    if (info.kind != FILE_KIND_REGULAR) {
        printf("skipped: %s is not there\n", path);
        skip();
    }
    fixture f;
    sheet *s = NULL;
    own_claims(&f, &yaml);
    assert_int_equal(arena_new(f.a, 1, &s), ST_OK);
    assert_int_equal(host_read_all(h, f.a, path, CLAIMS_BYTES, &csv, &bytes), ST_OK);
    sheet_read(csv, s);
    assert_true(s->count > 100);
    assert_string_equal(s->cells[0][3], "verdict");
    for (int64_t i = 1; i < s->count; i++) row_check(&f.l, s->cells[i]);
    arena_destroy(f.a);
}

// Computed figures come from formulas: no separate number occurs outside of braces.
static void answers_are_computed(void **state)
{
    (void)state;
    fixture f;
    char *yaml = NULL;
    int64_t lines = 0;
    own_claims(&f, &yaml);
    for (const char *p = yaml; (p = strstr(p, "\ncomputed: ")) != NULL;) {
        char words[2 * FORMULA_BYTES];
        size_t n = 0;
        int depth = 0;
        for (p += strlen("\ncomputed: "); *p != '\n' && n < sizeof(words) - 1; p++) {
            if (*p == '{') depth++;
            if (depth == 0) words[n++] = *p;
            if (*p != '}') continue;
            words[n++] = '\'';
            depth--;
        }
        words[n] = '\0';
        const char *at = words;
        number found;
        if (number_next(&at, &found))
            fail_msg("%g stands outside of braces in %s", found.value, words);
        lines++;
    }
    assert_int_equal(lines, f.l.count);
    arena_destroy(f.a);
}

static void mistakes_are_refused_with_their_place(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"claim: a\n", "needs `claim` and `computed`"},
        {"---\n\nclaim: a\ncomputed: b\n", "mine.yaml:3:8: a claim needs `match`"},
        {"claim: a\ncomputed: b\njudged: wrong\n", "needs a `why`"},
        {"claim: a\ncomputed: b\njudged: wrong\nmatch: 1 == 1\n", "or `judged` alone"},
        {"claim: a\ncomputed: \"{x}\"\nmatch: 1 == 1\n", "unknown name x"},
        {"claim: a\ncomputed: b\nlet: [yeer = 2]\nmatch: yer == 2\n", "did you mean yeer"},
        {"claim: a\ncomputed: b\nlet: [2 = 2]\nmatch: 1 == 1\n", "name = formula"},
        {"claim: a\ncomputed: b\nmatch: '\"h100\".bf61 > 1'\n", "has a field \"bf61\""},
        {"claim: a\ncomputed: b\nmatch: '\"h1000\".bf16 > 1'\n", "h1000"},
        {"claim: a\ncomputed: b\nmatch: '\"lama3-8b\".layers > 1'\n", "did you mean llama3-8b"},
        {"claim: a\ncomputed: b\nmatch: kept(0, 1, 2, 3)\n", "out of its limits"},
        {"claim: a\ncomputed: b\nmatch: bubble(\"1f1c\", 2, 3)\n", "no schedule \"1f1c\""},
        {"claim: a\ncomputed: b\nmatch: bubble(2, 2, 3)\n", "expected a schedule"},
        {"claim: a\ncomputed: b\nmatch: bytes(\"fp99\")\n", "no such type"},
        {"claim: a\ncomputed: b\nmatch: bubble(\"1f1b\", 4000, 60000) > 0\n", "more than"},
        {"claim: a\ncomputed: b\nmatch: out_for(1e9, 99%) > 0\n", "out of its limits"},
        {"claim: a\ncomputed: b\nmatch: '\"a/x.yaml\".bf16 > 1'\n", "not files"},
        {"claim: a\ncomputed: b\nmatch: days(1)\n", "no function days of 1"},
        {"clame: a\n", "unknown key \"clame\""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        arena *a = NULL;
        claim_list l = {0};
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        const status st = claims_answer(host_real(), a, cases[i][0], (int64_t)strlen(cases[i][0]),
                                        "mine.yaml", &l);
        if (st == ST_OK) fail_msg("taken: %s", cases[i][0]);
        if (strstr(error_last()->text, cases[i][1]) == NULL) {
            fail_msg("%s: %s", cases[i][0], error_last()->text);
        }
        arena_destroy(a);
    }
}

static void users_add_their_own(void **state)
{
    (void)state;
    static const char yaml[] = "# mine\n---\nclaim: It costs nothing.\nlet:\n  - n = 64\n"
                               "  - price = max(2, 3) * n\ncomputed: \"${price * 24} a day\"\n"
                               "match: price == 0\nonly_if: n == 64\nwhy: \"of {n} GPUs\"\n---\n";
    arena *a = NULL;
    claim_list l = {0};
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    if (claims_answer(host_real(), a, yaml, (int64_t)strlen(yaml), "mine.yaml", &l) != ST_OK) {
        fail_msg("%s", error_last()->text);
    }
    assert_int_equal(l.count, 1);
    assert_string_equal(l.items[0].computed, "$4,608 a day");
    assert_string_equal(l.items[0].why, "of 64 GPUs");
    assert_int_equal(l.items[0].verdict, CLAIM_ONLY_IF);
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_of_the_list_is_reached),
        cmocka_unit_test(answers_are_computed),
        cmocka_unit_test(mistakes_are_refused_with_their_place),
        cmocka_unit_test(users_add_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
