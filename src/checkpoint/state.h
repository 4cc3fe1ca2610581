// The logical tensors of a run, in their one order. Internal to checkpoint/.
#ifndef CHECKPOINT_STATE_H
#define CHECKPOINT_STATE_H

#include "checkpoint/checkpoint.h"

typedef struct state_item {
    char name[PLAN_NAME_BYTES + 16]; // "m/layers.0.attn.q"
    dtype type;
    int ndim;
    int64_t dims[2];
    int64_t run_row, offset, bytes; // where it lies in the run tensor
    int64_t image_offset;           // and in an image of the state
    bool residual;                  // of compression: means something for one layout only
} state_item;

typedef struct state_list {
    state_item *items;
    int64_t count, capacity;
    int64_t bytes; // of an image of all
} state_list;

// weight by weight, part by part: weight (unless derived), master, m, v. Then the residuals of compression.
NODISCARD status state_list_make(const ckpt_state *s, arena *a, state_list *out);

// Bytes of a row, from the device or from where else the state is. Offsets are those of the whole tensor;
// where it is cut over ranks, all of them read the same in the same order.
NODISCARD status state_read(const ckpt_state *s, int64_t row, int64_t offset, void *to,
                            int64_t bytes);
// All items, chunk by chunk, into an image; NULL: only those that are cut over ranks, for the others' sake.
NODISCARD status state_read_all(const ckpt_state *s, const state_list *list, char *image);
// Of what this rank holds of them.
NODISCARD status state_write(const ckpt_state *s, int64_t row, int64_t offset, const void *from,
                             int64_t bytes);

// The counters of the step block that outlive a step, as two flat arrays.
enum { STEP_COUNTS = 6, STEP_REALS = 1 + STEP_HISTORY };
void step_flatten(const step_device *d, int64_t counts[STEP_COUNTS], double reals[STEP_REALS]);
void step_unflatten(step_device *d, const int64_t counts[STEP_COUNTS],
                    const double reals[STEP_REALS]);

// The digest goes over name, type, dims and bytes of every tensor in logical order.
void digest_head(hash_stream *digest, const char *name, dtype type, int ndim, const int64_t *dims);

enum { STATE_CHUNK_BYTES = 4 << 20 };

#endif
