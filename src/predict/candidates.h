// Layouts of one run as a search sees them: the programs of each, its bytes and its simulated step.
//
// Layouts that cut the model equally share its programs. The simulation of the fastest layout is
// kept so that its figures need not be computed again; while none is kept, two layouts are
// simulated at the same time.
#ifndef PREDICT_CANDIDATES_H
#define PREDICT_CANDIDATES_H

#include "predict/layout.h"
#include "predict/step.h"

#ifdef __cplusplus
extern "C" {
#endif

// Bytes and time of a layout from its own plans.
typedef struct search_simulated {
    int64_t step_ns;
    int64_t peak_bytes; // of the fullest rank, with the additional bytes of the profile's software
    int64_t kind[PLAN_BYTES_COUNT];
} search_simulated;

// Figures of a simulated layout, kept for printing.
typedef struct predict_figures {
    search_layout layout;
    double step_s, tokens_per_s, mfu, bubble, waits; // tokens of one device
} predict_figures;
enum { PREDICT_FIGURES = 256 };

// The model, and the part of it on one rank along tp and cp.
typedef struct candidate_model {
    op_recompute recompute;
    int32_t recompute_layers;
    int32_t tp, cp;
    bool sp, ring, whole_experts;
    op_model *whole, *cut, *local; // cut: along tp only
} candidate_model;

// A layout that a separate thread simulates ahead of its turn.
typedef struct candidate_ahead {
    const search_layout *layout; // owned by the search
    arena *a;                    // holds x
    const predict_step *x;
    status st;
    error_record why;
} candidate_ahead;
enum { CANDIDATES_AHEAD = 2 }; // there are arenas for two

typedef struct candidates {
    predict_setup base; // its run has no layout yet
    bool has_layout;    // the layout is given and stays: only train.micro_batch is searched
    arena *work;        // for one simulation
    arena *best;        // for the fastest one so far, which is kept; NULL: none is kept
    const predict_step *best_step; // NULL: there is none
    search_layout best_layout;
    candidate_ahead ahead[CANDIDATES_AHEAD]; // not yet asked for: [ahead_next, ahead_count)
    int32_t ahead_next, ahead_count;
    candidate_model *models; // in the search's arena
    int64_t model_count, model_capacity;
    predict_figures figures[PREDICT_FIGURES]; // of the last simulations
    int64_t figure_count;
} candidates;

// Creates the arenas for simulations and plans. A caller with one search of a few layouts creates
// only `work`.
NODISCARD status candidates_scratch_create(candidates *c);
void candidates_scratch_destroy(candidates *c);
// Call before a search: it forgets the previous search's models and, if this one simulates, its
// best step.
void candidates_begin(candidates *c, bool simulates);

// The run with this layout; candidates_config_check() also refuses what its model does not allow.
run_config candidates_config(const candidates *c, const search_layout *l);
NODISCARD status candidates_config_check(const candidates *c, const search_layout *l,
                                         run_config *out);
// The step of the run with this layout, and its setup: with bytes (predict_step_show) or times
// alone (predict_step_times).
NODISCARD status candidates_show(const candidates *c, arena *a, const search_layout *l,
                                 predict_setup *s, predict_step *out);
NODISCARD status candidates_times(const candidates *c, arena *a, const search_layout *l,
                                  predict_setup *s, predict_step *out);
// The times of a layout that the last search simulated: those of the best step if it is that
// layout, else simulated again in `a`.
NODISCARD status candidates_step(const candidates *c, arena *a, const search_layout *l,
                                 const predict_step **out);
// The whole model, and the part of one rank along tp and cp (after the passes); for training, sizes
// only.
NODISCARD status candidates_model(candidates *c, arena *a, const search_layout *l, op_model **whole,
                                  op_model **local);
// The whole model of the run, in the work arena.
NODISCARD status candidates_whole_model(const candidates *c, op_model **out);
// True if keys and values travel in a ring along cp; the model is then a different one.
bool candidates_ring(const candidates *c, const search_layout *l);
// A status that the user can cause excludes the layout.
NODISCARD status candidates_simulate(candidates *c, const search_layout *l, search_simulated *out);
// Announces that these layouts are simulated next, in this order, whatever the results.
NODISCARD status candidates_ahead(candidates *c, const search_layout *const *l, int32_t count);
// Micro-batches x layers of a simulation; its time is proportional to them.
int64_t candidates_rows(const candidates *c, const search_layout *l);
// Bytes of the plans' own arenas of these stages; the fullest by estimate comes first.
NODISCARD status candidates_fit(const candidates *c, const search_layout *l, const int32_t *stages,
                                int32_t count, search_simulated *out);
// An estimate's bytes with the profile's additions to those of a plan (predict_step_bytes).
int64_t candidates_bytes(const candidates *c, const estimate_memory *m);

#ifdef __cplusplus
}
#endif
#endif
