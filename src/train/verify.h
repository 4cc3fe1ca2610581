// The plans of all ranks of a run, made in one process and proved (plan/verify/verify.h) before anything starts.
#ifndef TRAIN_VERIFY_H
#define TRAIN_VERIFY_H

#include "plan/verify/verify.h"
#include "train/job.h"

// Nothing in a plan grows with dp: of a large job a smaller one of the same layout stands for it.
typedef struct train_verified {
    int64_t dp;                             // that was proved; 0: all of layout.dp
    int64_t ranks, plans;                   // plans of each rank
    int64_t actions, meetings, waits, sums; // of one step of each of them
    int64_t *peak_bytes;                    // [rank] the largest of its plans
    int64_t global_batch, micro_batch;      // of the first plan
    double make_s, prove_s;                 // that it took
} train_verified;

// For a run with these options, whose mesh is not looked at. ST_BROKEN_PLAN, or what
// train_assemble refuses.
NODISCARD status train_verify(const host *h, arena *a, const run_config *r,
                              const decoder_spec *spec, const train_options *options,
                              train_verified *out);
// The same from a configuration alone: chooses the micro-batch first, as a run does.
NODISCARD status train_verify_config(const host *h, arena *a, run_config *r,
                                     const decoder_spec *spec, train_verified *out);

#endif
