// The option table: a row per option, and everything that is made from the rows.
//
// A row says name, kind, where the value goes, default, limits, class on resume and help. From the
// rows come: the YAML config reader (config.h), `key.path=value` on the command line, --flags of
// subcommands, --help, the man page, shell completion, the JSON schema and the configuration
// reference. To add an option: one row, one struct field.
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum option_kind {
    OPTION_BOOL,   // bool
    OPTION_INT,    // int64_t
    OPTION_REAL,   // double
    OPTION_TEXT,   // const char *
    OPTION_PATH,   // const char *, made relative to where it was written
    OPTION_CHOICE, // int32_t: position in `choices`
    OPTION_BYTES,  // int64_t: 4GiB, 512MiB
    OPTION_TIME,   // int64_t nanoseconds: 30s, 5m, 12h, 2d
    OPTION_LIST,   // option_list: texts
    OPTION_PATHS,  // option_list: paths or globs, each perhaps "path: weight" (text "path=weight")
    OPTION_RANGE,  // option_range: "a:b"
    OPTION_RAMP    // option_list: "step=size" pairs, from a YAML map or "0=8,100=16"
} option_kind;

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
    int64_t offset;           // of the field in the target struct
    const char *default_text; // NULL: must be given, or (texts, lists) stays empty
    const char *choices;      // of OPTION_CHOICE: "fp32, bf16, fp16"
    double min, max;          // inclusive; min = max = 0: no limits
    option_class on_resume;
    const char *unit; // "sequences", "" if none
    const char *help; // one sentence without a period
} option;

typedef struct option_table {
    const char *title;
    const option *rows;
    int64_t count;
} option_table;

const option *option_find(const option_table *t, const char *key); // NULL: none
// Sets all defaults in `target`.
NODISCARD status option_set_defaults(const option_table *t, arena *a, void *target);
// Parses one value. `where` ("run.yaml:14:3", "command line") and `folder` (for paths) go into
// errors and paths. Type and limits are checked; an error names the key, what was found and the
// nearest valid choice.
NODISCARD status option_set(const option *o, arena *a, void *target, const char *value,
                            const char *where, const char *folder);
// The value as it would be written in a config.
NODISCARD status option_print(const option *o, const void *target, text *out);
// Documents made from the rows.
NODISCARD status option_print_help(const option_table *t, int columns, text *out);
NODISCARD status option_print_man(const option_table *t, text *out);
NODISCARD status option_print_markdown(const option_table *t, text *out);
NODISCARD status option_print_json_schema(const option_table *t, text *out);

#ifdef __cplusplus
}
#endif
#endif
