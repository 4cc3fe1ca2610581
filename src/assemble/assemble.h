// From a run's configuration and a model's shape to programs and plans. Pure: no device.
//
// The trainer, the planner, `check`, `bench step` and the search for settings that fit all use it.
#ifndef ASSEMBLE_ASSEMBLE_H
#define ASSEMBLE_ASSEMBLE_H

#include "config/run_config.h"
#include "exec/exec.h"
#include "model/model.h"
#include "plan/place.h"

enum { ASSEMBLE_MAX_PLANS = 64 };

// What the plans of a run are made from, and the plans.
typedef struct assemble_plans {
    const run_config *config;
    const decoder_spec *spec;
    run_types types;
    op_model *whole;              // of all ranks
    op_model *model;              // this rank's, for training
    op_model *evaluate;           // the same without backward lists; NULL without evaluation
    op_program *const *optimizer; // [weight]
    plan_places places;           // which rank holds what
    kern_context *kernels;        // that the plans were made for
    plan_table run;
    // A plan per batch size (two where gradients travel compressed: the second is for when they do),
    // then the evaluation's.
    const plan *all[ASSEMBLE_MAX_PLANS];
    int64_t count;
    const plan *eval;
    exec_codec codec;   // of gradients between ranks; none: its codec is NULL
    double codec_bound; // of the relative error; 0: none
    int64_t arena_bytes;
    int64_t snapshot_bytes; // in the host's memory: what is saved beside training; 0 without
} assemble_plans;

// What plans of stages are made in, kept from one search's step to the next: to ask the system for pages anew takes longer
// than to fill them. For one assemble_stages() at a time.
typedef struct assemble_scratch assemble_scratch;
NODISCARD status assemble_scratch_create(assemble_scratch **out);
void assemble_scratch_destroy(assemble_scratch *r); // NULL is legal

// Makes a plan as plan_create does.
typedef status (*train_plan_fn)(arena *a, const plan_request *request, plan_table *run, plan **out);

typedef struct assemble_options {
    int threads;            // of the device that will run it; at least 1
    const char *device;     // "cpu", "shadow"
    const char *backend;    // "cpu", "ref"
    bool documents;         // the data is packed with masks
    bool evaluate;          // make an evaluation plan
    bool logits;            // evaluation also gives logits, in one micro-batch (check)
    bool keep_gradients;    // check
    bool snapshot;          // checkpoints are written beside training
    int64_t eval_sequences; // sequences of an evaluation step; 0: global_batch
    plan_mesh mesh;         // zero: one rank
    bool sizes_only;        // the plans are looked at, not run: constants have no data
    plan_last last;         // (plan_request)
    train_plan_fn make;     // of stages; NULL: plan_create
    bool rows_inline;       // as other software has them (plan_request)
    bool whole_again;       // the same of train.recompute=full (op_program_recompute_rest)
    // Stages: only these are made, and only the largest arena is asked for: the others are placed no better than
    // it takes to know that they need less, and none is made after one that is over the limit. NULL: all.
    const int32_t *peak_stages;
    int32_t peak_count;
    int64_t peak_limit;        // bytes; 0: none
    assemble_scratch *scratch; // NULL: its own
} assemble_options;

// What the configuration leaves to us of memory against speed (assemble/choose.c): whether pointwise work is
// done again, and sequences at once. Depends on nothing but configuration, spec and the level of kernels.
// Changes r->train.micro_batch and .recompute; once.
NODISCARD status assemble_memory_choose(run_config *r, const decoder_spec *spec,
                                        const assemble_options *options);
// What takes the least of what the first rank of each stage chooses: one for all ranks. The mesh is not looked at.
NODISCARD status assemble_memory_settle(run_config *r, const decoder_spec *spec,
                                        const assemble_options *options);
// Do keys and values travel along cp? They take less than what is gathered, but a rank waits for its neighbour.
bool assemble_goes_in_ring(const run_config *r, const decoder_spec *spec, const plan_mesh *mesh,
                           int64_t micro_batch);
// The largest divisor of `sequences` that is at most `most`.
int64_t assemble_divisor_below(int64_t sequences, int64_t most);
// a must live as long as the plans.
NODISCARD status assemble_rank(arena *a, const run_config *r, const decoder_spec *spec,
                               const assemble_options *options, assemble_plans *out);
// A plan of the largest batch for the rank of every stage of pp, the mesh's other coordinates as they are: what a
// simulator plays. They share one model. out: an array of layout.pp. No evaluation, no snapshot.
NODISCARD status assemble_stages(arena *a, const run_config *r, const decoder_spec *spec,
                                 const assemble_options *options, assemble_plans *out);
// How gradients travel between several ranks, its codec NULL where they do as they are.
exec_codec assemble_codec_of(const run_config *r);
// What the model's shapes do not allow of the layout, with the nearest that they do.
NODISCARD status assemble_layout_check(const run_config *r, const decoder_spec *spec);
// The plan of a step with this many sequences; NULL: there is none.
const plan *assemble_plan_of(const assemble_plans *plans, int64_t sequences, bool compressed);

// Working copies are the nearest rounding of the masters, so they need not be saved.
bool assemble_derives_weights(const run_config *r);
// Some of the state is cut over ranks: a save needs all of them.
bool assemble_cuts_state(const run_config *r);
// Checkpoints are written beside training, from a copy of the state.
bool assemble_saves_in_background(const run_config *r);
// Both together: the predicted peak.
int64_t assemble_peak_bytes(const assemble_plans *plans);

// "What does not fit is refused with the table of where the bytes go and the settings that would
// make it fit": ST_OK if the peak is at most limit; else ST_DOES_NOT_FIT with all that in the record.
NODISCARD status assemble_fit_check(const run_config *r, const decoder_spec *spec,
                                    const assemble_options *options, const assemble_plans *plans,
                                    int64_t limit_bytes);

// ---- the machine of a run -------------------------------------------------------------------------

// Core count that `threads: 0` stands for.
int assemble_threads(const run_config *r);
// Bytes that one of `local` ranks on this host may take: memory.limit, or its share of what is free.
int64_t assemble_memory_limit(const host *h, const run_config *r, int64_t local);
// The type whose peak FLOP/s a run is measured against.
dtype train_peak_type(const run_config *r);

#endif
