// What who makes plans says of their making, besides what they are of.
#ifndef PLAN_LOWER_ROOMS_H
#define PLAN_LOWER_ROOMS_H

#include "plan/lower/borders.h"
#include "plan/pipeline.h"

#ifdef __cplusplus
extern "C" {
#endif

// What a plan is asked for: all of it; times and bytes; times alone, where transient tensors get no offsets; or bytes
// alone, where no action is left. Only a whole one can be executed, verified or printed: actions of others name the
// tensors of their slots, wherever spans are spent, and communications that are alike share a record, without a name.
typedef enum plan_use { PLAN_WHOLE, PLAN_MEASURES, PLAN_TIMES, PLAN_BYTES } plan_use;

// Of who makes many plans, one after the other; a plan without them has its own, of whose pages the system asks a third
// of the time.
typedef struct plan_rooms {
    arena *lists, *places; // that it is made in, and its tensors placed
    border_room borders
        [2]; // of one pipeline, whose lists are played once: of all micro-batches, and of few
    // The plan before, whose lists are about as long: room is taken for as much; NULL: there is none.
    const struct plan *like;
} plan_rooms;

#ifdef __cplusplus
}
#endif
#endif
