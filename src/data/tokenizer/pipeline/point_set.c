// Sets of code points as lists of ranges.
#include "data/tokenizer/pipeline/point_set.h"

#include <stdlib.h>
#include <string.h>

status point_set_add(point_set *s, uint32_t first, uint32_t last)
{
    if (s->count == s->capacity) {
        const int64_t grown = max_i64(32, 2 * s->capacity);
        unicode_range *moved = realloc(s->items, (size_t)grown * sizeof(*moved));
        if (moved == NULL) return fail(ST_NO_MEMORY, "no memory for a set of characters");
        s->items = moved;
        s->capacity = grown;
    }
    s->items[s->count++] = (unicode_range){.first = first, .last = last};
    return ST_OK;
}

status point_set_add_set(point_set *s, const point_set *other)
{
    for (int64_t i = 0; i < other->count; i++) {
        TRY(point_set_add(s, other->items[i].first, other->items[i].last));
    }
    return ST_OK;
}

static status add_categories(point_set *s, uint32_t mask)
{
    int64_t count = 0;
    const uint32_t *runs = unicode_category_runs(&count);
    for (int64_t i = 0; i < count; i++) {
        if ((mask >> (runs[i] & 31) & 1) == 0) continue;
        const uint32_t last = i + 1 < count ? (runs[i + 1] >> 5) - 1 : POINT_MAX;
        TRY(point_set_add(s, runs[i] >> 5, last));
    }
    return ST_OK;
}

status point_set_add_named(point_set *s, unicode_name name)
{
    const unicode_named *set = unicode_named_set(name);
    for (int64_t i = 0; i < set->count; i++) {
        TRY(point_set_add(s, set->ranges[i].first, set->ranges[i].last));
    }
    return set->categories != 0 ? add_categories(s, set->categories) : ST_OK;
}

// Whether `name` is `wanted`, which is in lower case.
static bool is_name(const char *name, int64_t count, const char *wanted)
{
    for (int64_t i = 0; i < count; i++) {
        char c = name[i];
        if (c == ' ' || c == '_' || c == '-') continue;
        if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
        if (*wanted++ != c || c == 0) return false;
    }
    return *wanted == 0;
}

// The categories of "Lu" or "L"; 0: none.
static uint32_t category_mask(const char *name, int64_t count)
{
    static const char names[] = UNICODE_CATEGORIES;
    uint32_t mask = 0;
    for (int k = 0; 3 * k < (int)sizeof(names) - 1; k++) {
        const char one[3] = {(char)(names[3 * k] - 'A' + 'a'), names[3 * k + 1], 0};
        const char major[2] = {one[0], 0};
        if (is_name(name, count, one) || is_name(name, count, major)) mask |= 1u << k;
    }
    return mask;
}

static const struct {
    const char *name, *category; // category NULL: the set `set`
    unicode_name set;
} properties[] = {
    {"letter", "L", UNICODE_NAME_WORD},
    {"mark", "M", UNICODE_NAME_WORD},
    {"number", "N", UNICODE_NAME_WORD},
    {"punctuation", "P", UNICODE_NAME_WORD},
    {"symbol", "S", UNICODE_NAME_WORD},
    {"separator", "Z", UNICODE_NAME_WORD},
    {"other", "C", UNICODE_NAME_WORD},
    {"uppercaseletter", "Lu", UNICODE_NAME_WORD},
    {"lowercaseletter", "Ll", UNICODE_NAME_WORD},
    {"titlecaseletter", "Lt", UNICODE_NAME_WORD},
    {"modifierletter", "Lm", UNICODE_NAME_WORD},
    {"otherletter", "Lo", UNICODE_NAME_WORD},
    {"decimalnumber", "Nd", UNICODE_NAME_WORD},
    {"digit", "Nd", UNICODE_NAME_WORD},
    {"word", NULL, UNICODE_NAME_WORD},
    {"alpha", NULL, UNICODE_NAME_ALPHABETIC},
    {"alphabetic", NULL, UNICODE_NAME_ALPHABETIC},
    {"lower", NULL, UNICODE_NAME_LOWERCASE},
    {"lowercase", NULL, UNICODE_NAME_LOWERCASE},
    {"upper", NULL, UNICODE_NAME_UPPERCASE},
    {"uppercase", NULL, UNICODE_NAME_UPPERCASE},
    {"space", NULL, UNICODE_NAME_SPACE},
    {"whitespace", NULL, UNICODE_NAME_SPACE},
    {"punct", NULL, UNICODE_NAME_PUNCT},
    {"han", NULL, UNICODE_NAME_HAN},
    {"hiragana", NULL, UNICODE_NAME_HIRAGANA},
    {"katakana", NULL, UNICODE_NAME_KATAKANA},
    {"hangul", NULL, UNICODE_NAME_HANGUL},
    {"latin", NULL, UNICODE_NAME_LATIN},
    {"greek", NULL, UNICODE_NAME_GREEK},
    {"cyrillic", NULL, UNICODE_NAME_CYRILLIC},
    {"hebrew", NULL, UNICODE_NAME_HEBREW},
    {"arabic", NULL, UNICODE_NAME_ARABIC},
    {"devanagari", NULL, UNICODE_NAME_DEVANAGARI},
    {"thai", NULL, UNICODE_NAME_THAI},
};

status point_set_add_property(point_set *s, const char *name, int64_t count, bool *found)
{
    uint32_t mask = category_mask(name, count);
    *found = mask != 0;
    for (int64_t i = 0; i < COUNT_OF(properties) && !*found; i++) {
        if (!is_name(name, count, properties[i].name)) continue;
        *found = true;
        if (properties[i].category == NULL) return point_set_add_named(s, properties[i].set);
        mask = category_mask(properties[i].category, (int64_t)strlen(properties[i].category));
    }
    return *found ? add_categories(s, mask) : ST_OK;
}

static int compare_ranges(const void *x, const void *y)
{
    const unicode_range *a = x, *b = y;
    return a->first < b->first ? -1 : a->first > b->first;
}

void point_set_order(point_set *s)
{
    int64_t n = 0;
    if (s->count > 1) qsort(s->items, (size_t)s->count, sizeof(s->items[0]), compare_ranges);
    for (int64_t i = 0; i < s->count; i++) {
        const unicode_range r = s->items[i];
        if (n > 0 && r.first <= s->items[n - 1].last + 1) {
            if (r.last > s->items[n - 1].last) s->items[n - 1].last = r.last;
        } else {
            s->items[n++] = r;
        }
    }
    s->count = n;
}

status point_set_invert(point_set *s)
{
    point_set out = {0};
    uint32_t from = 0;
    status st = ST_OK;
    for (int64_t i = 0; i < s->count && st == ST_OK; i++) {
        if (s->items[i].first > from) st = point_set_add(&out, from, s->items[i].first - 1);
        from = s->items[i].last + 1;
    }
    if (st == ST_OK && from <= POINT_MAX) st = point_set_add(&out, from, POINT_MAX);
    point_set_deinit(s);
    *s = out;
    return st;
}

status point_set_intersect(point_set *s, const point_set *other)
{
    point_set out = {0};
    status st = ST_OK;
    for (int64_t i = 0, k = 0; i < s->count && k < other->count && st == ST_OK;) {
        const unicode_range a = s->items[i], b = other->items[k];
        const uint32_t first = a.first > b.first ? a.first : b.first;
        const uint32_t last = a.last < b.last ? a.last : b.last;
        if (first <= last) st = point_set_add(&out, first, last);
        if (a.last < b.last) {
            i++;
        } else {
            k++;
        }
    }
    point_set_deinit(s);
    *s = out;
    return st;
}

bool point_set_has(const point_set *s, uint32_t point)
{
    return unicode_in(s->items, s->count, point);
}

void point_set_deinit(point_set *s)
{
    free(s->items);
    *s = (point_set){0};
}
