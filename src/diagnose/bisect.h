// A configuration's run in step with one rank in fp32: which block, tensor and index first differ by more
// than rounding explains.
//
// The ranks of the layout are threads of this process and run the trainer's own plans. Beside them stand one
// rank in fp32 and, where the model is small enough, one in fp64; all begin each step from equal state.
#ifndef DIAGNOSE_BISECT_H
#define DIAGNOSE_BISECT_H

#include "train/job.h"

// In the order in which values come about.
typedef enum bisect_phase {
    BISECT_START,    // weights before the first step
    BISECT_FORWARD,  // what the nodes of a block make
    BISECT_BACKWARD, // gradients of activations
    BISECT_GRADIENT, // of weights, as the optimizer takes them
    BISECT_SUMS,     // loss, count of tokens, norm
    BISECT_UPDATE,   // weights and optimizer state after the step
    BISECT_PHASE_COUNT
} bisect_phase;
const char *bisect_phase_name(bisect_phase phase);

// Values that were compared: a tensor of a block, of all micro-batches and ranks.
typedef struct bisect_item {
    int64_t step;
    bisect_phase phase;
    const char *block, *tensor; // "layers.3", "attention.y"
    int64_t elements, differ;
    double worst; // largest difference over its bound
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
    const char *ranks;  // "rank 2 (dp 1)", "ranks 2 and 3 ...": those whose value differs there
    const char *others; // those whose value there agrees; NULL: none
    const char *before; // the last that agreed: "forward of layers.2, output"; NULL: none
} bisect_found;

typedef struct bisect_report {
    const run_config *config;
    const char *arch;
    int64_t parameters, ranks, steps, sequences;
    int64_t items, elements;
    bool by_fp64;    // roundings were measured against fp64; else by a narrower type's
    bool is_inside;  // blocks were looked into; else what they hand on
    double worst;    // of what agrees: difference over bound
    char where[160]; // that was
    bool differs;
    bisect_found first;
} bisect_report;

typedef struct bisect_order {
    run_config *r; // its vocabulary and micro-batch may be filled in
    int64_t steps;
    double fp64_flops; // of a step that fp64 may take at most; 0: as much as takes a minute
    void *context;
    void (*compared)(void *context, const bisect_item *item); // NULL: nobody asks
    bool (*stop_asked)(void *context);                        // between steps; NULL: nobody
    // Tests: changes a rank's plans after they are made; what they change is not verified. NULL: none.
    void (*tamper)(void *context, int rank, assemble_plans *plans);
} bisect_order;

// ST_OK whether something differs or not. ST_STOPPED: it was asked to. ST_BROKEN_PLAN: the verifier refuses
// the plans, so nothing ran.
NODISCARD status diagnose_bisect(const host *h, arena *a, const bisect_order *order,
                                 bisect_report *out);

#endif
