// Optimizers, a family. An optimizer is written like a block: for one weight it appends operations
// and declares state tensors; the plan places them, the checkpoint stores them.
//
// To add one: its row in config/optimizers.h, a file here, and its operation.
#ifndef ASSEMBLE_OPTIM_OPTIM_H
#define ASSEMBLE_OPTIM_OPTIM_H

#include "config/run_config.h"
#include "op/model.h"
#include "plan/plan.h"

typedef struct assemble_optimizer {
    // Appends to the forward list of p. weight and grad are tensors of p.
    status (*emit)(op_program *p, const op_weight *w, int32_t weight_index, const run_config *r,
                   tensor_id weight, tensor_id grad);
} assemble_optimizer;

#define ASSEMBLE_OPTIMIZER(upper, lower, ...) \
    extern const assemble_optimizer assemble_optimizer_##lower;
RUN_OPTIMIZERS(ASSEMBLE_OPTIMIZER)
#undef ASSEMBLE_OPTIMIZER

// Makes one program per weight of the model, over the rows that this rank updates, in the form of
// plan_request; (*whole)[w]: that weight's optimizer needs all of it.
NODISCARD status assemble_optimizer_programs(arena *a, const op_model *m, const run_config *r,
                                             const plan_mesh *mesh, op_program *const **out,
                                             const bool **whole);

// Helpers for rows: add a state tensor with the shape of the weight, and the fp32 copy of a
// narrower weight. *copy: the tensor that an update writes in addition to the master; TENSOR_NONE
// if the weight is its own master.
NODISCARD status assemble_optimizer_state(op_program *p, const char *name, const op_weight *w,
                                          dtype type, tensor_id *out);
NODISCARD status assemble_optimizer_master(op_program *p, const op_weight *w, const run_config *r,
                                           tensor_id weight, tensor_id *master, tensor_id *copy);
// A node with the attributes common to element-wise updates. Its piece says where this rank's
// elements are in the whole weight: their random counters depend on it.
op_node assemble_optimizer_node(op_code code, const op_weight *w, int32_t weight_index,
                                const run_config *r);

#endif
