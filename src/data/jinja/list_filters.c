// Filters over lists.
#include "data/jinja/filters.h"

#include <string.h>

static value list_value(value_list *list)
{
    return (value){.kind = VALUE_LIST, .as.list = list};
}

static status self_items(filter_call *c, value_list **out)
{
    TRY(value_items(c->run, c->node->at, &c->self, out));
    return run_spend(c->run, c->node->at, (*out)->count);
}

static status item_at(filter_call *c, bool last, value *out)
{
    value_list *list = NULL;
    TRY(self_items(c, &list));
    *out = (value){.kind = VALUE_UNDEFINED};
    if (list->count > 0) *out = list->items[last ? list->count - 1 : 0];
    return ST_OK;
}

status filter_first(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return item_at(c, false, out);
}

status filter_last(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return item_at(c, true, out);
}

status filter_list(filter_call *c, const value *arguments, value *out)
{
    value_list *items = NULL, *list = NULL;
    (void)arguments;
    TRY(self_items(c, &items));
    TRY(value_list_new(c->run, &list));
    for (int64_t i = 0; i < items->count; i++) TRY(value_list_add(c->run, list, items->items[i]));
    *out = list_value(list);
    return ST_OK;
}

status filter_reverse(filter_call *c, const value *arguments, value *out)
{
    value_list *items = NULL, *list = NULL;
    text t = {.a = c->run->a};
    (void)arguments;
    TRY(self_items(c, &items));
    TRY(value_list_new(c->run, &list));
    for (int64_t i = items->count - 1; i >= 0; i--) {
        const value *v = &items->items[i];
        TRY(value_list_add(c->run, list, *v));
        if (c->self.kind == VALUE_TEXT) {
            TRY(text_add_bytes(&t, v->as.text.bytes, v->as.text.count));
        }
    }
    *out = list_value(list);
    if (c->self.kind == VALUE_TEXT) *out = value_of_text(t.length > 0 ? t.bytes : "", t.length);
    return ST_OK;
}

status filter_items(filter_call *c, const value *arguments, value *out)
{
    value_list *list = NULL;
    const slice name = {"items", 5};
    (void)arguments;
    if (c->self.kind == VALUE_UNDEFINED) {
        TRY(value_list_new(c->run, &list));
        *out = list_value(list);
        return ST_OK;
    }
    if (c->self.kind != VALUE_MAP) return call_fails(c, "a mapping", &c->self);
    return method_lookup(VALUE_MAP, name)->function.call(c, NULL, out);
}

// ---- attributes ---------------------------------------------------------------------------------

// "a.b.0" of a value, or the item with this number.
static status attribute_of(filter_call *c, const value *of, const value *path, value *out)
{
    *out = *of;
    if (path->kind == VALUE_INT) return value_index(c->run, c->node, of, path, out);
    if (path->kind != VALUE_TEXT) return call_fails(c, "the name of an attribute", path);
    slice rest = path->as.text;
    while (rest.count > 0) {
        const char *dot = memchr(rest.bytes, '.', (size_t)rest.count);
        const slice part = {rest.bytes, dot != NULL ? dot - rest.bytes : rest.count};
        const value inner = *out;
        value index = value_of_text(part.bytes, part.count);
        int64_t number = 0;
        bool is_number = part.count > 0 && part.count < 10;
        for (int64_t i = 0; i < part.count && is_number; i++) {
            is_number = part.bytes[i] >= '0' && part.bytes[i] <= '9';
            number = number * 10 + (part.bytes[i] - '0');
        }
        if (is_number) index = value_of_int(number);
        TRY(value_index(c->run, c->node, &inner, &index, out));
        rest.bytes += part.count + (dot != NULL ? 1 : 0);
        rest.count -= part.count + (dot != NULL ? 1 : 0);
    }
    return ST_OK;
}

static status key_of(filter_call *c, const value *of, const value *path, value *out)
{
    *out = *of;
    if (path->kind == VALUE_UNDEFINED || path->kind == VALUE_NONE) return ST_OK;
    return attribute_of(c, of, path, out);
}

status filter_join(filter_call *c, const value *arguments, value *out)
{
    value_list *items = NULL, *list = NULL;
    slice with = {"", 0};
    TRY(self_items(c, &items));
    TRY(call_text(c, &arguments[0], &with));
    TRY(value_list_new(c->run, &list));
    for (int64_t i = 0; i < items->count; i++) {
        value v = {.kind = VALUE_NONE};
        TRY(key_of(c, &items->items[i], &arguments[1], &v));
        TRY(value_list_add(c->run, list, v));
    }
    return text_joined(c, list, with, out);
}

// ---- order --------------------------------------------------------------------------------------

static char lower_of(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static status order_of(filter_call *c, const value *a, const value *b, bool by_case, int *out)
{
    if (!by_case && a->kind == VALUE_TEXT && b->kind == VALUE_TEXT) {
        const slice x = a->as.text, y = b->as.text;
        TRY(run_spend(c->run, c->node->at, min_i64(x.count, y.count) / 16));
        for (int64_t i = 0; i < x.count && i < y.count; i++) {
            const unsigned char p = (unsigned char)lower_of(x.bytes[i]);
            const unsigned char q = (unsigned char)lower_of(y.bytes[i]);
            *out = p < q ? -1 : 1;
            if (p != q) return ST_OK;
        }
        *out = x.count < y.count ? -1 : x.count > y.count ? 1 : 0;
        return ST_OK;
    }
    if (value_compare(a, b, out)) return ST_OK;
    return call_fails(c, "values of one kind, which have an order", b);
}

typedef struct order_rule {
    const value *attribute;
    bool by_case, reverse;
} order_rule;

// Keeps the order of equal items. Insertion: the steps of a rendering bound it.
static status sorted(filter_call *c, const value_list *items, const order_rule *rule,
                     value_list **out)
{
    value_list *list = NULL, *keys = NULL;
    TRY(value_list_new(c->run, &list));
    TRY(value_list_new(c->run, &keys));
    for (int64_t i = 0; i < items->count; i++) {
        value key = {.kind = VALUE_NONE};
        int64_t at = i;
        TRY(key_of(c, &items->items[i], rule->attribute, &key));
        TRY(value_list_add(c->run, list, items->items[i]));
        TRY(value_list_add(c->run, keys, key));
        for (; at > 0; at--) {
            int order = 0;
            TRY(run_spend(c->run, c->node->at, 1));
            TRY(order_of(c, &keys->items[at - 1], &key, rule->by_case, &order));
            if (rule->reverse ? order >= 0 : order <= 0) break;
            keys->items[at] = keys->items[at - 1];
            list->items[at] = list->items[at - 1];
        }
        keys->items[at] = key;
        list->items[at] = items->items[i];
    }
    *out = list;
    return ST_OK;
}

status filter_sort(filter_call *c, const value *arguments, value *out)
{
    value_list *items = NULL, *list = NULL;
    const order_rule rule = {.attribute = &arguments[2],
                             .by_case = value_truth(&arguments[1]),
                             .reverse = value_truth(&arguments[0])};
    TRY(self_items(c, &items));
    TRY(sorted(c, items, &rule, &list));
    *out = list_value(list);
    return ST_OK;
}

status filter_dictsort(filter_call *c, const value *arguments, value *out)
{
    value pairs = {.kind = VALUE_NONE};
    value_list *list = NULL;
    slice by = {"key", 3};
    TRY(call_text(c, &arguments[1], &by));
    if (!slice_is(by, "key") && !slice_is(by, "value")) {
        return call_fails(c, "by='key' or by='value'", &arguments[1]);
    }
    const value place = value_of_int(slice_is(by, "value") ? 1 : 0);
    const order_rule rule = {.attribute = &place,
                             .by_case = value_truth(&arguments[0]),
                             .reverse = value_truth(&arguments[2])};
    TRY(filter_items(c, NULL, &pairs));
    TRY(sorted(c, pairs.as.list, &rule, &list));
    *out = list_value(list);
    return ST_OK;
}

status list_sort_keys(filter_call *c, value *v)
{
    if (v->kind == VALUE_LIST) {
        value_list *list = NULL;
        TRY(value_list_new(c->run, &list));
        for (int64_t i = 0; i < v->as.list->count; i++) {
            value item = v->as.list->items[i];
            TRY(list_sort_keys(c, &item));
            TRY(value_list_add(c->run, list, item));
        }
        *v = list_value(list);
    }
    if (v->kind != VALUE_MAP) return ST_OK;
    const value none = {.kind = VALUE_UNDEFINED};
    const order_rule rule = {.attribute = &none, .by_case = true, .reverse = false};
    value_list *keys = NULL, *order = NULL;
    value_map *map = NULL;
    TRY(value_items(c->run, c->node->at, v, &keys));
    TRY(sorted(c, keys, &rule, &order));
    TRY(value_map_new(c->run, &map));
    for (int64_t i = 0; i < order->count; i++) {
        value item = {.kind = VALUE_NONE};
        (void)value_map_find(v->as.map, &order->items[i], &item);
        TRY(list_sort_keys(c, &item));
        TRY(value_map_set(c->run, map, order->items[i], item));
    }
    *v = (value){.kind = VALUE_MAP, .as.map = map};
    return ST_OK;
}

status filter_unique(filter_call *c, const value *arguments, value *out)
{
    value_list *items = NULL, *list = NULL, *keys = NULL;
    const bool by_case = value_truth(&arguments[0]);
    TRY(self_items(c, &items));
    TRY(value_list_new(c->run, &list));
    TRY(value_list_new(c->run, &keys));
    for (int64_t i = 0; i < items->count; i++) {
        value key = {.kind = VALUE_NONE};
        bool is_new = true;
        TRY(key_of(c, &items->items[i], &arguments[1], &key));
        for (int64_t k = 0; k < keys->count && is_new; k++) {
            int order = 1;
            TRY(run_spend(c->run, c->node->at, 1));
            const bool texts = key.kind == VALUE_TEXT && keys->items[k].kind == VALUE_TEXT;
            if (texts) TRY(order_of(c, &keys->items[k], &key, by_case, &order));
            is_new = texts ? order != 0 : !value_equal(&keys->items[k], &key);
        }
        if (!is_new) continue;
        TRY(value_list_add(c->run, keys, key));
        TRY(value_list_add(c->run, list, items->items[i]));
    }
    *out = list_value(list);
    return ST_OK;
}

static status extreme(filter_call *c, const value *arguments, int wanted, value *out)
{
    value_list *items = NULL;
    value best = {.kind = VALUE_NONE};
    TRY(self_items(c, &items));
    *out = (value){.kind = VALUE_UNDEFINED};
    for (int64_t i = 0; i < items->count; i++) {
        value key = {.kind = VALUE_NONE};
        int order = wanted;
        TRY(key_of(c, &items->items[i], &arguments[1], &key));
        if (i > 0) TRY(order_of(c, &key, &best, value_truth(&arguments[0]), &order));
        if (order != wanted) continue;
        best = key;
        *out = items->items[i];
    }
    return ST_OK;
}

status filter_min(filter_call *c, const value *arguments, value *out)
{
    return extreme(c, arguments, -1, out);
}

status filter_max(filter_call *c, const value *arguments, value *out)
{
    return extreme(c, arguments, 1, out);
}

status filter_sum(filter_call *c, const value *arguments, value *out)
{
    value_list *items = NULL;
    const node plus = {.kind = NODE_BINARY, .at = c->node->at, .name = {"+", 1}};
    TRY(self_items(c, &items));
    *out = arguments[1].kind == VALUE_UNDEFINED ? value_of_int(0) : arguments[1];
    for (int64_t i = 0; i < items->count; i++) {
        value v = {.kind = VALUE_NONE};
        TRY(key_of(c, &items->items[i], &arguments[0], &v));
        TRY(evaluate_binary(c->run, &plus, *out, v, out));
    }
    return ST_OK;
}

// ---- select and map -----------------------------------------------------------------------------

// The arguments from `first` on, for a test or filter that is named by the one before.
static call_arguments arguments_after(const call_arguments *all, int64_t first)
{
    return (call_arguments){.values = all->values + first,
                            .names = all->names,
                            .count = all->count - first,
                            .named_count = all->named_count};
}

// selectattr(attribute, test, ...) and select(test, ...); without a test, the truth.
static status select_items(filter_call *c, bool by_attribute, bool wanted, value *out)
{
    value_list *items = NULL, *list = NULL;
    const call_arguments *given = &c->arguments;
    const int64_t first = by_attribute ? 1 : 0;
    int32_t code = -1;
    if (given->count < first || given->named_count > 0) {
        return jinja_fail(c->run->s, c->node->at, "the name of an attribute expected");
    }
    if (given->count > first) {
        const value *name = &given->values[first];
        if (name->kind != VALUE_TEXT) return call_fails(c, "the name of a test", name);
        code = test_find(name->as.text);
        if (code < 0) {
            return jinja_fail(c->run->s, c->node->at, "the test %.*s is not supported",
                              (int)min_i64(name->as.text.count, 60), name->as.text.bytes);
        }
    }
    const call_arguments rest = arguments_after(given, min_i64(first + 1, given->count));
    TRY(self_items(c, &items));
    TRY(value_list_new(c->run, &list));
    for (int64_t i = 0; i < items->count; i++) {
        value v = items->items[i];
        if (by_attribute) TRY(attribute_of(c, &items->items[i], &given->values[0], &v));
        bool holds = value_truth(&v);
        if (code >= 0) TRY(test_apply(c->run, c->node, code, v, &rest, &holds));
        if (holds == wanted) TRY(value_list_add(c->run, list, items->items[i]));
    }
    *out = list_value(list);
    return ST_OK;
}

status filter_select(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return select_items(c, false, true, out);
}

status filter_reject(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return select_items(c, false, false, out);
}

status filter_selectattr(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return select_items(c, true, true, out);
}

status filter_rejectattr(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return select_items(c, true, false, out);
}

// An argument of map by its name; NULL: not given.
static const value *named(const call_arguments *given, const char *name)
{
    for (int64_t i = 0; i < given->named_count; i++) {
        if (!slice_is(given->names[i], name)) continue;
        return &given->values[given->count - given->named_count + i];
    }
    return NULL;
}

static status map_attribute(filter_call *c, const value *attribute, const value *otherwise,
                            value *out)
{
    value_list *items = NULL, *list = NULL;
    TRY(self_items(c, &items));
    TRY(value_list_new(c->run, &list));
    for (int64_t i = 0; i < items->count; i++) {
        value v = {.kind = VALUE_NONE};
        TRY(attribute_of(c, &items->items[i], attribute, &v));
        if (v.kind == VALUE_UNDEFINED && otherwise != NULL) v = *otherwise;
        TRY(value_list_add(c->run, list, v));
    }
    *out = list_value(list);
    return ST_OK;
}

status filter_map(filter_call *c, const value *arguments, value *out)
{
    value_list *items = NULL, *list = NULL;
    const call_arguments *given = &c->arguments;
    const value *attribute = named(given, "attribute");
    (void)arguments;
    if (attribute != NULL) return map_attribute(c, attribute, named(given, "default"), out);
    if (given->count == given->named_count || given->values[0].kind != VALUE_TEXT) {
        return jinja_fail(c->run->s, c->node->at, "map of no filter and no attribute");
    }
    const slice name = given->values[0].as.text;
    const int32_t code = filter_find(name);
    if (code < 0) {
        return jinja_fail(c->run->s, c->node->at, "the filter %.*s is not supported",
                          (int)min_i64(name.count, 60), name.bytes);
    }
    const call_arguments rest = arguments_after(given, 1);
    TRY(self_items(c, &items));
    TRY(value_list_new(c->run, &list));
    for (int64_t i = 0; i < items->count; i++) {
        value v = {.kind = VALUE_NONE};
        TRY(filter_apply(c->run, c->node, code, items->items[i], &rest, &v));
        TRY(value_list_add(c->run, list, v));
    }
    *out = list_value(list);
    return ST_OK;
}
