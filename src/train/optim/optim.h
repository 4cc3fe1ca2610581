// Optimizers, a family. An optimizer is written like a block: for one weight it appends operations
// and declares state tensors; the plan places them, the checkpoint stores them.
//
// To add one: a file here with a row, the row in optim_table.c, and its kernel's operation.
#ifndef TRAIN_OPTIM_OPTIM_H
#define TRAIN_OPTIM_OPTIM_H

#include "op/model.h"
#include "plan/run_config.h"

typedef struct train_optimizer {
    const char *name; // as in optimizer.name
    // Which weights it takes; the others fall to AdamW.
    bool (*takes)(const op_weight *w);
    // Appends to the forward list of p. weight and grad are tensors of p.
    status (*emit)(op_program *p, const op_weight *w, int32_t weight_index, const run_config *r,
                   tensor_id weight, tensor_id grad);
} train_optimizer;

extern const train_optimizer train_optimizer_adamw;
extern const train_optimizer train_optimizer_muon;
// The row for this weight under this configuration; never NULL.
const train_optimizer *train_optimizer_for(const run_config *r, const op_weight *w);

// One program per weight of the model, as plan_request wants them. weight_types[w] is the type of
// the working copy.
NODISCARD status train_optimizer_programs(arena *a, const op_model *m, const run_config *r,
                                          op_program *const **out);

// For rows: a state tensor like the weight.
NODISCARD status train_optimizer_state(op_program *p, const char *name, const op_weight *w,
                                       dtype type, tensor_id *out);

#endif
