// Methods of texts, as Python's str has them, and the operations that filters share with them.
#include "data/jinja/jinja_internal.h"

#include <string.h>
#include <utf8proc.h>

bool text_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool is_among(uint32_t c, const slice *characters)
{
    uint32_t one = 0;
    if (characters == NULL) return text_is_space(c);
    for (int64_t i = 0; i < characters->count;) {
        i = slice_next(*characters, i, &one);
        if (one == c) return true;
    }
    return false;
}

slice text_trimmed(slice s, bool left, bool right, const slice *characters)
{
    uint32_t c = 0;
    int64_t begin = 0, end = s.count;
    for (int64_t next = 0; left && begin < end; begin = next) {
        next = slice_next(s, begin, &c);
        if (!is_among(c, characters)) break;
    }
    while (right && end > begin) {
        int64_t before = end - 1;
        while (before > begin && (s.bytes[before] & 0xc0) == 0x80) before--;
        (void)slice_next(s, before, &c);
        if (!is_among(c, characters)) break;
        end = before;
    }
    return (slice){s.bytes + begin, end - begin};
}

// The place of `what` from `at` on; -1: none.
static int64_t place_of(slice s, slice what, int64_t at)
{
    for (; at + what.count <= s.count; at++) {
        if (what.count == 0 || memcmp(s.bytes + at, what.bytes, (size_t)what.count) == 0) {
            return at;
        }
    }
    return -1;
}

static value text_of(const text *t)
{
    return value_of_text(t->length > 0 ? t->bytes : "", t->length);
}

status text_replaced(filter_call *c, slice s, const slice pair[2], int64_t limit, value *out)
{
    text t = {.a = c->run->a};
    const slice from = pair[0], to = pair[1];
    uint32_t code = 0;
    int64_t at = 0;
    TRY(run_spend(c->run, c->node->at, s.count));
    for (int64_t n = 0; limit < 0 || n < limit; n++) {
        int64_t found = place_of(s, from, at);
        if (found < 0) break;
        TRY(run_spend(c->run, c->node->at, to.count / 16 + 1));
        TRY(text_add_bytes(&t, s.bytes + at, found - at));
        TRY(text_add_bytes(&t, to.bytes, to.count));
        at = found + from.count;
        if (from.count > 0) continue;
        if (at >= s.count) break; // an empty text stands between all characters
        found = slice_next(s, at, &code);
        TRY(text_add_bytes(&t, s.bytes + at, found - at));
        at = found;
    }
    TRY(text_add_bytes(&t, s.bytes + at, s.count - at));
    *out = text_of(&t);
    return ST_OK;
}

// Simple case mappings; the German sharp s is the one common letter whose upper case is two.
status text_cased(filter_call *c, slice s, letter_case how, value *out)
{
    text t = {.a = c->run->a};
    bool in_word = false;
    uint32_t x = 0;
    TRY(run_spend(c->run, c->node->at, s.count / 4));
    for (int64_t i = 0; i < s.count;) {
        const bool starts = how == CASE_TITLE ? !in_word : how == CASE_CAPITALIZE && i == 0;
        const bool up = how == CASE_UPPER || starts;
        utf8proc_uint8_t bytes[4];
        i = slice_next(s, i, &x);
        const utf8proc_int32_t lower = utf8proc_tolower((utf8proc_int32_t)x);
        const utf8proc_int32_t upper = utf8proc_toupper((utf8proc_int32_t)x);
        in_word = lower != upper;
        if (x == 0xdf && up) {
            TRY(text_add(&t, "%s", how == CASE_UPPER ? "SS" : "Ss"));
            continue;
        }
        TRY(text_add_bytes(&t, bytes, utf8proc_encode_char(up ? upper : lower, bytes)));
    }
    *out = text_of(&t);
    return ST_OK;
}

status text_joined(filter_call *c, const value_list *list, slice with, value *out)
{
    text t = {.a = c->run->a};
    for (int64_t i = 0; i < list->count; i++) {
        TRY(run_spend(c->run, c->node->at, with.count / 16 + 1));
        if (i > 0) TRY(text_add_bytes(&t, with.bytes, with.count));
        TRY(value_print(c->run, &t, &list->items[i], false));
    }
    *out = text_of(&t);
    return ST_OK;
}

// Bytes of the line end at `at`; 0 for none.
static int64_t line_end(slice s, int64_t at)
{
    uint32_t c = 0;
    const int64_t next = slice_next(s, at, &c);
    if (c == '\r' && next < s.count && s.bytes[next] == '\n') return 2;
    const bool ends =
        (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
    return ends ? next - at : 0;
}

status text_lines(jinja_run *r, slice s, value_list **out)
{
    int64_t begin = 0;
    uint32_t c = 0;
    TRY(run_spend(r, 0, s.count / 4));
    TRY(value_list_new(r, out));
    for (int64_t i = 0; i < s.count;) {
        const int64_t n = line_end(s, i);
        if (n == 0) {
            i = slice_next(s, i, &c);
            continue;
        }
        TRY(value_list_add(r, *out, value_of_text(s.bytes + begin, i - begin)));
        i += n;
        begin = i;
    }
    if (begin == s.count) return ST_OK;
    return value_list_add(r, *out, value_of_text(s.bytes + begin, s.count - begin));
}

// ---- methods ------------------------------------------------------------------------------------

static status strip(filter_call *c, const value *arguments, bool left, bool right, value *out)
{
    slice characters = {NULL, 0};
    TRY(run_spend(c->run, c->node->at, c->self.as.text.count / 16));
    const bool is_given = arguments[0].kind == VALUE_TEXT;
    if (arguments[0].kind != VALUE_NONE) TRY(call_text(c, &arguments[0], &characters));
    const slice s = text_trimmed(c->self.as.text, left, right, is_given ? &characters : NULL);
    *out = value_of_text(s.bytes, s.count);
    return ST_OK;
}

static status method_strip(filter_call *c, const value *arguments, value *out)
{
    return strip(c, arguments, true, true, out);
}

static status method_lstrip(filter_call *c, const value *arguments, value *out)
{
    return strip(c, arguments, true, false, out);
}

static status method_rstrip(filter_call *c, const value *arguments, value *out)
{
    return strip(c, arguments, false, true, out);
}

static status method_upper(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return text_cased(c, c->self.as.text, CASE_UPPER, out);
}

static status method_lower(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return text_cased(c, c->self.as.text, CASE_LOWER, out);
}

static status method_title(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return text_cased(c, c->self.as.text, CASE_TITLE, out);
}

static status method_capitalize(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return text_cased(c, c->self.as.text, CASE_CAPITALIZE, out);
}

static status method_replace(filter_call *c, const value *arguments, value *out)
{
    slice pair[2] = {{"", 0}, {"", 0}};
    int64_t limit = -1;
    for (int i = 0; i < 2; i++) {
        if (arguments[i].kind != VALUE_TEXT) return call_fails(c, "a text", &arguments[i]);
        pair[i] = arguments[i].as.text;
    }
    TRY(call_int(c, &arguments[2], &limit));
    return text_replaced(c, c->self.as.text, pair, limit, out);
}

static bool has_at(slice s, slice part, bool at_end)
{
    return part.count <= s.count && memcmp(s.bytes + (at_end ? s.count - part.count : 0),
                                           part.bytes, (size_t)part.count) == 0;
}

static status starts_or_ends(filter_call *c, const value *what, bool at_end, value *out)
{
    bool found = false;
    const bool is_list = what->kind == VALUE_LIST;
    const int64_t count = is_list ? what->as.list->count : 1;
    TRY(run_spend(c->run, c->node->at, count));
    for (int64_t i = 0; i < count; i++) {
        const value *one = is_list ? &what->as.list->items[i] : what;
        if (one->kind != VALUE_TEXT) return call_fails(c, "a text", one);
        found = found || has_at(c->self.as.text, one->as.text, at_end);
    }
    *out = value_of_bool(found);
    return ST_OK;
}

static status method_startswith(filter_call *c, const value *arguments, value *out)
{
    return starts_or_ends(c, &arguments[0], false, out);
}

static status method_endswith(filter_call *c, const value *arguments, value *out)
{
    return starts_or_ends(c, &arguments[0], true, out);
}

static status remove_part(filter_call *c, const value *what, bool at_end, value *out)
{
    slice s = c->self.as.text;
    if (what->kind != VALUE_TEXT) return call_fails(c, "a text", what);
    const slice part = what->as.text;
    if (has_at(s, part, at_end)) {
        s.count -= part.count;
        if (!at_end) s.bytes += part.count;
    }
    *out = value_of_text(s.bytes, s.count);
    return ST_OK;
}

static status method_removeprefix(filter_call *c, const value *arguments, value *out)
{
    return remove_part(c, &arguments[0], false, out);
}

static status method_removesuffix(filter_call *c, const value *arguments, value *out)
{
    return remove_part(c, &arguments[0], true, out);
}

static status method_find(filter_call *c, const value *arguments, value *out)
{
    const slice s = c->self.as.text;
    if (arguments[0].kind != VALUE_TEXT) return call_fails(c, "a text", &arguments[0]);
    TRY(run_spend(c->run, c->node->at, s.count));
    const int64_t at = place_of(s, arguments[0].as.text, 0);
    *out = value_of_int(at < 0 ? -1 : slice_characters((slice){s.bytes, at}));
    return ST_OK;
}

static status method_rfind(filter_call *c, const value *arguments, value *out)
{
    const slice s = c->self.as.text;
    int64_t last = -1;
    if (arguments[0].kind != VALUE_TEXT) return call_fails(c, "a text", &arguments[0]);
    TRY(run_spend(c->run, c->node->at, s.count));
    for (int64_t at = 0; (at = place_of(s, arguments[0].as.text, at)) >= 0; at++) last = at;
    *out = value_of_int(last < 0 ? -1 : slice_characters((slice){s.bytes, last}));
    return ST_OK;
}

static status method_count(filter_call *c, const value *arguments, value *out)
{
    const slice s = c->self.as.text;
    int64_t count = 0;
    if (arguments[0].kind != VALUE_TEXT) return call_fails(c, "a text", &arguments[0]);
    const slice what = arguments[0].as.text;
    TRY(run_spend(c->run, c->node->at, s.count));
    for (int64_t at = 0; what.count > 0 && (at = place_of(s, what, at)) >= 0; at += what.count) {
        count++;
    }
    *out = value_of_int(what.count > 0 ? count : slice_characters(s) + 1);
    return ST_OK;
}

static status method_join(filter_call *c, const value *arguments, value *out)
{
    value_list *list = NULL;
    TRY(value_items(c->run, c->node->at, &arguments[0], &list));
    for (int64_t i = 0; i < list->count; i++) {
        if (list->items[i].kind != VALUE_TEXT) return call_fails(c, "a text", &list->items[i]);
    }
    return text_joined(c, list, c->self.as.text, out);
}

static status method_splitlines(filter_call *c, const value *arguments, value *out)
{
    value_list *list = NULL;
    (void)arguments;
    TRY(text_lines(c->run, c->self.as.text, &list));
    *out = (value){.kind = VALUE_LIST, .as.list = list};
    return ST_OK;
}

// At white space: runs of it separate, and those at the ends are left out.
static status split_words(filter_call *c, slice s, int64_t limit, value_list *list)
{
    uint32_t code = 0;
    s = text_trimmed(s, true, false, NULL);
    for (int64_t n = 0; s.count > 0; n++) {
        int64_t end = 0;
        if (limit >= 0 && n == limit) {
            const slice rest = text_trimmed(s, false, true, NULL);
            return value_list_add(c->run, list, value_of_text(rest.bytes, rest.count));
        }
        while (end < s.count) {
            const int64_t next = slice_next(s, end, &code);
            if (text_is_space(code)) break;
            end = next;
        }
        TRY(value_list_add(c->run, list, value_of_text(s.bytes, end)));
        s = text_trimmed((slice){s.bytes + end, s.count - end}, true, false, NULL);
    }
    return ST_OK;
}

static status split_at(filter_call *c, slice s, slice separator, int64_t limit, value_list *list)
{
    int64_t at = 0;
    for (int64_t n = 0; limit < 0 || n < limit; n++) {
        const int64_t found = place_of(s, separator, at);
        if (found < 0) break;
        TRY(value_list_add(c->run, list, value_of_text(s.bytes + at, found - at)));
        at = found + separator.count;
    }
    return value_list_add(c->run, list, value_of_text(s.bytes + at, s.count - at));
}

static status method_split(filter_call *c, const value *arguments, value *out)
{
    value_list *list = NULL;
    int64_t limit = -1;
    const slice s = c->self.as.text;
    TRY(call_int(c, &arguments[1], &limit));
    TRY(run_spend(c->run, c->node->at, s.count));
    TRY(value_list_new(c->run, &list));
    *out = (value){.kind = VALUE_LIST, .as.list = list};
    if (arguments[0].kind == VALUE_UNDEFINED || arguments[0].kind == VALUE_NONE) {
        return split_words(c, s, limit, list);
    }
    if (arguments[0].kind != VALUE_TEXT || arguments[0].as.text.count == 0) {
        return call_fails(c, "a separator of at least one character", &arguments[0]);
    }
    return split_at(c, s, arguments[0].as.text, limit, list);
}

static status method_format(filter_call *c, const value *arguments, value *out)
{
    text t = {.a = c->run->a};
    const slice s = c->self.as.text;
    int64_t used = 0;
    (void)arguments;
    TRY(run_spend(c->run, c->node->at, s.count));
    for (int64_t i = 0; i < s.count; i++) {
        const char x = s.bytes[i], next = i + 1 < s.count ? s.bytes[i + 1] : 0;
        if (x == '{' && next == '}') {
            if (used >= c->arguments.count) {
                return jinja_fail(c->run->s, c->node->at, "a format with too few values");
            }
            TRY(value_print(c->run, &t, &c->arguments.values[used++], false));
            i++;
        } else if ((x == '{' || x == '}') && next != x) {
            return jinja_fail(c->run->s, c->node->at,
                              "format supports {} only, without names and widths");
        } else {
            TRY(text_add_bytes(&t, &x, 1));
            i += x == '{' || x == '}' ? 1 : 0;
        }
    }
    *out = text_of(&t);
    return ST_OK;
}

typedef enum character_class { CLASS_DIGIT, CLASS_ALPHA, CLASS_ALNUM, CLASS_SPACE } character_class;

static status all_are(filter_call *c, character_class class, value *out)
{
    const slice s = c->self.as.text;
    bool holds = s.count > 0;
    uint32_t x = 0;
    TRY(run_spend(c->run, c->node->at, s.count));
    for (int64_t i = 0; i < s.count && holds;) {
        i = slice_next(s, i, &x);
        const bool is_digit = x >= '0' && x <= '9';
        const bool is_alpha = (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z');
        if (x >= 0x80 && class != CLASS_SPACE) {
            return jinja_fail(c->run->s, c->node->at,
                              "classes of characters beyond ASCII are not supported");
        }
        holds = class == CLASS_SPACE
                    ? text_is_space(x)
                    : (is_digit && class != CLASS_ALPHA) || (is_alpha && class != CLASS_DIGIT);
    }
    *out = value_of_bool(holds);
    return ST_OK;
}

static status method_isdigit(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return all_are(c, CLASS_DIGIT, out);
}

static status method_isalpha(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return all_are(c, CLASS_ALPHA, out);
}

static status method_isalnum(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return all_are(c, CLASS_ALNUM, out);
}

static status method_isspace(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return all_are(c, CLASS_SPACE, out);
}

const method *method_of_text(slice name)
{
    static const method methods[] = {
        {VALUE_TEXT, {"capitalize", "", method_capitalize}},
        {VALUE_TEXT, {"count", "text", method_count}},
        {VALUE_TEXT, {"endswith", "text", method_endswith}},
        {VALUE_TEXT, {"find", "text", method_find}},
        {VALUE_TEXT, {"format", "*", method_format}},
        {VALUE_TEXT, {"isalnum", "", method_isalnum}},
        {VALUE_TEXT, {"isalpha", "", method_isalpha}},
        {VALUE_TEXT, {"isdigit", "", method_isdigit}},
        {VALUE_TEXT, {"isspace", "", method_isspace}},
        {VALUE_TEXT, {"join", "list", method_join}},
        {VALUE_TEXT, {"lower", "", method_lower}},
        {VALUE_TEXT, {"lstrip", "characters", method_lstrip}},
        {VALUE_TEXT, {"removeprefix", "text", method_removeprefix}},
        {VALUE_TEXT, {"removesuffix", "text", method_removesuffix}},
        {VALUE_TEXT, {"replace", "old new count", method_replace}},
        {VALUE_TEXT, {"rfind", "text", method_rfind}},
        {VALUE_TEXT, {"rstrip", "characters", method_rstrip}},
        {VALUE_TEXT, {"split", "sep maxsplit", method_split}},
        {VALUE_TEXT, {"splitlines", "", method_splitlines}},
        {VALUE_TEXT, {"startswith", "text", method_startswith}},
        {VALUE_TEXT, {"strip", "characters", method_strip}},
        {VALUE_TEXT, {"title", "", method_title}},
        {VALUE_TEXT, {"upper", "", method_upper}},
    };
    for (int64_t i = 0; i < COUNT_OF(methods); i++) {
        if (slice_is(name, methods[i].function.name)) return &methods[i];
    }
    return NULL;
}
