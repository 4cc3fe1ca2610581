// A model on a device, ready to run plans, which generation and evaluation share. Private to
// infer/.
#ifndef INFER_OPEN_H
#define INFER_OPEN_H

#include "infer/infer.h"

// One of several adapters that take turns, and its values in the program's shapes.
typedef struct infer_adapter {
    model_adapter spec;
    float **values; // [weight of the model]
} infer_adapter;

typedef struct infer_core {
    const host *h;
    arena *a;
    decoder_spec spec;
    int threads;
    const char *device;
    dtype compute;
    bool strict;
    int64_t context; // context of the rotary table and of caches
    int64_t memory_limit_bytes;
    kern_context *kernels;
    exec_workspace_context workspace;
    plan_table run;
    const decoder_spec *fresh;
    uint64_t fresh_seed;
    trace_ring *trace;
    const op_model *model; // model of the first plan: weights and constants
    exec *e;
    int64_t steps;
    infer_adapter *adapters;
    int64_t adapter_count, adapter_at; // at: the one whose values are set; -1: none
} infer_core;

// Reads the model's configuration and completes the common options.
NODISCARD status infer_core_begin(infer_core *c, const host *h, arena *a, const char *folder,
                                  const infer_options *options);
// Sets the longest sequence; refuses one beyond the model's context.
NODISCARD status infer_core_context(infer_core *c, int64_t context);

typedef struct infer_plan_wanted {
    op_purpose purpose;
    int64_t sequences, micro_batch, seq;
    // EVALUATE only: packed documents; the loss of every row can be read.
    bool documents, losses;
} infer_plan_wanted;
NODISCARD status infer_core_plan(infer_core *c, const infer_plan_wanted *wanted, plan **out);
// Called after the last plan: allocates memory, sets constants, loads weights.
NODISCARD status infer_core_load(infer_core *c, const char *folder, const plan *const *plans,
                                 int64_t count);
// Runs a plan to its end.
NODISCARD status infer_core_run(infer_core *c, const plan *p, exec_input *input);
// Reads a boundary output of the head after a run.
NODISCARD status infer_core_output(const infer_core *c, const plan *p, int output, void *data,
                                   int64_t bytes);
NODISCARD status infer_core_token_check(const infer_core *c, int32_t id);
void infer_core_end(infer_core *c);

// adapters.c: begin reads what they are and widens the model's spec; load reads their values after
// the weights are there; use sets those of one, -1: of none.
NODISCARD status infer_adapters_begin(infer_core *c, const infer_options *options);
NODISCARD status infer_adapters_load(infer_core *c);
NODISCARD status infer_adapters_use(infer_core *c, int64_t index);

#endif
