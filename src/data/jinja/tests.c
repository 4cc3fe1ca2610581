// Tests of templates: `x is defined`, and by name in select and reject.
#include "data/jinja/jinja_internal.h"

#include <string.h>

typedef struct test_call {
    filter_call call;
    const value *argument; // NULL: none
} test_call;

typedef struct test_row {
    const char *name;
    bool (*holds)(const value *v);                    // of the value alone, or
    status (*compare)(const test_call *t, bool *out); // with an argument
    const char *sign;                                 // of a comparison
} test_row;

static bool is_defined(const value *v)
{
    return v->kind != VALUE_UNDEFINED;
}

static bool is_undefined(const value *v)
{
    return v->kind == VALUE_UNDEFINED;
}

static bool is_none(const value *v)
{
    return v->kind == VALUE_NONE;
}

static bool is_string(const value *v)
{
    return v->kind == VALUE_TEXT;
}

static bool is_integer(const value *v)
{
    return v->kind == VALUE_INT;
}

static bool is_real(const value *v)
{
    return v->kind == VALUE_REAL;
}

static bool is_bool(const value *v)
{
    return v->kind == VALUE_BOOL;
}

static bool is_true(const value *v)
{
    return v->kind == VALUE_BOOL && v->as.truth;
}

static bool is_false(const value *v)
{
    return v->kind == VALUE_BOOL && !v->as.truth;
}

static bool is_mapping(const value *v)
{
    return v->kind == VALUE_MAP;
}

static bool is_iterable(const value *v)
{
    return value_length(v) >= 0;
}

static bool is_callable(const value *v)
{
    return v->kind == VALUE_MACRO || v->kind == VALUE_FUNCTION || v->kind == VALUE_METHOD;
}

static bool has_letters(const value *v, bool upper)
{
    bool has_any = false, has_other = false;
    for (int64_t i = 0; v->kind == VALUE_TEXT && i < v->as.text.count; i++) {
        const char c = v->as.text.bytes[i];
        const bool is_upper = c >= 'A' && c <= 'Z', is_lower = c >= 'a' && c <= 'z';
        has_any = has_any || (upper ? is_upper : is_lower);
        has_other = has_other || (upper ? is_lower : is_upper);
    }
    return has_any && !has_other;
}

static bool is_upper(const value *v)
{
    return has_letters(v, true);
}

static bool is_lower(const value *v)
{
    return has_letters(v, false);
}

static status divides(const test_call *t, const value *by, int64_t rest, bool *out)
{
    const value *v = &t->call.self;
    if (v->kind != VALUE_INT || by->kind != VALUE_INT || by->as.integer == 0) {
        return call_fails(&t->call, "an integer, divided by one that is not 0", v);
    }
    const int64_t found = by->as.integer == -1 ? 0 : v->as.integer % by->as.integer;
    *out = (found != 0) == (rest != 0);
    return ST_OK;
}

static status is_odd(const test_call *t, bool *out)
{
    const value two = value_of_int(2);
    return divides(t, &two, 1, out);
}

static status is_even(const test_call *t, bool *out)
{
    const value two = value_of_int(2);
    return divides(t, &two, 0, out);
}

static status is_divisible(const test_call *t, bool *out)
{
    return divides(t, t->argument, 0, out);
}

static status is_in(const test_call *t, bool *out)
{
    return value_contains(t->call.run, t->call.node->at, t->argument, &t->call.self, out);
}

// The same object: for values that never change, the same kind and content.
static status is_same(const test_call *t, bool *out)
{
    *out = t->call.self.kind == t->argument->kind && value_equal(&t->call.self, t->argument);
    return ST_OK;
}

static const test_row rows[] = {
    {"defined", is_defined, NULL, NULL},
    {"undefined", is_undefined, NULL, NULL},
    {"none", is_none, NULL, NULL},
    {"string", is_string, NULL, NULL},
    {"number", value_is_number, NULL, NULL},
    {"integer", is_integer, NULL, NULL},
    {"float", is_real, NULL, NULL},
    {"boolean", is_bool, NULL, NULL},
    {"true", is_true, NULL, NULL},
    {"false", is_false, NULL, NULL},
    {"mapping", is_mapping, NULL, NULL},
    {"iterable", is_iterable, NULL, NULL},
    {"sequence", is_iterable, NULL, NULL},
    {"callable", is_callable, NULL, NULL},
    {"upper", is_upper, NULL, NULL},
    {"lower", is_lower, NULL, NULL},
    {"odd", NULL, is_odd, NULL},
    {"even", NULL, is_even, NULL},
    {"divisibleby", NULL, is_divisible, "%"},
    {"in", NULL, is_in, "in"},
    {"sameas", NULL, is_same, "is"},
    {"eq", NULL, NULL, "=="},
    {"equalto", NULL, NULL, "=="},
    {"==", NULL, NULL, "=="},
    {"ne", NULL, NULL, "!="},
    {"!=", NULL, NULL, "!="},
    {"lt", NULL, NULL, "<"},
    {"lessthan", NULL, NULL, "<"},
    {"<", NULL, NULL, "<"},
    {"le", NULL, NULL, "<="},
    {"<=", NULL, NULL, "<="},
    {"gt", NULL, NULL, ">"},
    {"greaterthan", NULL, NULL, ">"},
    {">", NULL, NULL, ">"},
    {"ge", NULL, NULL, ">="},
    {">=", NULL, NULL, ">="},
};

int32_t test_find(slice name)
{
    for (int32_t i = 0; i < COUNT_OF(rows); i++) {
        if (slice_is(name, rows[i].name)) return i;
    }
    return -1;
}

static status compare(const test_call *t, const char *sign, bool *out)
{
    int order = 0;
    if (sign[1] == '=' && (sign[0] == '=' || sign[0] == '!')) {
        *out = value_equal(&t->call.self, t->argument) == (sign[0] == '=');
        return ST_OK;
    }
    if (!value_compare(&t->call.self, t->argument, &order)) {
        return call_fails(&t->call, "a value that has an order with the other", &t->call.self);
    }
    *out = (sign[1] == '=' && order == 0) || (sign[0] == '>' ? order > 0 : order < 0);
    return ST_OK;
}

status test_apply(jinja_run *r, const node *n, int32_t code, value self,
                  const call_arguments *arguments, bool *out)
{
    const test_row *row = &rows[code];
    const int64_t wanted = row->sign != NULL ? 1 : 0;
    if (arguments->count != wanted || arguments->named_count > 0) {
        return jinja_fail(r->s, n->at, "the test %s takes %lld argument%s", row->name,
                          (long long)wanted, text_plural(wanted, "s"));
    }
    const test_call t = {.call = {.run = r, .node = n, .self = self},
                         .argument = wanted > 0 ? &arguments->values[0] : NULL};
    if (row->holds != NULL) {
        *out = row->holds(&self);
        return ST_OK;
    }
    return row->compare != NULL ? row->compare(&t, out) : compare(&t, row->sign, out);
}
