// Runs the lists of an op_program on host memory, node after node, in the calling thread.
//
// Slow and simple, for tests and checks: every tensor has bytes of its own (views lie in their
// whole's), nothing is reused, nothing is asynchronous. The trainer's executor does the same work
// through a plan; here there is none, so blocks, gradient rules and kernels can be tried alone.
#ifndef KERNELS_INTERPRET_H
#define KERNELS_INTERPRET_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kern_interpret kern_interpret; // lives in the arena it was made in

typedef struct kern_interpret_config {
    const op_program *program; // kept
    extent_binding bound;      // rows per sequence = TOKENS / SEQS, S_max of caches = CACHE / SEQS
    const kern_context *context; // kept; one without threads runs in the calling thread
    int64_t first_sequence;
    double loss_divisor;
    bool strict;
} kern_interpret_config;

// All floating tensors start as NaN (bytes 0xFF), integers as -1; the step block as step 1 of seed
// 1 with a loss scale of 1.
NODISCARD status kern_interpret_create(arena *a, const kern_interpret_config *config,
                                       kern_interpret **out);
// The tensor as kernels see it: address, type, dims, strides.
kern_tensor kern_interpret_tensor(const kern_interpret *it, tensor_id t);
// Gives the tensor other bytes (contiguous, aligned to 64, kept): a weight that two programs share.
void kern_interpret_bind(kern_interpret *it, tensor_id t, void *data);
step_block *kern_interpret_step(kern_interpret *it);
// Row-major element `index` as a double, through strides, types and views.
double kern_interpret_get(const kern_interpret *it, tensor_id t, int64_t index);
void kern_interpret_put(kern_interpret *it, tensor_id t, int64_t index, double value);
int64_t kern_interpret_elements(const kern_interpret *it, tensor_id t);

// accumulate: "+=" outputs go on from what is there; false: from +0.
NODISCARD status kern_interpret_run(kern_interpret *it, op_list list, bool accumulate);
NODISCARD status kern_interpret_node(kern_interpret *it, const op_node *node, bool accumulate);

#ifdef __cplusplus
}
#endif
#endif
