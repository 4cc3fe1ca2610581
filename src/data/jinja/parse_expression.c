// Expressions of templates, by recursive descent in the order of Jinja's precedences:
//   a if b else c < or < and < not < comparisons, in < + - < ~ < * / // % < ** < unary < postfix.
// A filter binds tighter than an operator, and tighter than a minus before it.
#include "data/jinja/jinja_internal.h"

#include <string.h>

const token *parser_peek(const parser *p)
{
    return &p->tokens.items[p->at];
}

bool parser_sign(const parser *p, const char *sign)
{
    return parser_peek(p)->kind == TOKEN_SIGN && slice_is(parser_peek(p)->text, sign);
}

bool parser_word(const parser *p, const char *word)
{
    return parser_peek(p)->kind == TOKEN_NAME && slice_is(parser_peek(p)->text, word);
}

bool parser_take_sign(parser *p, const char *sign)
{
    if (!parser_sign(p, sign)) return false;
    p->at++;
    return true;
}

bool parser_take_word(parser *p, const char *word)
{
    if (!parser_word(p, word)) return false;
    p->at++;
    return true;
}

static status unexpected(const parser *p, const char *wanted)
{
    const token *t = parser_peek(p);
    if (t->kind == TOKEN_END) {
        return jinja_fail(p->s, t->at, "the template ends here, %s expected", wanted);
    }
    return jinja_fail(p->s, t->at, "%.*s, %s expected", (int)min_i64(t->text.count, 60),
                      t->text.bytes, wanted);
}

status parser_expect_sign(parser *p, const char *sign)
{
    return parser_take_sign(p, sign) ? ST_OK : unexpected(p, sign);
}

status parser_expect_name(parser *p, slice *out)
{
    if (parser_peek(p)->kind != TOKEN_NAME) return unexpected(p, "a name");
    *out = p->tokens.items[p->at++].text;
    return ST_OK;
}

status parser_enter(parser *p)
{
    if (++p->depth <= 4 * JINJA_DEPTH_MAX) return ST_OK;
    return jinja_fail(p->s, parser_peek(p)->at, "nested deeper than %d levels",
                      4 * JINJA_DEPTH_MAX);
}

void parser_leave(parser *p)
{
    p->depth--;
}

status node_make(parser *p, node_kind kind, node **out)
{
    node *n = NULL;
    TRY(arena_new(p->a, 1, &n));
    n->kind = kind;
    n->at = parser_peek(p)->at;
    *out = n;
    return ST_OK;
}

status node_add(parser *p, node_list *list, node *n)
{
    TRY(arena_grow(p->a, (void **)&list->items, &list->capacity, list->count + 1,
                   sizeof(list->items[0])));
    list->items[list->count++] = n;
    return ST_OK;
}

// ---- calls and subscripts -----------------------------------------------------------------------

static status parse_argument(parser *p, node *call)
{
    const token *t = parser_peek(p);
    node *n = NULL;
    if (parser_sign(p, "*") || parser_sign(p, "**")) {
        return jinja_fail(p->s, t->at, "unpacked arguments (* and **) are not supported");
    }
    if (t->kind == TOKEN_NAME && p->tokens.items[p->at + 1].kind == TOKEN_SIGN &&
        slice_is(p->tokens.items[p->at + 1].text, "=")) {
        TRY(node_make(p, NODE_ARGUMENT, &n));
        n->name = t->text;
        p->at += 2;
        TRY(parse_expression(p, &n->a));
        return node_add(p, &call->items, n);
    }
    if (call->items.count > 0 && call->items.items[call->items.count - 1]->kind == NODE_ARGUMENT) {
        return jinja_fail(p->s, t->at, "an argument without a name after one with a name");
    }
    TRY(parse_expression(p, &n));
    return node_add(p, &call->items, n);
}

status parse_arguments(parser *p, node *call)
{
    TRY(parser_expect_sign(p, "("));
    while (!parser_sign(p, ")")) {
        TRY(parse_argument(p, call));
        if (!parser_take_sign(p, ",")) break;
    }
    return parser_expect_sign(p, ")");
}

static status parse_slice_part(parser *p, node **out)
{
    *out = NULL;
    if (parser_sign(p, ":") || parser_sign(p, "]")) return ST_OK;
    return parse_expression(p, out);
}

static status parse_subscript(parser *p, node *of, node **out)
{
    node *n = NULL, *part = NULL;
    TRY(node_make(p, NODE_INDEX, &n));
    n->a = of;
    TRY(parser_expect_sign(p, "["));
    TRY(parse_slice_part(p, &part));
    n->b = part;
    if (part == NULL && parser_sign(p, "]")) return unexpected(p, "an index");
    if (parser_sign(p, ":")) {
        n->kind = NODE_SLICE;
        TRY(node_add(p, &n->items, part));
        for (int i = 0; i < 2; i++) {
            part = NULL;
            if (parser_take_sign(p, ":")) TRY(parse_slice_part(p, &part));
            TRY(node_add(p, &n->items, part));
        }
    }
    *out = n;
    return parser_expect_sign(p, "]");
}

static status parse_attribute(parser *p, node *of, node **out)
{
    node *n = NULL;
    p->at++;
    TRY(node_make(p, NODE_ATTRIBUTE, &n));
    n->a = of;
    *out = n;
    if (parser_peek(p)->kind != TOKEN_INT) return parser_expect_name(p, &n->name);
    n->kind = NODE_INDEX; // a.0 is a[0]
    TRY(node_make(p, NODE_CONSTANT, &n->b));
    n->b->value = &p->tokens.items[p->at++];
    return ST_OK;
}

static status parse_postfix(parser *p, node *of, node **out)
{
    for (;;) {
        if (parser_sign(p, ".")) {
            TRY(parse_attribute(p, of, &of));
        } else if (parser_sign(p, "[")) {
            TRY(parse_subscript(p, of, &of));
        } else if (parser_sign(p, "(")) {
            node *n = NULL;
            TRY(node_make(p, NODE_CALL, &n));
            n->a = of;
            TRY(parse_arguments(p, n));
            of = n;
        } else {
            *out = of;
            return ST_OK;
        }
    }
}

// ---- values -------------------------------------------------------------------------------------

static status parse_list(parser *p, node *n)
{
    n->kind = NODE_LIST;
    p->at++;
    while (!parser_sign(p, "]")) {
        node *item = NULL;
        TRY(parse_expression(p, &item));
        TRY(node_add(p, &n->items, item));
        if (!parser_take_sign(p, ",")) break;
    }
    return parser_expect_sign(p, "]");
}

static status parse_map(parser *p, node *n)
{
    n->kind = NODE_MAP;
    p->at++;
    while (!parser_sign(p, "}")) {
        node *key = NULL, *item = NULL;
        TRY(parse_expression(p, &key));
        TRY(parser_expect_sign(p, ":"));
        TRY(parse_expression(p, &item));
        TRY(node_add(p, &n->items, key));
        TRY(node_add(p, &n->items, item));
        if (!parser_take_sign(p, ",")) break;
    }
    return parser_expect_sign(p, "}");
}

static status parse_brackets(parser *p, node **out)
{
    p->at++;
    if (parser_sign(p, ")")) {
        TRY(node_make(p, NODE_LIST, out));
        (*out)->negated = true; // a tuple
    } else {
        TRY(parse_tuple(p, out));
    }
    return parser_expect_sign(p, ")");
}

// Strings that stand next to each other are one.
static status parse_texts(parser *p, node *n)
{
    text all = {.a = p->a};
    token *joined = NULL;
    n->kind = NODE_CONSTANT;
    n->value = &p->tokens.items[p->at++];
    if (parser_peek(p)->kind != TOKEN_TEXT) return ST_OK;
    TRY(text_add_bytes(&all, n->value->text.bytes, n->value->text.count));
    while (parser_peek(p)->kind == TOKEN_TEXT) {
        const slice next = p->tokens.items[p->at++].text;
        TRY(text_add_bytes(&all, next.bytes, next.count));
    }
    TRY(arena_new(p->a, 1, &joined));
    *joined = *n->value;
    joined->text = (slice){all.bytes, all.length};
    n->value = joined;
    return ST_OK;
}

static bool is_operator_word(slice s)
{
    static const char *const words[] = {"or", "and", "not", "in", "is", "if", "else"};
    for (int64_t i = 0; i < COUNT_OF(words); i++) {
        if (slice_is(s, words[i])) return true;
    }
    return false;
}

static status parse_primary(parser *p, node **out)
{
    const token *t = parser_peek(p);
    if (parser_sign(p, "(")) return parse_brackets(p, out);
    node *n = NULL;
    TRY(node_make(p, NODE_CONSTANT, &n));
    *out = n;
    if (t->kind == TOKEN_TEXT) return parse_texts(p, n);
    if (parser_sign(p, "[")) return parse_list(p, n);
    if (parser_sign(p, "{")) return parse_map(p, n);
    if (t->kind == TOKEN_INT || t->kind == TOKEN_REAL) {
        n->value = t;
        p->at++;
        return ST_OK;
    }
    if (t->kind != TOKEN_NAME || is_operator_word(t->text)) return unexpected(p, "a value");
    n->kind = NODE_NAME;
    n->name = t->text;
    p->at++;
    return ST_OK;
}

// ---- filters and tests --------------------------------------------------------------------------

status parse_filter_call(parser *p, node *of, node **out)
{
    node *n = NULL;
    TRY(node_make(p, NODE_FILTER, &n));
    n->a = of;
    TRY(parser_expect_name(p, &n->name));
    n->code = filter_find(n->name); // -1: see check.c
    if (parser_sign(p, "(")) TRY(parse_arguments(p, n));
    *out = n;
    return ST_OK;
}

static status parse_test(parser *p, node *of, node **out)
{
    node *n = NULL;
    const bool negated = parser_take_word(p, "not");
    TRY(node_make(p, NODE_TEST, &n));
    n->a = of;
    n->negated = negated;
    TRY(parser_expect_name(p, &n->name));
    n->code = test_find(n->name);
    *out = n;
    const token *t = parser_peek(p);
    if (parser_sign(p, "(")) return parse_arguments(p, n);
    const bool has_value = t->kind == TOKEN_TEXT || t->kind == TOKEN_INT || t->kind == TOKEN_REAL ||
                           (t->kind == TOKEN_NAME && !is_operator_word(t->text)) ||
                           parser_sign(p, "[") || parser_sign(p, "{");
    if (!has_value) return ST_OK;
    node *argument = NULL;
    TRY(parse_primary(p, &argument));
    TRY(parse_postfix(p, argument, &argument));
    return node_add(p, &n->items, argument);
}

status parse_filters(parser *p, node *of, node **out)
{
    for (;;) {
        if (parser_take_sign(p, "|")) {
            TRY(parse_filter_call(p, of, &of));
        } else if (parser_take_word(p, "is")) {
            TRY(parse_test(p, of, &of));
        } else if (parser_sign(p, "(")) { // the result of a filter is called
            TRY(parse_postfix(p, of, &of));
        } else {
            *out = of;
            return ST_OK;
        }
    }
}

// ---- operators ----------------------------------------------------------------------------------

static status parse_unary(parser *p, bool with_filters, node **out)
{
    node *n = NULL;
    TRY(parser_enter(p));
    if (parser_sign(p, "-") || parser_sign(p, "+")) {
        TRY(node_make(p, parser_sign(p, "-") ? NODE_NEGATIVE : NODE_POSITIVE, &n));
        p->at++;
        TRY(parse_unary(p, false, &n->a));
    } else {
        TRY(parse_primary(p, &n));
    }
    TRY(parse_postfix(p, n, &n));
    if (with_filters) TRY(parse_filters(p, n, &n));
    parser_leave(p);
    *out = n;
    return ST_OK;
}

typedef status (*parse_level)(parser *p, node **out);

// left operator right operator ...: from the left.
static status parse_binary(parser *p, parse_level below, const char *const *signs, int64_t count,
                           node **out)
{
    node *left = NULL;
    TRY(below(p, &left));
    for (int64_t i = 0; i < count; i++) {
        if (!parser_sign(p, signs[i])) continue;
        node *n = NULL;
        TRY(node_make(p, NODE_BINARY, &n));
        n->name = p->tokens.items[p->at++].text;
        n->a = left;
        TRY(below(p, &n->b));
        left = n;
        i = -1;
    }
    *out = left;
    return ST_OK;
}

static status parse_whole_unary(parser *p, node **out)
{
    return parse_unary(p, true, out);
}

static status parse_power(parser *p, node **out)
{
    static const char *const signs[] = {"**"};
    return parse_binary(p, parse_whole_unary, signs, COUNT_OF(signs), out);
}

static status parse_product(parser *p, node **out)
{
    static const char *const signs[] = {"*", "/", "//", "%"};
    return parse_binary(p, parse_power, signs, COUNT_OF(signs), out);
}

static status parse_concat(parser *p, node **out)
{
    node *n = NULL;
    TRY(parse_product(p, &n));
    *out = n;
    if (!parser_sign(p, "~")) return ST_OK;
    TRY(node_make(p, NODE_CONCAT, out));
    TRY(node_add(p, &(*out)->items, n));
    while (parser_take_sign(p, "~")) {
        TRY(parse_product(p, &n));
        TRY(node_add(p, &(*out)->items, n));
    }
    return ST_OK;
}

static status parse_sum(parser *p, node **out)
{
    static const char *const signs[] = {"+", "-"};
    return parse_binary(p, parse_concat, signs, COUNT_OF(signs), out);
}

static bool take_comparison(parser *p, slice *out)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (int64_t i = 0; i < COUNT_OF(signs); i++) {
        if (!parser_sign(p, signs[i])) continue;
        *out = p->tokens.items[p->at++].text;
        return true;
    }
    const token *next = &p->tokens.items[p->at];
    if (parser_take_word(p, "in")) {
        *out = (slice){"in", 2};
        return true;
    }
    if (!parser_word(p, "not") || next[1].kind != TOKEN_NAME || !slice_is(next[1].text, "in")) {
        return false;
    }
    p->at += 2;
    *out = (slice){"not in", 6};
    return true;
}

static status parse_comparison(parser *p, node **out)
{
    node *first = NULL, *n = NULL;
    slice sign = {NULL, 0};
    TRY(parse_sum(p, &first));
    *out = first;
    while (take_comparison(p, &sign)) {
        if (n == NULL) {
            TRY(node_make(p, NODE_COMPARE, &n));
            n->a = first;
            *out = n;
        }
        node *operand = NULL;
        TRY(node_make(p, NODE_OPERAND, &operand));
        operand->name = sign;
        TRY(parse_sum(p, &operand->a));
        TRY(node_add(p, &n->items, operand));
    }
    return ST_OK;
}

static status parse_not(parser *p, node **out)
{
    if (!parser_word(p, "not")) return parse_comparison(p, out);
    TRY(parser_enter(p));
    TRY(node_make(p, NODE_NOT, out));
    p->at++;
    TRY(parse_not(p, &(*out)->a));
    parser_leave(p);
    return ST_OK;
}

// left word right word ...
static status parse_words(parser *p, parse_level below, const char *word, node_kind kind,
                          node **out)
{
    node *left = NULL;
    TRY(below(p, &left));
    while (parser_word(p, word)) {
        node *n = NULL;
        TRY(node_make(p, kind, &n));
        p->at++;
        n->a = left;
        TRY(below(p, &n->b));
        left = n;
    }
    *out = left;
    return ST_OK;
}

static status parse_and(parser *p, node **out)
{
    return parse_words(p, parse_not, "and", NODE_AND, out);
}

status parse_without_condition(parser *p, node **out)
{
    return parse_words(p, parse_and, "or", NODE_OR, out);
}

status parse_expression(parser *p, node **out)
{
    TRY(parser_enter(p));
    node *n = NULL;
    TRY(parse_without_condition(p, &n));
    while (parser_word(p, "if")) {
        node *choice = NULL;
        TRY(node_make(p, NODE_IF_ELSE, &choice));
        p->at++;
        choice->a = n;
        TRY(parse_without_condition(p, &choice->b));
        if (parser_take_word(p, "else")) TRY(parse_expression(p, &choice->c));
        n = choice;
    }
    *out = n;
    parser_leave(p);
    return ST_OK;
}

status parse_tuple(parser *p, node **out)
{
    node *n = NULL, *tuple = NULL;
    TRY(parse_expression(p, &n));
    *out = n;
    if (!parser_sign(p, ",")) return ST_OK;
    TRY(node_make(p, NODE_LIST, &tuple));
    tuple->negated = true;
    TRY(node_add(p, &tuple->items, n));
    while (parser_take_sign(p, ",")) {
        if (parser_sign(p, ")") || parser_peek(p)->kind == TOKEN_BLOCK_END) break;
        TRY(parse_expression(p, &n));
        TRY(node_add(p, &tuple->items, n));
    }
    *out = tuple;
    return ST_OK;
}
