// The optimizers of a run: a row each, with all that configuration, forecasts and reports need to know about
// them. assemble/optim/<lower>.c writes the update as operations.
//
// To add one: a row here, and its file there. Nothing else names an optimizer (tools/check_additions).
#ifndef CONFIG_OPTIMIZERS_H
#define CONFIG_OPTIMIZERS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// The unit that a rank must have whole: a block of rows that can be cut anywhere, or the matrix. One whose
// unit is the matrix takes the two-dim weights but embeddings and head, and leaves the rest to AdamW.
typedef enum run_optimizer_unit { RUN_UNIT_BLOCK, RUN_UNIT_MATRIX } run_optimizer_unit;

// upper, lower: its names, the second as written in optimizer.name. moments: values that it keeps for each
// parameter, besides an fp32 copy. slack: by how many learning rates rounding in fp32 may move an element in
// one update; an update of the sign flips where its argument is 0 but for roundings. keys: the options that
// it alone, or it with others, reads.
#define RUN_OPTIMIZERS(X)                                                                          \
    X(ADAMW, adamw, RUN_UNIT_BLOCK, 2, 0x1p-14, "optimizer.beta1, optimizer.beta2, optimizer.eps") \
    RUN_OPTIMIZERS_OTHER(X)
#define RUN_OPTIMIZERS_OTHER(X)                                           \
    X(MUON, muon, RUN_UNIT_MATRIX, 1, 0x1p-8,                             \
      "optimizer.momentum, optimizer.nesterov, optimizer.muon_lr_adjust") \
    X(LION, lion, RUN_UNIT_BLOCK, 1, 2.0, "optimizer.beta1, optimizer.beta2")

// "adamw, muon": what optimizer.name may be.
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
// The row that updates a weight: the optimizer's own, or that of AdamW where its unit is the matrix and the
// weight is none.
const run_optimizer_row *run_optimizer_for(run_optimizer optimizer, bool is_matrix);

#ifdef __cplusplus
}
#endif
#endif
