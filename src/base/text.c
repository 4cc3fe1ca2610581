// Text: a growing buffer, numbers written for people and read strictly, spelling suggestions.
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// Reserves space for `more` bytes and a NUL.
static status reserve(text *t, int64_t more)
{
    int64_t wanted;
    if (!size_add(t->length, more, &wanted) || !size_add(wanted, 1, &wanted)) {
        return fail(ST_NO_MEMORY, "a text of %lld and %lld bytes is impossible",
                    (long long)t->length, (long long)more);
    }
    void *bytes = t->bytes;
    TRY(arena_grow(t->a, &bytes, &t->capacity, wanted, 1));
    t->bytes = bytes;
    return ST_OK;
}

status text_add(text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) return fail(ST_INTERNAL, "a text cannot be formatted");
    TRY(reserve(t, length));
    va_start(args, format);
    vsnprintf(t->bytes + t->length, (size_t)length + 1, format, args);
    va_end(args);
    t->length += length;
    return ST_OK;
}

status text_add_bytes(text *t, const void *bytes, int64_t count)
{
    TRY(reserve(t, count));
    if (count > 0) memcpy(t->bytes + t->length, bytes, (size_t)count);
    t->length += count;
    t->bytes[t->length] = '\0';
    return ST_OK;
}

// Bytes of the UTF-8 character at `s` (Unicode 15, table 3-7), 0 if it is malformed.
static int64_t utf8_length(const unsigned char *s, int64_t left)
{
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xC2 || s[0] > 0xF4) return 0;
    const int64_t need = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    if (need > left) return 0;
    // The second byte is narrowed where overlong forms, surrogates and the end of Unicode lie.
    const unsigned char low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    if (s[1] < low || s[1] > high) return 0;
    for (int64_t i = 2; i < need; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
    }
    return need;
}

int64_t text_mark_bytes(const char *bytes, int64_t count)
{
    return count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

bool text_is_utf16(const char *bytes, int64_t count)
{
    return count >= 2 && (memcmp(bytes, "\xff\xfe", 2) == 0 || memcmp(bytes, "\xfe\xff", 2) == 0);
}

const char *text_find_variable(const char *path)
{
    for (const char *s = strchr(path, '$'); s != NULL; s = strchr(s + 1, '$')) {
        const bool is_name = (s[1] >= 'A' && s[1] <= 'Z') || s[1] == '_';
        if (s[1] == '{' ? strchr(s + 2, '}') != NULL : is_name) return s;
    }
    return NULL;
}

bool text_is_utf8(const char *bytes, int64_t count)
{
    const unsigned char *s = (const unsigned char *)bytes;
    for (int64_t i = 0; i < count;) {
        const int64_t length = utf8_length(s + i, count - i);
        if (length == 0) return false;
        i += length;
    }
    return true;
}

// The number of leading bytes of s that JSON needs no escape for.
static int64_t json_plain(const unsigned char *s, int64_t count)
{
    int64_t plain = 0;
    while (plain < count && s[plain] >= 0x20 && s[plain] != '"' && s[plain] != '\\' &&
           s[plain] != 0x7f) {
        const int64_t n = utf8_length(s + plain, count - plain);
        if (n == 0) break;
        plain += n;
    }
    return plain;
}

// Malformed bytes become U+FFFD, so the output is always JSON.
static status add_json_escape(text *t, unsigned char c)
{
    switch (c) {
    case '"':
        return text_add(t, "\\\"");
    case '\\':
        return text_add(t, "\\\\");
    case '\n':
        return text_add(t, "\\n");
    case '\t':
        return text_add(t, "\\t");
    case '\r':
        return text_add(t, "\\r");
    default:
        return c >= 0x80 ? text_add(t, "\xEF\xBF\xBD") : text_add(t, "\\u%04x", (unsigned)c);
    }
}

status text_add_json(text *t, const char *utf8)
{
    return text_add_json_bytes(t, utf8, (int64_t)strlen(utf8));
}

status text_add_json_bytes(text *t, const char *utf8, int64_t count)
{
    const unsigned char *s = (const unsigned char *)utf8;
    TRY(text_add_bytes(t, "\"", 1));
    for (int64_t i = 0; i < count;) {
        const int64_t plain = json_plain(s + i, count - i);
        TRY(text_add_bytes(t, s + i, plain));
        i += plain;
        if (i < count) TRY(add_json_escape(t, s[i++]));
    }
    return text_add_bytes(t, "\"", 1);
}

status text_quote(arena *a, const char *word, const char **out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_@%+=:,./-";
    text t = {.a = a};
    *out = word;
    if (*word != '\0' && word[strspn(word, plain)] == '\0') return ST_OK;
    TRY(text_add(&t, "'"));
    for (const char *s = word; *s != '\0'; s++) {
        TRY(*s == '\'' ? text_add(&t, "'\\''") : text_add_bytes(&t, s, 1));
    }
    TRY(text_add(&t, "'"));
    *out = t.bytes;
    return ST_OK;
}

// Prints three significant digits.
static void three_digits(double value, const char *unit, char buffer[32])
{
    const int decimals = fabs(value) < 9.995 ? 2 : fabs(value) < 99.95 ? 1 : 0;
    snprintf(buffer, 32, "%.*f%s", decimals, value, unit);
}

const char *text_bytes_human(int64_t bytes, char buffer[32])
{
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    double value = (double)bytes;
    int unit = 0;
    while (fabs(value) >= (unit == 0 ? 1024 : 1023.5) && unit < 6) {
        value /= 1024;
        unit++;
    }
    if (unit == 0) {
        snprintf(buffer, 32, "%lld B", (long long)bytes);
    } else {
        three_digits(value, units[unit], buffer);
    }
    return buffer;
}

const char *text_count_human(double value, char buffer[32])
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};
    int unit = 0;
    while (fabs(value) >= (unit == 0 ? 999.5 : 999.95) && unit < 6) {
        value /= 1000;
        unit++;
    }
    if (unit == 0) {
        // %g drops the zeros: 950, 0.25
        snprintf(buffer, 32, "%.3g", value);
    } else {
        snprintf(buffer, 32, "%.1f%s", value, units[unit]);
    }
    return buffer;
}

const char *text_grouped(int64_t value, char buffer[32])
{
    char digits[32];
    const int n = snprintf(digits, sizeof(digits), "%lld", (long long)value);
    char *to = buffer;
    for (int i = 0; i < n; i++) {
        if (i > 0 && digits[i - 1] != '-' && (n - i) % 3 == 0) *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return buffer;
}

const char *text_plural(int64_t count, const char *ending)
{
    return count == 1 ? "" : ending;
}

const char *text_duration_human(double seconds, char buffer[32])
{
    const double size = fabs(seconds);
    if (!isfinite(seconds)) {
        snprintf(buffer, 32, "?");
    } else if (size < 0.9995e-3) {
        three_digits(seconds * 1e6, "us", buffer);
    } else if (size < 0.9995) {
        three_digits(seconds * 1e3, "ms", buffer);
    } else if (size < 59.95) {
        snprintf(buffer, 32, "%.1fs", seconds);
    } else if (size > 1e15) {
        snprintf(buffer, 32, "%.3gd", seconds / 86400);
    } else {
        const char *sign = seconds < 0 ? "-" : "";
        const long long s = llround(size);
        if (s < 3600) {
            snprintf(buffer, 32, "%s%lldm%02llds", sign, s / 60, s % 60);
        } else if (s < 86400) {
            snprintf(buffer, 32, "%s%lldh%02lldm", sign, s / 3600, s / 60 % 60);
        } else {
            snprintf(buffer, 32, "%s%lldd%02lldh", sign, s / 86400, s / 3600 % 24);
        }
    }
    return buffer;
}

enum { NEAREST_MAX_BYTES = 64 };

static int same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

// Damerau-Levenshtein distance (optimal string alignment), letter case ignored. Doubled; one is
// added if the cases differ, so that an equal spelling wins.
static int64_t distance(const char *a, const char *b)
{
    const int64_t n = (int64_t)strlen(a), m = (int64_t)strlen(b);
    if (n > NEAREST_MAX_BYTES || m > NEAREST_MAX_BYTES) return INT64_MAX;
    int64_t d[NEAREST_MAX_BYTES + 1][NEAREST_MAX_BYTES + 1];
    for (int64_t i = 0; i <= n; i++) d[i][0] = i;
    for (int64_t j = 0; j <= m; j++) d[0][j] = j;
    for (int64_t i = 1; i <= n; i++) {
        for (int64_t j = 1; j <= m; j++) {
            const int64_t change = d[i - 1][j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1);
            int64_t best = min_i64(change, min_i64(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
                best = min_i64(best, d[i - 2][j - 2] + 1);
            }
            d[i][j] = best;
        }
    }
    return 2 * d[n][m] + (strcasecmp(a, b) == 0 && strcmp(a, b) != 0 ? 1 : 0);
}

// The shortest candidate that begins with the word, ignoring case: gpt2 -> gpt2-124m.
static const char *shortest_beginning(const char *word, const char *const *candidates,
                                      int64_t count)
{
    enum { LEAST = 3 }; // letters, or half of all candidates begin with the word
    const size_t length = strlen(word);
    const char *best = NULL;
    for (int64_t i = 0; i < count && length >= LEAST; i++) {
        if (strncasecmp(word, candidates[i], length) != 0) continue;
        if (best == NULL || strlen(candidates[i]) < strlen(best)) best = candidates[i];
    }
    return best;
}

const char *text_nearest(const char *word, const char *const *candidates, int64_t count)
{
    // At most a third of the word may differ; short words may have one error.
    const int64_t most = max_i64((int64_t)strlen(word) / 3, 1);
    const char *best = NULL;
    int64_t best_distance = INT64_MAX;
    for (int64_t i = 0; i < count; i++) {
        const int64_t d = distance(word, candidates[i]);
        if (d < best_distance && d / 2 <= most && d / 2 < (int64_t)strlen(candidates[i])) {
            best = candidates[i];
            best_distance = d;
        }
    }
    return best != NULL ? best : shortest_beginning(word, candidates, count);
}

// ---- names --------------------------------------------------------------------------------------

// The next character that counts in a name.
static char name_next(const char **at)
{
    while (**at == '-' || **at == '_') (*at)++;
    const char c = **at;
    if (c != '\0') (*at)++;
    return (char)tolower((unsigned char)c);
}

static bool is_same_name(const char *a, const char *b)
{
    for (;;) {
        const char c = name_next(&a);
        if (c != name_next(&b)) return false;
        if (c == '\0') return true;
    }
}

int64_t text_find_name(const char *word, const char *const *names, int64_t count)
{
    int64_t found = -1, matches = 0;
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(word, names[i]) == 0) return i;
        if (!is_same_name(word, names[i])) continue;
        found = i;
        matches++;
    }
    return matches == 1 ? found : -1;
}

// Orders candidates for a word: those that contain it, or that it contains, come first, the
// shortest of them leading.
static int64_t remoteness(const char *word, const char *candidate)
{
    enum { LEAST = 3, APART = 1000 };
    const bool contains = strlen(word) >= LEAST - 1 && strcasestr(candidate, word) != NULL;
    const bool is_part = strlen(candidate) >= LEAST && strcasestr(word, candidate) != NULL;
    if (contains || is_part) return (int64_t)strlen(candidate);
    const int64_t d = distance(word, candidate);
    return d < INT64_MAX - APART ? APART + d : d;
}

status text_add_nearest(text *t, const char *word, const char *const *candidates, int64_t count)
{
    const char *best[TEXT_NEAREST];
    int64_t far[TEXT_NEAREST], n = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t d = remoteness(word, candidates[i]);
        int64_t at = n;
        while (at > 0 && d < far[at - 1]) at--;
        bool is_known = at == TEXT_NEAREST;
        for (int64_t k = 0; k < n && !is_known; k++) is_known = strcmp(best[k], candidates[i]) == 0;
        if (is_known) continue;
        n = min_i64(n + 1, TEXT_NEAREST);
        for (int64_t k = n - 1; k > at; k--) {
            best[k] = best[k - 1];
            far[k] = far[k - 1];
        }
        best[at] = candidates[i];
        far[at] = d;
    }
    for (int64_t i = 0; i < n; i++) {
        const char *before = i == 0 ? "; did you mean " : i == n - 1 ? " or " : ", ";
        TRY(text_add(t, "%s%s%s", before, best[i], i == n - 1 ? "?" : ""));
    }
    return ST_OK;
}

typedef struct digits {
    uint64_t value; // all digits, without the point
    int64_t count, after_point;
} digits;

// Reads digits with single underscores between them. False on overflow or a stray underscore.
static bool read_digits(const char **at, bool after_point, digits *d)
{
    const char *s = *at;
    for (; (*s >= '0' && *s <= '9') || *s == '_'; s++) {
        if (*s == '_') {
            const bool between = s > *at && s[-1] != '_' && s[1] >= '0' && s[1] <= '9';
            if (!between) return false;
            continue;
        }
        if (__builtin_mul_overflow(d->value, (uint64_t)10, &d->value)) return false;
        if (__builtin_add_overflow(d->value, (uint64_t)(*s - '0'), &d->value)) return false;
        d->count++;
        d->after_point += after_point ? 1 : 0;
    }
    *at = s;
    return true;
}

static bool suffix_factor(const char *s, uint64_t *factor)
{
    static const struct {
        const char *suffix;
        uint64_t factor;
    } suffixes[] = {
        {"", 1},
        {"k", 1000},
        {"K", 1000},
        {"M", 1000000},
        {"G", 1000000000},
        {"B", 1000000000}, // billion: of bytes, option_value.c reads it first
        {"T", UINT64_C(1000000000000)},
        {"KiB", UINT64_C(1) << 10},
        {"MiB", UINT64_C(1) << 20},
        {"GiB", UINT64_C(1) << 30},
        {"TiB", UINT64_C(1) << 40},
    };
    for (int64_t i = 0; i < COUNT_OF(suffixes); i++) {
        if (strcmp(s, suffixes[i].suffix) == 0) {
            *factor = suffixes[i].factor;
            return true;
        }
    }
    return false;
}

// An exponent of at most three digits; longer ones overflow in any case.
static bool read_exponent(const char **at, int64_t *out)
{
    const char *s = *at + 1;
    const bool negative = *s == '-';
    if (*s == '-' || *s == '+') s++;
    if (*s < '0' || *s > '9') return false;
    int64_t value = 0;
    for (int n = 0; *s >= '0' && *s <= '9'; s++, n++) {
        if (n == 3) return false;
        value = value * 10 + (*s - '0');
    }
    *out = negative ? -value : value;
    *at = s;
    return true;
}

bool text_parse_i64(const char *s, int64_t *out)
{
    const bool negative = *s == '-';
    if (*s == '-' || *s == '+') s++;
    digits d = {0};
    if (!read_digits(&s, false, &d)) return false;
    if (d.count == 0) return false;
    if (*s == '.') {
        s++;
        if (!read_digits(&s, true, &d) || d.after_point == 0) return false;
    }
    int64_t exponent = 0;
    if ((*s == 'e' || *s == 'E') && !read_exponent(&s, &exponent)) return false;
    uint64_t factor, value = d.value;
    if (!suffix_factor(s, &factor)) return false;
    if (__builtin_mul_overflow(value, factor, &value)) return false;
    exponent -= d.after_point;
    for (; exponent > 0 && value != 0; exponent--) {
        if (__builtin_mul_overflow(value, (uint64_t)10, &value)) return false;
    }
    for (; exponent < 0 && value != 0; exponent++) {
        if (value % 10 != 0) return false; // not whole
        value /= 10;
    }
    if (value > (uint64_t)INT64_MAX + (negative ? 1 : 0)) return false;
    *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

bool text_parse_f64(const char *s, double *out)
{
    // strtod also accepts blanks, hexadecimals, inf and nan, so it gets only these characters.
    if (*s == '\0' || s[strspn(s, "+-.0123456789eE")] != '\0') return false;
    char *end;
    errno = 0;
    const double value = strtod(s, &end);
    if (*end != '\0' || end == s || !isfinite(value)) return false;
    *out = value;
    return true;
}
