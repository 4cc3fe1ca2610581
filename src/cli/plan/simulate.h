// A run in virtual time, for `simulate`, `plan` and `train` with layout: auto.
//
// simulate_open() reads what is to be simulated: a configuration, a preset or a Hugging Face folder, the
// keys over it, a cluster and a profile; simulate_step() makes the plans of one rank of every stage, prices
// and plays them; simulate_print_*() show it. A step is a function of (run_config, decoder_spec, cluster,
// profile) alone, so a search may call it for every layout.
#ifndef CLI_PLAN_SIMULATE_H
#define CLI_PLAN_SIMULATE_H

#include "cli/cli.h"
#include "cost/cost.h"
#include "cost/flops.h"
#include "model/model.h"
#include "sim/fleet.h"
#include "sim/sim.h"
#include "train/job.h"

// The words of a command line. A run of the catalogue stands for its model, cluster and settings: by its
// own name where no cluster is given, or where no model has that name.
typedef struct simulate_words {
    const char *operand, *cluster; // cluster: NULL if none was given
    const char *const *keys;
    int64_t key_count;
} simulate_words;
NODISCARD status simulate_named(cli_context *cli, simulate_words *w);

enum { SIMULATE_PLAYS = 2 };

// What is simulated.
typedef struct simulation {
    const char *name; // of the model or file, as given
    run_config *r;    // complete: layout.dp and train.micro_batch have their values
    decoder_spec spec;
    cluster machine; // with as many devices as the layout has ranks
    cost_profile profile;
    const flops_rule *rule;
    train_rooms *rooms; // that plans are made in, of who makes many; NULL: their own
    // That it is played in, of who plays many: times of single actions are there until the next play. Each thread that
    // plays at the same time has its own, the first of them the first. NULL: with its plans.
    arena *plays[SIMULATE_PLAYS];
    bool has_length; // train.steps or train.tokens is given: there is a run level
} simulation;
// searched: its layout is still looked for.
NODISCARD status simulate_open(cli_context *cli, const char *operand, const char *cluster_name,
                               const char *const *keys, int64_t key_count, bool searched,
                               simulation *out);

// A step and what it says. Bytes are those of the fullest rank.
typedef struct simulated {
    const simulation *of;
    int64_t parameters;       // of the model
    int32_t stages;           // of pp: ranks that were played
    train_plans *plans;       // [stage]
    sim_rank *ranks;          // [stage]
    const train_plans *sized; // [stage] that bytes are of; NULL: `plans`
    sim_step *step;
    int64_t devices;
    int64_t micro_batch, microbatches;
    int64_t played;      // micro-batches
    int64_t rounds;      // of the rest: each as long as `stretch` says; 0: all were played
    sim_stretch stretch; // of what was played
    double step_s, tokens_per_s;
    double model_flops, hardware_flops; // of a token, by the convention
    double flops_per_device;            // FLOP/s that mfu is of the peak
    double peak_flops, mfu, hfu;
    // Parts of the step, the mean over stages: they and compute add up to 1.
    double compute, exposed[TRAFFIC_COUNT], bubble, data, host;
    double exposed_s; // of all messages
    int32_t fullest;  // stage
    int64_t peak_bytes, usable_bytes;
    int64_t lost_bytes;               // of peak_bytes, by the allocator of the profile's software
    int64_t memory[BYTES_KIND_COUNT]; // they add up to peak_bytes
    bool fits;
    double state_bytes; // of one checkpoint
} simulated;
NODISCARD status simulate_step(arena *a, const simulation *s, simulated *out);
// The same for who shows its figures: its plans cannot be executed.
NODISCARD status simulate_shown(arena *a, const simulation *s, simulated *out);
// The same but for bytes, which take most of the time: they stay 0, and fits false. Of very many micro-batches not all are
// played (simulate_fold.c).
NODISCARD status simulate_times(arena *a, const simulation *s, simulated *out);
// Micro-batches that it counts for where only so many are to be played: those that were once planned for it.
int64_t simulate_weight(const run_config *r);
// Its two halves: plans and the play of all micro-batches; then what the play says.
NODISCARD status simulate_played(arena *a, const simulation *s, simulated *out);
// The same of fewer micro-batches than `all` that the batch has: out->step->some is of the first `apart` of `stretch`.
NODISCARD status simulate_part(arena *a, const simulation *s, const sim_stretch *stretch,
                               int64_t all, simulated *out);
// Prices and plays the plans that *out has: out->step.
NODISCARD status simulate_play(arena *a, const simulation *s, simulated *out);
void simulate_figures(const simulation *s, simulated *out);
// Its plans, priced and played on other machines, at once. step_s: [count].
NODISCARD status simulate_again(const simulated *x, const cluster *machines, int32_t count,
                                double *step_s);
// The bytes alone, of the fullest of these stages, which likely comes first; what is too large may be larger yet. Of very
// many micro-batches not all are planned.
NODISCARD status simulate_peak(arena *a, const simulation *s, const int32_t *stages, int32_t count,
                               simulated *out);
// By plans of all of them.
NODISCARD status simulate_planned(arena *a, const simulation *s, const int32_t *stages,
                                  int32_t count, simulated *out);
// The executor does the same steps on virtual devices (sim_execute). ST_BROKEN_PLAN if it takes another time
// than the player, or touches other bytes than its arena.
NODISCARD status simulate_execute(arena *a, const simulated *x, sim_executed *out);
cost_model simulate_prices(const simulation *s);
// Bytes of one stage by kind, with the profile's habits; returns their sum.
int64_t simulate_bytes(const simulated *x, int32_t stage, int64_t bytes[BYTES_KIND_COUNT]);
// What the profile's software does not keep of weights (fp8_weights).
int64_t simulate_weights_spared(const simulated *x, int32_t stage);
// What the profile's software keeps of layers besides (score_bytes, mask_bytes, fp8_inputs), in them.
int64_t simulate_kept_bytes(const simulated *x, int32_t stage);

// What failures make of it; s->has_length.
NODISCARD status simulate_run(arena *a, const simulated *x, sim_fleet_input *in,
                              sim_fleet_result *out);
// One JSON object; run: NULL where there is no run level.
NODISCARD status simulate_print_json(arena *a, const simulated *x, const sim_fleet_result *run,
                                     text *out);
// Lines of at most 80 columns.
NODISCARD status simulate_print_text(arena *a, const simulated *x, text *out);

#endif
