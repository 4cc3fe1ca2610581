// Values of the template language and the state of a rendering.
#ifndef DATA_JINJA_INTERNAL_H
#define DATA_JINJA_INTERNAL_H

#include "data/jinja/tree.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- values -------------------------------------------------------------------------------------

typedef enum value_kind {
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_REAL,
    VALUE_TEXT,
    VALUE_LIST,
    VALUE_MAP,
    VALUE_NAMESPACE,
    VALUE_MACRO,
    VALUE_FUNCTION, // of the table of functions
    VALUE_METHOD,   // a method of a value
    VALUE_LOOP
} value_kind;

typedef struct value value;
typedef struct value_list {
    value *items;
    int64_t count, capacity;
    bool is_tuple; // prints in round brackets
    int32_t depth; // of the deepest item, at most JINJA_DEPTH_MAX
} value_list;
typedef struct value_map {
    value *keys, *values;
    int64_t count, capacity;
    int32_t depth;
} value_map;

struct value {
    value_kind kind;
    union {
        bool truth;
        int64_t integer;
        double real;
        slice text;
        value_list *list;
        value_map *map;
        struct macro *macro;
        const struct function *function;
        struct loop *loop;
        struct {
            const struct method *method;
            value *self;
        } bound;
    } as;
};

typedef struct frame frame; // the variables of one scope
typedef struct variable {
    slice name;
    value value;
} variable;
struct frame {
    frame *parent;
    variable *items;
    int64_t count, capacity;
};

typedef struct macro {
    const node *node;
    frame *frame;
} macro;

typedef struct loop {
    const value_list *list;
    int64_t at;
    bool has_last; // changed() was called
    value last;
    int64_t depth;
} loop;

typedef struct jinja_run {
    const jinja_source *s;
    arena *a;
    const jinja_context *context;
    jinja_result *result;
    text *out; // of the body that is rendered
    int64_t steps;
    int32_t depth, marks_off;
    frame *frame;
    enum { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;
    value body; // of NODE_BODY_VALUE
} jinja_run;

// The arguments of a call: those by place, then those by name.
typedef struct call_arguments {
    value *values;
    slice *names; // of the last named_count values
    int64_t count, named_count;
} call_arguments;

// Counts work; an error beyond JINJA_STEPS_MAX. bytes: of a text that is made.
NODISCARD status run_spend(jinja_run *r, int32_t at, int64_t steps);
NODISCARD status run_enter(jinja_run *r, int32_t at);
void run_leave(jinja_run *r);
NODISCARD status run_body(jinja_run *r, const node *n);
NODISCARD status run_body_text(jinja_run *r, const node *n, value *out); // what it prints
NODISCARD status run_macro(jinja_run *r, const node *call, const macro *m,
                           const call_arguments *arguments, value *out);
NODISCARD status run_set(jinja_run *r, slice name, value v);
bool run_find(const jinja_run *r, slice name, value *out);

NODISCARD status evaluate(jinja_run *r, const node *n, value *out);
NODISCARD status evaluate_arguments(jinja_run *r, const node *call, call_arguments *out);
NODISCARD status evaluate_call(jinja_run *r, const node *n, value *out);
NODISCARD status evaluate_binary(jinja_run *r, const node *n, value left, value right, value *out);
NODISCARD status evaluate_format(jinja_run *r, int32_t at, slice format, value args, value *out);
NODISCARD status evaluate_slice(jinja_run *r, const node *n, value *out);

value value_of_text(const char *bytes, int64_t count);
value value_of_word(const char *word);
value value_of_bool(bool truth);
value value_of_int(int64_t integer);
value value_of_real(double real);
NODISCARD status value_of_json(jinja_run *r, const json *from, value *out);
NODISCARD status value_list_new(jinja_run *r, value_list **out);
NODISCARD status value_list_add(jinja_run *r, value_list *list, value v);
NODISCARD status value_map_new(jinja_run *r, value_map **out);
NODISCARD status value_map_set(jinja_run *r, value_map *map, value key, value v);
bool value_map_get(const value_map *map, slice key, value *out);
bool value_map_find(const value_map *map, const value *key, value *out);
bool value_is_number(const value *v); // a bool counts, as in Python
double value_real(const value *v);
int64_t value_int(const value *v); // of a bool or an integer
bool value_truth(const value *v);
bool value_equal(const value *a, const value *b);
// -1, 0, 1 in *out; false if the two have no order.
bool value_compare(const value *a, const value *b, int *out);
const char *value_kind_name(const value *v);
int64_t value_length(const value *v); // -1: it has none
int64_t slice_characters(slice s);    // characters
int64_t slice_next(slice s, int64_t at, uint32_t *out);
// The items of a list, a map's keys, a text's characters.
NODISCARD status value_items(jinja_run *r, int32_t at, const value *v, value_list **out);
NODISCARD status value_attribute(jinja_run *r, const node *n, const value *of, slice name,
                                 value *out);
NODISCARD status value_index(jinja_run *r, const node *n, const value *of, const value *index,
                             value *out);
NODISCARD status value_contains(jinja_run *r, int32_t at, const value *in, const value *what,
                                bool *out);

// As Python's str(), and as its repr() where `quoted`.
NODISCARD status value_print(jinja_run *r, text *out, const value *v, bool quoted);
NODISCARD status value_text(jinja_run *r, const value *v, value *out); // str() as a value
NODISCARD status value_print_json(jinja_run *r, text *out, const value *v, int64_t indent,
                                  bool ascii, int64_t level);
NODISCARD status value_print_real(text *out, double x);

// ---- tables -------------------------------------------------------------------------------------

typedef struct filter_call {
    jinja_run *run;
    const node *node;
    value self;
    call_arguments arguments;
} filter_call;

// Row of a filter, a method or a function. Arguments by name have the names of `parameters`, which
// are separated by blanks, and come out in that order: bind() leaves VALUE_UNDEFINED for those that
// are not given, and refuses others.
typedef struct function {
    const char *name, *parameters;
    status (*call)(filter_call *c, const value *arguments, value *out);
} function;
typedef struct method {
    value_kind of;
    function function;
} method;
enum { FUNCTION_ARGUMENTS_MAX = 6 };
NODISCARD status function_call(filter_call *c, const function *f, value *out);

int32_t filter_find(slice name); // -1: there is no such filter
int32_t test_find(slice name);
NODISCARD status filter_apply(jinja_run *r, const node *n, int32_t code, value self,
                              const call_arguments *arguments, value *out);
NODISCARD status test_apply(jinja_run *r, const node *n, int32_t code, value self,
                            const call_arguments *arguments, bool *out);
const function *global_find(slice name);
const method *method_lookup(value_kind of, slice name);
const method *method_of_text(slice name);

// Operations on texts that filters and methods share. `s` is the text that they are applied to.
bool text_is_space(uint32_t c); // as Python's isspace()
slice text_trimmed(slice s, bool left, bool right, const slice *characters); // NULL: white space
// Replaces at most `limit` times; -1: all.
NODISCARD status text_replaced(filter_call *c, slice s, const slice pair[2], int64_t limit,
                               value *out);
typedef enum letter_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE } letter_case;
NODISCARD status text_cased(filter_call *c, slice s, letter_case how, value *out);
NODISCARD status text_joined(filter_call *c, const value_list *list, slice with, value *out);
NODISCARD status text_lines(jinja_run *r, slice s, value_list **out);
NODISCARD status call_fails(const filter_call *c, const char *expected, const value *found);
// The text of an argument, or `otherwise` where it is not given.
NODISCARD status call_text(const filter_call *c, const value *argument, slice *out);
NODISCARD status call_int(const filter_call *c, const value *argument, int64_t *out);

#ifdef __cplusplus
}
#endif
#endif
