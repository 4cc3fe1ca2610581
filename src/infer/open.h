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
    int ordinal;
    const struct cuda_driver *driver;
    dtype compute;
    bool strict, graphs;
    int64_t context; // context of the rotary table and of caches
    int64_t pages;   // of the cache; 0: none
    int64_t memory_limit_bytes;
    kern_context *kernels;
    exec_workspace_context workspace;
    plan_table run;
    const decoder_spec *fresh;
    uint64_t fresh_seed;
    trace_ring *trace;
    const op_model *model; // model of the first plan: weights and constants
    const op_model *own;   // the part of it that this rank has, if ranks share it
    exec *e;
    // Ranks that share the model (ranks.c); NULL, and a mesh of one rank, without them.
    comm *ranks;
    const run_config *layout;
    plan_mesh mesh;
    plan_places places;
    comm_group **groups;
    exec_shared shared; // the device's arena, where the others reach it
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
// Called after the last plan: refuses operations that the backend lacks, allocates memory, sets
// constants, loads weights.
NODISCARD status infer_core_load(infer_core *c, const char *folder, const plan *const *plans,
                                 int64_t count);
// Runs a plan to its end.
NODISCARD status infer_core_run(infer_core *c, const plan *p, exec_input *input);
// Reads a boundary output of the head after a run.
NODISCARD status infer_core_output(const infer_core *c, const plan *p, int output, void *data,
                                   int64_t bytes);
// The weights for ckpt_load and ckpt_weight_put: of the base model or of the adapter.
ckpt_state infer_core_state(const infer_core *c, ckpt_part part);
NODISCARD status infer_core_token_check(const infer_core *c, int32_t id);
void infer_core_end(infer_core *c);

// ranks.c: begin takes the layout; cut makes this rank's part of a model; fit is the same answer on
// all ranks; device lets the executor communicate.
void infer_ranks_begin(infer_core *c, const infer_options *options);
NODISCARD status infer_ranks_cut(infer_core *c, op_model *whole, op_model **own);
NODISCARD status infer_ranks_fit(infer_core *c, const plan *const *plans, int64_t count);
NODISCARD status infer_ranks_device(infer_core *c, exec_config *wanted);
void infer_ranks_end(infer_core *c);

// Rank 0 sends the others an order before each step. The tokens of a BEGIN follow it, or the turns
// of a NEXT.
typedef enum infer_order_kind {
    INFER_ORDER_WAIT,
    INFER_ORDER_BEGIN,
    INFER_ORDER_NEXT,
    INFER_ORDER_LEAVE,
    INFER_ORDER_ADAPTER,
    INFER_ORDER_END
} infer_order_kind;
typedef struct infer_order {
    int64_t kind, index, count; // index: the slot of a BEGIN or LEAVE, or the adapter
    int64_t kept;               // of a BEGIN: the slot that has the prompt; -1: none
    int64_t from, start;        // else the slot with its first `start` tokens; 0: none
    infer_sampling sampling;    // of a BEGIN
} infer_order;
// Gives bytes of rank 0 to the others. Collective.
NODISCARD status infer_ranks_share(const infer_core *c, void *data, int64_t bytes);

// adapters.c: begin reads what they are and widens the model's spec; load reads their values after
// the weights are there; use sets those of one, -1: of none.
NODISCARD status infer_adapters_begin(infer_core *c, const infer_options *options);
NODISCARD status infer_adapters_load(infer_core *c);
NODISCARD status infer_adapters_use(infer_core *c, int64_t index);

#endif
