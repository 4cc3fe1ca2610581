// What `train --dry-run` does: everything that can go wrong before the first step, and one step.
#ifndef TRAIN_DRY_RUN_H
#define TRAIN_DRY_RUN_H

#include "train/train.h"

// Configuration to plans, memory, weights, data files and tokenizer, the run's folder; then a step
// on random tokens, *step_s seconds. Leaves no run behind, but tokens that it prepared in its
// cache.
NODISCARD status train_dry_run(const host *h, arena *a, const run_config *r, train_start *out,
                               double *step_s);

#endif
