// Runs a configuration in step with one rank in fp32 and finds the first block, tensor and index
// that differ by more than rounding explains.
//
// The ranks of the layout are threads of this process and run the trainer's own plans. One more
// rank runs in fp32 and, if the model is small enough, another in fp64; all begin each step from
// equal state.
#ifndef DIAGNOSE_BISECT_H
#define DIAGNOSE_BISECT_H

#include "train/job.h"

// Phases in the order in which values are computed.
typedef enum bisect_phase {
    BISECT_START,    // weights before the first step
    BISECT_FORWARD,  // outputs of the nodes of a block
    BISECT_BACKWARD, // gradients of activations
    BISECT_GRADIENT, // gradients of weights, as the optimizer receives them
    BISECT_SUMS,     // loss, count of tokens, norm
    BISECT_UPDATE,   // weights and optimizer state after the step
    BISECT_PHASE_COUNT
} bisect_phase;
const char *bisect_phase_name(bisect_phase phase);

// Compared values: a tensor of a block over all micro-batches and ranks.
typedef struct bisect_item {
    int64_t step;
    bisect_phase phase;
    const char *block, *tensor; // "layers.3", "attention.y"
    int64_t elements, differ;
    double worst; // largest difference relative to its bound
} bisect_item;

typedef struct bisect_index {   // -1: there is none
    int64_t sequence, position; // of activations, in the step's batch
    int64_t row;                // of weights
    int64_t column;
} bisect_index;

// The first element that differs.
typedef struct bisect_found {
    bisect_item item;
    bisect_index index;
    double value, expected, bound;
    const char *ranks;  // "rank 2 (dp 1)", "ranks 2 and 3 ...": ranks whose value differs there
    const char *others; // ranks whose value agrees there; NULL: none
    const char *before; // the last item that agreed: "forward of layers.2, output"; NULL: none
} bisect_found;

typedef struct bisect_report {
    const run_config *config;
    const char *arch;
    int64_t parameters, ranks, steps, sequences;
    int64_t items, elements;
    bool by_fp64;    // roundings were measured against fp64; otherwise against a narrower type
    bool is_inside;  // items inside of blocks were compared; otherwise only their outputs
    double worst;    // of the items that agree: difference relative to the bound
    char where[160]; // the item with that difference
    bool differs;
    bisect_found first;
} bisect_report;

typedef struct bisect_order {
    run_config *r; // the function may set its vocabulary and micro-batch
    int64_t steps;
    double fp64_flops; // limit on the FLOPs of a step in fp64; 0: as many as take a minute
    void *context;
    void (*compared)(void *context,
                     const bisect_item *item); // called for every item; NULL: not called
    bool (*stop_asked)(void *context);         // called between steps; NULL: not called
    // For tests: changes a rank's plans after they are made; the changes are not verified. NULL:
    // none.
    void (*tamper)(void *context, int rank, assemble_plans *plans);
} bisect_order;

// Returns ST_OK whether something differs or not. ST_STOPPED: stop_asked() returned true.
// ST_BROKEN_PLAN: the verifier refuses the plans, so nothing ran.
NODISCARD status diagnose_bisect(const host *h, arena *a, const bisect_order *order,
                                 bisect_report *out);

#endif
