// Replaces personal data: e-mail addresses, IPv4 addresses, phone numbers with a country code, and
// numbers of payment and bank accounts whose check digits are right. What is replaced changes
// no rule of other filters: the document stays.
#include "data/filter/family.h"

#include <string.h>

#define AT(field) (int64_t) offsetof(filter_config, pii.field)
#define TEXT(k, f, def, h)                                                                   \
    {                                                                                        \
        .key = (k), .kind = OPTION_TEXT, .offset = AT(f), .default_text = (def), .help = (h) \
    }
static const option rows[] = {
    TEXT("pii.email", email, "email@example.com", "text that replaces e-mail addresses"),
    TEXT("pii.ip", ip, "192.0.2.1", "text that replaces IPv4 addresses of the public network"),
    TEXT("pii.phone", phone, "+1 555 0100", "text that replaces phone numbers that begin with +"),
    TEXT("pii.number", number, "<NUMBER>",
         "text that replaces numbers of payment and bank accounts (IBAN)"),
};
static const char *const rules[] = {NULL};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_local(char c)
{
    return is_letter(c) || is_digit(c) || (c != 0 && strchr("._%+-", c) != NULL);
}

// The address around the '@' at `at`: [*begin, *end). The part before it does not reach below
// `least`, which was written already.
static bool find_email(const char *s, int64_t count, int64_t at, int64_t least, int64_t *begin,
                       int64_t *end)
{
    enum { LOCAL_MAX = 64, DOMAIN_MAX = 255 };
    int64_t b = at, e = at + 1, dot = -1;
    while (b > least && at - b < LOCAL_MAX && is_local(s[b - 1])) b--;
    while (b < at && !is_letter(s[b]) && !is_digit(s[b])) b++;
    while (e < count && e - at < DOMAIN_MAX &&
           (is_letter(s[e]) || is_digit(s[e]) || s[e] == '-' || s[e] == '.')) {
        if (s[e] == '.') dot = e;
        e++;
    }
    while (e > at + 1 && (s[e - 1] == '.' || s[e - 1] == '-')) {
        e--;
        if (e == dot)
            for (dot = e - 1; dot > at && s[dot] != '.'; dot--) {
            }
    }
    if (b == at || dot <= at + 1 || e - dot < 3) return false;
    for (int64_t i = dot + 1; i < e; i++) {
        if (!is_letter(s[i])) return false;
    }
    *begin = b;
    *end = e;
    return true;
}

// The end of the IPv4 address at `at`, or -1. Addresses of private networks are no personal data.
static int64_t find_ip(const char *s, int64_t count, int64_t at)
{
    int parts[4];
    int64_t i = at;
    for (int k = 0; k < 4; k++) {
        int value = 0, digits = 0;
        while (i < count && is_digit(s[i]) && digits < 4) {
            value = 10 * value + (s[i++] - '0');
            digits++;
        }
        if (digits == 0 || digits > 3 || value > 255) return -1;
        parts[k] = value;
        if (k < 3 && (i >= count || s[i++] != '.')) return -1;
    }
    if (i < count &&
        (is_digit(s[i]) || is_letter(s[i]) || (s[i] == '.' && i + 1 < count && is_digit(s[i + 1]))))
        return -1;
    const bool is_private = parts[0] == 10 || parts[0] == 127 || parts[0] == 0 ||
                            (parts[0] == 192 && parts[1] == 168) ||
                            (parts[0] == 172 && parts[1] >= 16 && parts[1] < 32) ||
                            (parts[0] == 192 && parts[1] == 0 && parts[2] == 2);
    return is_private ? -1 : i;
}

// Digits with single blanks, dots or hyphens between them; returns the end, or -1.
static int64_t digit_run(const char *s, int64_t count, int64_t at, int most, char *digits, int *n)
{
    int64_t end = -1;
    *n = 0;
    for (int64_t i = at; i < count; i++) {
        if (is_digit(s[i])) {
            if (*n == most) return -1;
            digits[(*n)++] = s[i];
            end = i + 1;
        } else if ((s[i] != ' ' && s[i] != '-' && s[i] != '.') || end != i) {
            break;
        }
    }
    return end;
}

static bool luhn(const char *digits, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
        const int d = digits[n - 1 - i] - '0', twice = i % 2 == 1 ? 2 * d : d;
        sum += twice > 9 ? twice - 9 : twice;
    }
    return sum % 10 == 0;
}

static int64_t find_payment_number(const char *s, int64_t count, int64_t at)
{
    char digits[20];
    int n = 0;
    if (s[at] < '3' || s[at] > '6') return -1;
    const int64_t end = digit_run(s, count, at, 19, digits, &n);
    return end > 0 && n >= 13 && n <= 19 && luhn(digits, n) ? end : -1;
}

static int64_t find_phone(const char *s, int64_t count, int64_t at)
{
    char digits[16];
    int n = 0;
    if (at + 1 >= count || !is_digit(s[at + 1])) return -1;
    const int64_t end = digit_run(s, count, at + 1, 15, digits, &n);
    return end > 0 && n >= 8 ? end : -1;
}

// An IBAN: two letters, two digits, up to 30 letters and digits, perhaps in groups of four.
static int64_t find_iban(const char *s, int64_t count, int64_t at)
{
    char all[40];
    int n = 0;
    int64_t end = -1, i = at;
    for (; i < count && n < 34; i++) {
        const char c = s[i];
        if (is_digit(c) || (c >= 'A' && c <= 'Z')) {
            all[n++] = c;
            end = i + 1;
        } else if (c != ' ' || end != i) {
            break;
        }
        if (n == 2 && (is_digit(all[0]) || is_digit(all[1]))) return -1;
        if (n == 4 && (!is_digit(all[2]) || !is_digit(all[3]))) return -1;
    }
    if (n < 15 || (end < count && (is_digit(s[end]) || is_letter(s[end])))) return -1;
    unsigned rest = 0; // of the number mod 97, with the first four characters at the end
    for (int k = 0; k < n; k++) {
        const char c = all[(k + 4) % n];
        rest = is_digit(c) ? (rest * 10 + (unsigned)(c - '0')) % 97
                           : (rest * 100 + (unsigned)(c - 'A') + 10) % 97;
    }
    return rest == 1 ? end : -1;
}

typedef struct pii_hit {
    int64_t begin, end;
    const char *with;
} pii_hit;

// Personal data at byte i, whose word begins there unless it is an '@'.
static bool find_at(const filter_run *r, int64_t i, int64_t least, pii_hit *hit)
{
    const char *s = r->text;
    *hit = (pii_hit){.begin = i, .end = -1};
    if (s[i] == '@') {
        hit->with = r->c->pii.email;
        return find_email(s, r->count, i, least, &hit->begin, &hit->end);
    }
    const bool begins = i == 0 || (!is_digit(s[i - 1]) && !is_letter(s[i - 1]) && s[i - 1] != '.');
    if (!begins) return false;
    if (s[i] == '+') {
        hit->end = find_phone(s, r->count, i);
        hit->with = r->c->pii.phone;
    } else if (is_digit(s[i])) {
        hit->end = find_ip(s, r->count, i);
        hit->with = r->c->pii.ip;
        if (hit->end < 0) {
            hit->end = find_payment_number(s, r->count, i);
            hit->with = r->c->pii.number;
        }
    } else if (s[i] >= 'A' && s[i] <= 'Z') {
        hit->end = find_iban(s, r->count, i);
        hit->with = r->c->pii.number;
    }
    return hit->end > 0;
}

static status apply(filter_run *r, int *rule)
{
    data_bytes *out = NULL;
    int64_t done = 0;
    (void)rule; // it drops nothing
    for (int64_t i = 0; i < r->count; i++) {
        const char c = r->text[i];
        pii_hit hit;
        if (c != '@' && c != '+' && !is_digit(c) && !(c >= 'A' && c <= 'Z')) continue;
        if (!find_at(r, i, done, &hit)) continue;
        if (out == NULL) out = filter_output(r);
        TRY(data_bytes_add(out, r->text + done, hit.begin - done));
        TRY(data_bytes_add(out, hit.with, (int64_t)strlen(hit.with)));
        done = hit.end;
        i = hit.end - 1;
    }
    if (out == NULL) return ST_OK;
    TRY(data_bytes_add(out, r->text + done, r->count - done));
    filter_replace(r);
    return ST_OK;
}

const data_filter data_filter_pii = {
    .name = "pii",
    .about = "replaces e-mail addresses, public IP addresses, phone and account numbers",
    .rows = rows,
    .row_count = COUNT_OF(rows),
    .rules = rules,
    .version = 1,
    .open = NULL,
    .close = NULL,
    .apply = apply};
