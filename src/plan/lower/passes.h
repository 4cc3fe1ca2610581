// The passes of lowering one after the other, for callers that go on by themselves after some of
// them.
#ifndef PLAN_LOWER_PASSES_H
#define PLAN_LOWER_PASSES_H

#include "plan/lower/collect.h"
#include "plan/lower/place.h"

typedef struct lower_passes {
    plan_request local; // of this rank's rows
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
// What plan_place_sizes and plan_place_offsets are given.
NODISCARD status plan_lower_place_input(lower_passes *s, place_input *out);
// The lists of the plan leave `work`.
NODISCARD status plan_lower_keep(plan *p);

#endif
