// Checkpoints: the logical state of a run, in files that know nothing of devices or layouts.
//
//   checkpoints/step-0000100/
//     state-00000-of-00001.safetensors   one tensor per logical part: "weight/layers.0.attn.q",
//                                        "master/..", "m/..", "v/..", and "step/counts", "step/reals"
//     config.json, config.yaml ...       what the trainer adds
//     manifest.json                      names, types, shapes, files, places, checksums, the digest
//
// A checkpoint exists from the moment its manifest is renamed into place, after every byte of the
// other files has been synced; a folder without one is debris. Its order of tensors is the logical
// one, so the digest is the same for any layout.
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H

#include "base/format/json.h"
#include "base/format/safetensors.h"
#include "base/hash.h"
#include "base/text.h"
#include "exec/exec.h"
#include "plan/place.h"

#ifdef __cplusplus
extern "C" {
#endif

// What is saved from and loaded into. All borrowed; the device must be idle (exec_finish).
typedef struct ckpt_state {
    const host *h;
    exec *e;
    const op_model *model; // the whole one, whatever of it this rank has
    // [weight] its optimizer's program, whose state belongs to the run; NULL: there are weights alone.
    op_program *const *optimizer;
    const plan_table *run;     // this rank's
    const plan_places *places; // who holds what; NULL: this rank holds all
    bool derived_weights;      // working copies are the nearest rounding of the masters: not stored
    // Saving only: where the state is on no device (e is NULL), reads bytes of a row of `run`. Rows
    // are asked for one after another, each from its beginning to its end.
    status (*read)(void *context, int64_t row, int64_t offset, void *to, int64_t bytes);
    void *context;
    // This rank of the job; how `bytes` of one get to all (collective), and to the first (the two do it).
    int rank;
    status (*share)(void *ranks, int owner, void *data, int64_t bytes);
    status (*give)(void *ranks, int rank, int owner, void *data, int64_t bytes);
    void *ranks;
} ckpt_state;

// Where ranks hold different pieces, those that save nothing call this when the first one begins a save:
// it gets their pieces, and each goes on when its own have been taken.
NODISCARD status ckpt_state_give(const ckpt_state *s, arena *a);

typedef struct ckpt_extra {
    const char *name, *text; // a small file beside the state: "config.json"
} ckpt_extra;

typedef struct ckpt_info {
    int64_t step;      // finished steps
    int64_t sequences; // consumed
    int64_t tokens;    // trained on, unmasked
    int64_t seed;
    int64_t world;                  // ranks that wrote it; 0 is written as 1
    double val_loss, best_val_loss; // NaN: not known
    const char *best;               // folder name of the best checkpoint so far; NULL: none
    const char *numerics;           // what the bits depend on besides the config
    const char *config;             // checksum of the resolved configuration; may be NULL
    const char *data;               // what sequences are numbered in; NULL: not known
    int64_t
        whole_from; // step from which gradients travel whole again, their error being out of bound; 0: none
    // Only what ckpt_load tells: residuals of compression that it restored, and those that the checkpoint
    // does not have for this layout and codec, and that were left as they were.
    int64_t residuals, residuals_missing;
} ckpt_info;

// Writes <folder>/step-<step>[.<fork>] and returns its path, once it is durable and verified. Nothing
// that was there before is touched until the new one is whole.
NODISCARD status ckpt_save(const ckpt_state *s, arena *a, const char *folder, int64_t fork,
                           const ckpt_info *info, const ckpt_extra *extras, int64_t extra_count,
                           char **path);
// Loads weights, optimizer state and the step block's counters. Every byte used is checked against
// the manifest; a difference names file, tensor and place. `only_weights`: for inference, into run
// tensors that the plans of inference have.
NODISCARD status ckpt_load(const ckpt_state *s, arena *a, const char *path, bool only_weights,
                           ckpt_info *info);
// The manifest's record alone.
NODISCARD status ckpt_info_read(const host *h, arena *a, const char *path, ckpt_info *out);
// ---- the folder of checkpoints ------------------------------------------------------------------

typedef struct ckpt_entry {
    const char *name, *path; // "step-0000100", "step-0000100.1"
    int64_t step, fork;
} ckpt_entry;
typedef struct ckpt_entries {
    ckpt_entry *items; // newest first: by fork, then by step
    int64_t count;
} ckpt_entries;
// All folders with a manifest, whether whole or not. A folder that is not there holds none.
NODISCARD status ckpt_list(const host *h, arena *a, const char *folder, ckpt_entries *out);
// The first of them; *path NULL and *step -1 if there is none.
NODISCARD status ckpt_newest(const host *h, arena *a, const char *folder, char **path,
                             int64_t *step);
bool ckpt_name_parse(const char *name, int64_t *step, int64_t *fork);

typedef struct ckpt_keep {
    int64_t keep;               // so many newest stay; 2 at least
    int64_t keep_every;         // multiples stay for ever; 0: none
    const char *best;           // name; stays; may be NULL
    const char *const *damaged; // names that are known to be, and so do not count as kept
    int64_t damaged_count;
    const char *saved; // name; just written, stays; may be NULL
} ckpt_keep;
NODISCARD status ckpt_prune(const host *h, arena *a, const char *folder, const ckpt_keep *k);
// Removes what saves that were cut off left: folders without a manifest, links half made. `removed`
// gets their names.
NODISCARD status ckpt_debris_remove(const host *h, arena *a, const char *folder, text *removed);

// ---- saving beside training ---------------------------------------------------------------------

typedef struct ckpt_saver ckpt_saver;

typedef struct ckpt_saver_config {
    const ckpt_state *state; // borrowed
    const char *folder;      // of all checkpoints
    int64_t fork;
    bool async;         // copy the state, write it on a thread of its own
    int64_t file_bytes; // state files are split above this; 0: 2 GiB
} ckpt_saver_config;

// All texts are borrowed until the result is taken.
typedef struct ckpt_order {
    ckpt_info info;
    const ckpt_extra *extras;
    int64_t extra_count;
    ckpt_keep keep; // what pruning leaves afterwards
    bool is_best;
} ckpt_order;

enum { CKPT_PATH_BYTES = 4096 };
typedef struct ckpt_saved {
    status st;    // not ST_OK: given up, nothing is left of it; `error` says why
    status after; // links or pruning failed, `error` says why; the checkpoint is whole
    error_record error;
    int64_t step, bytes;
    int64_t free_bytes; // on the disk, where it was given up; -1: not known
    bool is_best;
    int64_t begin_ns;
    double stall_s, seconds; // for which the trainer waited; until it was verified
    char path[CKPT_PATH_BYTES];
} ckpt_saved;

// Bytes of the copy that an asynchronous saver takes. Pure: needs model, run and derived_weights.
NODISCARD status ckpt_image_bytes(const ckpt_state *state, int64_t *bytes);
NODISCARD status ckpt_saver_create(const ckpt_saver_config *config, ckpt_saver **out);
void ckpt_saver_destroy(ckpt_saver *s); // waits for the save on the way; NULL is legal
// The device must be idle; it may go on when this returns. The result of the save before must have
// been taken. A failure here is the device's.
NODISCARD status ckpt_saver_begin(ckpt_saver *s, const ckpt_order *order);
// True: a save has ended, in *out until the next begin. `wait`: for one that is on the way.
bool ckpt_saver_result(ckpt_saver *s, bool wait, ckpt_saved **out);

// The digest of all weights and optimizer state, computed from the bytes of the files.
NODISCARD status ckpt_digest(const host *h, arena *a, const char *path, hash128 *out);

// ---- reading without a run ----------------------------------------------------------------------

typedef struct ckpt_reader ckpt_reader;

typedef struct ckpt_tensor {
    const char *name; // "weight/layers.0.attn.q"
    dtype type;
    int ndim;
    int64_t dims[SAFETENSORS_MAX_DIMS];
    const char *file;      // in the checkpoint's folder
    int64_t offset, bytes; // in that file, from its first byte
    hash128 checksum;
} ckpt_tensor;

// Checks all that makes a checkpoint valid but the tensors' bytes: the manifest's own checksum, names
// and form, every file's size, every header, every tensor once and where the manifest says. Damage
// is ST_DAMAGED; a name that leaves the folder, or a link, ST_SECURITY.
NODISCARD status ckpt_reader_open(const host *h, const char *path, ckpt_reader **out);
void ckpt_reader_close(ckpt_reader *r); // NULL is legal
const ckpt_info *ckpt_reader_info(const ckpt_reader *r);
hash128 ckpt_reader_digest(const ckpt_reader *r); // as the manifest has it
int64_t ckpt_reader_count(const ckpt_reader *r);
const ckpt_tensor *ckpt_reader_at(const ckpt_reader *r, int64_t i);          // in logical order
const ckpt_tensor *ckpt_reader_find(const ckpt_reader *r, const char *name); // NULL: not there
// All bytes of a tensor, checked. They stay until the next call for this reader, or its close.
NODISCARD status ckpt_reader_data(ckpt_reader *r, const ckpt_tensor *t, const void **bytes);
// The same piece by piece, for what is large: `at` counts from the tensor's first byte. Damage is
// known only at the end.
typedef status ckpt_take(void *context, int64_t at, const void *bytes, int64_t count);
NODISCARD status ckpt_reader_stream(ckpt_reader *r, const ckpt_tensor *t, ckpt_take *take,
                                    void *context);
// Reads everything. Each damage is a line of `report` that names file, tensor and byte; ST_DAMAGED
// (or ST_SECURITY) if there is any.
NODISCARD status ckpt_verify(const host *h, arena *a, const char *path, text *report);

// ---- weights by value ---------------------------------------------------------------------------

// Of the whole weight, of which a rank takes the piece that is its own.

// Puts the values (fp32, rows * columns) of a weight into the run: working copy and master.
NODISCARD status ckpt_weight_put(const ckpt_state *s, int64_t weight, const float *values);
// All that this rank has a piece of, one after the other, so the host holds the largest weight and no
// more. `get` fills in the values of one.
typedef status (*ckpt_weight_fn)(void *context, int64_t weight, float *values);
NODISCARD status ckpt_weights_put(const ckpt_state *s, ckpt_weight_fn get, void *context);
// Elements [begin, begin + count) of one; and whether any of them is this rank's.
NODISCARD status ckpt_weight_put_range(const ckpt_state *s, int64_t weight, int64_t begin,
                                       int64_t count, const float *values);
bool ckpt_weight_is_here(const ckpt_state *s, int64_t weight, int64_t begin, int64_t count);
// The same way back, from the master where there is one: all of it on every rank. Collective where ranks
// hold different pieces.
NODISCARD status ckpt_weight_get(const ckpt_state *s, int64_t weight, float *values);

#ifdef __cplusplus
}
#endif
#endif
