// The table of objectives, and the attributes of the loss that a run's keys give.
#include "config/run_config.h"

#include <string.h>

static const run_objective_row rows[] = {
#define ROW(upper, lower, samples_, kind_, keys_) \
    {.name = #lower, .samples = RUN_SAMPLES_##samples_, .kind = kind_, .keys = keys_},
    RUN_OBJECTIVES(ROW)
#undef ROW
};

const run_objective_row *run_objective_at(int32_t objective)
{
    ASSERT(objective >= 0 && objective < RUN_OBJECTIVE_COUNT);
    return &rows[objective];
}

op_objective_attrs run_config_objective(const run_config *r)
{
    const op_objective_kind kind = run_objective_at(r->train.objective)->kind;
    if (kind == OBJECTIVE_NONE) return (op_objective_attrs){.kind = OBJECTIVE_NONE};
    return (op_objective_attrs){.kind = (int32_t)kind,
                                .form = r->objective.loss,
                                .beta = (float)r->objective.beta,
                                .smoothing = (float)r->objective.label_smoothing,
                                .wanted = (float)r->objective.wanted,
                                .unwanted = (float)r->objective.unwanted};
}

bool run_config_has_reference(const run_config *r)
{
    const op_objective_kind kind = run_objective_at(r->train.objective)->kind;
    const bool reads = kind == OBJECTIVE_DPO || kind == OBJECTIVE_KTO;
    return reads && strcmp(r->objective.reference, "none") != 0;
}
