// Pipeline schedules: in which order a stage works on which micro-batch. Pure.
//
// A pipeline cuts the model's layers into *virtual stages*, 0 at the embedding. Each rank of the pp
// axis holds `chunks` of them; a schedule says which, and lists, for each rank, what it does in one
// step:
//
//   forward          F   of chunk x micro-batch
//   backward         B   both halves
//   backward input   I   the gradient that the stage below waits for
//   backward weight  W   the gradient of the weights, any time after its I
//   both             F+B a forward of one pair and a whole backward of another, side by side
//
// Nothing here knows layers, bytes or time; sends and receives follow from the lists (plan/lower)
// and a chunk's gradients of weights (B, W, both) come in the order of its micro-batches, for they
// are one left fold. A list is made for one rank alone, whatever the others are, so a card of one
// rank of thousands costs no more. To add a schedule: a file here and a row in schedule_table.c;
// schedule_test.c runs over every row.
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

typedef struct schedule_file schedule_file; // what plan_schedule_parse has read

typedef struct plan_schedule plan_schedule;
struct plan_schedule {
    const char *name;  // as layout.schedule has it: "zb-h1"
    const char *about; // one sentence with the source
    schedule_shape shape;
    int32_t chunks_min,
        chunks_max;       // that it can be asked for; chunks_min is what it has by default
    bool splits_backward; // its lists have I and W
    // What it alone cannot do is refused here with the reason and the nearest valid choice. NULL:
    // nothing.
    status (*check)(const plan_schedule *self, const schedule_request *r);
    // What rank `rank` does, in order. After a check.
    status (*emit)(const plan_schedule *self, const schedule_request *r, int32_t rank, arena *a,
                   schedule_list *out);
    const schedule_file *file; // NULL but for one read from text
};

const plan_schedule *plan_schedule_find(const char *name); // NULL: there is none
const plan_schedule *plan_schedule_at(int row);            // in table order; NULL after the last

// Refuses (ST_CONFIG_CONFLICT, ST_CONFIG_RANGE) what cannot be, naming layout.* and the nearest
// choice.
NODISCARD status plan_schedule_check(const plan_schedule *s, const schedule_request *r);
// What rank `rank` does; after a check. `out` begins empty, its items are in `a`.
NODISCARD status plan_schedule_emit(const plan_schedule *s, const schedule_request *r, int32_t rank,
                                    arena *a, schedule_list *out);
// Every forward once, every backward once and after its forward (W after I), a chunk's gradients in
// order, on all ranks. True of every row here; of a file it is the first thing to ask. Fails with
// ST_CONFIG, naming rank, action and line. That lists can be played is for plan_timeline to say.
NODISCARD status plan_schedule_validate(const plan_schedule *s, const schedule_request *r,
                                        arena *a);

// One read from text (layout.schedule names a file). `file` stands in errors; nothing of `bytes` is
// kept.
//   # to the end of the line      a comment
//   shape: loop | v | two         before the first rank; loop if it is missing
//   F0.0 F0.1 B0.0 F1.0+B0.1 ...  a line per rank, rank 0 first: kind, chunk . micro-batch
NODISCARD status plan_schedule_parse(arena *a, const char *file, const char *bytes, int64_t length,
                                     const plan_schedule **out);
// The same text of any schedule; and one action of it.
NODISCARD status plan_schedule_print(const plan_schedule *s, const schedule_request *r, text *out);
const char *plan_schedule_action_print(const schedule_action *x, char buffer[48]);
// The file's line that lists a rank; 0 of a schedule that is no file.
int64_t plan_schedule_line(const plan_schedule *s, int32_t rank);

// Virtual stages of the whole pipeline: P V, or P of SHAPE_TWO.
int32_t plan_schedule_depth(const plan_schedule *s, const schedule_request *r);
// Which virtual stage a rank's chunk is, and who holds a stage: of SHAPE_TWO in direction
// `direction` (0 down: chunk 0, 1 up: chunk 1); else direction is 0.
int32_t plan_schedule_stage(const plan_schedule *s, const schedule_request *r, int32_t rank,
                            int32_t chunk);
void plan_schedule_holder(const plan_schedule *s, const schedule_request *r, int32_t stage,
                          int32_t direction, int32_t *rank, int32_t *chunk);
static inline int32_t plan_schedule_direction(const plan_schedule *s, int32_t chunk)
{
    return s->shape == SHAPE_TWO ? chunk : 0;
}
// The list of a step with many micro-batches as that of one with fewer, with rounds more in its
// middle: each as the one before, of micro-batches `round` later.
typedef struct schedule_fold {
    int64_t until;  // actions that both begin with
    int64_t from;   // from there on both are the same, but for the micro-batches' numbers
    int64_t period; // actions of a round
} schedule_fold;
// False: it is no such list.
bool plan_schedule_fold(const schedule_list *few, const schedule_list *all, int64_t rounds,
                        int32_t round, schedule_fold *out);

// Micro-batches that pass through a chunk: all; of SHAPE_TWO the half of its direction, 0 the
// first.
void plan_schedule_share(const plan_schedule *s, const schedule_request *r, int32_t chunk,
                         int32_t *first, int32_t *count);

#ifdef __cplusplus
}
#endif
#endif
