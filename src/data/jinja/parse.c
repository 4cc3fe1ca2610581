// Statements of templates.
#include "data/jinja/jinja_internal.h"

#include <string.h>

static status parse_body(parser *p, const char *const *ends, int64_t end_count, node **out);

static status close_tag(parser *p)
{
    const token *t = parser_peek(p);
    if (t->kind == TOKEN_BLOCK_END) {
        p->at++;
        return ST_OK;
    }
    return jinja_fail(p->s, t->at, "%.*s, the end of the tag expected",
                      (int)min_i64(t->text.count, 60), t->text.bytes);
}

// A body up to {% end %}, and that tag.
static status parse_to(parser *p, const char *end, node **out)
{
    const char *const ends[] = {end};
    TRY(parse_body(p, ends, 1, out));
    p->at += 2; // {% and the word
    return close_tag(p);
}

static status parse_if(parser *p, node *n)
{
    static const char *const ends[] = {"elif", "else", "endif"};
    TRY(parser_enter(p));
    n->kind = NODE_IF;
    TRY(parse_tuple(p, &n->a));
    TRY(close_tag(p));
    TRY(parse_body(p, ends, COUNT_OF(ends), &n->b));
    p->at++;
    if (parser_take_word(p, "elif")) {
        TRY(node_make(p, NODE_IF, &n->c));
        TRY(parse_if(p, n->c));
    } else if (parser_take_word(p, "else")) {
        TRY(close_tag(p));
        TRY(parse_to(p, "endif", &n->c));
    } else {
        p->at++;
        TRY(close_tag(p));
    }
    parser_leave(p);
    return ST_OK;
}

// a, b or (a, b); with a dot only where `with_members`.
static status parse_targets(parser *p, node *n, bool with_members)
{
    const bool has_bracket = parser_take_sign(p, "(");
    do {
        node *target = NULL;
        TRY(node_make(p, NODE_NAME, &target));
        TRY(parser_expect_name(p, &target->name));
        if (with_members && parser_sign(p, ".")) {
            node *member = NULL;
            p->at++;
            TRY(node_make(p, NODE_ATTRIBUTE, &member));
            member->a = target;
            TRY(parser_expect_name(p, &member->name));
            target = member;
        }
        TRY(node_add(p, &n->targets, target));
    } while (parser_take_sign(p, ","));
    return has_bracket ? parser_expect_sign(p, ")") : ST_OK;
}

static status parse_for(parser *p, node *n)
{
    static const char *const ends[] = {"else", "endfor"};
    n->kind = NODE_FOR;
    TRY(parse_targets(p, n, false));
    if (!parser_take_word(p, "in")) {
        return jinja_fail(p->s, parser_peek(p)->at, "a for without `in`");
    }
    TRY(parse_without_condition(p, &n->a));
    if (parser_take_word(p, "if")) TRY(parse_expression(p, &n->b));
    if (parser_word(p, "recursive")) {
        return jinja_fail(p->s, parser_peek(p)->at, "recursive loops are not supported");
    }
    TRY(close_tag(p));
    p->loops++;
    TRY(parse_body(p, ends, COUNT_OF(ends), &n->c));
    p->loops--;
    p->at++;
    if (parser_take_word(p, "else")) {
        TRY(close_tag(p));
        return parse_to(p, "endfor", &n->d);
    }
    p->at++;
    return close_tag(p);
}

static status parse_set(parser *p, node *n)
{
    n->kind = NODE_SET;
    TRY(parse_targets(p, n, true));
    if (parser_take_sign(p, "=")) {
        TRY(parse_tuple(p, &n->a));
        return close_tag(p);
    }
    if (n->targets.count != 1) {
        return jinja_fail(p->s, n->at, "a set of several names needs a value");
    }
    n->kind = NODE_SET_BODY;
    TRY(node_make(p, NODE_BODY_VALUE, &n->b));
    TRY(parse_filters(p, n->b, &n->b));
    TRY(close_tag(p));
    return parse_to(p, "endset", &n->c);
}

static status parse_macro(parser *p, node *n)
{
    n->kind = NODE_MACRO;
    TRY(parser_expect_name(p, &n->name));
    TRY(parser_expect_sign(p, "("));
    while (!parser_sign(p, ")")) {
        node *parameter = NULL;
        TRY(node_make(p, NODE_ARGUMENT, &parameter));
        TRY(parser_expect_name(p, &parameter->name));
        if (parser_take_sign(p, "=")) TRY(parse_expression(p, &parameter->a));
        TRY(node_add(p, &n->items, parameter));
        if (!parser_take_sign(p, ",")) break;
    }
    TRY(parser_expect_sign(p, ")"));
    TRY(close_tag(p));
    const int32_t loops = p->loops;
    p->loops = 0;
    TRY(parse_to(p, "endmacro", &n->c));
    p->loops = loops;
    return ST_OK;
}

static status parse_filter_body(parser *p, node *n)
{
    n->kind = NODE_FILTER_BODY;
    TRY(node_make(p, NODE_BODY_VALUE, &n->a));
    TRY(parse_filter_call(p, n->a, &n->a));
    TRY(parse_filters(p, n->a, &n->a));
    TRY(close_tag(p));
    return parse_to(p, "endfilter", &n->c);
}

static status parse_flow(parser *p, node *n, node_kind kind)
{
    n->kind = kind;
    if (p->loops == 0) {
        return jinja_fail(p->s, n->at, "%s outside of a loop",
                          kind == NODE_BREAK ? "break" : "continue");
    }
    return close_tag(p);
}

// The statement whose name was just read.
static status parse_statement(parser *p, slice name, node **out)
{
    node *n = NULL;
    TRY(node_make(p, NODE_BODY, &n));
    n->at = p->tokens.items[p->at - 1].at;
    *out = n;
    if (slice_is(name, "if")) return parse_if(p, n);
    if (slice_is(name, "for")) return parse_for(p, n);
    if (slice_is(name, "set")) return parse_set(p, n);
    if (slice_is(name, "macro")) return parse_macro(p, n);
    if (slice_is(name, "filter")) return parse_filter_body(p, n);
    if (slice_is(name, "break")) return parse_flow(p, n, NODE_BREAK);
    if (slice_is(name, "continue")) return parse_flow(p, n, NODE_CONTINUE);
    if (slice_is(name, "generation")) {
        n->kind = NODE_GENERATION;
        p->has_marks = true;
        TRY(close_tag(p));
        return parse_to(p, "endgeneration", &n->c);
    }
    return jinja_fail(p->s, n->at, "the statement %.*s is not supported here",
                      (int)min_i64(name.count, 60), name.bytes);
}

static bool at_end(const parser *p, const char *const *ends, int64_t end_count)
{
    const token *t = parser_peek(p);
    if (t->kind == TOKEN_END) return end_count == 0;
    for (int64_t i = 0; i < end_count && t->kind == TOKEN_BLOCK; i++) {
        if (t[1].kind == TOKEN_NAME && slice_is(t[1].text, ends[i])) return true;
    }
    return false;
}

static status parse_output(parser *p, node **out)
{
    node *n = NULL;
    TRY(node_make(p, NODE_OUTPUT, &n));
    p->at++;
    TRY(parse_tuple(p, &n->a));
    *out = n;
    const token *t = parser_peek(p);
    if (t->kind == TOKEN_VARIABLE_END) {
        p->at++;
        return ST_OK;
    }
    return jinja_fail(p->s, t->at, "%.*s, the end of the tag expected",
                      (int)min_i64(t->text.count, 60), t->text.bytes);
}

static status parse_body_item(parser *p, node **out)
{
    const token *t = parser_peek(p);
    if (t->kind == TOKEN_VARIABLE) return parse_output(p, out);
    if (t->kind == TOKEN_BLOCK) {
        slice name = {NULL, 0};
        p->at++;
        TRY(parser_expect_name(p, &name));
        return parse_statement(p, name, out);
    }
    TRY(node_make(p, NODE_DATA, out));
    (*out)->name = t->text;
    p->at++;
    return ST_OK;
}

static status parse_body(parser *p, const char *const *ends, int64_t end_count, node **out)
{
    node *body = NULL;
    TRY(parser_enter(p));
    TRY(node_make(p, NODE_BODY, &body));
    while (!at_end(p, ends, end_count)) {
        node *n = NULL;
        if (parser_peek(p)->kind == TOKEN_END) {
            return jinja_fail(p->s, body->at, "the statement before has no {%% %s %%}",
                              ends[end_count - 1]);
        }
        TRY(parse_body_item(p, &n));
        TRY(node_add(p, &body->items, n));
    }
    parser_leave(p);
    *out = body;
    return ST_OK;
}

status parse_program(parser *p, node **out)
{
    return parse_body(p, NULL, 0, out);
}

// Newlines of Windows become plain ones, and the last one is left out.
static status copy_source(arena *a, const char *source, int64_t bytes, jinja_source *out)
{
    char *copy = NULL;
    int64_t n = 0;
    TRY(arena_new(a, bytes + 1, &copy));
    for (int64_t i = 0; i < bytes; i++) {
        const bool is_return = source[i] == '\r';
        if (is_return && i + 1 < bytes && source[i + 1] == '\n') i++;
        copy[n++] = is_return ? '\n' : source[i];
    }
    if (n > 0 && copy[n - 1] == '\n') n--;
    out->bytes = copy;
    out->count = n;
    return ST_OK;
}

status jinja_parse(arena *a, const char *source, int64_t bytes, const char *what,
                   jinja_template **out)
{
    if (bytes > JINJA_SOURCE_BYTES_MAX || !text_is_utf8(source, bytes)) {
        return fail(ST_DATA, "%s: a template has at most %d bytes of UTF-8", what,
                    JINJA_SOURCE_BYTES_MAX);
    }
    jinja_template *t = NULL;
    TRY(arena_new(a, 1, &t));
    t->source = (jinja_source){.a = a, .what = what};
    TRY(copy_source(a, source, bytes, &t->source));
    parser p = {.s = &t->source, .a = a};
    TRY(jinja_lex(&t->source, &p.tokens));
    TRY(parse_program(&p, &t->body));
    TRY(jinja_check(&t->source, t->body));
    t->has_marks = p.has_marks;
    *out = t;
    return ST_OK;
}

bool jinja_has_marks(const jinja_template *t)
{
    return t->has_marks;
}
