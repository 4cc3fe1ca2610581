// A YAML configuration read against an option table.
//
// libyaml gives scalars with line and column; types come from the table, so `3e-4` is a number and
// `no` is a text where a text is wanted. Aliases, anchors, tags and merge keys are refused with
// their place. All errors are reported at once, each as
//   run.yaml:14:3  error[C012] unknown key "optimiser.learnig_rate"; did you mean "optimizer.lr"?
// A key that heads others may be written as a scalar, which sets its `mode`: `determinism: strict`
// is `determinism.mode: strict`.
#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include "base/host.h"
#include "base/options.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct config config; // the values given, each with its origin, and the target's table

// overrides: "key.path=value" texts; relative paths in them are relative to the current folder, in
// the file to the file's folder. yaml_path NULL: overrides only. On error the record holds all
// complaints, one a line, and the status of the first.
NODISCARD status config_load(const host *h, arena *a, const option_table *t, const char *yaml_path,
                             const char *const *overrides, int64_t override_count, void *target,
                             config **out);
// From text in memory; `name` stands in errors, `folder` for relative paths.
NODISCARD status config_parse(arena *a, const option_table *t, const char *yaml, int64_t bytes,
                              const char *name, const char *folder, const char *const *overrides,
                              int64_t override_count, void *target, config **out);
// Where a key's value came from: "default", "run.yaml:14:3", "command line".
const char *config_origin(const config *c, const char *key);
bool config_is_given(const config *c, const char *key);
// For errors found later, in the config's words: "run.yaml:14:3" or "default of train.steps".
const char *config_place(const config *c, const char *key);
// All values with their origin as a comment: config.resolved.yaml. It loads back to equal values.
NODISCARD status config_print_resolved(const config *c, const void *target, text *out);

#ifdef __cplusplus
}
#endif
#endif
