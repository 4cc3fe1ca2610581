// Sets of characters of a regular expression: escapes such as \w and \p{Lu}, and classes, which may
// hold classes and intersections. Each becomes a list of ranges of the reference's Unicode version.
#include "data/tokenizer/pipeline/translate.h"

#include <stdio.h>
#include <string.h>

status translate_put_point(translation *t, uint32_t point)
{
    char text[24];
    snprintf(text, sizeof(text), "\\x{%x}", (unsigned)point);
    return translate_put(t, text);
}

static status put_range(translation *t, uint32_t first, uint32_t last)
{
    TRY(translate_put_point(t, first));
    if (first == last) return ST_OK;
    TRY(translate_put(t, "-"));
    return translate_put_point(t, last);
}

// The ranges, the longest first: PCRE2 compares a character with one after the other. A set that
// holds the last code point is written as the others, negated.
status translate_put_set(translation *t, point_set *set)
{
    static const int64_t lengths[] = {1 << 21, 1000, 100, 20, 0};
    const bool negated = point_set_has(set, POINT_MAX);
    if (negated) TRY(point_set_invert(set));
    if (set->count == 0) {
        return negated ? translate_put(t, "(?s:.)") : translate_refuse(t, "an empty set", t->at);
    }
    TRY(translate_put(t, negated ? "[^" : "["));
    for (int64_t k = 0; k + 1 < COUNT_OF(lengths); k++) {
        for (int64_t i = 0; i < set->count; i++) {
            const unicode_range r = set->items[i];
            const int64_t length = (int64_t)r.last - r.first + 1;
            if (length > lengths[k] || length <= lengths[k + 1]) continue;
            TRY(put_range(t, r.first, r.last));
        }
    }
    return translate_put(t, "]");
}

// ---- escapes ------------------------------------------------------------------------------------

// \p{Name}, \p{^Name} and, in the Rust syntax, \pL.
static status read_property(translation *t, int64_t from, translate_item *out)
{
    const char *name = t->in + t->at;
    int64_t count = 1;
    bool found = false;
    out->is_set = true;
    if (t->at < t->count && *name == '{') {
        const char *end = memchr(name, '}', (size_t)(t->count - t->at));
        if (end == NULL) return translate_refuse(t, "a property without end", from);
        name++;
        count = end - name;
        t->at += count + 2;
        if (count > 0 && *name == '^') {
            out->negated = !out->negated;
            name++;
            count--;
        }
    } else {
        // Oniguruma reads the two letters themselves.
        if (t->at >= t->count || t->syntax != PATTERN_RUST) {
            return translate_refuse(t, "a property without braces", from);
        }
        t->at++;
    }
    TRY(point_set_add_property(&out->set, name, count, &found));
    return found ? ST_OK : translate_refuse(t, "this property", from);
}

// Up to `most` hexadecimal digits.
static uint32_t read_hex(translation *t, int most)
{
    uint32_t value = 0;
    for (int i = 0; i < most && t->at < t->count; i++, t->at++) {
        const char c = t->in[t->at], lower = (char)(c | 0x20);
        if (c >= '0' && c <= '9') {
            value = 16 * value + (uint32_t)(c - '0');
        } else if (lower >= 'a' && lower <= 'f') {
            value = 16 * value + (uint32_t)(lower - 'a' + 10);
        } else {
            break;
        }
    }
    return value;
}

// \xHH below 80 hexadecimal, \x{H...} and \uHHHH.
static status read_code_point(translation *t, int64_t from, translate_item *out)
{
    const bool has_brace = t->in[from + 1] == 'x' && t->at < t->count && t->in[t->at] == '{';
    if (has_brace) t->at++;
    const int64_t begin = t->at;
    out->point = read_hex(t, has_brace ? 6 : t->in[from + 1] == 'u' ? 4 : 2);
    bool is_whole = t->at > begin;
    if (has_brace) {
        is_whole = is_whole && t->at < t->count && t->in[t->at] == '}';
        t->at++;
    } else if (t->in[from + 1] == 'u') {
        is_whole = t->at == begin + 4;
    } else {
        is_whole = is_whole && out->point < 0x80; // more would be a single byte
    }
    if (out->point > POINT_MAX || (out->point >= 0xd800 && out->point <= 0xdfff)) is_whole = false;
    return is_whole ? ST_OK : translate_refuse(t, "this code point", from);
}

// Within a class, Oniguruma's \w and [:word:] have no superscripts and fractions of Latin-1, though
// \w outside and \p{Word} have them.
static status add_word(const translation *t, point_set *out)
{
    static const uint32_t without[][2] = {{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}};
    point_set words = {0}, others = {0};
    status st = point_set_add_named(&words, UNICODE_NAME_WORD);
    point_set_order(&words);
    for (int i = 0; i < COUNT_OF(without) && st == ST_OK && t->in_class; i++) {
        st = point_set_add(&others, without[i][0], without[i][1]);
    }
    if (st == ST_OK && t->in_class && t->syntax == PATTERN_ONIGURUMA) {
        point_set_order(&others);
        st = point_set_invert(&others);
        if (st == ST_OK) st = point_set_intersect(&words, &others);
    }
    if (st == ST_OK) st = point_set_add_set(out, &words);
    point_set_deinit(&words);
    point_set_deinit(&others);
    return st;
}

// \s and the like.
static status read_short_set(translation *t, char c, translate_item *out)
{
    bool found = false;
    out->is_set = true;
    out->negated = c < 'a';
    if (c == 's' || c == 'S') return point_set_add_named(&out->set, UNICODE_NAME_SPACE);
    if (c == 'w' || c == 'W') return add_word(t, &out->set);
    if (c == 'd' || c == 'D') return point_set_add_property(&out->set, "Nd", 2, &found);
    if (t->syntax == PATTERN_RUST) return translate_refuse(t, "this escape", t->at - 2);
    TRY(point_set_add(&out->set, '0', '9')); // \h
    TRY(point_set_add(&out->set, 'A', 'F'));
    return point_set_add(&out->set, 'a', 'f');
}

static status read_escape(translation *t, int64_t from, translate_item *out)
{
    static const char controls[] = "r\rn\nt\tf\fv\va\ae\x1b";
    if (t->at >= t->count) return translate_refuse(t, "a backslash at the end", from);
    const char c = t->in[t->at++];
    for (int64_t i = 0; i + 1 < COUNT_OF(controls) - 1; i += 2) {
        if (c != controls[i]) continue;
        out->point = (uint8_t)controls[i + 1];
        return ST_OK;
    }
    switch (c) {
    case 'p':
    case 'P':
        out->negated = c == 'P';
        return read_property(t, from, out);
    case 's':
    case 'S':
    case 'w':
    case 'W':
    case 'd':
    case 'D':
    case 'h':
    case 'H':
        return read_short_set(t, c, out);
    case 'x':
    case 'u':
        return read_code_point(t, from, out);
    default:
        break;
    }
    const bool is_mark = (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') ||
                         (c > 'z' && c < 0x7f) || c == ' ';
    if (!is_mark) return translate_refuse(t, "this escape", from);
    out->point = (uint8_t)c;
    return ST_OK;
}

status translate_read_item(translation *t, translate_item *out)
{
    const int64_t from = t->at;
    *out = (translate_item){.is_set = false};
    if (t->in[t->at] == '\\') {
        t->at++;
        TRY(read_escape(t, from, out));
    } else {
        bool torn = false;
        const int length =
            utf8_next((const uint8_t *)t->in + t->at, t->count - t->at, &out->point, &torn);
        if (length < 0) return translate_refuse(t, "a byte that is no UTF-8", from);
        t->at += length;
    }
    if (!out->is_set) return ST_OK;
    // Oniguruma and PCRE2 take the other case of a set to be different characters.
    if (t->caseless[t->depth]) {
        return translate_refuse(t, "a set of characters without regard to case", from);
    }
    point_set_order(&out->set);
    return out->negated ? point_set_invert(&out->set) : ST_OK;
}

// ---- classes ------------------------------------------------------------------------------------

static status read_class(translation *t, int level, point_set *out);

// [:name:] and [:^name:]; *found is false where the bracket begins a class.
static status read_posix(translation *t, point_set *out, bool *found)
{
    const char *begin = t->in + t->at;
    const int64_t rest = t->count - t->at;
    const char *end =
        rest > 4 && begin[1] == ':' ? memmem(begin + 2, (size_t)rest - 2, ":]", 2) : NULL;
    *found = end != NULL && end - begin < 16 &&
             memchr(begin + 2, ']', (size_t)(end - begin - 2)) == NULL;
    if (!*found) return ST_OK;
    const bool negated = begin[2] == '^';
    const char *name = begin + (negated ? 3 : 2);
    point_set set = {0};
    bool known = false;
    const bool is_word = end - name == 4 && memcmp(name, "word", 4) == 0;
    status st =
        is_word ? add_word(t, &set) : point_set_add_property(&set, name, end - name, &known);
    known = known || is_word;
    if (st == ST_OK && end - name == 5 && memcmp(name, "alnum", 5) == 0) {
        known = true;
        st = point_set_add_named(&set, UNICODE_NAME_ALPHABETIC);
        if (st == ST_OK) st = point_set_add_property(&set, "Nd", 2, &known);
    }
    if (st == ST_OK && !known) st = translate_refuse(t, "this class", t->at);
    point_set_order(&set);
    if (st == ST_OK && negated) st = point_set_invert(&set);
    if (st == ST_OK) st = point_set_add_set(out, &set);
    point_set_deinit(&set);
    t->at += end + 2 - begin;
    return st;
}

// A character, a range or a set.
static status read_member(translation *t, int64_t begin, point_set *out)
{
    const int64_t from = t->at;
    if (t->in[from] == '-' && from != begin && from + 1 < t->count && t->in[from + 1] != ']') {
        return translate_refuse(t, "a dash between two members of a class", from);
    }
    translate_item first, last;
    status st = translate_read_item(t, &first);
    if (st == ST_OK && first.is_set) st = point_set_add_set(out, &first.set);
    point_set_deinit(&first.set);
    if (st != ST_OK || first.is_set) return st;
    if (t->at + 1 >= t->count || t->in[t->at] != '-' || t->in[t->at + 1] == ']') {
        return point_set_add(out, first.point, first.point);
    }
    t->at++;
    if (t->in[t->at] == '[') return translate_refuse(t, "this range", from);
    st = translate_read_item(t, &last);
    point_set_deinit(&last.set);
    TRY(st);
    if (last.is_set || last.point < first.point) return translate_refuse(t, "this range", from);
    return point_set_add(out, first.point, last.point);
}

static bool is_intersection(const translation *t)
{
    return t->count - t->at >= 2 && t->in[t->at] == '&' && t->in[t->at + 1] == '&';
}

// The members up to `&&` or the end of the class.
static status read_members(translation *t, int level, int64_t begin, point_set *out)
{
    while (t->at < t->count && t->in[t->at] != ']' && !is_intersection(t)) {
        bool found = false;
        if (t->in[t->at] != '[') {
            TRY(read_member(t, begin, out));
            continue;
        }
        TRY(read_posix(t, out, &found));
        if (found) continue;
        if (level + 1 == TRANSLATE_CLASSES_MAX) {
            return translate_refuse(t, "so deep a nest of classes", t->at);
        }
        point_set inner = {0};
        status st = read_class(t, level + 1, &inner);
        if (st == ST_OK) st = point_set_add_set(out, &inner);
        point_set_deinit(&inner);
        TRY(st);
    }
    point_set_order(out);
    return ST_OK;
}

static status read_class(translation *t, int level, point_set *out)
{
    const int64_t from = t->at++;
    const bool negated = t->at < t->count && t->in[t->at] == '^';
    if (negated) t->at++;
    const int64_t begin = t->at;
    TRY(read_members(t, level, begin, out));
    if (t->at == begin) return translate_refuse(t, "an empty class", from);
    while (t->at < t->count && is_intersection(t)) {
        point_set other = {0};
        t->at += 2;
        status st = read_members(t, level, t->at, &other);
        if (st == ST_OK) st = point_set_intersect(out, &other);
        point_set_deinit(&other);
        TRY(st);
    }
    if (t->at >= t->count) return translate_refuse(t, "a class without end", from);
    t->at++;
    return negated ? point_set_invert(out) : ST_OK;
}

status translate_class(translation *t)
{
    const int64_t from = t->at;
    point_set set = {0};
    t->in_class = true;
    status st = read_class(t, 0, &set);
    t->in_class = false;
    // The other case of an ASCII character is found by PCRE2 as by Oniguruma.
    if (st == ST_OK && t->caseless[t->depth] &&
        (set.count == 0 || set.items[set.count - 1].last >= 0x80)) {
        st = translate_refuse(t, "a class with such characters, without regard to case,", from);
    }
    if (st == ST_OK) st = translate_put_set(t, &set);
    point_set_deinit(&set);
    return st;
}
