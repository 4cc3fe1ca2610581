// Makes the plans of all ranks of a run in one process and proves them (plan/verify/verify.h)
// before anything starts.
#ifndef ASSEMBLE_PROVE_H
#define ASSEMBLE_PROVE_H

#include "assemble/assemble.h"
#include "plan/verify/verify.h"

// Plans do not grow with dp, so a smaller job of the same layout stands for a large one.
typedef struct assemble_proved {
    int64_t dp;                               // size of dp that was proved; 0: all of layout.dp
    int64_t ranks, plans;                     // plans of each rank
    int64_t actions, rendezvous, waits, sums; // in one step of each plan
    int64_t *peak_bytes;                      // [rank] the largest of its plans
    int64_t global_batch, micro_batch;        // of the first plan
    double make_s, prove_s;                   // time taken
} assemble_proved;

// For a run with these options; their mesh is ignored. Fails with ST_BROKEN_PLAN, or as
// assemble_rank() does.
NODISCARD status assemble_prove(const host *h, arena *a, const run_config *r,
                                const decoder_spec *spec, const assemble_options *options,
                                assemble_proved *out);

#endif
