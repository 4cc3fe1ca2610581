// The configuration of a training run: one plain struct, one option row per field.
//
// `run_config_table` has a row for every key of a run file; base/format/config fills the struct
// from YAML and `key.path=value`. run_config_load() also derives values from other keys and refuses
// conflicting values, all at once and with their places: an accepted option always changes the run.
// To add an option: a field here, a row in run_config_table.c, and if it depends on other keys a
// check in run_config_check.c.
#ifndef CONFIG_RUN_CONFIG_H
#define CONFIG_RUN_CONFIG_H

#include "base/format/config.h"
#include "config/objectives.h"
#include "config/optimizers.h"
#include "config/run_choices.h"
#include "config/run_resilience.h"
#include "config/run_rollout.h"
#include "op/step.h"
#include "plan/pipeline.h"

#ifdef __cplusplus
extern "C" {
#endif

// Choice fields are int32_t, as the option table writes them, and hold the enum named in their
// comment.
typedef struct run_config {
    struct {
        const char *dir;
    } run;
    struct {
        int32_t objective; // run_objective
        int64_t steps;
        int64_t seq;          // tokens
        int64_t global_batch; // sequences; with a ramp, its last size
        int64_t micro_batch;  // sequences; run_config_load() replaces 0 and auto
        // The program chose micro_batch; assemble_memory_choose() may reduce it.
        bool micro_batch_chosen;
        bool micro_batch_planned; // auto: the planner must choose
        int32_t precision;        // run_precision: type of GEMMs and activations
        int32_t recompute;        // run_recompute; run_config_load() replaces AUTO by NONE
        int64_t recompute_layers; // number of decoder layers; 0: all
        // The program chose recompute; assemble_memory_choose() may take SELECTIVE.
        bool recompute_chosen;
        double recompute_cost; // about the additional share of a step's time
        bool memory_settled;   // assemble_memory_choose() has chosen
        int64_t seed;
        double z_loss, mtp_loss; // 0: none, and 0.3
        option_list freeze;      // name patterns of weights that are not trained
        option_list batch_ramp;  // "step=size" strings; read by run_config_batch()
        int64_t max_time;        // ns; 0: none
        int64_t tokens;          // instead of steps; kept by planned runs only; 0: not given
        double epochs;           // instead of steps, until run_length_of_epochs(); 0: not given
    } train;
    struct {
        double beta;
        int32_t loss;           // 0: the objective's first; else 1 + op_objective_form
        double clip, clip_high; // clip_high 0: clip
        double kl;
        int32_t scale;  // run_scale
        int64_t length; // 0: train.seq
        double label_smoothing;
        const char *reference; // "auto", "none" or a folder of weights
        double wanted, unwanted;
    } objective;
    run_rollout rollout;
    run_reward reward;
    struct {
        int32_t kind;     // run_adapter
        int32_t quantize; // run_quantize
        int64_t rank;
        double alpha, dropout;
        option_list targets, files; // names or patterns (empty: all); of several adapters
        const char *from;           // NULL: initial values; a folder of PEFT
    } adapter;
    struct {
        double capacity_factor;  // 0: no limit
        int32_t dispatch;        // run_dispatch
        int64_t rebalance;       // steps between two times when experts may move; 0: never
        double aux_loss, z_loss; // weights of the losses of routers; 0: none
        int32_t aux_loss_scope;  // run_aux_scope
    } moe;
    struct {
        int32_t name; // run_optimizer
        double lr, beta1, beta2, eps, weight_decay;
        double clip; // 0: none
        double momentum;
        bool nesterov;
        int32_t muon_lr_adjust; // run_muon_adjust
        bool stochastic_rounding;
    } optimizer;
    struct {
        int32_t name; // run_schedule
        int64_t warmup;
        int32_t warmup_from; // run_warmup
        double min_ratio;
        int64_t decay_steps; // WSD only
        int32_t decay_shape; // run_decay, WSD only
        int64_t timescale;   // inverse_sqrt only; run_config_load() replaces 0
    } schedule;
    struct {
        int64_t every;   // steps; 0: never
        int64_t batches; // batches of train.global_batch sequences
        option_list tasks;
        int64_t tasks_every;        // steps; 0: after the last step only
        int64_t tasks_limit;        // items; 0: all
        const char *tasks_template; // NULL: prompts are texts
    } eval;
    struct {
        int64_t every;         // steps; 0: only after the last one; RUN_EVERY_AUTO
        const char *tiers;     // as given; NULL: none. run_config_load() takes them apart:
        const char *durable;   // folder of the durable tier; NULL: none
        int64_t durable_every; // steps
        int64_t keep;          // number of newest ones to keep
        int64_t keep_every;    // steps; the checkpoints at its multiples are kept for ever; 0: none
        int64_t scrub;         // ns between two readings of all checkpoints; 0: never
        bool async;            // writes a copy of the state during training
        // Planned runs only: seconds that a checkpoint stalls the step, that a restart takes, and
        // of work between two checkpoints; 0: the cluster's values, and the optimal interval.
        double write_s, restart_s, interval_s;
    } checkpoint;
    run_resilience_keys resilience;
    struct {
        int64_t digests; // steps between two comparisons of replicas; 0: never
        double replay;   // share of steps whose state is recorded for `replay`
        double abft;     // share of products whose sums are checked
    } sdc;
    struct {
        const char *preset; // NULL: none
        const char *from;   // NULL: none; a Hugging Face folder, including its weights
        int32_t arch;       // run_arch
        // 0: as in the preset, or derived from the others.
        int64_t layers, dim, heads, kv_heads, head_dim, ffn_dim, vocab, context, window;
        int64_t experts, experts_per_token, shared_experts, expert_ffn_dim, dense_layers;
        struct {
            int32_t score, normalize;   // run_score, run_auto_bool
            int64_t groups, top_groups; // 0: as the preset
            double scale, bias_rate;    // scale 0: as the preset; bias_rate 0: the bias is fixed
        } router;
        int64_t mtp_layers;                              // -1: as the folder
        double rope_theta, norm_eps, dropout;            // 0: as the preset, and none
        int32_t tied, attention_bias, mlp_bias, qk_norm; // run_auto_bool
    } model;
    struct {
        option_list train;         // paths or globs, each perhaps "path=weight"
        option_list valid;         // one share of train ("0.05", "0": none), or paths
        const char *tokenizer;     // "auto", "bytes" or a path
        int32_t packing;           // run_packing
        int32_t positions;         // run_positions
        double temperature;        // 0: none
        option_list curriculum;    // "step=weight:weight:..."
        const char *exclude;       // a list of documents; NULL: none
        int32_t special_tokens;    // run_special
        int32_t on_error;          // run_on_error
        int32_t format;            // run_format
        const char *chat_template; // "auto", "none", a built-in one or a path
        int32_t trained;           // run_trained
    } data;
    struct {
        int64_t limit; // bytes; 0: the machine's memory
    } memory;
    struct {
        int32_t level;   // run_level
        int64_t threads; // 0: one per core
        int32_t device;  // run_device
        int32_t backend; // run_backend
        bool keep_panels, graphs;
    } kernels;
    struct {
        int32_t weights, grads, moments; // run_stored; see run_config_types()
        int32_t master;                  // run_master
        int32_t fp8;                     // run_fp8
        int64_t fp8_history, fp8_margin; // of RUN_FP8_TENSOR: steps; a power of two
        bool fp8_exact; // set by bisect: histories are kept, but no operand is rounded to 8 bits
        struct {
            double initial;
            int64_t window;     // steps without overflow before the scale doubles
            int64_t hysteresis; // overflows before the scale halves
            double floor;
        } loss_scale; // fp16 only
    } precision;
    struct {
        struct {
            int32_t mode;  // nan_policy
            int64_t limit; // skipped steps in a row before the run stops
        } nan;
        struct {
            int32_t mode;     // spike_policy
            double threshold; // multiples of the median of the last STEP_HISTORY gradient norms
            int64_t warmup;   // norms before the policy acts, at most STEP_HISTORY
            int64_t limit;    // skipped steps in a row before the run stops
        } spike;
    } policy;
    struct {
        option_range steps;
    } trace;
    struct {
        int32_t mode;                                     // run_determinism
        int64_t shards, tp_shards, cp_shards, etp_shards; // strict mode only
    } determinism;
    struct {
        int32_t mode;           // run_layout
        int64_t dp, tp, pp, cp; // ranks along each axis
        int64_t ep;             // ranks that share experts; planned runs only
        int64_t etp;            // tp ranks per expert; 0: tp; 1: ep includes tp
        int64_t vpp;            // chunks of a pp rank; 0: as many as the schedule needs
        int64_t zero;           // ZeRO stage
        int64_t zero_group;     // dp ranks that share one copy, with those of cp; 0: all
        int32_t zero_sums;      // run_sums: when ZeRO sums the gradients that it shards
        bool sp;                // tp also shards norms and residuals
        int64_t cp_heads;       // the degree of cp over heads
        int32_t cp_ring;        // run_auto_bool: ring for the rest of cp
        option_list stages;     // decoder layers of each stage, as strings; empty: even
        option_list shares;     // parts of a step of each dp rank, as strings; empty: even
        const int64_t *parts;   // the same as numbers, part_count of them; NULL: even
        int64_t part_count;
        const char *schedule; // a row of plan/schedule, or a path
        // The schedule, found or read by run_config_load(); NULL if pp is 1.
        const plan_schedule *pipeline;
    } layout;
    struct {
        struct {
            int32_t mode;   // run_compression
            double bound;   // limit of the relative error; 0: the codec's own
            double keep;    // topk only: share of the values that is sent
            int64_t warmup; // topk and onebit only: first steps that send whole gradients
        } compression;      // of gradients between ranks
        int32_t transport;  // run_transport
        const char *tuning; // path of a table from `bench comm --tune`; NULL: built-in choices
    } comm;
    struct {
        int64_t every, metrics_limit; // steps per line; bytes of metrics.jsonl, 0: no limit
        int32_t format;               // run_log_format
    } log;
    // ---- planned runs only (sim/long_run.h); 0: the cluster's value
    // `trireme simulate` and `plan`, which start no run; set by run_config_load_planned().
    bool planned;
    bool searched; // the layout search is not done: set by run_config_load_searched()
    struct {
        double mtbf_device_h, repair_h;
        int64_t spares; // devices; -1: as many as needed
    } fleet;
    struct {
        int32_t kind;            // run_price
        double device_hour, kwh; // US dollars
    } price;
    struct {
        int64_t devices; // layout.dp follows if it is not given; 0: as many as the layout needs
    } cluster;
    const char *dropped;          // keys of the file that run_config_follow() reset; NULL: none
    const char *profile;          // software whose behaviour is modelled (cost/cost.h)
    const char *flops_convention; // convention of `mfu` (cost/flops.h)
} run_config;

extern const option_table run_config_table;

// Reads, checks and completes. Paths come out absolute. Errors: as config_load(), then all of
// run_config_check().
NODISCARD status run_config_load(const host *h, arena *a, const char *yaml_path,
                                 const char *const *overrides, int64_t override_count,
                                 run_config *out, config **out_config);
// The same for a run that is simulated and not started. The keys of planned runs (train.tokens,
// fleet.*, price.*, some of checkpoint.*) take effect here, and run_config_load() refuses them.
NODISCARD status run_config_load_planned(const host *h, arena *a, const char *yaml_path,
                                         const char *const *overrides, int64_t override_count,
                                         run_config *out, config **out_config);
// The same for a run whose layout is still searched, `planned` or to be started. Keys that need
// several ranks may already be given.
NODISCARD status run_config_load_searched(const host *h, arena *a, const char *yaml_path,
                                          const char *const *overrides, int64_t override_count,
                                          bool planned, run_config *out, config **out_config);
// The steps of run_config_load() after config_parse() has filled the struct. First: if the command
// line removes an axis (layout.pp=1), the file's keys of that axis (layout.schedule) return to
// their defaults.
NODISCARD status run_config_follow(run_config *r, const config *c, arena *a);
// Then refuses all conflicts, each complaint with its place; ST_CONFIG_CONFLICT or the code of the
// first.
NODISCARD status run_config_check(const run_config *r, const config *c, arena *a);
// Then derives values from others: train.global_batch (of a ramp), train.micro_batch,
// schedule.timescale, layout.pipeline of a schedule that is no file.
void run_config_complete(run_config *r);
// Takes checkpoint.tiers apart: sets the intervals that it states, and an absolute folder.
NODISCARD status run_config_tiers(const host *h, run_config *r, arena *a);
// Gives keys that did not exist when the configuration of a run was written the values that they
// stand for; after config_parse().
void run_config_before(run_config *was, const config *c);
// For a resume. Refuses changed keys of class fixed by name (ST_CONFIG_FIXED) and adds changed keys
// of class recorded to `log`, one "key: old -> new" per line. Compares paths by their last part;
// the data's digest checks that the contents are equal.
NODISCARD status run_config_compare(arena *a, const run_config *was, const run_config *now,
                                    const config *c, text *log);

// Sequences in the step that follows `finished` steps (skipped ones count). run_config_batch_max()
// is the ramp's largest.
int64_t run_config_batch(const run_config *r, int64_t finished);
int64_t run_config_batch_max(const run_config *r);
int64_t run_config_batch_divisor(const run_config *r); // largest common divisor of all sizes
// Entry `index` of the ramp, in order; without a ramp the only entry is (0, global_batch).
int64_t run_config_ramp_count(const run_config *r);
void run_config_ramp_at(const run_config *r, int64_t index, int64_t *step, int64_t *size);

// data.valid as a share of data.train: true and 0 <= *share < 1. False if it lists files.
bool run_config_valid_share(const run_config *r, double *share);
bool run_config_has_valid(const run_config *r);

// The number of ranks of the layout, and the mesh as rank `rank` sees it.
int64_t run_config_ranks(const run_config *r);
plan_mesh run_config_mesh(const run_config *r, int64_t rank);
// Turns of the zigzag that distributes positions over layout.cp (op/zigzag.h).
int32_t run_config_cp_turns(const run_config *r);
// "dp 2 · tp 2 · pp 4 1f1b · zero 1".
NODISCARD status run_config_print_layout(const run_config *r, text *out);
// Stages of the whole pipeline; 0 if the schedule is a file that is not read yet.
int64_t run_config_depth(const run_config *r);
// The pipeline part of a plan request; after run_config_load().
NODISCARD status run_config_pipeline(const run_config *r, arena *a, plan_pipeline_request *out);
// Half layers in entry `index` of layout.stages: 17 for "8.5"; -1: not a number of half layers.
int64_t run_config_stage_halves(const run_config *r, int64_t index);
// Decoder layers with a stage boundary in their middle, ascending.
NODISCARD status run_config_halved(const run_config *r, arena *a, int32_t **out, int32_t *count);

// The types of stored values, with `auto` resolved.
typedef struct run_types {
    dtype compute; // activations and the inputs of GEMMs
    dtype weights, grads, moments;
    bool has_master; // an fp32 copy of narrower weights
} run_types;
run_types run_config_types(const run_config *r);
// The loss of the run's objective, and whether it compares with a reference model.
op_objective_attrs run_config_objective(const run_config *r);
bool run_config_has_reference(const run_config *r);
// Whether the run draws completions itself, and how many a rank draws at once.
static inline bool run_config_has_rollouts(const run_config *r)
{
    return r->rollout.prompts != NULL;
}
int64_t run_config_slots(const run_config *r);
// kernels.* by the names that devices, backends and levels have in the program.
const char *run_config_device(const run_config *r);
const char *run_config_backend(const run_config *r);
const char *run_config_level(const run_config *r); // NULL: auto

// True for codecs with error feedback, whose residuals are part of the run's state.
static inline bool run_config_has_error_feedback(const run_config *r)
{
    return r->comm.compression.mode >= RUN_COMPRESS_TOPK;
}

#ifdef __cplusplus
}
#endif
#endif
