// Declarations shared by the files of bisect: bisect.c (ranks and steps), bisect_side.c (one rank:
// its job and the values recorded in a step), bisect_points.c (the compared tensors, and the
// position of a rank's piece in the whole) and bisect_compare.c (bounds and verdict).
#ifndef DIAGNOSE_BISECT_INTERNAL_H
#define DIAGNOSE_BISECT_INTERNAL_H

#include "diagnose/bisect.h"
#include "train/loader.h"

enum { BISECT_PARTS = 4, BISECT_BATCHES = 6 };

// An activation of a block, or its gradient: rows of tokens of the whole batch.
typedef struct bisect_point {
    int32_t layer;
    op_list list;
    tensor_id t; // the same in every rank's program (op/pass/partition.c)
    bisect_phase phase;
    bool is_boundary; // an output of the block
    int64_t columns;
    // If tp cuts columns, it cuts each part separately.
    int part_count;
    int64_t part[BISECT_PARTS], heads[BISECT_PARTS];
    const char *block, *name;
} bisect_point;

typedef struct bisect_points {
    bisect_point *rows; // in the order in which their values are computed
    int64_t count, capacity;
    int32_t *index; // [layer * tensors + tensor]: row; -1: none
    int64_t tensors;
} bisect_points;

// A rank's values of a point (or of a weight's gradient), copied out in the step.
typedef struct bisect_seen {
    char *data; // [micro-batch][rows][columns]; NULL: none
    dtype type;
    int64_t rows, columns;
    bool by_positions; // it holds only its positions of every sequence
    bool *has;         // [micro-batch]
} bisect_seen;

typedef struct bisect_rank {
    const host *h;
    arena *a;
    comm *all; // NULL: a single rank
    int rank;
    run_config r;
    assemble_options options;
    assemble_plans plans;
    train_job job;
    bool is_open;
    const plan *p; // the compared plan
    arena *seen_arena;
    int32_t *cells; // of the batch, if cp cuts it
    exec_probe *probes;
    int64_t probe_count, probe_capacity;
    bisect_seen *seen;  // [point]
    bisect_seen *grads; // [weight] the rows that it updates
    step_device results;
    double loss_scale; // of the step
} bisect_rank;

// One rank in fp32; in fp64; in the configuration's types (or in narrower ones if there is no
// fp64).
typedef enum bisect_reference { REF_FP32, REF_FP64, REF_TYPES, REF_COUNT } bisect_reference;

typedef struct bisect {
    const host *h;
    arena *a;
    const bisect_order *order;
    bisect_report *out;
    const run_config *r;
    decoder_spec spec;
    run_types types;
    train_loader *loader;
    exec_batch batch[BISECT_BATCHES]; // of the step, all sequences
    int batch_count;
    int64_t step, consumed, sequences;
    bisect_points points;
    bisect_rank **ranks; // [rank of the layout]
    int64_t rank_count;
    bisect_rank *refs[REF_COUNT]; // NULL: not needed
    bool is_narrow;               // some tensor is stored in less than fp32
    // [weight] whole state before the step in double: the weight (its master), then the optimizer's
    // state.
    double **state;
    int64_t applied; // number of updates, the current step's included
    bool over;
    char *last; // the last item that agreed, as text
} bisect;

enum { BISECT_STATES = 3, BISECT_LAST_BYTES = 160 }; // weight, m, v
extern const char *const bisect_state_names[BISECT_STATES];

// bisect_points.c
NODISCARD status bisect_points_make(arena *a, const op_model *m, bool inside, bisect_points *out);
static inline int32_t bisect_point_of(const bisect_points *p, int32_t layer, tensor_id t)
{
    return t >= 0 && t < p->tensors ? p->index[(int64_t)layer * p->tensors + t] : -1;
}
// Row of the whole batch for row i of micro-batch mb.
int64_t bisect_row(const bisect_rank *k, const bisect_seen *s, int64_t mb, int64_t i);
// Column of the whole tensor for column j of the rank's.
int64_t bisect_column(const bisect_rank *k, const bisect_seen *s, const bisect_point *p, int64_t j);

// bisect_side.c
NODISCARD status bisect_rank_plan(const bisect *b, bisect_rank *k);
NODISCARD status bisect_rank_open(bisect_rank *k);
void bisect_rank_close(bisect_rank *k);
// Runs the step that `b` is at; k holds the recorded values afterwards.
NODISCARD status bisect_rank_step(const bisect *b, bisect_rank *k);
// This rank's piece of a part of a weight, or of its state; rows 0: it has none. `kind`: a row of
// bisect_state_names, or -1: the working copy if there is a master. false: the rank does not keep
// that state.
bool bisect_state_is_kept(const bisect_rank *k, int32_t weight, int kind);
plan_piece bisect_state_piece(const bisect_rank *k, int32_t weight, int part, int kind);
NODISCARD status bisect_state_read(const bisect_rank *k, int32_t weight, int kind,
                                   const plan_piece *piece, double *out);
dtype bisect_state_type(const bisect_rank *k, int32_t weight, int kind);
// Writes b->state into a reference, which holds every weight whole.
NODISCARD status bisect_state_write(const bisect *b, bisect_rank *k);
static inline int64_t bisect_state_elements(const op_weight *w)
{
    return w->rows * w->columns;
}

// bisect_compare.c: compares all items of a step in order until one differs.
NODISCARD status bisect_compare_start(bisect *b);
NODISCARD status bisect_compare_step(bisect *b);
// bisect_update.c: computes the optimizer's correct result for this run's own gradients.
NODISCARD status bisect_update_expect(const bisect *b, int32_t weight, const double *grad,
                                      double *const out[BISECT_STATES]);

#endif
