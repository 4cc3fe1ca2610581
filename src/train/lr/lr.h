// Learning-rate rules, a family: pure functions of the number of finished steps.
//
// All rules rise linearly during the warm-up, WSD from min_ratio of the peak; skipped steps count.
// schedule.warmup_from says how the first update is counted. To add a rule: a file here with a row,
// and the row in lr_table.c.
#ifndef TRAIN_LR_LR_H
#define TRAIN_LR_LR_H

#include "config/run_config.h"

typedef struct lr_settings {
    double peak, min_ratio;
    int64_t warmup, steps, decay_steps, timescale;
    run_decay decay_shape; // WSD only
    run_warmup warmup_from;
} lr_settings;

typedef struct lr_rule {
    const char *name; // as in schedule.name
    // The rate of the step that follows `finished` steps.
    double (*rate)(const lr_settings *s, int64_t finished);
} lr_rule;

extern const lr_rule lr_rule_constant, lr_rule_linear, lr_rule_cosine, lr_rule_wsd,
    lr_rule_inverse_sqrt;

// Share of the peak of the update that follows `finished` < warmup updates.
static inline double lr_warmup_share(const lr_settings *s, int64_t finished)
{
    const double warmup = (double)s->warmup;
    if (s->warmup_from == RUN_WARMUP_ZERO) return (double)finished / warmup;
    const double update = (double)(finished + 1);
    return s->warmup_from == RUN_WARMUP_NANOGPT ? update / (warmup + 1.0) : update / warmup;
}

const lr_rule *lr_rule_find(const char *name); // NULL: none
lr_settings lr_settings_of(const run_config *r);
double lr_rate(const run_config *r, int64_t finished);

#endif
