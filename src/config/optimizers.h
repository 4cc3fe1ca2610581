// The optimizers of a run: a row each, with all facts that configuration, predictions and reports
// need. assemble/optim/<lower>.c writes the update as operations.
//
// To add one: a row here, and its file there. No other file names an optimizer
// (tools/check_additions checks this).
#ifndef CONFIG_OPTIMIZERS_H
#define CONFIG_OPTIMIZERS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// The unit that a rank must hold completely: a block of rows, which ZeRO can shard anywhere, or the
// matrix. An optimizer with the matrix as its unit updates the two-dimensional weights except
// embeddings and head, and AdamW updates the rest.
typedef enum run_optimizer_unit { RUN_UNIT_BLOCK, RUN_UNIT_MATRIX } run_optimizer_unit;

// upper, lower: its names, the second as written in optimizer.name. moments: values that it keeps
// for each parameter, not counting an fp32 copy. slack: the number of learning rates by which fp32
// rounding may move an element in one update; a sign update flips where its argument is 0 except
// for rounding. keys: the options that it reads and not every optimizer does.
#define RUN_OPTIMIZERS(X)                                                                          \
    X(ADAMW, adamw, RUN_UNIT_BLOCK, 2, 0x1p-14, "optimizer.beta1, optimizer.beta2, optimizer.eps") \
    RUN_OPTIMIZERS_OTHER(X)
#define RUN_OPTIMIZERS_OTHER(X)                                           \
    X(MUON, muon, RUN_UNIT_MATRIX, 1, 0x1p-8,                             \
      "optimizer.momentum, optimizer.nesterov, optimizer.muon_lr_adjust") \
    X(LION, lion, RUN_UNIT_BLOCK, 1, 2.0, "optimizer.beta1, optimizer.beta2")

// "adamw, muon": the choices of optimizer.name.
#define RUN_OPTIMIZER_OTHER_NAME(upper, lower, ...) ", " #lower
#define RUN_OPTIMIZER_NAMES                         "adamw" RUN_OPTIMIZERS_OTHER(RUN_OPTIMIZER_OTHER_NAME)

typedef enum run_optimizer {
#define RUN_OPTIMIZER_ENUM(upper, lower, ...) RUN_##upper,
    RUN_OPTIMIZERS(RUN_OPTIMIZER_ENUM)
#undef RUN_OPTIMIZER_ENUM
        RUN_OPTIMIZER_COUNT
} run_optimizer;

typedef struct run_optimizer_row {
    const char *name;
    run_optimizer_unit unit;
    int moments;
    double slack;
    const char *keys;
} run_optimizer_row;
const run_optimizer_row *run_optimizer_at(run_optimizer optimizer);
// The row that updates a weight: the optimizer's own, or AdamW's if its unit is the matrix and the
// weight is no matrix.
const run_optimizer_row *run_optimizer_for(run_optimizer optimizer, bool is_matrix);

#ifdef __cplusplus
}
#endif
#endif
