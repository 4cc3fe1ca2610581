// Attributes, indices and slices of values.
#include "data/jinja/jinja_internal.h"

#include <string.h>

static status loop_attribute(jinja_run *r, const node *n, const loop *l, slice name, value *out)
{
    const int64_t at = l->at, count = l->list->count;
    static const char *const names[] = {"index",  "index0",   "revindex", "revindex0",
                                        "first",  "last",     "length",   "depth",
                                        "depth0", "previtem", "nextitem"};
    const value values[] = {
        value_of_int(at + 1),         value_of_int(at),           value_of_int(count - at),
        value_of_int(count - at - 1), value_of_bool(at == 0),     value_of_bool(at == count - 1),
        value_of_int(count),          value_of_int(l->depth + 1), value_of_int(l->depth)};
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        if (!slice_is(name, names[i])) continue;
        if (i < COUNT_OF(values)) {
            *out = values[i];
        } else {
            const int64_t other = i == COUNT_OF(values) ? at - 1 : at + 1;
            *out = other >= 0 && other < count ? l->list->items[other]
                                               : (value){.kind = VALUE_UNDEFINED};
        }
        return ST_OK;
    }
    return jinja_fail(r->s, n->at, "loop.%.*s is not supported", (int)min_i64(name.count, 60),
                      name.bytes);
}

static status bind_method(jinja_run *r, const value *of, const method *m, value *out)
{
    value *self = NULL;
    TRY(arena_new(r->a, 1, &self));
    *self = *of;
    *out = (value){.kind = VALUE_METHOD, .as.bound = {.method = m, .self = self}};
    return ST_OK;
}

status value_attribute(jinja_run *r, const node *n, const value *of, slice name, value *out)
{
    if (of->kind == VALUE_UNDEFINED) {
        return jinja_fail(r->s, n->at, "%.*s of an undefined value%s%.*s",
                          (int)min_i64(name.count, 60), name.bytes,
                          n->a->name.count > 0 ? ", " : "", (int)min_i64(n->a->name.count, 60),
                          n->a->name.count > 0 ? n->a->name.bytes : "");
    }
    const method *m = method_lookup(of->kind, name);
    if (m != NULL) return bind_method(r, of, m, out);
    if (of->kind == VALUE_LOOP) return loop_attribute(r, n, of->as.loop, name, out);
    if (of->kind == VALUE_MAP || of->kind == VALUE_NAMESPACE) {
        TRY(run_spend(r, n->at, of->as.map->count / 8));
        if (value_map_get(of->as.map, name, out)) return ST_OK;
    }
    *out = (value){.kind = VALUE_UNDEFINED};
    return ST_OK;
}

static status text_at(jinja_run *r, const node *n, slice s, int64_t index, value *out)
{
    uint32_t code = 0;
    int64_t at = 0;
    TRY(run_spend(r, n->at, s.count / 8));
    *out = (value){.kind = VALUE_UNDEFINED};
    for (int64_t i = 0, next = 0; at < s.count; i++, at = next) {
        next = slice_next(s, at, &code);
        if (i < index) continue;
        *out = value_of_text(s.bytes + at, next - at);
        break;
    }
    return ST_OK;
}

status value_index(jinja_run *r, const node *n, const value *of, const value *index, value *out)
{
    const bool is_int = index->kind == VALUE_INT || index->kind == VALUE_BOOL;
    *out = (value){.kind = VALUE_UNDEFINED};
    if (of->kind == VALUE_UNDEFINED) {
        return jinja_fail(r->s, n->at, "a member of an undefined value");
    }
    if (of->kind == VALUE_MAP) {
        TRY(run_spend(r, n->at, of->as.map->count / 8));
        if (value_map_find(of->as.map, index, out)) return ST_OK;
    }
    if (index->kind == VALUE_TEXT) return value_attribute(r, n, of, index->as.text, out);
    if (!is_int || (of->kind != VALUE_LIST && of->kind != VALUE_TEXT)) return ST_OK;
    const int64_t count = value_length(of);
    int64_t i = value_int(index);
    if (i < 0) i += count;
    if (i < 0 || i >= count) return ST_OK;
    if (of->kind == VALUE_TEXT) return text_at(r, n, of->as.text, i, out);
    *out = of->as.list->items[i];
    return ST_OK;
}

// ---- slices -------------------------------------------------------------------------------------

static status slice_part(jinja_run *r, const node *n, int64_t index, int64_t otherwise,
                         int64_t *out)
{
    value v = {.kind = VALUE_NONE};
    const node *part = n->items.items[index];
    *out = otherwise;
    if (part == NULL) return ST_OK;
    TRY(evaluate(r, part, &v));
    if (v.kind == VALUE_NONE) return ST_OK;
    if (v.kind != VALUE_INT && v.kind != VALUE_BOOL) {
        return jinja_fail(r->s, part->at, "a slice with %s as its bound", value_kind_name(&v));
    }
    *out = value_int(&v);
    return ST_OK;
}

static int64_t clamp(int64_t x, int64_t count, int64_t low, int64_t high)
{
    if (x < 0) x = x < -count ? low : x + count;
    return x < low ? low : x > high ? high : x;
}

status evaluate_slice(jinja_run *r, const node *n, value *out)
{
    value of = {.kind = VALUE_NONE};
    value_list *items = NULL, *list = NULL;
    int64_t step = 1, begin = 0, end = 0;
    TRY(evaluate(r, n->a, &of));
    if (of.kind != VALUE_LIST && of.kind != VALUE_TEXT) {
        return jinja_fail(r->s, n->at, "a slice of %s", value_kind_name(&of));
    }
    TRY(value_items(r, n->at, &of, &items));
    TRY(slice_part(r, n, 2, 1, &step));
    if (step == 0) return jinja_fail(r->s, n->at, "a slice with step 0");
    const int64_t count = items->count;
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? count - 1 : count;
    step = step < -count - 1 ? -count - 1 : step > count + 1 ? count + 1 : step;
    TRY(slice_part(r, n, 0, step < 0 ? INT64_MAX : 0, &begin));
    TRY(slice_part(r, n, 1, step < 0 ? INT64_MIN : INT64_MAX, &end));
    begin = clamp(begin, count, low, high);
    end = clamp(end, count, low, high);
    TRY(value_list_new(r, &list));
    list->is_tuple = items->is_tuple;
    for (int64_t i = begin; step < 0 ? i > end : i < end; i += step) {
        TRY(value_list_add(r, list, items->items[i]));
    }
    TRY(run_spend(r, n->at, list->count));
    *out = (value){.kind = VALUE_LIST, .as.list = list};
    if (of.kind == VALUE_LIST) return ST_OK;
    text t = {.a = r->a};
    for (int64_t i = 0; i < list->count; i++) {
        TRY(text_add_bytes(&t, list->items[i].as.text.bytes, list->items[i].as.text.count));
    }
    *out = value_of_text(t.length > 0 ? t.bytes : "", t.length);
    return ST_OK;
}
