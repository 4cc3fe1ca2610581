// The passes of lowering one by one, for callers that stop or continue on their own after some of
// them.
#ifndef PLAN_LOWER_PASSES_H
#define PLAN_LOWER_PASSES_H

#include "plan/lower/collect.h"
#include "plan/lower/place.h"

typedef struct lower_passes {
    plan_request local; // for this rank's rows
    lower_input in;
    expanded x;
    bound b;
    collected c;
    int64_t *begins; // [action + 1] nodes on the compute stream before it
    lifetime_table lifetimes;
} lower_passes;

// Checks the request, makes an empty plan (in `a`; its lists grow in `work`), and finds the
// pipeline's stages.
NODISCARD status plan_lower_begin(arena *a, arena *work, const plan_request *request,
                                  plan_table *run, lower_passes *s);
NODISCARD status plan_lower_collect(lower_passes *s); // expand, bind, collect
NODISCARD status plan_lower_live(lower_passes *s);
// Makes the input of plan_place_sizes and plan_place_offsets.
NODISCARD status plan_lower_place_input(lower_passes *s, place_input *out);
// Copies the lists of the plan out of `work`.
NODISCARD status plan_lower_keep(plan *p);

#endif
