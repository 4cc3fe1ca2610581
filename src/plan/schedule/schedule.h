// Pipeline schedules: in which order a stage works on which micro-batch. Pure.
//
// A pipeline cuts the model's layers into *virtual stages*, 0 at the embedding. Each rank of the pp axis
// holds `chunks` of them; a schedule says which, and lists, for each rank, what it does in one step:
//
//   forward          F   of chunk x micro-batch
//   backward         B   both halves
//   backward input   BI  the gradient that the stage below waits for
//   backward weight  BW  the gradient of the weights, any time after its BI
//   both             a forward of one pair and a whole backward of another, side by side
//
// Nothing here knows layers, bytes or time; sends and receives follow from the lists (plan/lower) and a
// chunk's backward-weight actions come in the order of its micro-batches. To add a schedule: a file
// here and a row in schedule_table.c; schedule_test.c runs over every row.
#ifndef PLAN_SCHEDULE_SCHEDULE_H
#define PLAN_SCHEDULE_SCHEDULE_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SCHEDULE_MAX_CHUNKS = 64 };

typedef enum schedule_kind {
    SCHEDULE_FORWARD,
    SCHEDULE_BACKWARD,
    SCHEDULE_BACKWARD_INPUT,
    SCHEDULE_BACKWARD_WEIGHT,
    SCHEDULE_BOTH
} schedule_kind;

typedef struct schedule_action {
    schedule_kind kind;
    int32_t chunk, microbatch;     // of SCHEDULE_BOTH: of its forward
    int32_t chunk_b, microbatch_b; // of SCHEDULE_BOTH: of its backward; else -1
} schedule_action;

// How chunks of ranks are virtual stages (P ranks, V chunks each).
typedef enum schedule_shape {
    SHAPE_LOOP, // chunk c of rank r is stage c P + r
    SHAPE_V,    // 2 chunks: chunk 0 is stage r, chunk 1 is stage 2 P - 1 - r
    SHAPE_TWO   // 2 chunks, copies of one pipeline in both directions: stage r, and stage P - 1 - r
} schedule_shape;

typedef struct schedule_request {
    int32_t stages;       // P: ranks of the pp axis
    int32_t microbatches; // of the step, on one rank of dp
    int32_t chunks;       // V per rank
} schedule_request;

typedef struct schedule_list {
    schedule_action *actions;
    int64_t count, capacity;
} schedule_list;

typedef struct plan_schedule {
    const char *name;  // as layout.schedule has it: "zb-h1"
    const char *about; // one sentence with the source
    schedule_shape shape;
    int32_t chunks_min, chunks_max; // that it can be asked for
    // What it cannot do is refused here with the reason and the nearest valid choice.
    status (*check)(const schedule_request *r);
    // What rank `rank` does, in order. After a check.
    status (*emit)(const schedule_request *r, int32_t rank, arena *a, schedule_list *out);
} plan_schedule;

const plan_schedule *plan_schedule_find(const char *name); // NULL: there is none
const plan_schedule *plan_schedule_at(int row);            // in table order; NULL after the last
// One read from text (layout.schedule names a file): a line per rank, "F0.3 B0.3 ..." (chunk . micro-batch). `file` stands in errors.
NODISCARD status plan_schedule_parse(arena *a, const char *file, const char *bytes, int64_t length,
                                     const plan_schedule **out);

// Virtual stages of the whole pipeline: P V, or P of SHAPE_TWO.
int32_t plan_schedule_depth(const plan_schedule *s, const schedule_request *r);
// Which virtual stage a rank's chunk is, and who holds a stage: of SHAPE_TWO in direction `direction`
// (0 down: chunk 0, 1 up: chunk 1); else direction is 0.
int32_t plan_schedule_stage(const plan_schedule *s, const schedule_request *r, int32_t rank,
                            int32_t chunk);
void plan_schedule_holder(const plan_schedule *s, const schedule_request *r, int32_t stage,
                          int32_t direction, int32_t *rank, int32_t *chunk);
static inline int32_t plan_schedule_direction(const plan_schedule *s, int32_t chunk)
{
    return s->shape == SHAPE_TWO ? chunk : 0;
}

#ifdef __cplusplus
}
#endif
#endif
