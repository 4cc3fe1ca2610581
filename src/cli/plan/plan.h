// `plan`: which layout to take, and why not another; what fits; how many devices, days and dollars.
//
// plan_open() reads model, cluster and keys as `simulate` does; plan_search() hands predict/search.h the model's
// programs and plays of simulate_step(). A layout key that is given fixes that part of the layout.
#ifndef CLI_PLAN_PLAN_H
#define CLI_PLAN_PLAN_H

#include "cli/plan/simulate.h"
#include "launch/launch.h"
#include "predict/search.h"

// What a play said, kept: it need not be played again to be shown.
typedef struct plan_figures {
    search_layout layout;
    double step_s, tokens_per_s, mfu, bubble, waits; // tokens of one device
} plan_figures;
enum { PLAN_FIGURES = 256 };

// Of a search: a model, and what one rank along tp and cp has of it.
typedef struct plan_part {
    op_recompute recompute;
    int32_t recompute_layers;
    int32_t tp, cp;
    bool sp, ring, whole_experts;
    op_model *whole, *cut, *local; // cut: along tp alone
} plan_part;

// A play that the search asked for ahead, by its own thread.
typedef struct plan_ahead {
    const search_layout *layout; // the search's
    arena *a;                    // that x is in
    const simulated *x;
    status st;
    error_record why;
} plan_ahead;
enum { PLAN_AHEAD = 2 }; // the planner has rooms for two

typedef struct planner {
    cli_context *cli;
    simulation base; // its run has no layout yet
    bool has_layout; // but this one has, and it stays: train.micro_batch is looked for
    plan_pipeline_request pipeline; // of that, where layout.stages says it; rows NULL: it does not
    run_config *given;              // what the keys and the file say of the layout
    search_fixed fixed;
    int64_t devices;               // of the cluster that may be used
    double parameters;             // of the model
    int64_t layers_given;          // of the model as it was named
    const char *operand, *cluster; // as named
    const char *const *run_keys;   // the user's, but those of layout and cluster
    int64_t run_key_count;
    const char *const *cluster_keys;
    int64_t cluster_key_count;
    int32_t wanted, plays;
    int64_t plays_rows; // search_request.rows
    exec_workspace_context workspace;
    exec_codec codec;           // of gradients between ranks
    arena *work;                // of one play
    arena *best;                // of the fastest play so far, which is kept; NULL: none is
    const simulated *best_play; // NULL: there is none
    search_layout best_layout;
    plan_ahead ahead[PLAN_AHEAD]; // not asked for yet: [ahead_next, ahead_count)
    int32_t ahead_next, ahead_count;
    plan_part *parts;
    int64_t part_count, part_capacity;
    plan_figures figures[PLAN_FIGURES]; // of the last plays
    int64_t figure_count;
} planner;

// Once it is open it is to be closed.
void plan_close(planner *p);
NODISCARD status plan_open(cli_context *cli, const char *operand, const char *cluster,
                           const char *const *keys, int64_t key_count, planner *out);
// The same machine with so many devices.
NODISCARD status plan_devices(planner *p, int64_t devices);
// The same model with so many decoder layers.
NODISCARD status plan_layers(planner *p, int64_t layers);
int64_t plan_usable(const planner *p); // bytes of a device
// Searches with `plays` plays at most; 0: memory alone.
NODISCARD status plan_search(planner *p, arena *a, int32_t plays, search_result *out);
// The configuration of a layout, and its step played in full.
NODISCARD status plan_config_of(const planner *p, const search_layout *l, run_config *out);
// Layout keys that are given fix their part.
NODISCARD status plan_fix(planner *p, const config *c);
// "train.micro_batch=4", and what is computed again: PLAN_MEMORY_KEYS at most.
enum { PLAN_MEMORY_KEYS = 3 };
NODISCARD status plan_memory_keys(cli_context *cli, const run_config *r, const char **keys,
                                  int64_t *count);
// "layout.dp=8", ...: at most PLAN_LAYOUT_KEYS more of them.
enum { PLAN_LAYOUT_KEYS = 13 };
NODISCARD status plan_layout_keys(const planner *p, const search_layout *l, const char **keys,
                                  int64_t *count);
NODISCARD status plan_config_write(const planner *p, const search_layout *l, const char *path);
NODISCARD status plan_step(const planner *p, arena *a, const search_layout *l, simulation *s,
                           simulated *out);
NODISCARD status plan_times(const planner *p, arena *a, const search_layout *l, simulation *s,
                            simulated *out); // but for its bytes

// For `train.micro_batch: auto` of a layout that is given: *s->r gets the fastest, and what is computed again where that is open
// too; on a processor, whose memory others want too, the smallest of those that take at most one percent more time. Where nothing
// fits, the smallest of all. Nothing to do where it is not auto.
NODISCARD status plan_micro_batch(cli_context *cli, simulation *s);
// The same of a layout that was found, where its micro-batch is not fixed.
NODISCARD status plan_micro_batch_of(const planner *p, search_layout *l);

// For this machine: plan_micro_batch(), and of a layout that is left open (`layout: auto`) the keys of the fastest, behind
// `keys`. `started`: ranks that a launcher has started,
// each of which plans for itself: what is found is the same on all of them, whatever memory is free just then. NULL: this
// process starts them, as many as are fastest, and they get what is found.
NODISCARD status plan_micro_batch_here(cli_context *cli, const launch_place *started,
                                       run_config *r);
NODISCARD status plan_auto(cli_context *cli, const char *yaml, const char *const *keys,
                           int64_t key_count, const launch_place *started, const char ***out,
                           int64_t *count);

// The same for `simulate`, on any cluster: `given` is what was read from file and keys as they are, and `c` tells what of
// it. Where nothing fits, of the smallest.
NODISCARD status plan_chosen(cli_context *cli, const simulate_words *run, const config *c,
                             run_config *given, const char ***out, int64_t *count);

// ---- words --------------------------------------------------------------------------------------
// The best ones, why others lose, and where the bytes go, in 80 columns.
NODISCARD status plan_print_text(planner *p, arena *a, const search_result *found, text *out);
// What would make the layout fit: "layout.zero=1 -90.1 GiB, fits"; at most three. Nothing: "".
NODISCARD status plan_print_remedies(planner *p, arena *a, const search_found *f, text *out);

// ---- questions ----------------------------------------------------------------------------------
typedef enum plan_question {
    ASK_NOTHING,
    ASK_MAX_MODEL,   // decoder layers of this shape that fit
    ASK_MIN_DEVICES, // on which it fits
    ASK_DAYS,        // the fewest devices that are done in so many
    ASK_BUDGET       // the most devices that cost at most so much
} plan_question;
typedef struct plan_answer {
    plan_question question;
    double limit;       // days or dollars
    int64_t layers;     // ASK_MAX_MODEL; 0: not one
    int64_t parameters; // of that
    int64_t devices;    // the others; 0: never
    int64_t boundary;   // the next value, layers or devices, that does not do; 0: all do, or none
    double days, cost_usd;              // ASK_DAYS, ASK_BUDGET: p50
    double boundary_days, boundary_usd; // of the boundary; 0: nothing fits there
} plan_answer;
// Leaves the planner at the answer: its model and devices are those of it.
NODISCARD status plan_ask(planner *p, plan_question question, double limit, plan_answer *out);

#endif
