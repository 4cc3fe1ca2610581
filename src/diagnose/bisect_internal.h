// Shared by the files of bisect: bisect.c (ranks and steps), bisect_side.c (one rank: its job and what is seen
// of a step), bisect_points.c (which tensors are looked at, and where a rank's piece lies in the whole) and
// bisect_compare.c (bounds and verdict).
#ifndef DIAGNOSE_BISECT_INTERNAL_H
#define DIAGNOSE_BISECT_INTERNAL_H

#include "diagnose/bisect.h"
#include "train/feed.h"

enum { BISECT_PARTS = 4, BISECT_BATCHES = 4 };

// An activation, or a gradient of one, of a block: rows of tokens of the whole batch.
typedef struct bisect_point {
    int32_t layer;
    op_list list;
    tensor_id t; // the same in every rank's program (op/pass/partition.c)
    bisect_phase phase;
    bool is_boundary; // the block hands it on
    int64_t columns;
    // Where tp cuts columns, each part is cut by itself.
    int part_count;
    int64_t part[BISECT_PARTS], heads[BISECT_PARTS];
    const char *block, *name;
} bisect_point;

typedef struct bisect_points {
    bisect_point *rows; // in the order in which their values come about
    int64_t count, capacity;
    int32_t *index; // [layer * tensors + tensor]: row; -1: none
    int64_t tensors;
} bisect_points;

// What a rank had of a point (or of a weight's gradient), copied out in the step.
typedef struct bisect_seen {
    char *data; // [micro-batch][rows][columns]; NULL: it has none
    dtype type;
    int64_t rows, columns;
    bool by_positions; // its positions of every sequence only
    bool *has;         // [micro-batch]
} bisect_seen;

typedef struct bisect_rank {
    const host *h;
    arena *a;
    comm *all; // NULL: alone
    int rank;
    run_config r;
    assemble_options options;
    assemble_plans plans;
    train_job job;
    bool is_open;
    const plan *p; // that is looked into
    arena *seen_arena;
    int32_t *cells; // of the batch, where cp cuts it
    exec_tap *taps;
    int64_t tap_count, tap_capacity;
    bisect_seen *seen;  // [point]
    bisect_seen *grads; // [weight] the rows that it updates
    step_device results;
    double loss_scale; // of the step
} bisect_rank;

// One rank in fp32; in fp64; in the configuration's types (or, where there is no fp64, in narrower ones).
typedef enum bisect_reference { REF_FP32, REF_FP64, REF_TYPES, REF_COUNT } bisect_reference;

typedef struct bisect {
    const host *h;
    arena *a;
    const bisect_order *order;
    bisect_report *out;
    const run_config *r;
    decoder_spec spec;
    run_types types;
    train_feed *feed;
    exec_batch batch[BISECT_BATCHES]; // of the step, all sequences
    int64_t step, consumed, sequences;
    bisect_points points;
    bisect_rank **ranks; // [rank of the layout]
    int64_t rank_count;
    bisect_rank *refs[REF_COUNT]; // NULL: it is not needed
    bool is_narrow;               // something is stored in less than fp32
    // [weight] state before the step, whole, in double: the weight (its master), then what the optimizer keeps.
    double **state;
    int64_t applied; // updates, with that of the step
    bool over;
    char *last; // that agreed, as text
} bisect;

enum { BISECT_STATES = 3, BISECT_LAST_BYTES = 160 }; // weight, m, v
extern const char *const bisect_state_names[BISECT_STATES];

// bisect_points.c
NODISCARD status bisect_points_make(arena *a, const op_model *m, bool inside, bisect_points *out);
static inline int32_t bisect_point_of(const bisect_points *p, int32_t layer, tensor_id t)
{
    return t >= 0 && t < p->tensors ? p->index[(int64_t)layer * p->tensors + t] : -1;
}
// Row i of micro-batch mb, in the whole batch.
int64_t bisect_row(const bisect_rank *k, const bisect_seen *s, int64_t mb, int64_t i);
// Column of the whole that column j of the rank's is.
int64_t bisect_column(const bisect_rank *k, const bisect_seen *s, const bisect_point *p, int64_t j);

// bisect_side.c
NODISCARD status bisect_rank_plan(const bisect *b, bisect_rank *k);
NODISCARD status bisect_rank_open(bisect_rank *k);
void bisect_rank_close(bisect_rank *k);
// The step that `b` stands at; what is seen of it lies in k afterwards.
NODISCARD status bisect_rank_step(const bisect *b, bisect_rank *k);
// This rank's piece of a part of a weight, or of its state; rows 0: it has none. `kind`: a row of
// bisect_state_names, or -1: the working copy where there is a master. false: the rank keeps no such thing.
bool bisect_state_is_kept(const bisect_rank *k, int32_t weight, int kind);
plan_piece bisect_state_piece(const bisect_rank *k, int32_t weight, int part, int kind);
NODISCARD status bisect_state_read(const bisect_rank *k, int32_t weight, int kind,
                                   const plan_piece *piece, double *out);
dtype bisect_state_type(const bisect_rank *k, int32_t weight, int kind);
// Writes b->state into a reference, which holds all of everything.
NODISCARD status bisect_state_write(const bisect *b, bisect_rank *k);
static inline int64_t bisect_state_elements(const op_weight *w)
{
    return w->rows * w->columns;
}

// bisect_compare.c: all that is compared of a step, in order, until something differs.
NODISCARD status bisect_compare_start(bisect *b);
NODISCARD status bisect_compare_step(bisect *b);
// bisect_update.c: what the optimizer should have made of this run's own gradients.
NODISCARD status bisect_update_expect(const bisect *b, int32_t weight, const double *grad,
                                      double *const out[BISECT_STATES]);

#endif
