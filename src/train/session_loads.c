// The load of experts in the results of a step: taken with them, one step late, so no step waits
// for the host.
#include "train/session.h"

#include <math.h>

status session_loads_open(session *s)
{
    const op_model *m = s->plans.whole;
    if (m->load_layers == 0) return ST_OK;
    return arena_new(s->a, m->load_layers, &s->loads);
}

void session_loads_take(session *s, obs_record *record)
{
    const op_model *m = s->plans.whole;
    const run_config *r = s->r;
    const int64_t *words = exec_loads(s->job.e), experts = m->load_experts;
    int64_t aux = 0, z = 0, tokens = 0;
    record->aux_loss = (double)NAN;
    if (words == NULL || s->loads == NULL) return;
    session_rebalance_count(s, words);
    for (int32_t i = 0; i < m->load_layers; i++) {
        const int64_t *row = words + i * step_load_row(experts);
        if (!model_has_experts(&s->spec, i)) continue;
        s->loads[record->load_count++] = obs_load_of(row, experts, i);
        aux += row[experts + LOAD_AUX];
        z += row[experts + LOAD_Z];
        tokens = row[experts + LOAD_TOKENS]; // of each layer
    }
    record->loads = s->loads;
    if ((r->moe.aux_loss == 0.0 && r->moe.z_loss == 0.0) || tokens == 0) return;
    const double unit = ldexp(1.0, -LOAD_UNIT_BITS) / (double)tokens;
    record->aux_loss = unit * (r->moe.aux_loss * (double)aux + r->moe.z_loss * (double)z);
}
