// `plan`: which layout to take, and why not another; what fits; how many devices, days and dollars.
//
// plan_open() reads model, cluster and keys as `simulate` does into a planner (predict/planner.h), which searches. A layout
// key that is given fixes that part of the layout.
#ifndef CLI_PLAN_PLAN_H
#define CLI_PLAN_PLAN_H

#include "cli/plan/simulate.h"
#include "launch/launch.h"
#include "predict/planner.h"

// A planner, and the words that it was opened with.
typedef struct planning {
    cli_context *cli;
    predict_planner p;
    int64_t layers_given;        // of the model as it was named
    const char *operand;         // as named
    const char *const *run_keys; // the user's, but those of layout and cluster
    int64_t run_key_count;
} planning;

// Once it is open it is to be closed.
void plan_close(planning *x);
NODISCARD status plan_open(cli_context *cli, const char *operand, const char *cluster,
                           const char *const *keys, int64_t key_count, planning *out);
// Layout keys that are given fix their part.
NODISCARD status plan_fix(const config *c, const run_config *given, search_fixed *out);
// "train.micro_batch=4", and what is computed again: PLAN_MEMORY_KEYS at most.
enum { PLAN_MEMORY_KEYS = 3 };
NODISCARD status plan_memory_keys(arena *a, const run_config *r, const char **keys, int64_t *count);
// "layout.dp=8", ...: at most PLAN_LAYOUT_KEYS more of them.
enum { PLAN_LAYOUT_KEYS = 13 };
NODISCARD status plan_layout_keys(const predict_planner *p, const search_layout *l,
                                  const char **keys, int64_t *count);
NODISCARD status plan_config_write(const planning *x, const search_layout *l, const char *path);

// For this machine: predict_micro_batch(), and of a layout that is left open (`layout: auto`) the keys of the fastest,
// behind `keys`. `started`: ranks that a launcher has started, each of which plans for itself. NULL: this process starts
// them, as many as are fastest, and they get what is found.
NODISCARD status plan_micro_batch_here(cli_context *cli, const launch_place *started,
                                       run_config *r);
NODISCARD status plan_auto(cli_context *cli, const char *yaml, const char *const *keys,
                           int64_t key_count, const launch_place *started, const char ***out,
                           int64_t *count);

// The same for `simulate`, on any cluster: `given` is what was read from file and keys as they are, and `c` tells what of
// it. Where nothing fits, of the smallest.
NODISCARD status plan_chosen(cli_context *cli, const simulate_request *run, const config *c,
                             run_config *given, const char ***out, int64_t *count);

// ---- words --------------------------------------------------------------------------------------
// The best ones, why others lose, and where the bytes go, in 80 columns.
NODISCARD status plan_print_text(predict_planner *p, arena *a, const search_result *found,
                                 text *out);
// What would make the layout fit: "layout.zero=1 -90.1 GiB, fits"; at most three. Nothing: "".
NODISCARD status plan_print_remedies(predict_planner *p, arena *a, const search_found *f,
                                     text *out);

#endif
