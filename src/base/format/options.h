// The option table: one row per option, and the documents and parsers made from the rows.
//
// A row holds name, kind, target field, default, limits, class on resume and help. The rows serve
// the YAML config reader (config.h), `key.path=value` on the command line, --flags of subcommands,
// --help, the man page, shell completion, the JSON schema and the configuration reference. To add
// an option: one row, one struct field.
#ifndef BASE_FORMAT_OPTIONS_H
#define BASE_FORMAT_OPTIONS_H

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum option_kind {
    OPTION_BOOL,   // bool
    OPTION_INT,    // int64_t
    OPTION_REAL,   // double; 1% is 0.01 where its limits lie between 0 and 1
    OPTION_TEXT,   // const char *
    OPTION_PATH,   // const char *, resolved against its file's folder; `choices` are words
    OPTION_CHOICE, // int32_t: position in `choices`
    OPTION_BYTES,  // int64_t: 4GiB, 512MiB
    OPTION_TIME,   // int64_t nanoseconds: 30s, 5m, 12h, 2d
    OPTION_LIST,   // option_list: texts
    OPTION_PATHS,  // option_list: paths or globs, each perhaps "path: weight" (text "path=weight")
    OPTION_RANGE,  // option_range: "a:b"
    OPTION_RAMP,   // option_list: "step=size" pairs, from a YAML map or "0=8,100=16"
    OPTION_SHARE   // option_list: one number (within min and max), or as OPTION_PATHS
} option_kind;

// As `max`: no upper limit.
#define OPTION_NO_MAX 9e18

// Changes on resume (design.md): free, allowed and logged, or refused by name.
typedef enum option_class { OPTION_FREE, OPTION_RECORDED, OPTION_FIXED } option_class;

typedef struct option_list {
    const char **items;
    int64_t count;
} option_list;
typedef struct option_range {
    int64_t begin, end; // inclusive; begin = 0: not given
} option_range;

typedef struct option {
    const char *key; // "train.steps"; "max-tokens" for a subcommand's flag
    option_kind kind;
    option_class on_resume;
    int64_t offset;           // offset of the field in the target struct
    const char *default_text; // NULL: must be given, or (texts, lists) stays empty
    const char *choices;      // OPTION_CHOICE: "fp32, bf16, fp16"; OPTION_INT: a name for `word`
    int64_t word;             // may be outside the limits of numbers
    double min, max;          // inclusive; min = max = 0: no limits
    // "sequences", "" if none. "share": of an OPTION_REAL, which is also yes (1) or no (0);
    // "seconds": of an OPTION_TIME, for which a number alone means seconds.
    const char *unit;
    const char *help; // one sentence or noun phrase, without a final period
    const char *also; // names that people try instead, for did-you-mean: "learning_rate, max_lr"
} option;

typedef struct option_table {
    const char *title;
    const option *rows;
    int64_t count;
} option_table;

const option *option_find(const option_table *t, const char *key); // NULL: none
// True if rows begin with `key` and a dot.
bool option_is_heading(const option_table *t, const char *key);
// For did-you-mean: the key nearest to a wrong one, by its own name or its other names. *out is
// NULL if none is near.
NODISCARD status option_nearest(const option_table *t, arena *a, const char *key, const char **out);
// Sets all defaults in `target`.
NODISCARD status option_set_defaults(const option_table *t, arena *a, void *target);
// Parses one value and checks type and limits. `where` ("run.yaml:14:3", "command line") stands in
// errors and `folder` in front of relative paths; NULL leaves each out. An error names the key, the
// value found and the nearest valid choice. Commas separate items of lists; a backslash escapes a
// comma, a space or a backslash. On error the field keeps its value.
NODISCARD status option_set(const option *o, arena *a, void *target, const char *value,
                            const char *where, const char *folder);
// Adds one item to a list's text, with backslashes where it needs them.
NODISCARD status option_add_item(text *list, const char *item, int64_t bytes);
// Prints the value as a config would hold it, on one line; it reads back to an equal value.
NODISCARD status option_print(const option *o, const void *target, text *out);
// True if both targets hold the same value.
bool option_equal(const option *o, const void *a, const void *b);
// Documents made from the rows.
NODISCARD status option_print_help(const option_table *t, int columns, text *out);
NODISCARD status option_print_man(const option_table *t, text *out);
NODISCARD status option_print_markdown(const option_table *t, text *out);
NODISCARD status option_print_json_schema(const option_table *t, text *out);
// Words for shell completion, one per line: "key=" and, for choices, "key=word".
NODISCARD status option_print_words(const option_table *t, text *out);

#ifdef __cplusplus
}
#endif
#endif
