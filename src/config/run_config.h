// The configuration of a training run: one plain struct, one option row per field.
//
// `run_config_table` has a row for every key that a run file may hold; base/config fills the struct
// from YAML and `key.path=value`. run_config_load() also fills what follows from other keys and
// refuses, all at once and with places, what cannot hold together: an accepted option changes the
// run, always. To add an option: a field here, a row in run_config_table.c, and if it depends on
// other keys a check in run_config_check.c.
#ifndef CONFIG_RUN_CONFIG_H
#define CONFIG_RUN_CONFIG_H

#include "base/format/config.h"
#include "config/optimizers.h"
#include "op/step.h"
#include "plan/pipeline.h"

#ifdef __cplusplus
extern "C" {
#endif

// Choices; the order is that of the words in the option rows.
// No run file can ask for fp64, which `ref` alone computes: it is what roundings are measured against.
// fp8 is of planned runs: bf16, with the products of layers in fp8.
typedef enum run_precision { RUN_FP32, RUN_BF16, RUN_FP16, RUN_FP8, RUN_FP64 } run_precision;
typedef enum run_recompute {
    RUN_RECOMPUTE_NONE,
    RUN_RECOMPUTE_SELECTIVE, // all that is neither a matrix product nor attention
    RUN_RECOMPUTE_FULL,
    RUN_RECOMPUTE_AUTO // given; run_config_load() replaces it
} run_recompute;
enum { RUN_MICRO_BATCH_AUTO = -1 }; // the planner's
typedef enum run_muon_adjust { RUN_MUON_ORIGINAL, RUN_MUON_MATCH_RMS_ADAMW } run_muon_adjust;
typedef enum run_schedule {
    RUN_SCHEDULE_CONSTANT,
    RUN_SCHEDULE_LINEAR,
    RUN_SCHEDULE_COSINE,
    RUN_SCHEDULE_WSD,
    RUN_SCHEDULE_INVERSE_SQRT
} run_schedule;
typedef enum run_decay { RUN_DECAY_LINEAR, RUN_DECAY_COSINE, RUN_DECAY_ONE_MINUS_SQRT } run_decay;
typedef enum run_arch {
    RUN_ARCH_AUTO, // of the preset or folder; else llama
    RUN_ARCH_GPT2,
    RUN_ARCH_LLAMA,
    RUN_ARCH_MISTRAL,
    RUN_ARCH_QWEN2,
    RUN_ARCH_QWEN3
} run_arch;
typedef enum run_auto_bool {
    RUN_AUTO,
    RUN_NO,
    RUN_YES
} run_auto_bool; // AUTO: as the preset has it
typedef enum run_packing { RUN_PACKING_MASKED, RUN_PACKING_PLAIN } run_packing;
typedef enum run_level {
    RUN_LEVEL_AUTO, // the best that this CPU has
    RUN_LEVEL_SCALAR,
    RUN_LEVEL_AVX2,
    RUN_LEVEL_AVX512,
    RUN_LEVEL_AVX512_BF16,
    RUN_LEVEL_AMX
} run_level;
typedef enum run_device { RUN_DEVICE_CPU, RUN_DEVICE_SHADOW } run_device;
typedef enum run_backend { RUN_BACKEND_AUTO, RUN_BACKEND_CPU, RUN_BACKEND_REF } run_backend;
typedef enum run_stored {
    RUN_STORED_AUTO,
    RUN_STORED_FP32,
    RUN_STORED_BF16,
    RUN_STORED_FP16
} run_stored;
typedef enum run_master { RUN_MASTER_AUTO, RUN_MASTER_FP32, RUN_MASTER_NONE } run_master;
typedef enum run_layout { RUN_LAYOUT_GIVEN, RUN_LAYOUT_AUTO } run_layout;
typedef enum run_sums { RUN_SUMS_MICROBATCH, RUN_SUMS_STEP } run_sums;
typedef enum run_determinism { RUN_FAST, RUN_STRICT } run_determinism;
typedef enum run_transport {
    RUN_TRANSPORT_AUTO,
    RUN_TRANSPORT_SHM,
    RUN_TRANSPORT_UCX,
    RUN_TRANSPORT_MPI,
    RUN_TRANSPORTS
} run_transport;
typedef enum run_compression {
    RUN_COMPRESS_NONE,
    RUN_COMPRESS_BF16,
    RUN_COMPRESS_INT8,
    RUN_COMPRESS_FP8,
    RUN_COMPRESS_TOPK, // this and the next keep what they lose, and add it to the next step's
    RUN_COMPRESS_ONEBIT
} run_compression;
typedef enum run_price {
    RUN_PRICE_AUTO, // the first of the next ones that the cluster has
    RUN_PRICE_ON_DEMAND,
    RUN_PRICE_RESERVED,
    RUN_PRICE_OWNED, // energy is paid for besides
    RUN_PRICE_SPOT   // cheaper, and taken away at short notice
} run_price;
typedef enum run_log_format { RUN_LOG_TEXT, RUN_LOG_JSON } run_log_format;

// Choice fields are int32_t, as the option table writes them, and hold the enum named beside them.
typedef struct run_config {
    struct {
        const char *dir;
    } run;
    struct {
        int64_t steps;
        int64_t seq;              // tokens
        int64_t global_batch;     // sequences; with a ramp its last size
        int64_t micro_batch;      // sequences; run_config_load() replaces 0 and auto
        bool micro_batch_chosen;  // so: by us; train_memory_choose() may take less
        bool micro_batch_planned; // auto: the planner is to be asked
        int32_t precision;        // run_precision: of products and activations
        int32_t recompute;        // run_recompute; run_config_load() replaces AUTO by NONE
        int64_t recompute_layers; // of the decoder layers; 0: all
        bool recompute_chosen;    // so: by us; train_memory_choose() may take SELECTIVE
        double recompute_cost;    // of what it took: this share of a step more, about
        bool memory_settled;      // it has chosen
        int64_t seed;
        double z_loss;          // 0: none
        option_list freeze;     // patterns of names of weights that are not trained
        option_list batch_ramp; // "step=size" texts; read by run_config_batch()
        int64_t max_time;       // ns; 0: none
        int64_t tokens;         // of a planned run, instead of steps; 0: not given
    } train;
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
        double min_ratio;
        int64_t decay_steps; // of wsd
        int32_t decay_shape; // run_decay, of wsd
        int64_t timescale;   // of inverse_sqrt, where run_config_load() replaces 0
    } schedule;
    struct {
        int64_t every;   // steps; 0: never
        int64_t batches; // of train.global_batch sequences
    } eval;
    struct {
        int64_t every;      // steps; 0: only after the last one
        int64_t keep;       // newest ones kept
        int64_t keep_every; // steps; those at its multiples stay for ever; 0: none
        bool async;         // written beside training, from a copy of the state
        // Of a planned run: seconds that it holds the step, that a restart takes, and of work between
        // two; 0: what the cluster says, and the best.
        double write_s, restart_s, interval_s;
    } checkpoint;
    struct {
        const char *preset; // NULL: none
        const char *from;   // NULL: none; a Hugging Face folder, weights too
        int32_t arch;       // run_arch
        // 0: as in the preset, or what follows from the others.
        int64_t layers, dim, heads, kv_heads, head_dim, ffn_dim, vocab, context, window;
        double rope_theta, norm_eps; // 0: as the preset
        double dropout;
        int32_t tied, attention_bias, mlp_bias, qk_norm; // run_auto_bool
    } model;
    struct {
        option_list train;     // paths or globs, each perhaps "path=weight"
        option_list valid;     // one share of train ("0.05", "0": none), or paths
        const char *tokenizer; // "auto", "bytes" or a path
        int32_t packing;       // run_packing
    } data;
    struct {
        int64_t limit; // bytes; 0: what the machine has
    } memory;
    struct {
        int32_t level;   // run_level
        int64_t threads; // 0: one per core
        int32_t device;  // run_device
        int32_t backend; // run_backend
        bool keep_panels;
    } kernels;
    struct {
        int32_t weights, grads, moments; // run_stored; see run_config_types()
        int32_t master;                  // run_master
        struct {
            double initial;
            int64_t window;     // steps without overflow before it doubles
            int64_t hysteresis; // overflows before it halves
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
            double threshold; // times the median of the last STEP_HISTORY gradient norms
            int64_t warmup;   // norms seen before it acts, at most STEP_HISTORY
            int64_t limit;    // skipped steps in a row before the run stops
        } spike;
    } policy;
    struct {
        option_range steps;
    } trace;
    struct {
        int32_t mode;                         // run_determinism
        int64_t shards, tp_shards, cp_shards; // of strict
    } determinism;
    struct {
        int32_t mode;                  // run_layout
        int64_t dp, tp, pp, cp;        // ranks along each axis
        int64_t ep;                    // ranks that share experts; planned runs only
        int64_t etp;                   // that cut an expert: tp (0), or 1 and ep is of tp x cp x dp
        int64_t vpp;                   // chunks of a pp rank; 0: as many as the schedule needs
        int64_t zero;                  // ZeRO stage
        int64_t zero_group;            // dp ranks that share one copy, with those of cp; 0: all
        int32_t zero_sums;             // run_sums: when gradients that ZeRO cuts are summed
        bool sp;                       // norms and residuals cut over tp
        int64_t cp_heads;              // the part of cp done over heads
        int32_t cp_ring;               // run_auto_bool: the rest of it in a ring
        option_list stages;            // decoder layers of each stage, as texts; empty: even
        const char *schedule;          // a row of plan/schedule, or a path
        const plan_schedule *pipeline; // it, found or read by run_config_load(); NULL where pp is 1
    } layout;
    struct {
        struct {
            int32_t mode;   // run_compression
            double bound;   // of the relative error; 0: the codec's own
            double keep;    // of topk: share that travels
            int64_t warmup; // of topk and onebit: first steps that travel whole
        } compression;      // of gradients between ranks
        int32_t transport;  // run_transport
        const char *tuning; // path of a table of `bench comm --tune`; NULL: built-in choices
    } comm;
    struct {
        int64_t every;  // steps per line
        int32_t format; // run_log_format
    } log;
    // ---- what only a planned run has (sim/fleet.h); 0: as the cluster has it
    bool
        planned; // `trireme simulate` and `plan`: nothing is started; set by run_config_load_planned()
    bool searched; // its layout is still looked for: set by run_config_load_searched()
    struct {
        double mtbf_device_h, repair_h;
        int64_t spares; // devices; -1: as many as are needed
    } fleet;
    struct {
        int32_t kind;            // run_price
        double device_hour, kwh; // US dollars
    } price;
    struct {
        int64_t devices; // layout.dp follows where it is not given; 0: as many as the layout wants
    } cluster;
    const char *dropped;          // keys of the file that run_config_follow() took back; NULL: none
    const char *profile;          // a software's habits (cost/cost.h)
    const char *flops_convention; // of `mfu` (cost/flops.h)
} run_config;

extern const option_table run_config_table;

// Reads, checks and completes. Paths come out absolute. Errors: as config_load(), then all of
// run_config_check().
NODISCARD status run_config_load(const host *h, arena *a, const char *yaml_path,
                                 const char *const *overrides, int64_t override_count,
                                 run_config *out, config **out_config);
// The same for a run that is not started but simulated: what only such a run has (train.tokens, fleet.*,
// price.*, some of checkpoint.*) has its effect there, and is refused by the other.
NODISCARD status run_config_load_planned(const host *h, arena *a, const char *yaml_path,
                                         const char *const *overrides, int64_t override_count,
                                         run_config *out, config **out_config);
// The same for a run whose layout is looked for, `planned` or to be started: what ranks are for need not be there yet.
NODISCARD status run_config_load_searched(const host *h, arena *a, const char *yaml_path,
                                          const char *const *overrides, int64_t override_count,
                                          bool planned, run_config *out, config **out_config);
// The second half of it, for a struct that config_parse() filled. First: where the command line takes an axis
// away (layout.pp=1), what the file says of it (layout.schedule) has its default value again.
NODISCARD status run_config_follow(run_config *r, const config *c, arena *a);
// Then all that cannot hold
// together, every complaint with its place; ST_CONFIG_CONFLICT or what the first one is.
NODISCARD status run_config_check(const run_config *r, const config *c, arena *a);
// Then the values that follow from others: train.global_batch (of a ramp), train.micro_batch,
// schedule.timescale, layout.pipeline of a schedule that is no file.
void run_config_complete(run_config *r);
// On resume. Refuses changed keys of class fixed by name (ST_CONFIG_FIXED); what is recorded goes
// into `log`, one "key: old -> new" a line. Paths compare by their last part: that the contents are
// equal is for the data's digest to show.
NODISCARD status run_config_compare(arena *a, const run_config *was, const run_config *now,
                                    const config *c, text *log);

// Sequences in the step that follows `finished` steps (skipped ones count). The ramp's largest is
// run_config_batch_max().
int64_t run_config_batch(const run_config *r, int64_t finished);
int64_t run_config_batch_max(const run_config *r);
int64_t run_config_batch_divisor(const run_config *r); // the largest, of all sizes
// Entry `index` of the ramp, in order; without a ramp there is one, (0, global_batch).
int64_t run_config_ramp_count(const run_config *r);
void run_config_ramp_at(const run_config *r, int64_t index, int64_t *step, int64_t *size);

// data.valid as a share of data.train: true and 0 <= *share < 1. False if it lists files.
bool run_config_valid_share(const run_config *r, double *share);
bool run_config_has_valid(const run_config *r);

// Ranks that the layout wants, and the mesh of them as one sees it.
int64_t run_config_ranks(const run_config *r);
plan_mesh run_config_mesh(const run_config *r, int64_t rank);
// Turns of the zigzag that deals positions out over layout.cp (op/zigzag.h).
int32_t run_config_cp_turns(const run_config *r);
// "dp 2 · tp 2 · pp 4 1f1b · zero 1".
NODISCARD status run_config_print_layout(const run_config *r, text *out);
// Stages of the whole pipeline; 0 where the schedule is a file that is not read yet.
int64_t run_config_depth(const run_config *r);
// What a plan asks for; after run_config_load().
NODISCARD status run_config_pipeline(const run_config *r, arena *a, plan_pipeline_request *out);
// Halves of layers in entry `index` of layout.stages: 17 of "8.5"; -1: it is no number of them.
int64_t run_config_stage_halves(const run_config *r, int64_t index);
// Decoder layers in whose middle two stages meet, ascending.
NODISCARD status run_config_halved(const run_config *r, arena *a, int32_t **out, int32_t *count);

// What is stored in which type, `auto` resolved.
typedef struct run_types {
    dtype compute; // activations and the inputs of products
    dtype weights, grads, moments;
    bool has_master; // an fp32 copy of the weights beside narrower ones
} run_types;
run_types run_config_types(const run_config *r);

// Codecs that add what they lost to the next step's gradient: their residuals are state of the run.
static inline bool run_config_feeds_back(const run_config *r)
{
    return r->comm.compression.mode >= RUN_COMPRESS_TOPK;
}

#ifdef __cplusplus
}
#endif
#endif
