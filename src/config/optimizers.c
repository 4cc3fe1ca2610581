// The table of optimizers.
#include "config/optimizers.h"

static const run_optimizer_row rows[] = {
#define ROW(upper, lower, unit_, moments_, slack_, keys_) \
    {.name = #lower, .unit = unit_, .moments = moments_, .slack = slack_, .keys = keys_},
    RUN_OPTIMIZERS(ROW)
#undef ROW
};

const run_optimizer_row *run_optimizer_at(run_optimizer optimizer)
{
    ASSERT((int)optimizer >= 0 && optimizer < RUN_OPTIMIZER_COUNT);
    return &rows[optimizer];
}

const run_optimizer_row *run_optimizer_for(run_optimizer optimizer, bool is_matrix)
{
    const run_optimizer_row *own = run_optimizer_at(optimizer);
    return own->unit == RUN_UNIT_MATRIX && !is_matrix ? &rows[RUN_ADAMW] : own;
}
