// Global functions and the methods of texts, lists and mappings: those that change no value.
#include "data/jinja/jinja_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

// ---- binding ------------------------------------------------------------------------------------

// The place of a parameter in "a b c"; -1 if there is none of that name.
static int64_t parameter_place(const char *parameters, slice name)
{
    int64_t place = 0;
    for (const char *at = parameters; *at != 0; place++) {
        const int64_t n = (int64_t)strcspn(at, " ");
        const slice one = {at, n};
        if (slice_equal(one, name)) return place;
        at += n;
        while (*at == ' ') at++;
    }
    return -1;
}

static int64_t parameter_count(const char *parameters)
{
    int64_t count = *parameters != 0 ? 1 : 0;
    for (const char *at = parameters; *at != 0; at++) count += *at == ' ' ? 1 : 0;
    return count;
}

status function_call(filter_call *c, const function *f, value *out)
{
    value bound[FUNCTION_ARGUMENTS_MAX];
    const call_arguments *given = &c->arguments;
    const int64_t placed = given->count - given->named_count;
    const int64_t wanted = parameter_count(f->parameters);
    ASSERT(wanted <= FUNCTION_ARGUMENTS_MAX);
    if (strcmp(f->parameters, "*") == 0) return f->call(c, NULL, out); // reads c->arguments
    if (placed > wanted) {
        return jinja_fail(c->run->s, c->node->at, "%s takes at most %lld argument%s", f->name,
                          (long long)wanted, text_plural(wanted, "s"));
    }
    for (int64_t i = 0; i < FUNCTION_ARGUMENTS_MAX; i++) {
        bound[i] = i < placed ? given->values[i] : (value){.kind = VALUE_UNDEFINED};
    }
    for (int64_t i = 0; i < given->named_count; i++) {
        const int64_t place = parameter_place(f->parameters, given->names[i]);
        if (place < placed) {
            return jinja_fail(c->run->s, c->node->at, "%s takes no argument %.*s here", f->name,
                              (int)min_i64(given->names[i].count, 60), given->names[i].bytes);
        }
        bound[place] = given->values[placed + i];
    }
    return f->call(c, bound, out);
}

status call_fails(const filter_call *c, const char *expected, const value *found)
{
    return jinja_fail(c->run->s, c->node->at, "%s, %s expected", value_kind_name(found), expected);
}

status call_text(const filter_call *c, const value *argument, slice *out)
{
    if (argument->kind == VALUE_UNDEFINED) return ST_OK;
    if (argument->kind != VALUE_TEXT) return call_fails(c, "a text", argument);
    *out = argument->as.text;
    return ST_OK;
}

status call_int(const filter_call *c, const value *argument, int64_t *out)
{
    if (argument->kind == VALUE_UNDEFINED) return ST_OK;
    if (argument->kind != VALUE_INT && argument->kind != VALUE_BOOL) {
        return call_fails(c, "an integer", argument);
    }
    *out = value_int(argument);
    return ST_OK;
}

// ---- functions ----------------------------------------------------------------------------------

static status function_raise(filter_call *c, const value *arguments, value *out)
{
    value v = {.kind = VALUE_NONE};
    (void)out;
    TRY(value_text(c->run, &arguments[0], &v));
    return jinja_fail(c->run->s, c->node->at, "the template refuses the messages: %.*s",
                      (int)min_i64(v.as.text.count, 400), v.as.text.bytes);
}

static status function_range(filter_call *c, const value *arguments, value *out)
{
    int64_t n[3] = {0, 0, 1};
    const bool one = arguments[1].kind == VALUE_UNDEFINED;
    value_list *list = NULL;
    for (int i = 0; i < 3; i++) {
        if (i > 0 && arguments[i].kind == VALUE_UNDEFINED) continue;
        if (arguments[i].kind != VALUE_INT) return call_fails(c, "an integer", &arguments[i]);
        n[one && i == 0 ? 1 : i] = arguments[i].as.integer;
    }
    if (n[2] == 0) return jinja_fail(c->run->s, c->node->at, "a range with step 0");
    TRY(value_list_new(c->run, &list));
    for (int64_t i = n[0]; n[2] > 0 ? i < n[1] : i > n[1];) {
        TRY(run_spend(c->run, c->node->at, 1));
        TRY(value_list_add(c->run, list, value_of_int(i)));
        if (__builtin_add_overflow(i, n[2], &i)) break;
    }
    *out = (value){.kind = VALUE_LIST, .as.list = list};
    return ST_OK;
}

// namespace(a=1) and dict(a=1), perhaps with a mapping first.
static status function_map(filter_call *c, value_kind kind, value *out)
{
    value_map *map = NULL;
    const call_arguments *given = &c->arguments;
    const int64_t placed = given->count - given->named_count;
    TRY(value_map_new(c->run, &map));
    if (placed > 1 || (placed == 1 && given->values[0].kind != VALUE_MAP)) {
        return jinja_fail(c->run->s, c->node->at, "arguments without names, a mapping expected");
    }
    for (int64_t i = 0; placed == 1 && i < given->values[0].as.map->count; i++) {
        const value_map *from = given->values[0].as.map;
        TRY(value_map_set(c->run, map, from->keys[i], from->values[i]));
    }
    for (int64_t i = 0; i < given->named_count; i++) {
        const value key = value_of_text(given->names[i].bytes, given->names[i].count);
        TRY(value_map_set(c->run, map, key, given->values[placed + i]));
    }
    *out = (value){.kind = kind, .as.map = map};
    return ST_OK;
}

static status function_namespace(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return function_map(c, VALUE_NAMESPACE, out);
}

static status function_dict(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return function_map(c, VALUE_MAP, out);
}

static status function_strftime(filter_call *c, const value *arguments, value *out)
{
    enum { DATE_BYTES = 512, FORMAT_BYTES = 128 };
    char format[FORMAT_BYTES], *date = NULL;
    const time_t now = (time_t)c->run->context->unix_s;
    struct tm parts;
    if (arguments[0].kind != VALUE_TEXT) return call_fails(c, "a text", &arguments[0]);
    const slice s = arguments[0].as.text;
    // The blank before tells an empty date from one that does not fit.
    if (s.count + 2 > FORMAT_BYTES || memchr(s.bytes, 0, (size_t)s.count) != NULL) {
        return jinja_fail(c->run->s, c->node->at, "a format of more than %d bytes",
                          FORMAT_BYTES - 2);
    }
    (void)snprintf(format, sizeof(format), " %.*s", (int)s.count, s.bytes);
    TRY(arena_new(c->run->a, DATE_BYTES, &date));
    if (gmtime_r(&now, &parts) == NULL) return jinja_fail(c->run->s, c->node->at, "no such time");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const size_t n = strftime(date, DATE_BYTES, format, &parts);
#pragma GCC diagnostic pop
    if (n == 0) return jinja_fail(c->run->s, c->node->at, "a date of more than %d bytes", 510);
    *out = value_of_text(date + 1, (int64_t)n - 1);
    return ST_OK;
}

const function *global_find(slice name)
{
    static const function functions[] = {
        {"raise_exception", "message", function_raise},
        {"range", "start stop step", function_range},
        {"namespace", "*", function_namespace},
        {"dict", "*", function_dict},
        {"strftime_now", "format", function_strftime},
    };
    for (int64_t i = 0; i < COUNT_OF(functions); i++) {
        if (slice_is(name, functions[i].name)) return &functions[i];
    }
    return NULL;
}

// ---- methods of mappings, lists and loops -------------------------------------------------------

static status map_get(filter_call *c, const value *arguments, value *out)
{
    TRY(run_spend(c->run, c->node->at, c->self.as.map->count / 8));
    if (value_map_find(c->self.as.map, &arguments[0], out)) return ST_OK;
    *out = arguments[1].kind == VALUE_UNDEFINED ? (value){.kind = VALUE_NONE} : arguments[1];
    return ST_OK;
}

enum { WITH_KEYS = 1, WITH_VALUES = 2 };

static status map_list(filter_call *c, int what, value *out)
{
    const value_map *map = c->self.as.map;
    value_list *list = NULL;
    TRY(value_list_new(c->run, &list));
    TRY(run_spend(c->run, c->node->at, map->count));
    for (int64_t i = 0; i < map->count; i++) {
        value v = what == WITH_KEYS ? map->keys[i] : map->values[i];
        if (what == (WITH_KEYS | WITH_VALUES)) {
            value_list *pair = NULL;
            TRY(value_list_new(c->run, &pair));
            pair->is_tuple = true;
            TRY(value_list_add(c->run, pair, map->keys[i]));
            TRY(value_list_add(c->run, pair, map->values[i]));
            v = (value){.kind = VALUE_LIST, .as.list = pair};
        }
        TRY(value_list_add(c->run, list, v));
    }
    *out = (value){.kind = VALUE_LIST, .as.list = list};
    return ST_OK;
}

static status map_items(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return map_list(c, WITH_KEYS | WITH_VALUES, out);
}

static status map_keys(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return map_list(c, WITH_KEYS, out);
}

static status map_values(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    return map_list(c, WITH_VALUES, out);
}

static status list_find(filter_call *c, const value *arguments, value *out)
{
    const value_list *list = c->self.as.list;
    TRY(run_spend(c->run, c->node->at, list->count));
    for (int64_t i = 0; i < list->count; i++) {
        if (!value_equal(&list->items[i], &arguments[0])) continue;
        *out = value_of_int(i);
        return ST_OK;
    }
    return jinja_fail(c->run->s, c->node->at, "index of a value that the list does not hold");
}

static status list_count(filter_call *c, const value *arguments, value *out)
{
    const value_list *list = c->self.as.list;
    int64_t count = 0;
    TRY(run_spend(c->run, c->node->at, list->count));
    for (int64_t i = 0; i < list->count; i++) {
        count += value_equal(&list->items[i], &arguments[0]) ? 1 : 0;
    }
    *out = value_of_int(count);
    return ST_OK;
}

static status loop_cycle(filter_call *c, const value *arguments, value *out)
{
    (void)arguments;
    if (c->arguments.count == 0) return jinja_fail(c->run->s, c->node->at, "cycle of no values");
    *out = c->arguments.values[c->self.as.loop->at % c->arguments.count];
    return ST_OK;
}

static status loop_changed(filter_call *c, const value *arguments, value *out)
{
    loop *l = c->self.as.loop;
    *out = value_of_bool(!l->has_last || !value_equal(&l->last, &arguments[0]));
    l->has_last = true;
    l->last = arguments[0];
    return ST_OK;
}

const method *method_lookup(value_kind of, slice name)
{
    if (of == VALUE_TEXT) return method_of_text(name);
    static const method methods[] = {
        {VALUE_MAP, {"get", "key default", map_get}},
        {VALUE_MAP, {"items", "", map_items}},
        {VALUE_MAP, {"keys", "", map_keys}},
        {VALUE_MAP, {"values", "", map_values}},
        {VALUE_LIST, {"index", "value", list_find}},
        {VALUE_LIST, {"count", "value", list_count}},
        {VALUE_LOOP, {"cycle", "*", loop_cycle}},
        {VALUE_LOOP, {"changed", "value", loop_changed}},
    };
    for (int64_t i = 0; i < COUNT_OF(methods); i++) {
        if (methods[i].of == of && slice_is(name, methods[i].function.name)) return &methods[i];
    }
    return NULL;
}
