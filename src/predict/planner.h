// The planner finds the fastest layout of a run on a cluster, the largest model that fits, or the
// fewest devices, days or dollars.
//
// A planner holds the run, the cluster and the fixed parts of the layout. predict_search() searches
// the rest (predict/search.h). The other functions walk over one number or a few choices, with a
// search at every step.
#ifndef PREDICT_PLANNER_H
#define PREDICT_PLANNER_H

#include "predict/candidates.h"
#include "predict/search.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct predict_planner {
    const host *h;
    arena *a; // holds clusters and keys
    candidates each;
    // stages of a given layout if layout.stages sets them; rows NULL: it does not
    plan_pipeline_request pipeline;
    search_fixed fixed;
    int64_t devices;     // number in the cluster that may be used
    double parameters;   // of the model
    const char *cluster; // as given by the user
    const char *const *cluster_keys;
    int64_t cluster_key_count;
    int32_t wanted, simulations;
    int64_t rows;     // search_request.rows
    int64_t limit_ns; // search_request.limit_ns
    bool asked;       // an inverse question has narrowed the search
    exec_workspace_context workspace;
    exec_codec codec;            // of gradients between ranks
    search_progress_fn progress; // of every search; NULL: no caller shows it
    void *progress_context;
} predict_planner;

// Sets the number of devices of the same machine; 0: as many as the cluster has.
NODISCARD status predict_planner_devices(predict_planner *p, int64_t devices);
// Sets the number of decoder layers of the same model.
NODISCARD status predict_planner_layers(predict_planner *p, int64_t layers);
int64_t predict_usable_bytes(const predict_planner *p); // per device
// Searches with at most `simulations` simulations; 0: by memory alone.
NODISCARD status predict_search(predict_planner *p, arena *a, int32_t simulations,
                                search_result *out);
// The fastest layout; if none fits, the smallest.
NODISCARD status predict_best_layout(predict_planner *p, search_layout *out);

// ---- train.micro_batch: auto -------------------------------------------------------------------

// For a given layout: *s->r gets the fastest micro-batch, and the recomputation if that is open
// too; on a processor, whose memory has other uses, the smallest micro-batch that takes at most one
// percent more time. If none fits, the smallest of all. Does nothing if train.micro_batch is not
// auto.
NODISCARD status predict_micro_batch(const host *h, arena *a, predict_setup *s);
// The same for a layout that a search found, if its micro-batch is not fixed.
NODISCARD status predict_micro_batch_of(const predict_planner *p, search_layout *l);

// ---- layouts of this machine -------------------------------------------------------------------

// Ranks that a launcher has started. Each plans for itself, and all must find the same layout,
// whatever memory is free at that moment.
typedef struct predict_started {
    int64_t ranks, local_ranks; // local_ranks 0: unknown
} predict_started;
// Makes a planner for this machine's processor or GPUs; its run and model are set later.
NODISCARD status predict_here(const host *h, arena *a, const char *name, predict_planner **out);
// Divides this machine into `ranks` devices. started: NULL if this process starts the ranks.
NODISCARD status predict_here_share(predict_planner *p, const predict_started *started,
                                    int64_t ranks);
// The fastest layout of the started ranks, or of any number of ranks that divides the cores, or the
// GPUs of a run on them.
NODISCARD status predict_here_layout(predict_planner *p, const predict_started *started,
                                     search_layout *out);

// ---- questions ---------------------------------------------------------------------------------

typedef enum predict_question {
    ASK_NOTHING,
    ASK_MAX_MODEL,   // most decoder layers of this shape that fit
    ASK_MIN_DEVICES, // fewest on which the model fits
    ASK_DAYS,        // fewest devices that finish in this many days
    ASK_BUDGET       // most devices that cost at most this much
} predict_question;
// ASK_MAX_MODEL is exact up to so many layers, and within one part in 128 above; layouts of models
// with more layers than are listed take too long to plan for an answer in seconds.
enum { PREDICT_LAYERS_EXACT = 512, PREDICT_LAYERS_LISTED = 192 };
typedef struct predict_answer {
    predict_question question;
    double limit;       // days or dollars
    int64_t layers;     // ASK_MAX_MODEL; 0: not even one fits
    int64_t parameters; // of that model
    int64_t devices;    // the other questions; 0: no number suffices
    int64_t needed;     // ASK_MIN_DEVICES: devices whose memory holds the states alone
    // The next value, layers or devices, that fails; 0: all succeed. For days and dollars without
    // an answer: the number of devices that comes nearest, 0 if the model fits on none.
    int64_t boundary;
    double days, cost_usd;              // ASK_DAYS, ASK_BUDGET: p50
    double boundary_days, boundary_usd; // at the boundary; 0: nothing fits there
} predict_answer;
// Narrows the search to one kind of pipeline, as the questions do.
void predict_ask_quickly(predict_planner *p);
// Leaves the planner with the model and the devices of the answer, and with one kind of pipeline,
// micro-batches of one sequence and no half recomputation, where the keys leave them open: a search
// of all takes longer than the answer.
NODISCARD status predict_ask(predict_planner *p, predict_question question, double limit,
                             predict_answer *out);

#ifdef __cplusplus
}
#endif
#endif
