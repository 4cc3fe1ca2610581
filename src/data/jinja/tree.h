// The source of a template, its tokens and its tree.
#ifndef DATA_JINJA_TREE_H
#define DATA_JINJA_TREE_H

#include "data/jinja.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- text slices and tokens ---------------------------------------------------------------------

typedef struct slice {
    const char *bytes;
    int64_t count;
} slice;

bool slice_is(slice s, const char *word);
bool slice_equal(slice a, slice b);

typedef enum token_kind {
    TOKEN_END,
    TOKEN_DATA,      // text outside of tags
    TOKEN_BLOCK,     // {%
    TOKEN_BLOCK_END, // %}
    TOKEN_VARIABLE,  // {{
    TOKEN_VARIABLE_END,
    TOKEN_NAME,
    TOKEN_TEXT, // a string, with its escapes resolved
    TOKEN_INT,
    TOKEN_REAL,
    TOKEN_SIGN // an operator or a bracket
} token_kind;

typedef struct token {
    token_kind kind;
    slice text;
    int64_t integer;
    double real;
    int32_t at; // byte of the source, for the place in errors
} token;

typedef struct token_list {
    token *items;
    int64_t count, capacity;
} token_list;

typedef struct jinja_source {
    arena *a;
    const char *what, *bytes;
    int64_t count;
} jinja_source;

// "what:line:column: " and the text; always ST_DATA.
status jinja_fail(const jinja_source *s, int32_t at, const char *format, ...) PRINTF_LIKE(3, 4);
NODISCARD status jinja_lex(const jinja_source *s, token_list *out);
// Reads a string's escapes and a number in a tag.
NODISCARD status jinja_lex_text(const jinja_source *s, int64_t *at, token *out);
NODISCARD status jinja_lex_number(const jinja_source *s, int64_t *at, token *out);

// ---- the tree -----------------------------------------------------------------------------------

typedef enum node_kind {
    // expressions
    NODE_CONSTANT, // token: value
    NODE_NAME,
    NODE_LIST,
    NODE_MAP,       // items: key, value, key, value
    NODE_ATTRIBUTE, // a.name
    NODE_INDEX,     // a[b]
    NODE_SLICE,     // a[items0:items1:items2], NULL where left out
    NODE_CALL,      // a(items), arguments by name have NODE_ARGUMENT
    NODE_ARGUMENT,  // name=a
    NODE_FILTER,    // a|name(items)
    NODE_TEST,      // a is name(items)
    NODE_NOT,
    NODE_NEGATIVE,
    NODE_POSITIVE,
    NODE_AND,
    NODE_OR,
    NODE_IF_ELSE, // a if b else c
    NODE_COMPARE, // a, then items: NODE_OPERAND with an operator in `name` and `a`
    NODE_OPERAND,
    NODE_BINARY, // a name b
    NODE_CONCAT, // items joined as texts
    // statements
    NODE_DATA,
    NODE_OUTPUT,      // {{ a }}
    NODE_BODY,        // items
    NODE_IF,          // if a then b else c
    NODE_FOR,         // for targets in a (if b): c, else d
    NODE_SET,         // set targets = a
    NODE_SET_BODY,    // set name (filters of b) c endset
    NODE_MACRO,       // items: parameters (NODE_ARGUMENT, a: default), c: body
    NODE_FILTER_BODY, // a: filters over NODE_BODY_VALUE, c: body
    NODE_BODY_VALUE,  // the text of the body
    NODE_GENERATION,  // c
    NODE_BREAK,
    NODE_CONTINUE
} node_kind;

typedef struct node node;
typedef struct node_list {
    node **items;
    int64_t count, capacity;
} node_list;

struct node {
    node_kind kind;
    int32_t at;
    slice name;
    const token *value; // of NODE_CONSTANT
    node *a, *b, *c, *d;
    node_list items;
    node_list targets; // NODE_NAME, or NODE_ATTRIBUTE of a name
    bool negated;      // `is not`
    int32_t code;      // index of a filter or a test in its table
};

typedef struct parser {
    const jinja_source *s;
    arena *a;
    token_list tokens;
    int64_t at;
    int32_t depth;
    int32_t loops; // that break and continue may leave
    bool has_marks;
} parser;

const token *parser_peek(const parser *p);
bool parser_sign(const parser *p, const char *sign); // the next token is this sign
bool parser_word(const parser *p, const char *word); // or this name
bool parser_take_sign(parser *p, const char *sign);
bool parser_take_word(parser *p, const char *word);
NODISCARD status parser_expect_sign(parser *p, const char *sign);
NODISCARD status parser_expect_name(parser *p, slice *out);
NODISCARD status parser_enter(parser *p); // one level deeper; parser_leave() on success
void parser_leave(parser *p);
NODISCARD status node_make(parser *p, node_kind kind, node **out);
NODISCARD status node_add(parser *p, node_list *list, node *n);
NODISCARD status parse_expression(parser *p, node **out);            // with `a if b else c`
NODISCARD status parse_without_condition(parser *p, node **out);     // the list of a for
NODISCARD status parse_tuple(parser *p, node **out);                 // a, b, c
NODISCARD status parse_filters(parser *p, node *of, node **out);     // |a|b of a value
NODISCARD status parse_filter_call(parser *p, node *of, node **out); // a(...) without the bar
NODISCARD status parse_arguments(parser *p, node *call);
NODISCARD status parse_program(parser *p, node **out);
// Refuses filters and tests with unknown names, but for those that may never be reached.
NODISCARD status jinja_check(const jinja_source *s, const node *body);
status jinja_fail_name(const jinja_source *s, const node *n); // of an unknown name; always ST_DATA

struct jinja_template {
    jinja_source source;
    node *body;
    bool has_marks;
};

#ifdef __cplusplus
}
#endif
#endif
