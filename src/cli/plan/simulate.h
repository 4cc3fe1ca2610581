// `simulate`: predicts a step of a run in virtual time (predict/step.h).
//
// simulate_open() reads its input: a configuration, a preset or a Hugging Face folder, the keys
// that override it, a cluster and a profile; predict_step_make() predicts the step;
// simulate_print_*() print it.
#ifndef CLI_PLAN_SIMULATE_H
#define CLI_PLAN_SIMULATE_H

#include "cli/cli.h"
#include "predict/step.h"

// The arguments of a command line. A run of the catalogue stands for its model, cluster and
// settings: by its own name if no cluster is given, or if no model has that name.
typedef struct simulate_request {
    const char *operand, *cluster; // cluster: NULL if none was given
    const char *const *keys;
    int64_t key_count;
} simulate_request;
NODISCARD status simulate_named(cli_context *cli, simulate_request *w);

// searched: a search will choose the layout.
NODISCARD status simulate_open(cli_context *cli, const char *operand, const char *cluster_name,
                               const char *const *keys, int64_t key_count, bool searched,
                               predict_setup *out);

// Prints one JSON object; run: NULL without a long run.
NODISCARD status simulate_print_json(arena *a, const predict_step *x,
                                     const sim_long_run_result *run, text *out);
// Prints lines of at most 80 columns.
NODISCARD status simulate_print_text(arena *a, const predict_step *x, text *out);

#endif
