// Runs the lists of an op_program on host memory, node after node, in the calling thread.
//
// It is slow and simple, for tests and checks: every tensor has its own buffer (views use the
// buffer of the whole tensor), no memory is reused, nothing is asynchronous. The trainer's executor
// does the same work through a plan; without a plan, blocks, gradient rules and kernels can be
// tested alone.
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

// Floating-point tensors start as NaN (bytes 0xFF), integers as -1, the step block as step 1 of
// seed 1 with a loss scale of 1.
NODISCARD status kern_interpret_create(arena *a, const kern_interpret_config *config,
                                       kern_interpret **out);
// Returns the tensor as kernels see it: address, type, dims, strides.
kern_tensor kern_interpret_tensor(const kern_interpret *it, tensor_id t);
// Replaces the tensor's buffer (contiguous, aligned to 64; kept), for a weight that two programs
// share.
void kern_interpret_bind(kern_interpret *it, tensor_id t, void *data);
step_block *kern_interpret_step(kern_interpret *it);
// Returns row-major element `index` as a double, through strides, types and views.
double kern_interpret_get(const kern_interpret *it, tensor_id t, int64_t index);
void kern_interpret_put(kern_interpret *it, tensor_id t, int64_t index, double value);
int64_t kern_interpret_elements(const kern_interpret *it, tensor_id t);

// accumulate: "+=" outputs continue from the present value; false: they start from +0.
NODISCARD status kern_interpret_run(kern_interpret *it, op_list list, bool accumulate);
NODISCARD status kern_interpret_node(kern_interpret *it, const op_node *node, bool accumulate);

#ifdef __cplusplus
}
#endif
#endif
