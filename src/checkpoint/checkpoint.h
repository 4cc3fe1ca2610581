// Checkpoints: the logical state of a run, in files that do not depend on devices or layouts.
//
//   checkpoints/step-0000100/
//     state-00000-of-00001.safetensors   one tensor per logical part: "weight/layers.0.attn.q",
//                                        "master/..", "m/..", "v/..", "step/counts", "step/reals"
//     config.json, config.yaml ...       files that the trainer adds
//     manifest.json                      names, types, shapes, files, places, checksums, the digest
//
// A checkpoint exists from the moment its manifest is renamed into place, which happens after every
// byte of the other files has been synced. A folder without a manifest is debris if a mark says so
// (folder.c); else its manifest is lost. Tensors are in logical order, so the digest is the same
// for any layout.
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

// The base model under an adapter, or the adapter, with what else belongs to the run (histories of
// factors in 8 bits).
typedef enum ckpt_part { CKPT_ALL, CKPT_BASE, CKPT_ADAPTER } ckpt_part;

// The state of a run that is saved from and loaded into. All pointers are borrowed; the device must
// be idle (exec_finish).
typedef struct ckpt_state {
    const host *h;
    exec *e;
    const op_model *model; // the whole model, whatever part this rank holds
    // Each weight's optimizer program, whose state belongs to the run; NULL: the run has weights
    // only.
    op_program *const *optimizer;
    const plan_table *run;     // this rank's table
    const plan_places *places; // which rank holds which piece; NULL: this rank holds all
    // Where experts have moved: in place of expert e of a layer, `places` finds expert
    // expert_of[layer * experts + e] (op_model.load_experts). NULL: none has moved.
    const int32_t *expert_of;
    bool derived_weights; // working copies are the masters' nearest rounding and are not stored
    ckpt_part part;       // of the state, that is saved, loaded and listed
    const char *may_lack; // a weight that keeps its values if files of weights lack it; NULL: none
    // Used only when saving a state that is on no device (e is NULL): reads bytes of a row of
    // `run`. Rows are requested one after another, each from its beginning to its end.
    status (*read)(void *context, int64_t row, int64_t offset, void *to, int64_t bytes);
    void *context;
    // The device has the state of this step, as it was copied or loaded last, unless a later step
    // has been applied; 0: not known. A load then leaves it there.
    int64_t held_step;
    // This rank of the job. One function brings `bytes` of one rank to all (collective), the others
    // bring them to rank 0, or from one rank to another (only these two ranks call it).
    int rank;
    status (*share)(void *ranks, int owner, void *data, int64_t bytes);
    status (*give)(void *ranks, int rank, int owner, void *data, int64_t bytes);
    status (*pass)(void *ranks, int from, int to, void *data, int64_t bytes);
    void *ranks;
} ckpt_state;

// If ranks hold different pieces, every rank but rank 0 calls this when rank 0 begins a save. Rank
// 0 receives their pieces, and each rank continues once its own have been taken.
NODISCARD status ckpt_state_give(const ckpt_state *s, arena *a);

// ---- replicas -----------------------------------------------------------------------------------
// What a comparison needs, made once in `a`; `s` is borrowed.
typedef struct ckpt_replicas ckpt_replicas;
typedef struct ckpt_replicas_config {
    const ckpt_state *s;
    int64_t ranks;
    bool has_gradients;
    bool has_all; // hashes also pieces that no other rank holds, for a recording
    // The memory of the rank's tensors of the run, if this process may read it between steps; NULL:
    // they are copied.
    const char *memory;
} ckpt_replicas_config;
NODISCARD status ckpt_replicas_create(const ckpt_replicas_config *config, arena *a,
                                      ckpt_replicas **out);
int64_t ckpt_replicas_count(const ckpt_replicas *r); // of logical tensors, and of gradients
// Whether other ranks hold all of this rank's pieces in a row of its table, too.
bool ckpt_replicas_compares(const ckpt_replicas *r, int64_t run_row);
// Whether another rank updates the same rows of a weight of the model.
bool ckpt_replicas_compares_gradient(const ckpt_replicas *r, int64_t weight);
// The hashes of gradients, [weight of the model], which the caller fills in. has_gradients is set.
uint64_t *ckpt_replicas_gradients(ckpt_replicas *r);
// Hashes of rows of the run that were taken when they were written: each tile's (kern_seal_hash)
// continues that of the tiles before it (ckpt_tile_add).
typedef struct ckpt_known {
    const kern_context *kernels;
    bool (*hash)(const void *context, int64_t run_row, uint64_t *out); // false: not known
    const void *context;
} ckpt_known;
static inline uint64_t ckpt_tile_add(uint64_t before, uint64_t tile)
{
    return hash64(&tile, (int64_t)sizeof(tile), before);
}
// Hashes of this rank's pieces of the state and of its gradients, [count]; 0: none. Borrowed.
// Pieces whose hash is known are not read. NULL: all are, and the hashes are those of a recording.
NODISCARD status ckpt_replicas_hash(ckpt_replicas *r, const ckpt_known *known,
                                    const uint64_t **out);
// With the hashes of all ranks, [ranks][count]: whether another rank's copy of a piece of this rank
// differs from it.
bool ckpt_replicas_differ(const ckpt_replicas *r, const uint64_t *hashes, int64_t ranks);
typedef struct ckpt_replica_fault {
    char name[PLAN_NAME_BYTES + 16]; // "m/layers.0.attn.q", "gradient/layers.0.attn.qkv"
    int64_t rank, other;             // rank: one that `against` ranks differ from; other: of these
    int64_t with, against; // ranks with the same piece that agree with it, and that differ
} ckpt_replica_fault;
// Finds, in the first tensor with a difference, the rank that the fewest ranks agree with. False:
// there is none. It compares all ranks with all.
bool ckpt_replicas_find(const ckpt_replicas *r, const uint64_t *hashes, int64_t ranks,
                        ckpt_replica_fault *out);

// Lines of a recording: the step, and each rank's pieces with their hashes.
NODISCARD status ckpt_replicas_record(const ckpt_replicas *r, const uint64_t *hashes, int64_t ranks,
                                      int64_t step, text *out);
typedef struct ckpt_compared {
    int64_t step, ranks;   // of the recording
    int64_t agree, differ; // pieces of one rank
} ckpt_compared;
// Compares the pieces that a rank had with a checkpoint of the same step in any layout. `report`
// gets a line for each one that differs.
NODISCARD status ckpt_recording_compare(const host *h, const char *recording, int64_t bytes,
                                        const char *checkpoint, int64_t rank, text *report,
                                        ckpt_compared *out);

typedef struct ckpt_extra {
    const char *name, *text; // a small file next to the state: "config.json"
} ckpt_extra;

typedef struct ckpt_info {
    int64_t step;      // finished steps
    int64_t sequences; // consumed
    int64_t tokens;    // trained on, unmasked
    int64_t seed;
    int64_t world;                  // number of ranks that wrote it; 0 is written as 1
    double val_loss, best_val_loss; // NaN: unknown
    const char *best;               // folder name of the best checkpoint so far; NULL: none
    const char *numerics;           // inputs other than the config that determine the bits
    const char *config;             // checksum of the resolved configuration; may be NULL
    const char *data;               // identifies the numbering of sequences; NULL: unknown
    const char *tokenizer;          // identifies the tokenizer (data_tokenizer_id); NULL: unknown
    // Step from which gradients are sent uncompressed because their error left its bound; 0: none.
    int64_t whole_from;
    // Set only by ckpt_load: the number of compression residuals that it restored, and of those
    // that the checkpoint lacks for this layout and codec. The latter keep their values.
    int64_t residuals, residuals_missing;
    // Set only by ckpt_load of a whole state: the updates that its step block counts, applied and
    // skipped; in a checkpoint of a run they are its steps.
    int64_t updates;
    // Set only by ckpt_load: the number of tensors whose values it converted to the types of this
    // run, and of those among them whose type is narrower here.
    int64_t converted, rounded;
} ckpt_info;

// Writes <folder>/step-<step>[.<fork>] and returns its path once it is durable and verified.
// Earlier checkpoints are not touched until the new one is complete.
NODISCARD status ckpt_save(const ckpt_state *s, arena *a, const char *folder, int64_t fork,
                           const ckpt_info *info, const ckpt_extra *extras, int64_t extra_count,
                           char **path);
// Loads weights, optimizer state and the step block's counters. Every byte used is checked against
// the manifest; a difference names file, tensor and place. `only_weights` loads for inference, into
// the run tensors that inference plans have.
NODISCARD status ckpt_load(const ckpt_state *s, arena *a, const char *path, bool only_weights,
                           ckpt_info *info);
// Reads the manifest's record only.
NODISCARD status ckpt_info_read(const host *h, arena *a, const char *path, ckpt_info *out);
// Checks the bytes of all extra files against the manifest; other code may then read config.json
// and tokenizer files.
NODISCARD status ckpt_extras_verify(const host *h, const char *path);
// Reads an extra file, such as "config.json", and checks its bytes against the manifest; a zero
// byte follows them. *out is NULL if the checkpoint has no such file.
NODISCARD status ckpt_extra_read(const host *h, arena *a, const char *path, const char *name,
                                 char **out, int64_t *bytes);
// ---- the folder of checkpoints ------------------------------------------------------------------

typedef struct ckpt_entry {
    const char *name, *path; // "step-0000100", "step-0000100.1"
    int64_t step, fork;
} ckpt_entry;
typedef struct ckpt_entries {
    ckpt_entry *items; // newest first: by fork, then by step
    int64_t count;
} ckpt_entries;
// Lists all folders with a manifest, whether complete or not. A missing folder gives an empty list.
NODISCARD status ckpt_list(const host *h, arena *a, const char *folder, ckpt_entries *out);
// Returns the first of them; *path is NULL and *step is -1 if there is none.
NODISCARD status ckpt_newest(const host *h, arena *a, const char *folder, char **path,
                             int64_t *step);
// Folders with the state of a checkpoint whose manifest.json is lost, newest first. Nothing of them
// can be verified, so they are never loaded, and never removed.
NODISCARD status ckpt_list_lost(const host *h, arena *a, const char *folder, ckpt_entries *out);
bool ckpt_is_newer(const ckpt_entry *x, const ckpt_entry *y); // by fork, then by step
bool ckpt_name_parse(const char *name, int64_t *step, int64_t *fork);

typedef enum ckpt_folder {
    CKPT_FOLDER_DEBRIS,   // of a save or a removal that was cut off; also a folder without state
    CKPT_FOLDER_COMPLETE, // it has a manifest
    CKPT_FOLDER_LOST      // it has state, but its manifest is lost
} ckpt_folder;
NODISCARD status ckpt_folder_look(const host *h, arena *a, const char *path, ckpt_folder *out);
// True if the folder is a checkpoint or was one: then it is opened as one, so that a lost manifest
// is named, and not as a model's folder.
NODISCARD status ckpt_folder_is(const host *h, arena *a, const char *path, bool *out);
// Describes a folder whose manifest is lost: what is left of it, and how to go on. Returns
// ST_DAMAGED with that text, or another error.
NODISCARD status ckpt_lost_fail(const host *h, arena *a, const char *path);
bool ckpt_is_state_file(const char *name);

typedef struct ckpt_keep {
    int64_t keep;       // number of newest checkpoints to keep; at least 2
    int64_t keep_every; // multiples of this step are kept forever; 0: none
    const char *best;   // name of a checkpoint to keep; may be NULL
    // Names of checkpoints known to be damaged, which do not count as kept.
    const char *const *damaged;
    int64_t damaged_count;
    const char *saved; // name of the checkpoint just written, which is kept; may be NULL
} ckpt_keep;
NODISCARD status ckpt_prune(const host *h, arena *a, const char *folder, const ckpt_keep *k);
// Removes the debris of interrupted saves: folders that ckpt_folder_look calls debris, half-made
// links. `removed` gets their names.
NODISCARD status ckpt_debris_remove(const host *h, arena *a, const char *folder, text *removed);

// ---- asynchronous saving ------------------------------------------------------------------------

typedef struct ckpt_saver ckpt_saver;

typedef struct ckpt_saver_config {
    const ckpt_state *state; // borrowed
    const char *folder;      // folder of all checkpoints
    int64_t fork;
    bool async;         // copy the state and write it on a separate thread
    int64_t file_bytes; // state files are split above this; 0: 2 GiB
} ckpt_saver_config;

// All strings are borrowed until the result is taken.
typedef struct ckpt_order {
    ckpt_info info;
    const ckpt_extra *extras;
    int64_t extra_count;
    ckpt_keep keep; // the rules for pruning after the save
    bool is_best;
    // Called after the copy of the state was taken and before it is written; a failure is that of
    // ckpt_saver_begin(), and nothing is written. NULL: not called.
    status (*confirm)(void *context);
    void *context;
} ckpt_order;

enum { CKPT_PATH_BYTES = 4096 };
typedef struct ckpt_saved {
    status st;    // not ST_OK: the save failed and left nothing behind; `error` says why
    status after; // links or pruning failed, `error` says why; the checkpoint is complete
    error_record error;
    int64_t step, bytes;
    int64_t free_bytes; // free space on the disk after a failed save; -1: unknown
    bool is_best;
    int64_t begin_ns;
    double stall_s, seconds; // time that the trainer waited; time until the checkpoint was verified
    char path[CKPT_PATH_BYTES];
} ckpt_saved;

// The size of the copy that an asynchronous saver takes. Pure: needs model, run and
// derived_weights.
NODISCARD status ckpt_image_bytes(const ckpt_state *state, int64_t *bytes);
NODISCARD status ckpt_saver_create(const ckpt_saver_config *config, ckpt_saver **out);
void ckpt_saver_destroy(ckpt_saver *s); // waits for a save in progress; NULL is legal
// The device must be idle; it may continue when this returns. The result of the previous save must
// have been taken. A failure here comes from the device.
NODISCARD status ckpt_saver_begin(ckpt_saver *s, const ckpt_order *order);
// Returns true if a save has ended; its result stays in *out until the next begin. `wait` waits for
// a save in progress.
bool ckpt_saver_result(ckpt_saver *s, bool wait, ckpt_saved **out);

// Computes the digest of all weights and optimizer state from the bytes of the files.
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

// Checks everything that makes a checkpoint valid, except the tensors' bytes: the manifest's own
// checksum, names and form, every file's size, every header, and that each tensor occurs once and
// where the manifest says. Damage gives ST_DAMAGED; a name that leaves the folder, or a link,
// ST_SECURITY.
NODISCARD status ckpt_reader_open(const host *h, const char *path, ckpt_reader **out);
void ckpt_reader_close(ckpt_reader *r); // NULL is legal
const ckpt_info *ckpt_reader_info(const ckpt_reader *r);
hash128 ckpt_reader_root(const ckpt_reader *r);   // of a tree over its tensors' checksums
hash128 ckpt_reader_digest(const ckpt_reader *r); // from the manifest
int64_t ckpt_reader_count(const ckpt_reader *r);
const ckpt_tensor *ckpt_reader_at(const ckpt_reader *r, int64_t i);          // in logical order
const ckpt_tensor *ckpt_reader_find(const ckpt_reader *r, const char *name); // NULL: there is none
// Returns all bytes of a tensor, checked. They remain valid until the next call for this reader, or
// its close.
NODISCARD status ckpt_reader_data(ckpt_reader *r, const ckpt_tensor *t, const void **bytes);
// Reads a large tensor piece by piece; `at` counts from the tensor's first byte. Damage is detected
// only at the end.
typedef status ckpt_take(void *context, int64_t at, const void *bytes, int64_t count);
NODISCARD status ckpt_reader_stream(ckpt_reader *r, const ckpt_tensor *t, ckpt_take *take,
                                    void *context);
// Reads everything. Each damage adds a line to `report` that names file, tensor and byte; the
// result is then ST_DAMAGED or ST_SECURITY.
NODISCARD status ckpt_verify(const host *h, arena *a, const char *path, text *report);
// The same from the disk, not from the system's cache. ST_STOPPED: `stop` said so, which is asked
// several times a second.
NODISCARD status ckpt_scrub(const host *h, const char *path, bool (*stop)(void *context),
                            void *context, text *report);

// Rebuilds what is damaged or lost in a checkpoint from others that hold the same content, then
// verifies it. `report` gets a line for each piece that was rebuilt, and its source. ST_DAMAGED: a
// piece is in none of them; files that could not be rebuilt are as before.
NODISCARD status ckpt_repair(const host *h, arena *a, const char *path, const file_names *others,
                             text *report, int64_t *pieces);

// ---- weights by value ---------------------------------------------------------------------------

// These functions take values of the whole weight; a rank uses the piece that it holds.

// Stores the values (fp32, rows * columns) of a weight in the run: working copy and master.
NODISCARD status ckpt_weight_put(const ckpt_state *s, int64_t weight, const float *values);
// Stores all weights of which this rank holds a piece, one after another, so that the host holds at
// most the largest weight. `get` fills in the values of one weight.
typedef status (*ckpt_weight_fn)(void *context, int64_t weight, float *values);
NODISCARD status ckpt_weights_put(const ckpt_state *s, ckpt_weight_fn get, void *context);
// Stores elements [begin, begin + count) of a weight; ckpt_weight_is_here says whether this rank
// holds any of them.
NODISCARD status ckpt_weight_put_range(const ckpt_state *s, int64_t weight, int64_t begin,
                                       int64_t count, const float *values);
bool ckpt_weight_is_here(const ckpt_state *s, int64_t weight, int64_t begin, int64_t count);
// Reads a whole weight on every rank, from the master if there is one. Collective if ranks hold
// different pieces.
NODISCARD status ckpt_weight_get(const ckpt_state *s, int64_t weight, float *values);

#ifdef __cplusplus
}
#endif
#endif
