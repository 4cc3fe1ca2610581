// Predicts a training step of a run: makes its plans for a rank of every stage, prices them and
// simulates them in virtual time.
//
// A step is a function of (run_config, decoder_spec, cluster, profile) alone, so a search may ask
// for it for every layout. predict_step_make() makes everything; the other functions leave out what
// their caller does not need, because bytes and times come from different passes over a plan, and
// of very many micro-batches only a few are simulated (step_loop.c).
#ifndef PREDICT_STEP_H
#define PREDICT_STEP_H

#include "assemble/assemble.h"
#include "cost/cost.h"
#include "cost/flops.h"
#include "model/model.h"
#include "sim/long_run.h"
#include "sim/sim.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PREDICT_ARENAS = 2 };

// The input of a prediction.
typedef struct predict_setup {
    const char *name; // of the model or file, as given
    run_config *r;    // complete: layout.dp and train.micro_batch have values
    decoder_spec spec;
    cluster machine; // with as many devices as the layout has ranks
    cost_profile profile;
    const flops_rule *rule;
    // scratch memory for plans, for a caller that makes many; NULL: each plan has its own
    assemble_scratch *plan_scratch;
    // Scratch memory for simulations, for a caller that runs many: times of single actions stay
    // valid until the next one. Each thread that simulates at the same time has its own arena, the
    // first thread the first. NULL: the arena of the plans.
    arena *scratch[PREDICT_ARENAS];
    bool has_profile; // the user or the run named the software
    bool has_length;  // train.steps or train.tokens is given: there is a long run to predict
    // A step with many micro-batches follows from two with fewer: its bytes if both hold the same
    // live bytes, even where other holes between tensors could decide whether the run fits, and its
    // times by the line through both. For answers in seconds (predict_ask_quickly).
    bool few_decide;
} predict_setup;

// A step and its figures. Bytes are those of the fullest rank.
typedef struct predict_step {
    const predict_setup *of;
    int64_t parameters;          // of the model
    int32_t stages;              // of pp: the simulated ranks
    assemble_plans *plans;       // [stage]
    sim_rank *ranks;             // [stage]
    const assemble_plans *sized; // [stage] plans for the bytes; NULL: `plans`
    sim_step *step;
    int64_t devices;
    int64_t micro_batch, microbatches;
    int64_t simulated; // micro-batches that were simulated
    bool is_line;      // the times are on the line through two steps with fewer micro-batches
    int64_t rounds; // rounds not simulated, each as long as `stretch` says; 0: all were simulated
    sim_stretch stretch; // of the simulated ones
    double step_s, tokens_per_s;
    double model_flops, hardware_flops; // per token, by the convention
    double flops_per_device;            // FLOP/s; mfu is its share of the peak
    double peak_flops, mfu, hfu;
    // Parts of the step, as means over the stages: they and compute add up to 1.
    double compute, exposed[TRAFFIC_COUNT], bubble, data, host;
    double exposed_s; // of all collectives
    int32_t fullest;  // stage
    int64_t peak_bytes, usable_bytes;
    int64_t lost_bytes; // part of peak_bytes lost by the allocator of the profile's software
    int64_t memory[PLAN_BYTES_COUNT]; // they add up to peak_bytes
    bool fits;
    double state_bytes; // of one checkpoint
} predict_step;
NODISCARD status predict_step_make(arena *a, const predict_setup *s, predict_step *out);
// The same for a caller that shows the figures: its plans cannot be executed.
NODISCARD status predict_step_show(arena *a, const predict_setup *s, predict_step *out);
// For a step with so many micro-batches that planning all takes minutes: the same run with few,
// whose live bytes are equal. *out stays `s` for any other step.
NODISCARD status predict_step_few(arena *a, const predict_setup *s, const predict_setup **out);
// The same without bytes, which take most of the time: they stay 0, and `fits` is false. Of very
// many micro-batches not all are simulated.
NODISCARD status predict_step_times(arena *a, const predict_setup *s, predict_step *out);
// Micro-batches that a step counts for in a limit on simulated ones: those that were once planned
// for it.
int64_t predict_step_weight(const run_config *r);
// The two halves: plans and the simulation of all micro-batches; then the figures.
NODISCARD status predict_step_simulate(arena *a, const predict_setup *s, predict_step *out);
// The same with fewer micro-batches than the batch's `all`: out->step->some covers the first
// `apart` of `stretch`.
NODISCARD status predict_step_part(arena *a, const predict_setup *s, const sim_stretch *stretch,
                                   int64_t all, predict_step *out);
// Prices and simulates the plans in *out: out->step.
NODISCARD status predict_step_run(arena *a, const predict_setup *s, predict_step *out);
void predict_step_figures(const predict_setup *s, predict_step *out);
// Prices and simulates its plans on other machines at the same time. step_s: [count].
NODISCARD status predict_step_elsewhere(const predict_step *x, const cluster *machines,
                                        int32_t count, double *step_s);
// The bytes of the fullest of these stages; the likely fullest should come first. If it is too
// large, others may be larger. Of very many micro-batches not all are planned.
NODISCARD status predict_step_peak(arena *a, const predict_setup *s, const int32_t *stages,
                                   int32_t count, predict_step *out);
// The same from plans of all micro-batches.
NODISCARD status predict_step_plan(arena *a, const predict_setup *s, const int32_t *stages,
                                   int32_t count, predict_step *out);
// Runs the executor for the same steps on virtual devices (sim_execute). ST_BROKEN_PLAN: it takes
// another time than the simulator or touches other bytes than its arena.
NODISCARD status predict_step_execute(arena *a, const predict_step *x, sim_executed *out);
cost_model predict_prices(const predict_setup *s);
// The same step with each rank's turns on the cores of the host that all share, where more threads
// want to run than it has cores. out->count is 0 elsewhere, and where not all was simulated.
NODISCARD status predict_step_turns(arena *a, const predict_step *x, sim_turns *out);
// Whether experts are assumed to be evenly loaded: on devices that this program does not run on.
bool predict_experts_even(const predict_setup *s);
// Bytes of one stage by kind, with the profile's habits; returns their sum.
int64_t predict_step_bytes(const predict_step *x, int32_t stage, int64_t bytes[PLAN_BYTES_COUNT]);

// Simulates the long run with failures; requires s->has_length.
NODISCARD status predict_long_run(arena *a, const predict_step *x, sim_long_run_input *in,
                                  sim_long_run_result *out);

#ifdef __cplusplus
}
#endif
#endif
