// The planner: which layout of a run is the fastest on a cluster; how large a model fits; how few devices, days or dollars.
//
// A planner holds the run, the cluster and the parts of the layout that are fixed. predict_search() searches the rest
// (predict/search.h). The other functions are walks over one number or a few choices, with a search at every step.
#ifndef PREDICT_PLANNER_H
#define PREDICT_PLANNER_H

#include "predict/candidates.h"
#include "predict/search.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct predict_planner {
    const host *h;
    arena *a; // clusters and keys are read into
    candidates each;
    plan_pipeline_request
        pipeline; // of a layout that is given, where layout.stages says it; rows NULL: it does not
    search_fixed fixed;
    int64_t devices;     // of the cluster that may be used
    double parameters;   // of the model
    const char *cluster; // as named
    const char *const *cluster_keys;
    int64_t cluster_key_count;
    int32_t wanted, simulations;
    int64_t rows; // search_request.rows
    exec_workspace_context workspace;
    exec_codec codec; // of gradients between ranks
} predict_planner;

// The same machine with so many devices; 0: as many as the cluster has.
NODISCARD status predict_planner_devices(predict_planner *p, int64_t devices);
// The same model with so many decoder layers.
NODISCARD status predict_planner_layers(predict_planner *p, int64_t layers);
int64_t predict_usable_bytes(const predict_planner *p); // of a device
// Searches with `simulations` simulations at most; 0: memory alone.
NODISCARD status predict_search(predict_planner *p, arena *a, int32_t simulations,
                                search_result *out);
// The fastest; where nothing fits, the smallest.
NODISCARD status predict_best_layout(predict_planner *p, search_layout *out);

// ---- train.micro_batch: auto ----------------------------------------------------------------------

// Of a layout that is given: *s->r gets the fastest micro-batch, and what is computed again where that is open too; on a
// processor, whose memory others want too, the smallest of those that take at most one percent more time. Where nothing
// fits, the smallest of all. Nothing to do where it is not auto.
NODISCARD status predict_micro_batch(const host *h, arena *a, predict_setup *s);
// The same of a layout that was found, where its micro-batch is not fixed.
NODISCARD status predict_micro_batch_of(const predict_planner *p, search_layout *l);

// ---- layouts of this machine ----------------------------------------------------------------------

// Ranks that a launcher has started, each of which plans for itself: what is found is the same on all of them, whatever
// memory is free just then.
typedef struct predict_started {
    int64_t ranks, local_ranks; // local_ranks 0: not known
} predict_started;
// A planner of this machine's processor. Its run and model are still to come.
NODISCARD status predict_here(const host *h, arena *a, const char *name, predict_planner **out);
// Its cluster becomes `ranks` devices that share this machine. started: NULL if this process starts them.
NODISCARD status predict_here_share(predict_planner *p, const predict_started *started,
                                    int64_t ranks);
// The fastest layout of the ranks that are started, or of any number of ranks that divides the cores.
NODISCARD status predict_here_layout(predict_planner *p, const predict_started *started,
                                     search_layout *out);

// ---- questions ------------------------------------------------------------------------------------

typedef enum predict_question {
    ASK_NOTHING,
    ASK_MAX_MODEL,   // decoder layers of this shape that fit
    ASK_MIN_DEVICES, // on which it fits
    ASK_DAYS,        // the fewest devices that are done in so many
    ASK_BUDGET       // the most devices that cost at most so much
} predict_question;
typedef struct predict_answer {
    predict_question question;
    double limit;       // days or dollars
    int64_t layers;     // ASK_MAX_MODEL; 0: not one
    int64_t parameters; // of that
    int64_t devices;    // the others; 0: never
    int64_t boundary;   // the next value, layers or devices, that does not do; 0: all do, or none
    double days, cost_usd;              // ASK_DAYS, ASK_BUDGET: p50
    double boundary_days, boundary_usd; // of the boundary; 0: nothing fits there
} predict_answer;
// Leaves the planner at the answer: its model and devices are those of it.
NODISCARD status predict_ask(predict_planner *p, predict_question question, double limit,
                             predict_answer *out);

#ifdef __cplusplus
}
#endif
#endif
