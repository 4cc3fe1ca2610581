// Assigns the layers of a model to the stages of a pipeline, and weights to their holders. Pure.
//
// The model's rows of layers (op/model.h), embedding and head included, are cut into consecutive
// virtual stages of whole rows. The shape of the schedule maps each stage to a chunk of a rank of
// the pp axis.
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
}; // stages with a weight: two for a tied one, or for a pipeline in both directions

// The pipeline of a layout. All zero: one stage, one chunk.
typedef struct plan_pipeline_request {
    const plan_schedule *schedule; // NULL: there is one stage
    int32_t chunks;                // per rank; 0: the fewest that the schedule allows
    // Rows of the model between embedding and head on each virtual stage; NULL: balanced by FLOPs.
    const int32_t *rows;
    int32_t rows_count;
} plan_pipeline_request;

typedef struct plan_pipeline {
    const plan_schedule *schedule; // NULL: one rank does all of a micro-batch before the next
    schedule_request shape;
    int32_t depth;              // virtual stages
    const int32_t *first_layer; // [depth + 1] rows of the model's layers
    const op_model *model;
    // [weight] ranks of the pp axis whose layers use it, ascending; -1: there are no more.
    const int32_t (*holders)[PLAN_MAX_HOLDERS];
} plan_pipeline;

// Makes the pipeline of a request. `microbatches` of the step on this rank of dp are checked
// against the schedule; 0: no check. A conflict is refused with the key's name.
NODISCARD status plan_pipeline_make(arena *a, const op_model *m, const plan_mesh *mesh,
                                    const plan_pipeline_request *r, int64_t microbatches,
                                    plan_pipeline *out);
int32_t plan_pipeline_stage_of(const plan_pipeline *p, int32_t layer_row);
// Returns the chunk of rank `pp` with the layer; -1: the rank does not have it.
int32_t plan_pipeline_chunk_of(const plan_pipeline *p, int32_t pp, int32_t layer_row);
// Lists the ranks of the pp axis whose layers use the weight, ascending, and returns their number.
int plan_pipeline_holders(const plan_pipeline *p, int32_t weight,
                          int32_t holders[PLAN_MAX_HOLDERS]);

#ifdef __cplusplus
}
#endif
#endif
