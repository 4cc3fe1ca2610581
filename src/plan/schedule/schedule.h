// Pipeline schedules: the order in which a stage processes micro-batches. Pure.
//
// A pipeline cuts the model's layers into *virtual stages*, 0 at the embedding. Each rank of the pp
// axis holds `chunks` of them. A schedule says which, and gives each rank the list of its actions
// in one step:
//
//   forward          F   of chunk x micro-batch
//   backward         B   both halves
//   backward input   I   the gradient that the stage below waits for
//   backward weight  W   the gradient of the weights, at any time after its I
//   both             F+B a forward of one pair, overlapped with a whole backward of another
//
// Schedules know no layers, bytes or times. Sends and receives follow from the lists (plan/lower).
// The weight gradients of a chunk (B, W, both) come in the order of its micro-batches, because they
// are added from left to right. The list of a rank does not depend on those of other ranks, so one
// rank of thousands costs no more than one of few. To add a schedule, write a file here and a row
// in schedule_table.c; schedule_test.c runs over every row.
#ifndef PLAN_SCHEDULE_SCHEDULE_H
#define PLAN_SCHEDULE_SCHEDULE_H

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SCHEDULE_MAX_CHUNKS = 64,
    SCHEDULE_MAX_STAGES = 4096,          // ranks of the pp axis
    SCHEDULE_MAX_MICROBATCHES = 1 << 20, // of a step
    SCHEDULE_MAX_ACTIONS = 1 << 24       // of a rank
};

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

// Maps chunks of ranks to virtual stages (P ranks with V chunks each).
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

typedef struct schedule_file schedule_file; // the result of plan_schedule_parse

typedef struct plan_schedule plan_schedule;
struct plan_schedule {
    const char *name;  // the value of layout.schedule: "zb-h1"
    const char *about; // one sentence with the source
    schedule_shape shape;
    int32_t chunks_min,
        chunks_max;       // limits of a request; chunks_min is the default
    bool splits_backward; // its lists have I and W
    // Refuses requests that only this schedule cannot do, with the reason and the nearest valid
    // choice. NULL: there are none.
    status (*check)(const plan_schedule *self, const schedule_request *r);
    // Lists the actions of rank `rank`, in order. Call check before it.
    status (*emit)(const plan_schedule *self, const schedule_request *r, int32_t rank, arena *a,
                   schedule_list *out);
    const schedule_file *file; // NULL unless the schedule was read from text
};

const plan_schedule *plan_schedule_find(const char *name); // NULL: there is none
const plan_schedule *plan_schedule_at(int row);            // in table order; NULL after the last

// Refuses an impossible request (ST_CONFIG_CONFLICT, ST_CONFIG_RANGE), naming the key of layout and
// the nearest choice.
NODISCARD status plan_schedule_check(const plan_schedule *s, const schedule_request *r);
// Lists the actions of rank `rank`; call it after a check. `out` begins empty, its items are in
// `a`.
NODISCARD status plan_schedule_emit(const plan_schedule *s, const schedule_request *r, int32_t rank,
                                    arena *a, schedule_list *out);
// Checks that on all ranks every forward comes once, every backward once and after its forward (W
// after I), and the gradients of a chunk in order. Every row of the table passes; a file needs this
// check first. Fails with ST_CONFIG, naming rank, action and line. plan_timeline_simulate finds
// lists that wait for each other.
NODISCARD status plan_schedule_validate(const plan_schedule *s, const schedule_request *r,
                                        arena *a);

// Reads a schedule from text (layout.schedule names a file). `file` is for errors; nothing of
// `bytes` is kept.
//   # to the end of the line      a comment
//   shape: loop | v | two         before the first rank; loop if it is missing
//   F0.0 F0.1 B0.0 F1.0+B0.1 ...  a line per rank, rank 0 first: kind, chunk . micro-batch
NODISCARD status plan_schedule_parse(arena *a, const char *file, const char *bytes, int64_t length,
                                     const plan_schedule **out);
// Writes any schedule as such a text; and one action of it.
NODISCARD status plan_schedule_print(const plan_schedule *s, const schedule_request *r, text *out);
const char *plan_schedule_action_print(const schedule_action *x, char buffer[48]);
// Returns the line of the file that lists a rank; 0 for a schedule from the table.
int64_t plan_schedule_line(const plan_schedule *s, int32_t rank);

// Returns the number of virtual stages: P V, or P for SHAPE_TWO.
int32_t plan_schedule_depth(const plan_schedule *s, const schedule_request *r);
// Returns the virtual stage of a rank's chunk, and the holder of a stage. For SHAPE_TWO the stage
// is one of `direction` (0 down: chunk 0, 1 up: chunk 1); else direction is 0.
int32_t plan_schedule_stage(const plan_schedule *s, const schedule_request *r, int32_t rank,
                            int32_t chunk);
void plan_schedule_holder(const plan_schedule *s, const schedule_request *r, int32_t stage,
                          int32_t direction, int32_t *rank, int32_t *chunk);
static inline int32_t plan_schedule_direction(const plan_schedule *s, int32_t chunk)
{
    return s->shape == SHAPE_TWO ? chunk : 0;
}
// Loop compression: the list of a step with many micro-batches equals that of a step with fewer,
// with more rounds in its middle. Each round repeats the one before with micro-batches `round`
// later.
typedef struct schedule_repeat {
    int64_t until;  // actions with which both lists begin
    int64_t from;   // from there on both are equal, except for the numbers of micro-batches
    int64_t period; // actions of a round
} schedule_repeat;
// Returns false if the list does not repeat in this way.
bool plan_schedule_repeat(const schedule_list *few, const schedule_list *all, int64_t rounds,
                          int32_t round, schedule_repeat *out);

// Returns the micro-batches that a chunk processes: all; for SHAPE_TWO the half of its direction,
// of which direction 0 has the first.
void plan_schedule_share(const plan_schedule *s, const schedule_request *r, int32_t chunk,
                         int32_t *first, int32_t *count);

#ifdef __cplusplus
}
#endif
#endif
