// A number of the completion is the answer's: the last one, or the one that a pattern finds last.
#include "train/reward/pattern.h"
#include "train/reward/reward.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 64 };

// Reads a number at `s`, with commas between digits: "1,234.5". Returns its characters, 0: none.
static int64_t number_at(const char *s, double *out)
{
    char digits[DIGITS];
    int64_t i = 0, n = 0;
    bool any = false, point = false;
    if (s[0] == '-' || s[0] == '+') digits[n++] = s[i++];
    for (; n < DIGITS - 1; i++) {
        const bool is_digit = isdigit((unsigned char)s[i]) != 0;
        const bool next = s[i] != '\0' && isdigit((unsigned char)s[i + 1]) != 0;
        if (is_digit) {
            any = true;
            digits[n++] = s[i];
        } else if (s[i] == '.' && next && !point) {
            point = true;
            digits[n++] = s[i];
        } else if (s[i] != ',' || !next || !any || point) {
            break;
        }
    }
    digits[n] = '\0';
    if (!any) return 0;
    *out = strtod(digits, NULL);
    return i;
}

static bool last_number(const char *s, double *out)
{
    bool any = false;
    while (*s != '\0') {
        const int64_t count = number_at(s, out);
        any = any || count > 0;
        s += count > 0 ? count : 1;
    }
    return any;
}

bool reward_numbers_equal(const char *a, const char *b)
{
    double x = 0.0, y = 0.0;
    if (!last_number(a, &x) || !last_number(b, &y)) return false;
    return fabs(x - y) <= 1e-9 * fmax(1.0, fmax(fabs(x), fabs(y)));
}

static status check(const reward_context *x, text *warning)
{
    (void)warning;
    return x->keys->pattern != NULL ? reward_pattern_check(x->keys->pattern) : ST_OK;
}

static status score(const reward_context *x, const reward_case *c, double *out)
{
    pattern_match found = {.any = false};
    char *number = NULL;
    *out = 0.0;
    if (x->keys->pattern == NULL) {
        *out = reward_numbers_equal(c->completion, c->answer) ? 1.0 : 0.0;
        return ST_OK;
    }
    TRY(reward_pattern_last(x->keys->pattern, c->completion, &found));
    if (!found.any) return ST_OK;
    number = strndup(c->completion + found.begin, (size_t)(found.end - found.begin));
    if (number == NULL) return fail(ST_NO_MEMORY, "no memory for a number");
    *out = reward_numbers_equal(number, c->answer) ? 1.0 : 0.0;
    free(number);
    return ST_OK;
}

const reward_rule reward_numeric = {
    .name = "numeric", .needs_answer = true, .check = check, .one = score};
