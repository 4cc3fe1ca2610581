// Options of building plans that say nothing of what they are of: which pass is the last, and
// scratch memory to reuse.
#ifndef PLAN_LOWER_SCRATCH_H
#define PLAN_LOWER_SCRATCH_H

#include "plan/lower/boundary.h"
#include "plan/pipeline.h"

#ifdef __cplusplus
extern "C" {
#endif

// The last pass that is needed: all of them; those up to the sizes of places (times and bytes); or
// those up to the finished list (times alone), where transient tensors get no offsets. Only a whole
// plan can be executed, verified or printed: communications of others have no names, and their
// actions name the tensors of their slots, wherever intervals are spent.
typedef enum plan_last { PLAN_WHOLE, PLAN_PLACED, PLAN_COLLECTED } plan_last;

enum { PLAN_BOUNDARY_CACHES = 2 };

// Of a caller that makes many plans, one after the other; a plan without them has its own, of whose
// pages the system asks a third of the time.
typedef struct plan_scratch {
    arena *lists, *places; // that it is made in, and its tensors placed
    // Of two pipelines, whose lists are simulated once: of all micro-batches, and of few
    // (predict/repeat.h).
    boundary_cache boundary[PLAN_BOUNDARY_CACHES];
    int boundary_used; // the one that was used last
    // The plan before, whose lists are about as long: memory is reserved for as much; NULL: there
    // is none.
    const struct plan *like;
} plan_scratch;

#ifdef __cplusplus
}
#endif
#endif
