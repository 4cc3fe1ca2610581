// Values of a rendering: making, comparing and reading them, by the rules of Python.
#include "data/jinja/jinja_internal.h"

#include <math.h>
#include <string.h>

value value_of_text(const char *bytes, int64_t count)
{
    return (value){.kind = VALUE_TEXT, .as.text = {bytes, count}};
}

value value_of_word(const char *word)
{
    return value_of_text(word, (int64_t)strlen(word));
}

value value_of_bool(bool truth)
{
    return (value){.kind = VALUE_BOOL, .as.truth = truth};
}

value value_of_int(int64_t integer)
{
    return (value){.kind = VALUE_INT, .as.integer = integer};
}

value value_of_real(double real)
{
    return (value){.kind = VALUE_REAL, .as.real = real};
}

status value_list_new(jinja_run *r, value_list **out)
{
    return arena_new(r->a, 1, out);
}

// Bounds the recursion over lists in lists.
static status deepen(jinja_run *r, const value *v, int32_t *depth)
{
    int32_t below = 0;
    if (v->kind == VALUE_LIST) below = v->as.list->depth + 1;
    if (v->kind == VALUE_MAP) below = v->as.map->depth + 1;
    if (below > 2 * JINJA_DEPTH_MAX) {
        return jinja_fail(r->s, 0, "a list nested deeper than %d levels", 2 * JINJA_DEPTH_MAX);
    }
    if (below > *depth) *depth = below;
    return ST_OK;
}

status value_list_add(jinja_run *r, value_list *list, value v)
{
    TRY(deepen(r, &v, &list->depth));
    TRY(arena_grow(r->a, (void **)&list->items, &list->capacity, list->count + 1, sizeof(value)));
    list->items[list->count++] = v;
    return ST_OK;
}

status value_map_new(jinja_run *r, value_map **out)
{
    return arena_new(r->a, 1, out);
}

bool value_map_find(const value_map *map, const value *key, value *out)
{
    for (int64_t i = 0; i < map->count; i++) {
        if (!value_equal(&map->keys[i], key)) continue;
        *out = map->values[i];
        return true;
    }
    return false;
}

bool value_map_get(const value_map *map, slice key, value *out)
{
    const value v = value_of_text(key.bytes, key.count);
    return value_map_find(map, &v, out);
}

static status map_add(jinja_run *r, value_map *map, value key, value v)
{
    TRY(deepen(r, &key, &map->depth));
    TRY(deepen(r, &v, &map->depth));
    if (map->count == map->capacity) {
        int64_t capacity = map->capacity;
        TRY(arena_grow(r->a, (void **)&map->keys, &capacity, map->count + 1, sizeof(value)));
        TRY(arena_grow(r->a, (void **)&map->values, &map->capacity, map->count + 1, sizeof(value)));
    }
    map->keys[map->count] = key;
    map->values[map->count++] = v;
    return ST_OK;
}

status value_map_set(jinja_run *r, value_map *map, value key, value v)
{
    TRY(run_spend(r, 0, map->count / 8));
    for (int64_t i = 0; i < map->count; i++) {
        if (!value_equal(&map->keys[i], &key)) continue;
        TRY(deepen(r, &v, &map->depth));
        map->values[i] = v;
        return ST_OK;
    }
    return map_add(r, map, key, v);
}

static status list_of_json(jinja_run *r, const json *from, value *out)
{
    value_list *list = NULL;
    TRY(value_list_new(r, &list));
    for (int64_t i = 0; i < json_count(from); i++) {
        value v = {.kind = VALUE_NONE};
        TRY(value_of_json(r, json_at(from, i), &v));
        TRY(value_list_add(r, list, v));
    }
    *out = (value){.kind = VALUE_LIST, .as.list = list};
    return ST_OK;
}

static status map_of_json(jinja_run *r, const json *from, value *out)
{
    value_map *map = NULL;
    TRY(value_map_new(r, &map));
    for (int64_t i = 0; i < json_count(from); i++) {
        const json *member = NULL;
        value v = {.kind = VALUE_NONE};
        const char *key = json_key_at(from, i, &member);
        TRY(value_of_json(r, member, &v));
        TRY(map_add(r, map, value_of_word(key), v));
    }
    *out = (value){.kind = VALUE_MAP, .as.map = map};
    return ST_OK;
}

status value_of_json(jinja_run *r, const json *from, value *out)
{
    *out = (value){.kind = VALUE_NONE};
    TRY(run_spend(r, 0, 1));
    switch (json_kind_of(from)) {
    case JSON_NONE:
        out->kind = VALUE_UNDEFINED;
        break;
    case JSON_NULL_VALUE:
        break;
    case JSON_BOOL:
        *out = value_of_bool(json_bool(from, false));
        break;
    case JSON_INT:
        *out = value_of_int(json_int(from, 0));
        break;
    case JSON_REAL:
        *out = value_of_real(json_real(from, 0.0));
        break;
    case JSON_TEXT:
        *out = value_of_text(json_text(from, ""), json_text_bytes(from));
        break;
    case JSON_LIST:
        return list_of_json(r, from, out);
    case JSON_MAP:
        return map_of_json(r, from, out);
    }
    return ST_OK;
}

// ---- facts --------------------------------------------------------------------------------------

bool value_is_number(const value *v)
{
    return v->kind == VALUE_BOOL || v->kind == VALUE_INT || v->kind == VALUE_REAL;
}

int64_t value_int(const value *v)
{
    return v->kind == VALUE_BOOL ? (v->as.truth ? 1 : 0) : v->as.integer;
}

double value_real(const value *v)
{
    return v->kind == VALUE_REAL ? v->as.real : (double)value_int(v);
}

int64_t slice_next(slice s, int64_t at, uint32_t *out)
{
    const unsigned char c = (unsigned char)s.bytes[at];
    int64_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    n = min_i64(n, s.count - at);
    uint32_t code = n == 1 ? c : c & (0x7fu >> n);
    for (int64_t i = 1; i < n; i++) code = code << 6 | ((unsigned char)s.bytes[at + i] & 0x3fu);
    *out = code;
    return at + n;
}

int64_t slice_characters(slice s)
{
    int64_t count = 0;
    for (int64_t i = 0; i < s.count; i++) count += (s.bytes[i] & 0xc0) != 0x80 ? 1 : 0;
    return count;
}

int64_t value_length(const value *v)
{
    switch (v->kind) {
    case VALUE_TEXT:
        return slice_characters(v->as.text);
    case VALUE_LIST:
        return v->as.list->count;
    case VALUE_MAP:
        return v->as.map->count;
    case VALUE_UNDEFINED:
        return 0;
    case VALUE_NONE:
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_REAL:
    case VALUE_NAMESPACE:
    case VALUE_MACRO:
    case VALUE_FUNCTION:
    case VALUE_METHOD:
    case VALUE_LOOP:
        break;
    }
    return -1;
}

bool value_truth(const value *v)
{
    if (v->kind == VALUE_NONE || v->kind == VALUE_UNDEFINED) return false;
    if (value_is_number(v)) return value_real(v) != 0.0;
    return value_length(v) != 0;
}

const char *value_kind_name(const value *v)
{
    static const char *const names[] = {"an undefined value",
                                        "none",
                                        "a bool",
                                        "an integer",
                                        "a number",
                                        "a text",
                                        "a list",
                                        "a mapping",
                                        "a namespace",
                                        "a macro",
                                        "a function",
                                        "a method",
                                        "a loop"};
    return names[v->kind];
}

// ---- comparing ----------------------------------------------------------------------------------

static bool list_equal(const value_list *a, const value_list *b)
{
    if (a->count != b->count || a->is_tuple != b->is_tuple) return false;
    for (int64_t i = 0; i < a->count; i++) {
        if (!value_equal(&a->items[i], &b->items[i])) return false;
    }
    return true;
}

static bool map_equal(const value_map *a, const value_map *b)
{
    if (a->count != b->count) return false;
    for (int64_t i = 0; i < a->count; i++) {
        value other = {.kind = VALUE_NONE};
        if (!value_map_find(b, &a->keys[i], &other) || !value_equal(&a->values[i], &other)) {
            return false;
        }
    }
    return true;
}

bool value_equal(const value *a, const value *b)
{
    if (value_is_number(a) && value_is_number(b)) {
        const bool real = a->kind == VALUE_REAL || b->kind == VALUE_REAL;
        return real ? value_real(a) == value_real(b) : value_int(a) == value_int(b);
    }
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return true;
    case VALUE_TEXT:
        return slice_equal(a->as.text, b->as.text);
    case VALUE_LIST:
        return list_equal(a->as.list, b->as.list);
    case VALUE_MAP:
        return map_equal(a->as.map, b->as.map);
    case VALUE_NAMESPACE:
        return a->as.map == b->as.map;
    case VALUE_MACRO:
        return a->as.macro == b->as.macro;
    case VALUE_FUNCTION:
        return a->as.function == b->as.function;
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_REAL:
    case VALUE_METHOD:
    case VALUE_LOOP:
        break;
    }
    return false;
}

static int order_of(double x, double y)
{
    return x < y ? -1 : x > y ? 1 : 0;
}

bool value_compare(const value *a, const value *b, int *out)
{
    if (value_is_number(a) && value_is_number(b)) {
        const int64_t x = value_int(a), y = value_int(b);
        const bool real = a->kind == VALUE_REAL || b->kind == VALUE_REAL;
        *out = real ? order_of(value_real(a), value_real(b)) : x < y ? -1 : x > y ? 1 : 0;
        return true;
    }
    if (a->kind == VALUE_TEXT && b->kind == VALUE_TEXT) {
        // UTF-8 sorts as its code points do.
        const slice x = a->as.text, y = b->as.text;
        const int c = memcmp(x.bytes, y.bytes, (size_t)min_i64(x.count, y.count));
        *out = c != 0 ? (c < 0 ? -1 : 1) : order_of((double)x.count, (double)y.count);
        return true;
    }
    if (a->kind != VALUE_LIST || b->kind != VALUE_LIST) return false;
    const value_list *x = a->as.list, *y = b->as.list;
    for (int64_t i = 0; i < x->count && i < y->count; i++) {
        if (value_equal(&x->items[i], &y->items[i])) continue;
        return value_compare(&x->items[i], &y->items[i], out);
    }
    *out = order_of((double)x->count, (double)y->count);
    return true;
}

// ---- members ------------------------------------------------------------------------------------

status value_items(jinja_run *r, int32_t at, const value *v, value_list **out)
{
    if (v->kind == VALUE_LIST) {
        *out = v->as.list;
        return ST_OK;
    }
    value_list *list = NULL;
    TRY(value_list_new(r, &list));
    if (v->kind == VALUE_TEXT) {
        TRY(run_spend(r, at, v->as.text.count));
        uint32_t code = 0;
        for (int64_t i = 0, next = 0; i < v->as.text.count; i = next) {
            next = slice_next(v->as.text, i, &code);
            TRY(value_list_add(r, list, value_of_text(v->as.text.bytes + i, next - i)));
        }
    } else if (v->kind == VALUE_MAP) {
        TRY(run_spend(r, at, v->as.map->count));
        for (int64_t i = 0; i < v->as.map->count; i++) {
            TRY(value_list_add(r, list, v->as.map->keys[i]));
        }
    } else if (v->kind != VALUE_UNDEFINED) {
        return jinja_fail(r->s, at, "%s has no items", value_kind_name(v));
    }
    *out = list;
    return ST_OK;
}

static bool contains_text(slice in, slice what)
{
    for (int64_t i = 0; i + what.count <= in.count; i++) {
        if (what.count == 0 || memcmp(in.bytes + i, what.bytes, (size_t)what.count) == 0) {
            return true;
        }
    }
    return false;
}

status value_contains(jinja_run *r, int32_t at, const value *in, const value *what, bool *out)
{
    value found = {.kind = VALUE_NONE};
    *out = false;
    if (in->kind == VALUE_TEXT) {
        if (what->kind != VALUE_TEXT) {
            return jinja_fail(r->s, at, "%s in a text", value_kind_name(what));
        }
        TRY(run_spend(r, at, in->as.text.count / 8));
        *out = contains_text(in->as.text, what->as.text);
    } else if (in->kind == VALUE_LIST) {
        TRY(run_spend(r, at, in->as.list->count));
        for (int64_t i = 0; i < in->as.list->count && !*out; i++) {
            *out = value_equal(&in->as.list->items[i], what);
        }
    } else if (in->kind == VALUE_MAP) {
        TRY(run_spend(r, at, in->as.map->count));
        *out = value_map_find(in->as.map, what, &found);
    } else if (in->kind != VALUE_UNDEFINED) {
        return jinja_fail(r->s, at, "%s has no items for `in`", value_kind_name(in));
    }
    return ST_OK;
}
