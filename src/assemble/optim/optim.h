// Optimizers, a family. An optimizer is written like a block: for one weight it appends operations
// and declares state tensors; the plan places them, the checkpoint stores them.
//
// To add one: a file here with a row, the row in optim_table.c, and its kernel's operation.
#ifndef ASSEMBLE_OPTIM_OPTIM_H
#define ASSEMBLE_OPTIM_OPTIM_H

#include "config/run_config.h"
#include "op/model.h"
#include "plan/plan.h"

typedef struct train_optimizer {
    const char *name; // as in optimizer.name
    // Which weights it takes; the others fall to AdamW.
    bool (*takes)(const op_weight *w);
    bool whole; // its unit is the matrix: it is not cut over ranks
    // Appends to the forward list of p. weight and grad are tensors of p.
    status (*emit)(op_program *p, const op_weight *w, int32_t weight_index, const run_config *r,
                   tensor_id weight, tensor_id grad);
} train_optimizer;

extern const train_optimizer train_optimizer_adamw;
extern const train_optimizer train_optimizer_muon;
// The row for this weight under this configuration; never NULL.
const train_optimizer *train_optimizer_for(const run_config *r, const op_weight *w);

// One program per weight of the model, on the rows that this rank updates, as plan_request wants them;
// (*whole)[w]: that weight's optimizer needs all of it.
NODISCARD status train_optimizer_programs(arena *a, const op_model *m, const run_config *r,
                                          const plan_mesh *mesh, op_program *const **out,
                                          const bool **whole);

// For rows: a state tensor like the weight.
NODISCARD status train_optimizer_state(op_program *p, const char *name, const op_weight *w,
                                       dtype type, tensor_id *out);

#endif
