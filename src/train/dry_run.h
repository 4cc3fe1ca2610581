// `train --dry-run`: tries everything that can fail before the first step, then runs one step.
#ifndef TRAIN_DRY_RUN_H
#define TRAIN_DRY_RUN_H

#include "train/train.h"

// Checks the configuration, plans, memory, weights, data files, tokenizer and the run's folder,
// then runs a step on random tokens, which takes *step_s seconds. It leaves no run folder behind;
// tokens that it prepared stay in the cache.
NODISCARD status train_dry_run(const host *h, arena *a, const run_config *r, const config *c,
                               train_start *out, double *step_s);

#endif
