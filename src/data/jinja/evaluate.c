// Expressions of a rendering.
#include "data/jinja/jinja_internal.h"

#include <math.h>
#include <string.h>

static status evaluate_constant(const node *n, value *out)
{
    const token *t = n->value;
    if (t->kind == TOKEN_TEXT) *out = value_of_text(t->text.bytes, t->text.count);
    if (t->kind == TOKEN_INT) *out = value_of_int(t->integer);
    if (t->kind == TOKEN_REAL) *out = value_of_real(t->real);
    return ST_OK;
}

static status evaluate_name(jinja_run *r, const node *n, value *out)
{
    static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
    if (run_find(r, n->name, out)) return ST_OK;
    for (int64_t i = 0; i < COUNT_OF(words); i++) {
        if (!slice_is(n->name, words[i])) continue;
        *out = i < 4 ? value_of_bool(i < 2) : (value){.kind = VALUE_NONE};
        return ST_OK;
    }
    const function *f = global_find(n->name);
    *out = f != NULL ? (value){.kind = VALUE_FUNCTION, .as.function = f}
                     : (value){.kind = VALUE_UNDEFINED};
    return ST_OK;
}

static status evaluate_list(jinja_run *r, const node *n, value *out)
{
    value_list *list = NULL;
    TRY(value_list_new(r, &list));
    list->is_tuple = n->negated;
    for (int64_t i = 0; i < n->items.count; i++) {
        value v = {.kind = VALUE_NONE};
        TRY(evaluate(r, n->items.items[i], &v));
        TRY(value_list_add(r, list, v));
    }
    *out = (value){.kind = VALUE_LIST, .as.list = list};
    return ST_OK;
}

static status evaluate_map(jinja_run *r, const node *n, value *out)
{
    value_map *map = NULL;
    TRY(value_map_new(r, &map));
    for (int64_t i = 0; i < n->items.count; i += 2) {
        value key = {.kind = VALUE_NONE}, v = {.kind = VALUE_NONE};
        TRY(evaluate(r, n->items.items[i], &key));
        TRY(evaluate(r, n->items.items[i + 1], &v));
        TRY(value_map_set(r, map, key, v));
    }
    *out = (value){.kind = VALUE_MAP, .as.map = map};
    return ST_OK;
}

// ---- operators ----------------------------------------------------------------------------------

static status compare_one(jinja_run *r, const node *n, const value *a, const value *b, bool *out)
{
    int order = 0;
    if (slice_is(n->name, "==") || slice_is(n->name, "!=")) {
        *out = value_equal(a, b) == slice_is(n->name, "==");
        return ST_OK;
    }
    if (slice_is(n->name, "in")) return value_contains(r, n->at, b, a, out);
    if (slice_is(n->name, "not in")) {
        TRY(value_contains(r, n->at, b, a, out));
        *out = !*out;
        return ST_OK;
    }
    if (!value_compare(a, b, &order)) {
        return jinja_fail(r->s, n->at, "%s and %s have no order", value_kind_name(a),
                          value_kind_name(b));
    }
    const bool greater = n->name.bytes[0] == '>';
    *out = (n->name.count > 1 && order == 0) || (greater ? order > 0 : order < 0);
    return ST_OK;
}

static status evaluate_compare(jinja_run *r, const node *n, value *out)
{
    value left = {.kind = VALUE_NONE};
    bool holds = true;
    TRY(evaluate(r, n->a, &left));
    for (int64_t i = 0; i < n->items.count && holds; i++) {
        value right = {.kind = VALUE_NONE};
        TRY(evaluate(r, n->items.items[i]->a, &right));
        TRY(compare_one(r, n->items.items[i], &left, &right, &holds));
        left = right;
    }
    *out = value_of_bool(holds);
    return ST_OK;
}

static status evaluate_sign(jinja_run *r, const node *n, value *out)
{
    value v = {.kind = VALUE_NONE};
    TRY(evaluate(r, n->a, &v));
    if (!value_is_number(&v)) {
        return jinja_fail(r->s, n->at, "the sign of %s", value_kind_name(&v));
    }
    if (v.kind == VALUE_REAL) {
        *out = value_of_real(n->kind == NODE_NEGATIVE ? -v.as.real : v.as.real);
        return ST_OK;
    }
    int64_t i = value_int(&v);
    if (n->kind == NODE_NEGATIVE && __builtin_sub_overflow(0, i, &i)) {
        return jinja_fail(r->s, n->at, "an integer of more than 64 bits");
    }
    *out = value_of_int(i);
    return ST_OK;
}

static status evaluate_words(jinja_run *r, const node *n, value *out)
{
    TRY(evaluate(r, n->a, out));
    if (value_truth(out) == (n->kind == NODE_OR)) return ST_OK;
    return evaluate(r, n->b, out);
}

static status evaluate_if_else(jinja_run *r, const node *n, value *out)
{
    value condition = {.kind = VALUE_NONE};
    TRY(evaluate(r, n->b, &condition));
    if (value_truth(&condition)) return evaluate(r, n->a, out);
    *out = (value){.kind = VALUE_UNDEFINED};
    return n->c != NULL ? evaluate(r, n->c, out) : ST_OK;
}

static status evaluate_concat(jinja_run *r, const node *n, value *out)
{
    text t = {.a = r->a};
    for (int64_t i = 0; i < n->items.count; i++) {
        value v = {.kind = VALUE_NONE};
        TRY(evaluate(r, n->items.items[i], &v));
        TRY(value_print(r, &t, &v, false));
    }
    *out = value_of_text(t.length > 0 ? t.bytes : "", t.length);
    return ST_OK;
}

static status evaluate_two(jinja_run *r, const node *n, value *out)
{
    value left = {.kind = VALUE_NONE}, right = {.kind = VALUE_NONE};
    TRY(evaluate(r, n->a, &left));
    TRY(evaluate(r, n->b, &right));
    return evaluate_binary(r, n, left, right, out);
}

// ---- calls --------------------------------------------------------------------------------------

status evaluate_arguments(jinja_run *r, const node *call, call_arguments *out)
{
    const int64_t count = call->items.count;
    *out = (call_arguments){.count = count};
    TRY(arena_new(r->a, count, &out->values));
    TRY(arena_new(r->a, count, &out->names));
    for (int64_t i = 0; i < count; i++) {
        const node *n = call->items.items[i];
        if (n->kind == NODE_ARGUMENT) out->names[out->named_count++] = n->name;
        TRY(evaluate(r, n->kind == NODE_ARGUMENT ? n->a : n, &out->values[i]));
    }
    return ST_OK;
}

status evaluate_call(jinja_run *r, const node *n, value *out)
{
    value called = {.kind = VALUE_NONE};
    filter_call c = {.run = r, .node = n};
    TRY(evaluate(r, n->a, &called));
    TRY(evaluate_arguments(r, n, &c.arguments));
    switch (called.kind) {
    case VALUE_MACRO:
        return run_macro(r, n, called.as.macro, &c.arguments, out);
    case VALUE_FUNCTION:
        return function_call(&c, called.as.function, out);
    case VALUE_METHOD:
        c.self = *called.as.bound.self;
        return function_call(&c, &called.as.bound.method->function, out);
    case VALUE_UNDEFINED:
    case VALUE_NONE:
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_REAL:
    case VALUE_TEXT:
    case VALUE_LIST:
    case VALUE_MAP:
    case VALUE_NAMESPACE:
    case VALUE_LOOP:
        break;
    }
    if (n->a->name.count > 0) {
        return jinja_fail(r->s, n->a->at, "%.*s is %s and cannot be called",
                          (int)min_i64(n->a->name.count, 60), n->a->name.bytes,
                          value_kind_name(&called));
    }
    return jinja_fail(r->s, n->at, "%s cannot be called", value_kind_name(&called));
}

static status evaluate_filter(jinja_run *r, const node *n, value *out)
{
    value v = {.kind = VALUE_NONE};
    call_arguments arguments = {.count = 0};
    if (n->code < 0) return jinja_fail_name(r->s, n);
    TRY(evaluate(r, n->a, &v));
    TRY(evaluate_arguments(r, n, &arguments));
    return filter_apply(r, n, n->code, v, &arguments, out);
}

static status evaluate_test(jinja_run *r, const node *n, value *out)
{
    value v = {.kind = VALUE_NONE};
    call_arguments arguments = {.count = 0};
    bool holds = false;
    if (n->code < 0) return jinja_fail_name(r->s, n);
    TRY(evaluate(r, n->a, &v));
    TRY(evaluate_arguments(r, n, &arguments));
    TRY(test_apply(r, n, n->code, v, &arguments, &holds));
    *out = value_of_bool(holds != n->negated);
    return ST_OK;
}

// ---- members ------------------------------------------------------------------------------------

static status evaluate_member(jinja_run *r, const node *n, value *out)
{
    value of = {.kind = VALUE_NONE}, index = {.kind = VALUE_NONE};
    TRY(evaluate(r, n->a, &of));
    if (n->kind == NODE_ATTRIBUTE) return value_attribute(r, n, &of, n->name, out);
    TRY(evaluate(r, n->b, &index));
    return value_index(r, n, &of, &index, out);
}

static status evaluate_kind(jinja_run *r, const node *n, value *out)
{
    switch (n->kind) {
    case NODE_CONSTANT:
        return evaluate_constant(n, out);
    case NODE_NAME:
        return evaluate_name(r, n, out);
    case NODE_LIST:
        return evaluate_list(r, n, out);
    case NODE_MAP:
        return evaluate_map(r, n, out);
    case NODE_ATTRIBUTE:
    case NODE_INDEX:
        return evaluate_member(r, n, out);
    case NODE_SLICE:
        return evaluate_slice(r, n, out);
    case NODE_CALL:
        return evaluate_call(r, n, out);
    case NODE_FILTER:
        return evaluate_filter(r, n, out);
    case NODE_TEST:
        return evaluate_test(r, n, out);
    case NODE_NOT:
        TRY(evaluate(r, n->a, out));
        *out = value_of_bool(!value_truth(out));
        return ST_OK;
    case NODE_NEGATIVE:
    case NODE_POSITIVE:
        return evaluate_sign(r, n, out);
    case NODE_AND:
    case NODE_OR:
        return evaluate_words(r, n, out);
    case NODE_IF_ELSE:
        return evaluate_if_else(r, n, out);
    case NODE_COMPARE:
        return evaluate_compare(r, n, out);
    case NODE_BINARY:
        return evaluate_two(r, n, out);
    case NODE_CONCAT:
        return evaluate_concat(r, n, out);
    case NODE_BODY_VALUE:
        *out = r->body;
        return ST_OK;
    case NODE_ARGUMENT:
    case NODE_OPERAND:
    case NODE_DATA:
    case NODE_OUTPUT:
    case NODE_BODY:
    case NODE_IF:
    case NODE_FOR:
    case NODE_SET:
    case NODE_SET_BODY:
    case NODE_MACRO:
    case NODE_FILTER_BODY:
    case NODE_GENERATION:
    case NODE_BREAK:
    case NODE_CONTINUE:
        break;
    }
    return fail(ST_INTERNAL, "a statement in an expression");
}

// The parser bounds the depth of expressions.
status evaluate(jinja_run *r, const node *n, value *out)
{
    TRY(run_spend(r, n->at, 1));
    return evaluate_kind(r, n, out);
}
