// A YAML configuration, read against an option table.
//
// libyaml gives scalars with line and column; types come from the table, so `3e-4` is a number and
// `no` is a text where the table wants a text. Aliases, anchors, tags and merge keys are refused
// with their place. All errors are reported at once, each with its source line below it, as
//   run.yaml:14:3  error[C012] unknown key "optimiser.learnig_rate"; did you mean "optimizer.lr"?
// A key that heads others may be written as a scalar, which sets its `mode`: `determinism: strict`
// is `determinism.mode: strict`. Keys may also be written with dots. A null (`~`, `null` or an
// empty value) means "not given"; on the command line it removes the file's value.
#ifndef BASE_FORMAT_CONFIG_H
#define BASE_FORMAT_CONFIG_H

#include "base/format/options.h"
#include "base/host.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct config config; // the values given, each with its origin, and the target's table

// overrides: "key.path=value" texts. Relative paths in overrides are relative to the current
// folder; those in the file and in defaults are relative to the file's folder. All come out
// absolute. yaml_path NULL: overrides only. On error the record holds all complaints, each
// beginning with its place, and the status of the first; `target` is then undefined. A word that is
// not key=value gives ST_USAGE alone.
NODISCARD status config_load(const host *h, arena *a, const option_table *t, const char *yaml_path,
                             const char *const *overrides, int64_t override_count, void *target,
                             config **out);
// A YAML text in memory. Errors use `name`, relative paths in the text use `folder`; paths in
// overrides stay as they are.
typedef struct config_input {
    const char *yaml;
    int64_t bytes;
    const char *name, *folder; // folder NULL: paths stay
    const char *const *overrides;
    int64_t override_count;
} config_input;
// The keys of the map `heading` of a YAML file, in its order, for a table whose rows depend on
// names that the file gives: {sources: {web: ...}} gives "web" for "sources". Overrides such as
// "sources.web.x=y" and dotted keys give names too. A file that is no YAML gives no name:
// config_load then says why. *names is in `a`.
NODISCARD status config_names(const host *h, arena *a, const char *yaml_path, const char *heading,
                              const char *const *overrides, int64_t override_count,
                              option_list *names);
// The same as config_load from text in memory.
NODISCARD status config_parse(arena *a, const option_table *t, const config_input *source,
                              void *target, config **out);
// The origin of a key's value: "default", "run.yaml:14:3", "command line".
const char *config_origin(const config *c, const char *key);
bool config_is_given(const config *c, const char *key);
// The place of a key for later errors: "run.yaml:14:3" or "default of train.steps".
const char *config_place(const config *c, const char *key);
// For rules between keys: collects complaints and fails with all of them, in the same format.
typedef struct config_complaints config_complaints;
NODISCARD status config_complaints_begin(const config *c, arena *a, config_complaints **out);
// A complaint at the place of `key`; lower-case, no period, values included.
void config_complain(config_complaints *l, const char *key, status code, const char *format, ...)
    PRINTF_LIKE(4, 5);
NODISCARD status config_complaints_end(config_complaints *l); // ST_OK if there were none

// Prints all values with their origin as a comment: config.resolved.yaml. It loads back to equal
// values.
NODISCARD status config_print_resolved(const config *c, const void *target, text *out);

#ifdef __cplusplus
}
#endif
#endif
