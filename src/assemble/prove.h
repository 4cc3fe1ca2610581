// The plans of all ranks of a run, made in one process and proved (plan/verify/verify.h) before anything starts.
#ifndef ASSEMBLE_PROVE_H
#define ASSEMBLE_PROVE_H

#include "assemble/assemble.h"
#include "plan/verify/verify.h"

// Nothing in a plan grows with dp: of a large job a smaller one of the same layout stands for it.
typedef struct assemble_proved {
    int64_t dp;                             // that was proved; 0: all of layout.dp
    int64_t ranks, plans;                   // plans of each rank
    int64_t actions, meetings, waits, sums; // of one step of each of them
    int64_t *peak_bytes;                    // [rank] the largest of its plans
    int64_t global_batch, micro_batch;      // of the first plan
    double make_s, prove_s;                 // that it took
} assemble_proved;

// For a run with these options, whose mesh is not looked at. ST_BROKEN_PLAN, or what
// assemble_rank refuses.
NODISCARD status assemble_prove(const host *h, arena *a, const run_config *r,
                                const decoder_spec *spec, const assemble_options *options,
                                assemble_proved *out);

#endif
