// `simulate`: predicts a step of a run in virtual time (predict/step.h).
//
// simulate_open() reads its input: a configuration, a preset or a Hugging Face folder, the keys
// that override it, a cluster and a profile; predict_step_make() predicts the step;
// simulate_print_*() print it.
#ifndef CLI_PLAN_SIMULATE_H
#define CLI_PLAN_SIMULATE_H

#include "catalog/run.h"
#include "cli/cli.h"
#include "predict/step.h"

// The arguments of a command line. A run of the catalogue stands for its model, cluster and
// settings. On another cluster it keeps its layout and its batch; if a model has its name, a layout
// of the user's own makes it the model.
typedef struct simulate_request {
    const char *operand, *cluster; // cluster: NULL if none was given
    const char *const *keys;
    int64_t key_count;
    // Set by simulate_named():
    int64_t run_keys;       // number of keys, at the front, that are the run's
    const catalog_run *run; // NULL: the operand is a model or a file
    const char *run_unused; // a run of the model's name, whose settings do not apply
    const char *changes;    // settings of the run that the cluster changed; NULL: none
    bool moved;             // the run is simulated on another cluster than its own
    bool layout_open;       // no layout was given: the planner chooses it
} simulate_request;
NODISCARD status simulate_named(cli_context *cli, simulate_request *w);

// Refuses a cluster key whose figure is shown and enters no prediction, so that none is silently
// ignored. key: "device.clock_mhz=1800", without "cluster.".
NODISCARD status simulate_cluster_key_check(const char *key);
// Fails for a key of the cores that ranks share, which only `simulate` reads, for processors.
NODISCARD status simulate_cores_key_check(const char *key);
// searched: a search will choose the layout.
NODISCARD status simulate_open(cli_context *cli, const char *operand, const char *cluster_name,
                               const char *const *keys, int64_t key_count, bool searched,
                               predict_setup *out);

// For the user's keys, once the cluster is known: refuses those of levels that it does not have,
// and warns of those that change nothing for `ranks` devices (0: not known yet) or act only while a
// run trains.
NODISCARD status simulate_keys_check(cli_context *cli, const char *const *keys, int64_t count,
                                     const predict_setup *s, int64_t ranks);

// Prints one JSON object; w: NULL if no run can stand behind it; run: NULL without a long run.
NODISCARD status simulate_print_json(arena *a, const predict_step *x, const simulate_request *w,
                                     const sim_long_run_result *run, text *out);
// Prints lines of at most 80 columns.
NODISCARD status simulate_print_text(arena *a, const predict_step *x, text *out);
// One sentence: what the software of a prediction is.
const char *simulate_assumes(const predict_step *x);
// Prints what the prediction assumes: the run and what changed of it, the software, and, where none
// was named for a device without kernels of Trireme, what software that was measured there would
// take. long_run: NULL without one.
NODISCARD status simulate_print_assumed(cli_context *cli, const simulate_request *w,
                                        const predict_step *x, const sim_long_run_result *long_run,
                                        text *out);
// The part of it about the software.
NODISCARD status simulate_print_software(cli_context *cli, const predict_step *x,
                                         const sim_long_run_result *long_run, text *out);
// Compares the published figure of a run with the predicted one; prints no line without one.
NODISCARD status simulate_print_published(cli_context *cli, const simulate_request *w,
                                          const predict_step *x,
                                          const sim_long_run_result *long_run, text *out);
// Members of a JSON object, each with a comma behind it.
NODISCARD status simulate_published_json(const simulate_request *w, const predict_step *x,
                                         const sim_long_run_result *long_run, text *out);

#endif
