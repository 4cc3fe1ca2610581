// Chat templates: the part of the Jinja template language that published chat templates use.
//
// Statements: for (with if, else, break, continue), if, set (also with a body, and of a member of a
// namespace), macro, filter, raw and generation. Expressions, filters, tests and methods are those
// of Jinja and of Python's strings, lists and dicts that never change a value. Settings are those
// of the Hugging Face libraries: trim_blocks and lstrip_blocks are on, a mapping's members are
// attributes too. All else is refused with line and column when the template is parsed, except for
// a wrong type of a value, which is an error when it is rendered.
//
// A template cannot reach files, time (but for the time that the caller gives) or the program.
// Rendering is bounded in steps, bytes and depth, so a hostile template ends in an error.
#ifndef DATA_JINJA_H
#define DATA_JINJA_H

#include "base/format/json.h"
#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    JINJA_SOURCE_BYTES_MAX = 4 << 20,
    JINJA_DEPTH_MAX = 48,             // of nested expressions, statements and macro calls
    JINJA_STEPS_MAX = 4000000,        // of one rendering
    JINJA_OUTPUT_BYTES_MAX = 64 << 20 // of one rendering
};

typedef struct jinja_template jinja_template;

// Parses a template into `a`. `what` names it in errors, "what:line:column: ...", and is borrowed.
NODISCARD status jinja_parse(arena *a, const char *source, int64_t bytes, const char *what,
                             jinja_template **out);
// The template marks what an assistant wrote: {% generation %} ... {% endgeneration %}.
bool jinja_has_marks(const jinja_template *t);

// A variable of a template: a JSON value, or a text where `value` is NULL, or undefined where both
// are.
typedef struct jinja_variable {
    const char *name;
    const json *value;
    const char *string;
    bool is_bool, truth; // a bool instead
} jinja_variable;

typedef struct jinja_span {
    int64_t begin, end; // bytes of the output
} jinja_span;

typedef struct jinja_context {
    const jinja_variable *variables;
    int64_t variable_count;
    // Only the items [0, list_limit) of the variable that is named so exist; NULL for none.
    const char *limited;
    int64_t list_limit;
    int64_t unix_s; // the time that strftime_now shows, UTC
} jinja_context;

typedef struct jinja_result {
    text out;
    jinja_span *marks; // of {% generation %}, in the order of the output
    int64_t mark_count, mark_capacity;
} jinja_result;

// Renders into `a`, which also holds all values that appear on the way. A text that the template
// raises is ST_DATA, with the place and the text.
NODISCARD status jinja_render(const jinja_template *t, arena *a, const jinja_context *c,
                              jinja_result *out);

#ifdef __cplusplus
}
#endif
#endif
