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

#include "base/hash.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "exec/exec.h"

#ifdef __cplusplus
extern "C" {
#endif

// What is saved from and loaded into. All borrowed; the device must be idle (exec_finish).
typedef struct ckpt_state {
    const host *h;
    exec *e;
    const op_model *model;
    const plan_table *run;
    bool derived_weights; // working copies are the nearest rounding of the masters: not stored
} ckpt_state;

typedef struct ckpt_extra {
    const char *name, *text; // a small file beside the state: "config.json"
} ckpt_extra;

typedef struct ckpt_info {
    int64_t step;      // finished steps
    int64_t sequences; // consumed
    int64_t tokens;    // trained on, unmasked
    int64_t seed;
    double val_loss, best_val_loss; // NaN: not known
    const char *numerics;           // what the bits depend on besides the config
} ckpt_info;

// Writes <folder>/step-<step> and returns its path. Nothing that was there before is touched until
// the new one is whole.
NODISCARD status ckpt_save(const ckpt_state *s, arena *a, const char *folder, const ckpt_info *info,
                           const ckpt_extra *extras, int64_t extra_count, char **path);
// Loads weights, optimizer state and the step block's counters. Every byte used is checked against
// the manifest; a difference names file, tensor and place. `only_weights`: for inference, into run
// tensors that the plans of inference have.
NODISCARD status ckpt_load(const ckpt_state *s, arena *a, const char *path, bool only_weights,
                           ckpt_info *info);
NODISCARD status ckpt_info_read(const host *h, arena *a, const char *path, ckpt_info *out);
// Newest checkpoint (with a manifest) in <folder> of a step before `before` (INT64_MAX: any);
// *path NULL and *step -1 if there is none.
NODISCARD status ckpt_newest(const host *h, arena *a, const char *folder, int64_t before,
                             char **path, int64_t *step);
// Removes all but the newest `keep`, the multiples of keep_every and the one named `best`.
NODISCARD status ckpt_prune(const host *h, arena *a, const char *folder, int64_t keep,
                            int64_t keep_every, const char *best);
// The digest of all weights and optimizer state, computed from the bytes of the files.
NODISCARD status ckpt_digest(const host *h, arena *a, const char *path, hash128 *out);

// Puts the values (fp32, rows * columns) of a weight into the run: working copy and master.
NODISCARD status ckpt_weight_put(const ckpt_state *s, int64_t weight, const float *values);
// Elements [begin, begin + count) of it.
NODISCARD status ckpt_weight_put_range(const ckpt_state *s, int64_t weight, int64_t begin,
                                       int64_t count, const float *values);
// The same way back, from the master where there is one.
NODISCARD status ckpt_weight_get(const ckpt_state *s, int64_t weight, float *values);

#ifdef __cplusplus
}
#endif
#endif
