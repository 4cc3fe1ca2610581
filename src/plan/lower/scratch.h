// Options and reusable scratch memory for building plans. They do not change the plan, except for
// the last pass that is run.
#ifndef PLAN_LOWER_SCRATCH_H
#define PLAN_LOWER_SCRATCH_H

#include "plan/lower/boundary.h"
#include "plan/pipeline.h"

#ifdef __cplusplus
extern "C" {
#endif

// The last pass that is needed. PLAN_WHOLE runs all; PLAN_PLACED stops after the sizes (times and
// bytes); PLAN_COLLECTED stops after the finished list (times alone), so transient tensors get no
// offsets. Only a whole plan can be executed, verified or printed: in the others, communications
// have no names, and actions name the tensors of their slots even if an interval is placed
// elsewhere.
typedef enum plan_last { PLAN_WHOLE, PLAN_PLACED, PLAN_COLLECTED } plan_last;

enum { PLAN_BOUNDARY_CACHES = 2 };

// Scratch memory of a caller that makes many plans, one after the other. A plan without it
// allocates its own; the system then spends a third of the time on mapping pages.
typedef struct plan_scratch {
    arena *lists, *places; // for the lists of a plan, and for placing its tensors
    // Simulated lists of two pipelines: the one with all micro-batches and the one with few
    // (predict/repeat.h).
    boundary_cache boundary[PLAN_BOUNDARY_CACHES];
    int boundary_used; // the entry that was used last
    // The previous plan, whose lists are about as long; memory is reserved accordingly. NULL: there
    // is none.
    const struct plan *similar;
} plan_scratch;

#ifdef __cplusplus
}
#endif
#endif
