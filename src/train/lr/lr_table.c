// The table of learning-rate rules, and their settings from a run's configuration.
#include "train/lr/lr.h"

#include <string.h>

static const lr_rule *const rows[] = {
    [RUN_SCHEDULE_CONSTANT] = &lr_rule_constant,
    [RUN_SCHEDULE_LINEAR] = &lr_rule_linear,
    [RUN_SCHEDULE_COSINE] = &lr_rule_cosine,
    [RUN_SCHEDULE_WSD] = &lr_rule_wsd,
    [RUN_SCHEDULE_INVERSE_SQRT] = &lr_rule_inverse_sqrt,
};

const lr_rule *lr_rule_find(const char *name)
{
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if (strcmp(rows[i]->name, name) == 0) return rows[i];
    }
    return NULL;
}

lr_settings lr_settings_of(const run_config *r)
{
    return (lr_settings){
        .peak = r->optimizer.lr,
        .min_ratio = r->schedule.min_ratio,
        .warmup = r->schedule.warmup,
        .steps = r->train.steps,
        .decay_steps = r->schedule.decay_steps,
        .timescale = r->schedule.timescale,
        .decay_shape = (run_decay)r->schedule.decay_shape,
        .warmup_from = (run_warmup)r->schedule.warmup_from,
    };
}

double lr_rate(const run_config *r, int64_t finished)
{
    ASSERT(r->schedule.name >= 0 && r->schedule.name < COUNT_OF(rows));
    const lr_settings s = lr_settings_of(r);
    return rows[r->schedule.name]->rate(&s, finished);
}
