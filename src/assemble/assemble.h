// Makes programs and plans from a run's configuration and a model's shape. Pure: no device.
//
// The trainer, the planner, `check`, `bench step` and the search for settings that fit use it.
#ifndef ASSEMBLE_ASSEMBLE_H
#define ASSEMBLE_ASSEMBLE_H

#include "checkpoint/checkpoint.h"
#include "config/run_config.h"
#include "exec/exec.h"
#include "model/model.h"
#include "op/pass/cut.h"
#include "plan/place.h"

enum { ASSEMBLE_MAX_PLANS = 64 };

// The parts that the plans of a run are made from, and the plans.
typedef struct assemble_plans {
    const run_config *config;
    const decoder_spec *spec;
    run_types types;
    op_model *whole;              // of all ranks
    op_model *model;              // this rank's, for training
    op_model *evaluate;           // the same without backward lists; NULL without evaluation
    op_program *const *optimizer; // [weight]
    plan_places places;           // weights that each rank holds
    kern_context *kernels;        // the kernels of the plans
    plan_table run;
    // One plan per batch size (two if gradients are compressed: the second is for compressed
    // steps), then the evaluation's plan.
    const plan *all[ASSEMBLE_MAX_PLANS];
    int64_t count;
    const plan *eval;
    // Plans that draw completions (run_config_has_rollouts), on the same weights: DECODE, a token
    // of each slot, and PREFILL, the prompt of slot 0. Slot 0 holds prompts for the others.
    struct {
        const plan *decode, *prefill;
        int64_t slots, chunk, context; // slots: with slot 0; chunk: tokens of a PREFILL
        int64_t pages;                 // of the caches; 0: none
    } rollout;
    exec_codec codec;   // for gradients between ranks; its codec is NULL without compression
    double codec_bound; // on the relative error; 0: none
    int64_t arena_bytes;
    void *memory;           // of the arena, which belongs to the caller; NULL: the device takes it
    int64_t snapshot_bytes; // in the host's memory: state saved in the background; 0: none
    int64_t copies_bytes;   // the same: copies that outlive a loss (resilience.buddy.ranks)
} assemble_plans;

// Scratch memory for plans of stages, kept between the steps of a search, because asking the system
// for new pages takes longer than filling them. It serves one assemble_stages() at a time.
typedef struct assemble_scratch assemble_scratch;
NODISCARD status assemble_scratch_create(assemble_scratch **out);
void assemble_scratch_destroy(assemble_scratch *r); // NULL is legal

// Makes a plan as plan_create does.
typedef status (*assemble_plan_fn)(arena *a, const plan_request *request, plan_table *run,
                                   plan **out);

typedef struct assemble_options {
    int threads;            // of the device that will run the plans; at least 1
    const char *device;     // "cpu", "shadow"
    const char *backend;    // "cpu", "ref"
    bool documents;         // the data is packed with masks
    bool evaluate;          // make an evaluation plan
    bool rollouts;          // make the plans that draw completions
    bool logits;            // evaluation also returns logits, in one micro-batch (check)
    bool keep_gradients;    // check
    int64_t outside_bytes;  // predicted for a GPU's context, code and libraries; 0: none
    int snapshots;          // copies of the state for checkpoints written in the background
    int64_t domain;         // ranks in a row that fail together, such as a host's; 0: 1
    int64_t eval_sequences; // sequences of an evaluation step; 0: global_batch
    plan_mesh mesh;         // zero: one rank
    bool even_experts;      // experts get equally many rows (op_expert_cut): no plan to run
    bool sizes_only;        // the plans are looked at, not run: constants have no data
    plan_last last;         // (plan_request)
    assemble_plan_fn make;  // of stages; NULL: plan_create
    bool rows_inline;       // as other software has them (plan_request)
    bool whole_again;       // the same of train.recompute=full (op_program_recompute_rest)
    // Stages to make, of which only the largest arena matters: the others are placed just well
    // enough to know that they need less, and none is made after one exceeds the limit. NULL: all
    // stages.
    const int32_t *peak_stages;
    int32_t peak_count;
    int64_t peak_limit;        // bytes; 0: none
    assemble_scratch *scratch; // NULL: a scratch of its own
} assemble_options;

// Chooses settings that the configuration leaves open and that trade memory for speed
// (assemble/choose.c): recomputation of pointwise work and sequences per micro-batch. Depends only
// on configuration, spec and kernel level. Changes r->train.micro_batch and .recompute; call it
// once.
NODISCARD status assemble_memory_choose(run_config *r, const decoder_spec *spec,
                                        const assemble_options *options);
// Takes the least of the choices of each stage's first rank: one setting for all ranks. Ignores the
// mesh.
NODISCARD status assemble_memory_settle(run_config *r, const decoder_spec *spec,
                                        const assemble_options *options);
// True if keys and values travel in a ring along cp. They take less memory than a gather, but a
// rank waits for its neighbour.
bool assemble_goes_in_ring(const run_config *r, const decoder_spec *spec, const plan_mesh *mesh,
                           int64_t micro_batch);
// Returns the recipe of a run's products in 8 bits.
fp8_recipe assemble_fp8(const run_config *r);
// ST_CONFIG_CONFLICT: in strict order a layout would cut blocks of the recipe apart.
NODISCARD status assemble_fp8_check(const run_config *r, const op_model *m);
// Sets the options that keys of experts and routers decide.
void assemble_router_options(const run_config *r, model_options *options);
// How the passes of op/pass/cut.h cut a model for the rank at the coordinates of `mesh`.
// even_experts: assemble_options.
op_cuts assemble_cuts(const run_config *r, const decoder_spec *spec, const plan_mesh *mesh,
                      bool even_experts);
// The largest divisor of `sequences` that is at most `most`.
int64_t assemble_divisor_below(int64_t sequences, int64_t most);
// The arena must live as long as the plans.
NODISCARD status assemble_rank(arena *a, const run_config *r, const decoder_spec *spec,
                               const assemble_options *options, assemble_plans *out);
// Makes the plan of the largest batch for one rank of every stage of pp, at the mesh's other
// coordinates, for simulation. The plans share one model. out: an array of layout.pp. No
// evaluation, no snapshot.
NODISCARD status assemble_stages(arena *a, const run_config *r, const decoder_spec *spec,
                                 const assemble_options *options, assemble_plans *out);
// The codec for gradients between ranks; its codec is NULL without compression.
exec_codec assemble_codec_of(const run_config *r);
// Refuses a layout that the model's shapes do not allow, and names the nearest that they allow.
NODISCARD status assemble_layout_check(const run_config *r, const decoder_spec *spec);
// Refuses an operation of the plans that the backend does not compute (those of GPUs lack some),
// before a step meets it. `where` names the device.
NODISCARD status assemble_operations_check(const assemble_plans *plans, const char *where);
NODISCARD status assemble_plan_operations_check(const plan *p, const kern_context *kernels,
                                                const char *where);
// Refuses options that a model with experts cannot be trained with yet, though `simulate` knows
// them. assemble_rank() calls it unless options->sizes_only.
NODISCARD status assemble_train_check(const run_config *r, const decoder_spec *spec);
// Strict order: the most sequences of a micro-batch that never spans several shards of a batch.
// Micro-batches of any divisor do not either.
int64_t assemble_shard_sequences(const run_config *r);
// The plan of a step with this many sequences; NULL: there is none.
const plan *assemble_plan_of(const assemble_plans *plans, int64_t sequences, bool compressed);

// The part of the state that checkpoints of a run hold: with an adapter the adapter alone.
ckpt_part assemble_saved_part(const decoder_spec *spec);
// True if working copies are the nearest rounding of the masters, so they need not be saved.
bool assemble_derives_weights(const run_config *r);
// True if some of the state is cut over ranks: a save needs all of them.
bool assemble_cuts_state(const run_config *r);
// True if checkpoints are written in the background, from a copy of the state.
bool assemble_saves_in_background(const run_config *r);
// Copies of the state that the first rank makes: one for these checkpoints, one for the memory from
// which a run continues after a loss.
int assemble_snapshots(const run_config *r);
// The bytes of the snapshot in the memory that the arena is in: none if that is a GPU's.
int64_t assemble_snapshot_bytes(const assemble_plans *plans);
// The same for the copies in the memory of ranks.
int64_t assemble_copies_bytes(const assemble_plans *plans);
// The predicted peak: arena, snapshot and copies together, where they share a memory.
int64_t assemble_peak_bytes(const assemble_plans *plans);

// Returns ST_OK if the peak is at most the limit; otherwise ST_DOES_NOT_FIT with a table of the
// bytes and the settings that would make the run fit.
NODISCARD status assemble_fit_check(const run_config *r, const decoder_spec *spec,
                                    const assemble_options *options, const assemble_plans *plans,
                                    int64_t limit_bytes);

// ---- the machine of a run ----------------------------------------------------------------------

// The number of cores that `threads: 0` stands for.
int assemble_threads(const run_config *r);
// Bytes that one of `local` ranks on this host may take: memory.limit, or its share of the free
// memory of the host or of its GPU.
int64_t assemble_memory_limit(const host *h, const run_config *r, int64_t local);
int64_t assemble_memory_share(const host *h, bool on_gpu, int64_t local); // without memory.limit
// The share of the peak of all threads that exists: `ranks` on one host with `cores` cores.
double assemble_cores_share(int threads, int ranks, int cores);
// The type whose peak FLOP/s is the reference for a run's utilization.
dtype assemble_peak_type(const run_config *r);

#endif
