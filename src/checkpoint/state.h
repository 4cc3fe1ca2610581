// The logical tensors of a run in their fixed order. Internal to checkpoint/.
#ifndef CHECKPOINT_STATE_H
#define CHECKPOINT_STATE_H

#include "checkpoint/checkpoint.h"

typedef struct state_item {
    char name[PLAN_NAME_BYTES + 16]; // "m/layers.0.attn.q"
    dtype type;
    int ndim;
    int64_t dims[2], columns; // columns = 1 when ndim is 1
    int64_t bytes;
    int64_t run_row;      // row of this rank's piece; -1: it has none
    int64_t offset;       // bytes from the beginning of the weight that contains it
    int64_t image_offset; // position in an image of the state
    int32_t weight;       // -1: a residual of compression, valid for one layout only
    // For a residual: it has a row for each rank of these stages, and each stage has stage_ranks of
    // them; -1: there is one stage.
    int32_t stages[PLAN_MAX_HOLDERS];
    int64_t stage_ranks;
    int part;
    plan_what what;
} state_item;

typedef struct state_list {
    state_item *items;
    int64_t count, capacity;
    int64_t bytes; // size of an image of all items
} state_list;

// Lists the state weight by weight and part by part: weight (unless derived), master, m, v. The
// residuals of compression follow.
NODISCARD status state_list_make(const ckpt_state *s, arena *a, state_list *out);
// Returns the row of "<kind>.<weight>" (for kind "weight", the weight itself) in this rank's table;
// -1: there is none.
int64_t state_row(const ckpt_state *s, const char *kind, const char *weight);
bool state_has_master(const ckpt_state *s, int64_t weight); // on any rank
bool state_has(const ckpt_state *s, int64_t weight);        // s->part has it

// ---- pieces.c: to and from the devices ----------------------------------------------------------

// Reads bytes of an item that this rank holds whole, or that the `read` callback supplies.
NODISCARD status state_read(const ckpt_state *s, const state_item *item, int64_t offset, void *to,
                            int64_t bytes);
// Reads all items chunk by chunk into an image. NULL: only sends the pieces that rank 0 lacks.
NODISCARD status state_read_all(const ckpt_state *s, const state_list *list, char *image);
// Writes bytes [offset, offset + bytes) of an item as far as this rank holds them.
NODISCARD status state_write(const ckpt_state *s, const state_item *item, int64_t offset,
                             const void *from, int64_t bytes);
plan_piece state_piece(const ckpt_state *s, const state_item *item, int64_t rank);
// Takes the rows of a piece of experts from row r on, at most `most`, that are of one expert, and
// puts them where that expert is in the logical tensor, whichever slot it is in.
plan_piece state_rows_of_expert(const ckpt_state *s, const state_item *item, const plan_piece *p,
                                int64_t r, int64_t most);
bool state_is_same_piece(const plan_piece *x, const plan_piece *y); // false without rows
bool state_is_here(const ckpt_state *s, const state_item *item);    // at least a part of it
// Whether the device still has the state of this step, with which so many steps were applied and
// skipped (ckpt_state.held_step): a step that changes anything counts itself first.
NODISCARD status state_is_held(const ckpt_state *s, int64_t step, int64_t applied, int64_t skipped,
                               bool *out);

// Words of the loads of experts in the newest step, behind the step block; 0: the model has none.
static inline int64_t state_load_words(const ckpt_state *s)
{
    return step_load_words(s->model->load_layers, s->model->load_experts);
}
// The step block's counters that outlive a step, as two flat arrays.
enum { STEP_COUNTS = 6, STEP_REALS = 1 + STEP_HISTORY };
void step_flatten(const step_device *d, int64_t counts[STEP_COUNTS], double reals[STEP_REALS]);
void step_unflatten(step_device *d, const int64_t counts[STEP_COUNTS],
                    const double reals[STEP_REALS]);

// The digest covers name, type, dims and bytes of every tensor in logical order.
void digest_head(hash_stream *digest, const char *name, dtype type, int ndim, const int64_t *dims);

enum { STATE_CHUNK_BYTES = 4 << 20 };

#endif
