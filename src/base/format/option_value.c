// Parses values from text into a struct: one reader per kind of option.
//
// option_print.c is its inverse. A test checks over every row that a printed value reads back to an
// equal value. Types come from the row and never from the look of the text, so `3e-4` is a number
// where the row wants a number, and a text where it wants a text.
//
// An error is one line: the key, the value found, the values expected, the nearest valid word.
// Texts come from outside and may hold any byte but NUL, so option_shown() cleans the ones that it
// repeats.
#include "base/format/options_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

// ---- complaints --------------------------------------------------------------------------------

bool option_is_share(const option *o)
{
    return o->kind == OPTION_REAL && o->unit != NULL && strcmp(o->unit, "share") == 0;
}

// A time of which a number alone means seconds.
static bool is_seconds(const option *o)
{
    return o->kind == OPTION_TIME && o->unit != NULL && strcmp(o->unit, "seconds") == 0;
}

static const char *wanted(const option *o)
{
    if (option_is_share(o)) return "a share such as 0.01, 1%, yes or no";
    if (is_seconds(o)) return "a number of seconds, or a time such as 30s, 5m, 12h or 2d";
    switch (o->kind) {
    case OPTION_BOOL:
        return "true or false";
    case OPTION_INT:
        return "a whole number such as 500, 2k, 1.5M, 1B or 1e9";
    case OPTION_REAL:
        return "a number";
    case OPTION_TEXT:
        return "a text";
    case OPTION_PATH:
        return "a path";
    case OPTION_CHOICE:
        return "a word";
    case OPTION_BYTES:
        return "a size such as 512MiB or 4GiB";
    case OPTION_TIME:
        return "a time such as 30s, 5m, 12h or 2d";
    case OPTION_LIST:
        return "a list";
    case OPTION_PATHS:
        return "a path, a list of paths, or paths with weights";
    case OPTION_RANGE:
        return "a range of steps such as 10:20";
    case OPTION_RAMP:
        return "ascending step=size pairs such as 0=8,100=16";
    case OPTION_SHARE:
        return "a share such as 0.05, or paths";
    }
    return "?";
}

typedef struct place {
    const char *where; // NULL: none
    const char *folder;
} place;

static status refuse(const option *o, const place *p, status code, const char *value,
                     const char *why)
{
    char shown[OPTION_SHOWN_BYTES];
    return fail(code, "%s%s%s = %s: %s", p->where == NULL ? "" : p->where,
                p->where == NULL ? "" : "  ", o->key, option_shown(value, shown), why);
}

static status refuse_type(const option *o, const place *p, const char *value)
{
    char why[128] = "expected ";
    strncat(why, wanted(o), sizeof(why) - strlen(why) - 1);
    return refuse(o, p, ST_CONFIG_TYPE, value, why);
}

// A limit as a person would write it: "50ms".
static const char *limit_text(const option *o, double limit, char out[32])
{
    if (o->kind != OPTION_TIME || !(limit > 0.0)) {
        (void)snprintf(out, 32, "%.10g", limit);
        return out;
    }
    const int64_t ns = (int64_t)limit;
    const option_unit *u = option_unit_of(ns, option_time_units, OPTION_TIME_UNITS);
    (void)snprintf(out, 32, "%lld%s", (long long)(ns / u->factor), u->name);
    return out;
}

static status check_limits(const option *o, const place *p, const char *value, double number)
{
    if (o->min == 0.0 && o->max == 0.0) return ST_OK;
    if (number >= o->min && (number <= o->max || o->max >= OPTION_NO_MAX)) return ST_OK;
    char shown[OPTION_SHOWN_BYTES], least[32], most[32];
    const char *where = p->where == NULL ? "" : p->where;
    const char *gap = p->where == NULL ? "" : "  ";
    (void)limit_text(o, o->min, least);
    if (o->max >= OPTION_NO_MAX) {
        return fail(ST_CONFIG_RANGE, "%s%s%s = %s: expected at least %s", where, gap, o->key,
                    option_shown(value, shown), least);
    }
    return fail(ST_CONFIG_RANGE, "%s%s%s = %s: expected %s to %s", where, gap, o->key,
                option_shown(value, shown), least, limit_text(o, o->max, most));
}

// ---- single values -----------------------------------------------------------------------------

static bool parse_bool(const char *s, bool *out)
{
    static const char *const no[] = {"false", "no", "off"}, *const yes[] = {"true", "yes", "on"};
    for (int64_t i = 0; i < COUNT_OF(no); i++) {
        if (strcasecmp(s, no[i]) == 0 || strcasecmp(s, yes[i]) == 0) {
            *out = strcasecmp(s, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

// digits * factor, exact: "1.5" of a unit is fine if the result is a whole number.
static bool scale(const char *digits, int64_t factor, int64_t *out)
{
    int64_t whole;
    double number;
    if (text_parse_i64(digits, &whole)) return size_mul(whole, factor, out);
    if (!text_parse_f64(digits, &number)) return false;
    number *= (double)factor;
    if (number > 0x1p53 || number != floor(number)) return false;
    *out = (int64_t)number;
    return true;
}

static const option_unit *find_unit(const char *name, size_t length, const option_unit *units,
                                    int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const bool same = strncmp(name, units[i].name, length) == 0;
        if (same && units[i].name[length] == '\0') return &units[i];
    }
    return NULL;
}

// "12", "1.5GiB", "1h30m": the sum of numbers each followed by one of the units.
static bool parse_units(const char *s, const option_unit *units, int64_t count, int64_t *out)
{
    int64_t sum = 0;
    if (*s == '\0') return false;
    while (*s != '\0') {
        char digits[40];
        const size_t n = strspn(s, "0123456789._");
        if (n == 0 || n >= sizeof(digits)) return false;
        memcpy(digits, s, n);
        digits[n] = '\0';
        s += n;
        while (*s == ' ') s++;
        const size_t length = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
        const option_unit *unit = find_unit(s, length, units, count);
        int64_t part;
        if (unit == NULL || !scale(digits, unit->factor, &part)) return false;
        if (!size_add(sum, part, &sum)) return false;
        s += length;
        while (*s == ' ') s++;
    }
    *out = sum;
    return true;
}

const option_unit option_byte_units[OPTION_BYTE_UNITS] = {
    {"", 1},
    {"B", 1},
    {"KiB", INT64_C(1) << 10},
    {"MiB", INT64_C(1) << 20},
    {"GiB", INT64_C(1) << 30},
    {"TiB", INT64_C(1) << 40},
    {"k", 1000},
    {"kB", 1000},
    {"M", 1000000},
    {"MB", 1000000},
    {"G", 1000000000},
    {"GB", 1000000000},
    {"T", 1000000000000},
    {"TB", 1000000000000},
};
const option_unit option_time_units[OPTION_TIME_UNITS] = {
    {"ns", 1},
    {"us", 1000},
    {"ms", 1000000},
    {"s", 1000000000},
    {"m", INT64_C(60) * 1000000000},
    {"h", INT64_C(3600) * 1000000000},
    {"d", INT64_C(86400) * 1000000000},
};

const option_unit *option_unit_of(int64_t value, const option_unit *units, int64_t count)
{
    const option_unit *best = &units[0];
    for (int64_t i = 0; i < count; i++) {
        if (value % units[i].factor == 0 && units[i].factor > best->factor) best = &units[i];
    }
    return best;
}

static bool parse_time(const option *o, const char *s, int64_t *out)
{
    if (strcmp(s, "0") == 0) {
        *out = 0;
        return true;
    }
    if (is_seconds(o) && scale(s, 1000000000, out)) return true;
    return parse_units(s, option_time_units, OPTION_TIME_UNITS, out);
}

// "1%" where all numbers of the row lie between 0 and 1; "yes" and "no" of a share.
static bool parse_share(const option *o, const char *s, double *out)
{
    char digits[40];
    const size_t n = strlen(s);
    bool truth = false;
    if (option_is_share(o) && parse_bool(s, &truth)) {
        *out = truth ? 1.0 : 0.0;
        return true;
    }
    if (o->min < 0.0 || o->max <= 0.0 || o->max > 1.0) return false;
    if (n < 2 || n > sizeof(digits) || s[n - 1] != '%') return false;
    memcpy(digits, s, n - 1);
    digits[n - 1] = '\0';
    if (!text_parse_f64(digits, out)) return false;
    *out /= 100.0;
    return true;
}

static bool parse_range(const char *s, option_range *out)
{
    const char *colon = strchr(s, ':');
    char first[32];
    const size_t n = colon == NULL ? strlen(s) : (size_t)(colon - s);
    if (n >= sizeof(first)) return false;
    memcpy(first, s, n);
    first[n] = '\0';
    option_range r;
    if (!text_parse_i64(first, &r.begin)) return false;
    r.end = r.begin;
    if (colon != NULL && !text_parse_i64(colon + 1, &r.end)) return false;
    *out = r;
    return r.begin >= 1 && r.end >= r.begin;
}

static status parse_choice(const option *o, const place *p, const char *value, int32_t *out)
{
    enum { CHOICES_MAX = 32 };
    char words[CHOICES_MAX][OPTION_WORD_BYTES];
    const char *names[CHOICES_MAX];
    int64_t count = 0;
    const char *list = o->choices;
    bool truth = false; // "true" is "yes" where yes is a choice: YAML has both
    const char *synonym = parse_bool(value, &truth) ? (truth ? "yes" : "no") : value;
    while (count < CHOICES_MAX && option_next_word(&list, words[count])) {
        if (strcmp(words[count], value) == 0 || strcmp(words[count], synonym) == 0) {
            *out = (int32_t)count;
            return ST_OK;
        }
        names[count] = words[count];
        count++;
    }
    for (int64_t i = 0; i < count; i++) {
        if (strcasecmp(words[i], value) != 0) continue;
        *out = (int32_t)i;
        return ST_OK;
    }
    const char *near =
        strlen(value) > OPTION_KEY_BYTES_MAX ? NULL : text_nearest(value, names, count);
    char why[512];
    snprintf(why, sizeof(why), "expected one of %s%s%s%s", o->choices,
             near == NULL ? "" : "; did you mean \"", near == NULL ? "" : near,
             near == NULL ? "" : "\"?");
    return refuse(o, p, ST_CONFIG_RANGE, value, why);
}

static bool is_kept_word(const option *o, const char *value)
{
    char word[OPTION_WORD_BYTES];
    const char *list = o->choices;
    while (option_next_word(&list, word)) {
        if (strcmp(word, value) == 0) return true;
    }
    return false;
}

static status make_path(const option *o, const place *p, arena *a, const char *value, char **out)
{
    if (*value == '\0')
        return refuse(o, p, ST_CONFIG_TYPE, value, "expected a path, found nothing");
    while (value[0] == '.' && value[1] == '/') {
        value += 2;
        while (*value == '/') value++;
    }
    if (*value == '\0') value = ".";
    const bool stays = value[0] == '/' || p->folder == NULL || p->folder[0] == '\0' ||
                       strcmp(p->folder, ".") == 0 || is_kept_word(o, value);
    if (stays) return arena_strdup(a, value, out);
    if (strcmp(value, ".") == 0) return arena_strdup(a, p->folder, out);
    const bool slash = p->folder[strlen(p->folder) - 1] == '/';
    return arena_format(a, out, "%s%s%s", p->folder, slash ? "" : "/", value);
}

enum { VALUE_BYTES_MAX = 65536 }; // of a list, which grows because paths are joined to folders

// ---- lists -------------------------------------------------------------------------------------

status option_add_item(text *list, const char *item, int64_t bytes)
{
    if (list->length > 0) TRY(text_add_bytes(list, ",", 1));
    for (int64_t i = 0; i < bytes; i++) {
        if (item[i] == ',' || item[i] == '\\' || item[i] == ' ') {
            TRY(text_add_bytes(list, "\\", 1));
        }
        TRY(text_add_bytes(list, item + i, 1));
    }
    return ST_OK;
}

static bool is_escape(const char *s)
{
    return s[0] == '\\' && (s[1] == ',' || s[1] == '\\' || s[1] == ' ');
}

// Takes one item up to a comma outside escapes, without the blanks around it.
static status take_item(arena *a, const char **at, const char **out)
{
    const char *s = *at;
    while (*s == ' ') s++;
    int64_t raw = 0;
    while (s[raw] != '\0' && s[raw] != ',') raw += is_escape(s + raw) ? 2 : 1;
    char *item;
    TRY(arena_alloc(a, raw + 1, (void **)&item));
    int64_t n = 0, kept = 0; // kept: up to the last byte that is an escaped one or no blank
    for (int64_t i = 0; i < raw; i++) {
        const bool escaped = is_escape(s + i);
        if (escaped) i++;
        item[n++] = s[i];
        if (escaped || s[i] != ' ') kept = n;
    }
    item[kept] = '\0';
    *at = s + raw;
    *out = item;
    return ST_OK;
}

static status split_list(arena *a, const char *value, option_list *out)
{
    int64_t capacity = 1;
    for (const char *s = value; *s != '\0'; s++) capacity += *s == ',';
    option_list l = {0};
    TRY(arena_new(a, capacity, &l.items));
    const char *s = value;
    while (*s == ' ') s++;
    if (*s != '\0') {
        TRY(take_item(a, &s, &l.items[l.count++]));
        while (*s == ',') {
            s++;
            TRY(take_item(a, &s, &l.items[l.count++]));
        }
    }
    *out = l;
    return ST_OK;
}

static status parse_items(const option *o, const place *p, arena *a, const char *value,
                          option_list *out)
{
    if (strlen(value) > VALUE_BYTES_MAX) {
        return refuse(o, p, ST_CONFIG_RANGE, value, "expected a list of at most 64 KiB");
    }
    option_list l;
    TRY(split_list(a, value, &l));
    for (int64_t i = 0; i < l.count; i++) {
        if (l.items[i][0] == '\0') {
            return refuse(o, p, ST_CONFIG_TYPE, value, "there is an empty item between the commas");
        }
    }
    *out = l;
    return ST_OK;
}

static status parse_paths(const option *o, const place *p, arena *a, const char *value,
                          option_list *out)
{
    option_list l;
    TRY(parse_items(o, p, a, value, &l));
    double number;
    if (o->kind == OPTION_SHARE && l.count == 1 && text_parse_f64(l.items[0], &number)) {
        TRY(check_limits(o, p, value, number));
        *out = l;
        return ST_OK;
    }
    for (int64_t i = 0; i < l.count; i++) {
        char *item, *path;
        TRY(arena_strdup(a, l.items[i], &item));
        char *equals = strrchr(item, '=');
        if (equals != NULL && text_parse_f64(equals + 1, &number)) {
            if (number <= 0.0) {
                return refuse(o, p, ST_CONFIG_RANGE, item, "expected a weight above 0");
            }
            *equals = '\0';
            TRY(make_path(o, p, a, item, &path));
            TRY(arena_format(a, &path, "%s=%s", path, equals + 1));
        } else {
            TRY(make_path(o, p, a, item, &path));
        }
        l.items[i] = path;
    }
    *out = l;
    return ST_OK;
}

static status parse_ramp(const option *o, const place *p, arena *a, const char *value,
                         option_list *out)
{
    option_list l;
    TRY(parse_items(o, p, a, value, &l));
    int64_t last = -1;
    for (int64_t i = 0; i < l.count; i++) {
        char *pair;
        TRY(arena_strdup(a, l.items[i], &pair));
        char *equals = strchr(pair, '=');
        int64_t step, size;
        if (equals == NULL) return refuse_type(o, p, value);
        *equals = '\0';
        if (!text_parse_i64(pair, &step) || !text_parse_i64(equals + 1, &size) || step <= last) {
            return refuse_type(o, p, value);
        }
        TRY(check_limits(o, p, value, (double)size));
        last = step;
        TRY(arena_format(a, &pair, "%lld=%lld", (long long)step, (long long)size));
        l.items[i] = pair;
    }
    *out = l;
    return ST_OK;
}

// ---- all kinds ---------------------------------------------------------------------------------

static status set_number(const option *o, const place *p, void *field, const char *value)
{
    int64_t whole = 0;
    double number = 0.0;
    bool is_number = false;
    const bool is_word = o->kind == OPTION_INT && o->choices != NULL;
    if (is_word && strcmp(value, o->choices) == 0) {
        *(int64_t *)field = o->word;
        return ST_OK;
    }
    if (o->kind == OPTION_REAL) {
        is_number = text_parse_f64(value, &number);
        if (!is_number && text_parse_i64(value, &whole)) { // 500k
            is_number = true;
            number = (double)whole;
        }
        is_number = is_number || parse_share(o, value, &number);
    }
    if (o->kind == OPTION_INT) is_number = text_parse_i64(value, &whole);
    if (o->kind == OPTION_BYTES) {
        is_number = parse_units(value, option_byte_units, OPTION_BYTE_UNITS, &whole) ||
                    (strchr(value, 'B') == NULL && text_parse_i64(value, &whole)); // B: bytes
    }
    if (o->kind == OPTION_TIME) is_number = parse_time(o, value, &whole);
    if (o->kind == OPTION_BYTES && whole < 0) is_number = false;
    if (!is_number) return refuse_type(o, p, value);
    TRY(check_limits(o, p, value, o->kind == OPTION_REAL ? number : (double)whole));
    if (o->kind == OPTION_REAL) {
        *(double *)field = number;
    } else {
        *(int64_t *)field = whole;
    }
    return ST_OK;
}

static status set_text(const option *o, const place *p, arena *a, void *field, const char *value)
{
    char *copy;
    if (o->kind == OPTION_TEXT) {
        TRY(arena_strdup(a, value, &copy));
    } else {
        TRY(make_path(o, p, a, value, &copy));
    }
    *(const char **)field = copy;
    return ST_OK;
}

static status set_list(const option *o, const place *p, arena *a, void *field, const char *value)
{
    option_list list;
    if (o->kind == OPTION_LIST) {
        TRY(parse_items(o, p, a, value, &list));
    } else if (o->kind == OPTION_RAMP) {
        TRY(parse_ramp(o, p, a, value, &list));
    } else {
        TRY(parse_paths(o, p, a, value, &list));
    }
    *(option_list *)field = list;
    return ST_OK;
}

status option_set(const option *o, arena *a, void *target, const char *value, const char *where,
                  const char *folder)
{
    void *field = (char *)target + o->offset;
    const place p = {.where = where, .folder = folder};
    switch (o->kind) {
    case OPTION_BOOL:
        if (!parse_bool(value, (bool *)field)) return refuse_type(o, &p, value);
        return ST_OK;
    case OPTION_INT:
    case OPTION_REAL:
    case OPTION_BYTES:
    case OPTION_TIME:
        return set_number(o, &p, field, value);
    case OPTION_TEXT:
    case OPTION_PATH:
        return set_text(o, &p, a, field, value);
    case OPTION_CHOICE:
        return parse_choice(o, &p, value, (int32_t *)field);
    case OPTION_LIST:
    case OPTION_PATHS:
    case OPTION_SHARE:
    case OPTION_RAMP:
        return set_list(o, &p, a, field, value);
    case OPTION_RANGE: {
        option_range range;
        if (!parse_range(value, &range)) return refuse_type(o, &p, value);
        *(option_range *)field = range;
        return ST_OK;
    }
    }
    return fail(ST_INTERNAL, "option %s has no known kind", o->key);
}
