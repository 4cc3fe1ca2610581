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
    const bool is_group = kind == OBJECTIVE_GRPO;
    const double high = r->objective.clip_high > 0.0 ? r->objective.clip_high : r->objective.clip;
    // Without a length Dr. GRPO divides by that of a sequence; the factor is the same for all.
    const int64_t length = r->objective.length > 0 ? r->objective.length : r->train.seq;
    const int32_t given = r->objective.loss - 1; // after auto
    return (op_objective_attrs){.kind = (int32_t)kind,
                                .form = given >= 0 ? given
                                                   : (int32_t)(is_group ? FORM_GRPO : FORM_SIGMOID),
                                .low = (float)r->objective.clip,
                                .high = (float)high,
                                .kl = (float)r->objective.kl,
                                .length = (float)length,
                                .beta = (float)r->objective.beta,
                                .smoothing = (float)r->objective.label_smoothing,
                                .wanted = (float)r->objective.wanted,
                                .unwanted = (float)r->objective.unwanted};
}

int64_t run_config_slots(const run_config *r)
{
    enum { MOST = 32 };
    const int64_t ranks = max_i64(1, r->layout.dp) * max_i64(1, r->layout.cp);
    const int64_t own = (run_config_batch_max(r) + ranks - 1) / ranks;
    return r->rollout.slots > 0 ? r->rollout.slots : min_i64(max_i64(1, own), MOST);
}

bool run_config_has_reference(const run_config *r)
{
    const op_objective_kind kind = run_objective_at(r->train.objective)->kind;
    const bool reads = kind == OBJECTIVE_DPO || kind == OBJECTIVE_KTO;
    return reads && strcmp(r->objective.reference, "none") != 0;
}
