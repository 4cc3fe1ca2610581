// `plan`: chooses a layout, and computes what fits and how many devices, days and dollars a run
// takes.
//
// plan_open() reads model, cluster and keys as `simulate` does and makes a planner
// (predict/planner.h), which searches. A given layout key fixes that part of the layout.
#ifndef CLI_PLAN_PLAN_H
#define CLI_PLAN_PLAN_H

#include "cli/plan/simulate.h"
#include "cli/progress.h"
#include "launch/launch.h"
#include "predict/planner.h"

// A planner, and the arguments that opened it.
typedef struct planning {
    cli_context *cli;
    predict_planner p;
    int64_t layers_given;        // of the model as named
    const char *operand;         // as named
    const char *const *run_keys; // the user's keys without those of layout and cluster
    int64_t run_key_count;
} planning;

// Shows on the progress line how far the searches of a planner are; progress: may be NULL.
void plan_watch(predict_planner *p, cli_progress *progress);
// Closes what plan_open() opened.
void plan_close(planning *x);
NODISCARD status plan_open(cli_context *cli, const char *operand, const char *cluster,
                           const char *const *keys, int64_t key_count, planning *out);
// Given layout keys fix their part of the layout.
NODISCARD status plan_fix(const config *c, const run_config *given, search_fixed *out);
// "train.micro_batch=4" and the recomputation: at most PLAN_MEMORY_KEYS keys.
enum { PLAN_MEMORY_KEYS = 3 };
NODISCARD status plan_memory_keys(arena *a, const run_config *r, const char **keys, int64_t *count);
// "layout.dp=8", ...: at most PLAN_LAYOUT_KEYS more.
enum { PLAN_LAYOUT_KEYS = 13 };
NODISCARD status plan_layout_keys(const predict_planner *p, const search_layout *l,
                                  const char **keys, int64_t *count);
NODISCARD status plan_config_write(const planning *x, const search_layout *l, const char *path);

// For this machine: predict_micro_batch(), and if the layout is open (`layout: auto`) the keys of
// the fastest one, appended to `keys`. `started`: ranks that a launcher has started, each of which
// plans for itself. NULL: this process starts the ranks, as many as are fastest, and passes the
// result to them.
NODISCARD status plan_micro_batch_here(cli_context *cli, const launch_place *started,
                                       run_config *r);
NODISCARD status plan_auto(cli_context *cli, const char *yaml, const char *const *keys,
                           int64_t key_count, const launch_place *started, const char ***out,
                           int64_t *count);

// The same for `simulate` on any cluster: `given` holds the values of file and keys, and `c` says
// which are given. If nothing fits, the keys of the smallest layout.
NODISCARD status plan_chosen(cli_context *cli, const simulate_request *run, const config *c,
                             run_config *given, const char ***out, int64_t *count);

// Prints a table with a row for each number of devices of a range ("64..16384"), each twice the one
// before.
NODISCARD status plan_table_devices(planning *x, const char *range, bool csv);
// Prints one with a row for each line of a file: keys of a layout, over `keys`.
typedef struct plan_layouts {
    cli_context *cli;
    const char *operand, *cluster;
    const char *const *keys;
    int64_t key_count;
} plan_layouts;
NODISCARD status plan_table_layouts(const plan_layouts *w, const char *path, bool csv);

// ---- text ---------------------------------------------------------------------------------------
// Prints the best layouts, why others lose, and a table of the bytes, in 80 columns.
NODISCARD status plan_print_text(predict_planner *p, arena *a, const search_result *found,
                                 text *out);
// Lists at most three changes that would make the layout fit: "layout.zero=1 -90.1 GiB, fits"; ""
// if there are none.
NODISCARD status plan_print_remedies(predict_planner *p, arena *a, const search_found *f,
                                     text *out);

#endif
