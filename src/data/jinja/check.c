// Filters and tests with unknown names. As in Jinja, one that stands in an `if` or in a conditional
// expression is an error when it is reached, because templates ask first whether a program has it;
// one elsewhere is an error of the template.
#include "data/jinja/tree.h"

static status check_node(const jinja_source *s, const node *n, bool is_optional);

static status check_list(const jinja_source *s, const node_list *list, bool is_optional)
{
    for (int64_t i = 0; i < list->count; i++) TRY(check_node(s, list->items[i], is_optional));
    return ST_OK;
}

// The parser bounds the depth.
static status check_node(const jinja_source *s, const node *n, bool is_optional)
{
    if (n == NULL) return ST_OK;
    const bool has_name = n->kind == NODE_FILTER || n->kind == NODE_TEST;
    if (has_name && n->code < 0 && !is_optional) return jinja_fail_name(s, n);
    const bool is_choice = n->kind == NODE_IF || n->kind == NODE_IF_ELSE;
    const bool is_frame = n->kind == NODE_FOR || n->kind == NODE_MACRO ||
                          n->kind == NODE_SET_BODY || n->kind == NODE_FILTER_BODY ||
                          n->kind == NODE_GENERATION;
    const bool inner = is_choice || (is_optional && !is_frame);
    TRY(check_node(s, n->a, n->kind == NODE_FOR ? is_optional : inner));
    TRY(check_node(s, n->b, inner));
    TRY(check_node(s, n->c, inner));
    TRY(check_node(s, n->d, inner));
    return check_list(s, &n->items, inner);
}

status jinja_fail_name(const jinja_source *s, const node *n)
{
    return jinja_fail(s, n->at, "the %s %.*s is not supported",
                      n->kind == NODE_FILTER ? "filter" : "test", (int)min_i64(n->name.count, 60),
                      n->name.bytes);
}

status jinja_check(const jinja_source *s, const node *body)
{
    return check_node(s, body, false);
}
