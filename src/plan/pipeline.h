// Which layers of a model stand on which stage of a pipeline, and who holds a weight. Pure.
//
// The model's rows of layers (op/model.h), embedding and head included, are cut into virtual stages
// of whole rows, one after the other; the schedule's shape says which rank of the pp axis holds
// which of them, as a chunk.
#ifndef PLAN_PIPELINE_H
#define PLAN_PIPELINE_H

#include "op/model.h"
#include "plan/mesh.h"
#include "plan/schedule/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PLAN_MAX_HOLDERS = 2
}; // of a weight: a tied one on two stages, or a pipeline in both directions

// What the layout asks for. All zero: one stage, one chunk.
typedef struct plan_pipeline_request {
    const plan_schedule *schedule; // NULL: of one stage
    int32_t chunks;                // per rank; 0: as few as the schedule takes
    // Rows of the model between embedding and head on each virtual stage; NULL: as even in FLOPs as
    // can be.
    const int32_t *rows;
    int32_t rows_count;
} plan_pipeline_request;

typedef struct plan_pipeline {
    const plan_schedule *schedule; // NULL: one rank does all of a micro-batch before the next
    schedule_request shape;
    int32_t depth;              // virtual stages
    const int32_t *first_layer; // [depth + 1] rows of the model's layers
    const op_model *model;
    // [weight] ranks of the pp axis on which a layer that uses it stands, ascending; -1: there is
    // none.
    const int32_t (*holders)[PLAN_MAX_HOLDERS];
} plan_pipeline;

// `microbatches` of the step on this rank of dp; 0: not asked whether the schedule takes them. What
// does not fit is refused with the key.
NODISCARD status plan_pipeline_make(arena *a, const op_model *m, const plan_mesh *mesh,
                                    const plan_pipeline_request *r, int64_t microbatches,
                                    plan_pipeline *out);
int32_t plan_pipeline_stage_of(const plan_pipeline *p, int32_t layer_row);
// Chunk of rank `pp` that the layer is in; -1: it is not there.
int32_t plan_pipeline_chunk_of(const plan_pipeline *p, int32_t pp, int32_t layer_row);
// Ranks of the pp axis on which a layer that uses the weight stands, ascending; at most 2 here: how
// many.
int plan_pipeline_holders(const plan_pipeline *p, int32_t weight,
                          int32_t holders[PLAN_MAX_HOLDERS]);

#ifdef __cplusplus
}
#endif
#endif
