// The option table: a row per option, and everything that is made from the rows.
//
// A row says name, kind, where the value goes, default, limits, class on resume and help. From the
// rows come: the YAML config reader (config.h), `key.path=value` on the command line, --flags of
// subcommands, --help, the man page, shell completion, the JSON schema and the configuration
// reference. To add an option: one row, one struct field.
#ifndef BASE_FORMAT_OPTIONS_H
#define BASE_FORMAT_OPTIONS_H

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum option_kind {
    OPTION_BOOL,   // bool
    OPTION_INT,    // int64_t
    OPTION_REAL,   // double
    OPTION_TEXT,   // const char *
    OPTION_PATH,   // const char *, made relative to where it was written; `choices` are kept words
    OPTION_CHOICE, // int32_t: position in `choices`
    OPTION_BYTES,  // int64_t: 4GiB, 512MiB
    OPTION_TIME,   // int64_t nanoseconds: 30s, 5m, 12h, 2d
    OPTION_LIST,   // option_list: texts
    OPTION_PATHS,  // option_list: paths or globs, each perhaps "path: weight" (text "path=weight")
    OPTION_RANGE,  // option_range: "a:b"
    OPTION_RAMP,   // option_list: "step=size" pairs, from a YAML map or "0=8,100=16"
    OPTION_SHARE   // option_list: one number (min, max hold for it), or as OPTION_PATHS
} option_kind;

// As `max`: only `min` holds.
#define OPTION_NO_MAX 9e18

// What may change when a run is resumed (design.md): free, allowed and logged, or refused by name.
typedef enum option_class { OPTION_FREE, OPTION_RECORDED, OPTION_FIXED } option_class;

typedef struct option_list {
    const char **items;
    int64_t count;
} option_list;
typedef struct option_range {
    int64_t begin, end; // inclusive; begin = 0: not given
} option_range;

typedef struct option {
    const char *key; // "train.steps"; of a subcommand's flag "max-tokens"
    option_kind kind;
    option_class on_resume;
    int64_t offset;           // of the field in the target struct
    const char *default_text; // NULL: must be given, or (texts, lists) stays empty
    const char *choices; // of OPTION_CHOICE: "fp32, bf16, fp16"; of OPTION_INT: a word for `word`
    int64_t word;        // may be one that no number can be
    double min, max;     // inclusive; min = max = 0: no limits
    const char *unit;    // "sequences", "" if none
    const char *help;    // one sentence without a period
    const char *also;    // names that people try instead: "learning_rate, max_lr"; for did-you-mean
} option;

typedef struct option_table {
    const char *title;
    const option *rows;
    int64_t count;
} option_table;

const option *option_find(const option_table *t, const char *key); // NULL: none
// Whether rows begin with `key` and a dot.
bool option_is_heading(const option_table *t, const char *key);
// Did you mean: the key nearest to a wrong one, by its own name or by what is also said for it.
// *out is NULL if none is near.
NODISCARD status option_nearest(const option_table *t, arena *a, const char *key, const char **out);
// Sets all defaults in `target`.
NODISCARD status option_set_defaults(const option_table *t, arena *a, void *target);
// Parses one value. `where` ("run.yaml:14:3", "command line") and `folder` (for paths) go into
// errors and paths; NULL leaves each out. Type and limits are checked; an error names the key, what
// was found and the nearest valid choice. Items of lists are separated by commas; a backslash
// before a comma, a space or a backslash takes it as it is. On error the field is as it was.
NODISCARD status option_set(const option *o, arena *a, void *target, const char *value,
                            const char *where, const char *folder);
// One item as the list's text holds it, with backslashes where it needs them.
NODISCARD status option_add_item(text *list, const char *item, int64_t bytes);
// The value as it would be written in a config, on one line; it reads back to an equal value.
NODISCARD status option_print(const option *o, const void *target, text *out);
// Whether both targets hold the same value.
bool option_equal(const option *o, const void *a, const void *b);
// Documents made from the rows.
NODISCARD status option_print_help(const option_table *t, int columns, text *out);
NODISCARD status option_print_man(const option_table *t, text *out);
NODISCARD status option_print_markdown(const option_table *t, text *out);
NODISCARD status option_print_json_schema(const option_table *t, text *out);
// Words for shell completion, one a line: "key=" and, of choices, "key=word".
NODISCARD status option_print_words(const option_table *t, text *out);

#ifdef __cplusplus
}
#endif
#endif
