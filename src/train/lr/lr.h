// Learning-rate rules, a family: pure functions of the number of finished steps.
//
// All rules but WSD rise linearly from 0 during warm-up; skipped steps count. To add one: a file
// here with a row, and the row in lr_table.c.
#ifndef TRAIN_LR_LR_H
#define TRAIN_LR_LR_H

#include "config/run_config.h"

typedef struct lr_settings {
    double peak, min_ratio;
    int64_t warmup, steps, decay_steps, timescale;
    run_decay decay_shape; // of WSD
} lr_settings;

typedef struct lr_rule {
    const char *name; // as in schedule.name
    // The rate of the step that follows `finished` steps.
    double (*rate)(const lr_settings *s, int64_t finished);
} lr_rule;

extern const lr_rule lr_rule_constant, lr_rule_linear, lr_rule_cosine, lr_rule_wsd,
    lr_rule_inverse_sqrt;

const lr_rule *lr_rule_find(const char *name); // NULL: none
lr_settings lr_settings_of(const run_config *r);
double lr_rate(const run_config *r, int64_t finished);

#endif
