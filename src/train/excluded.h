// The curriculum and the exclusions of a run: their keys, and the record of what was left out when.
#ifndef TRAIN_EXCLUDED_H
#define TRAIN_EXCLUDED_H

#include "config/run_config.h"
#include "data/dataset.h"

// The phases of data.curriculum, in sequences; in `a`.
NODISCARD status train_curriculum(arena *a, const run_config *r, data_phase **out);

// Appends to excluded.jsonl of the run's folder that the entries of data.exclude are left out from
// step `first_step` on, unless it says so already. Only the first rank calls.
NODISCARD status train_excluded_record(const host *h, arena *a, const char *run_dir,
                                       const run_config *r, int64_t first_step);

// A line of excluded.jsonl; the last one whose step has come holds.
typedef struct train_excluded {
    int64_t first_step;
    const char *const *entries;
    int64_t count;
} train_excluded;
// All lines, in `a`; no line without the file.
NODISCARD status train_excluded_read(const host *h, arena *a, const char *run_dir,
                                     train_excluded **out, int64_t *count);
// NULL: nothing was left out in this step.
const train_excluded *train_excluded_at(const train_excluded *lines, int64_t count, int64_t step);

#endif
